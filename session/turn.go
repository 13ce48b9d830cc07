package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// Why a turn begins, in the field "why" of agent.turn.
const (
	whyStart       = "start"       // the task's first words
	whyMessage     = "message"     // a person said something
	whyInterrupted = "interrupted" // its process was ended by a signal that nobody here sent
)

// Bounds of turns. Source: docs/SPECIFICATION.md, "Agents".
const (
	// maxInterrupted is how often an agent goes on whose process was ended from
	// inside the box or by want of memory.
	maxInterrupted = 3
	// maxTold bounds the messages that one turn is told, in bytes: half of what
	// an agent can be told at all.
	maxTold = agent.MaxPrompt / 2
)

// interruption is what an agent is told whose process was ended.
const interruption = "Your process was ended from outside while you worked. Look at the state of the checkout, then go on with the task."

// afterLoss is what an agent is told whose box was lost before.
const afterLoss = "An earlier run was lost with its machine. What it had pushed by then is in the checkout; look at it first."

// afterKept is what an agent is told that goes on in an earlier run's workspace.
const afterKept = "An earlier run ended before it was done. Its workspace is as it was left, uncommitted changes included; look at it first. A folder named left-N holds one that git could not read any more."

// lostNote is what an agent is told of an earlier run, if there was one.
func (a *attempt) lostNote() string {
	switch {
	case a.goesOn:
		return "\n\n" + afterKept
	case a.taken:
		return "\n\n" + afterLoss
	}
	return ""
}

// turn is one run of the agent's process. The first begins a conversation, the
// others go on in it.
type turn struct {
	number     int
	why        string
	from, upto int64    // it is told the messages after from, up to upto
	end        *turnEnd // nil while it runs
}

// turnEnd is how a turn ended, as it goes on record.
type turnEnd struct {
	agent.End
	Exit     int     `json:"exit"`
	Signal   int     `json:"signal,omitempty"`
	TimedOut bool    `json:"timed_out,omitempty"`
	TooMuch  bool    `json:"too_much,omitempty"` // it was ended because of its output
	Seconds  float64 `json:"seconds"`
	Gone     string  `json:"gone,omitempty"`    // it was ended because its model does not answer: the sentence
	Expired  bool    `json:"expired,omitempty"` // it was ended because the session's lifetime was over
}

// died says whether a signal ended the agent. A shell around it turns the
// signal into an exit status.
func (e turnEnd) died() bool {
	switch syscall.Signal(max(e.Signal, e.Exit-128)) {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE:
		return true
	}
	return false
}

// agentID names the command of a turn.
func agentID(number int) cofferdam.ExecID {
	if number == 1 {
		return execAgent
	}
	return execAgent + cofferdam.ExecID("-"+strconv.Itoa(number))
}

// dialogue is the part of a session that is about its agent: turn by turn, with
// what people say in between.
type dialogue struct{ *attempt }

// asks says whether a turn ended with a question that a person answers.
func (d dialogue) asks(end turnEnd) bool {
	return d.plan.Request.Ask && end.Said == cofferdam.SaidQuestion && !end.Failed
}

// run runs the agent to its end and listens to what it says.
func (d dialogue) run(ctx context.Context) error {
	for {
		t, err := d.nextTurn(ctx)
		if err != nil {
			return err
		}
		if t.end != nil && !d.restoring.closes(d.ledger) {
			continue
		}
		if t.end != nil {
			return d.conclude(ctx, *t.end)
		}
		if err := d.runTurn(ctx, t); err != nil {
			return err
		}
	}
}

// nextTurn returns the turn that is to be run, or the last one with its end.
func (d dialogue) nextTurn(ctx context.Context) (turn, error) {
	var t turn
	var interrupted int
	var took time.Duration
	d.ledger.look(func(s *seen) { t, interrupted, took = s.talk.turn, s.talk.interrupted, s.talk.took })
	switch {
	case t.number == 0:
		if _, err := d.takeUp(ctx, false); err != nil {
			return t, err
		}
		return d.beginTurn(ctx, whyStart)
	case t.end == nil:
		return t, nil
	}
	over := t.end.TimedOut || t.end.Expired || t.end.Gone != "" || t.end.TooMuch || d.ledger.overBudget() != ""
	if over || took >= d.timeout() {
		if err := (restorer{d.attempt}).refuse(ctx, "its agent has come to its end"); err != nil {
			return t, err
		}
	}
	switch {
	case over && d.adapter.Resumes():
		return t, d.hearNoMore(ctx)
	case !over && took < d.timeout() && d.ledger.restoreUntold():
		return d.goOnFrom(ctx)
	case !d.adapter.Resumes():
		return t, nil
	case d.asks(*t.end):
		_, over, err := d.await(ctx, t.end.Message)
		if err == nil && !over && d.ledger.restoreWanted() {
			return d.goOnFrom(ctx)
		}
		if err == nil && over {
			end := *t.end
			end.Expired, t.end = true, &end
			err = d.hearNoMore(ctx)
		}
		if over || err != nil {
			return t, err
		}
	case took >= d.timeout(): // the last turn ended just before
		end := *t.end
		end.TimedOut = true
		t.end = &end
		return t, d.hearNoMore(ctx)
	}
	died := t.end.died() && interrupted < maxInterrupted
	waiting, err := d.takeUp(ctx, !died)
	switch {
	case err != nil:
		return t, err
	case waiting > 0:
		return d.beginTurn(ctx, whyMessage)
	case died:
		return d.beginTurn(ctx, whyInterrupted)
	}
	return t, nil
}

// goOnFrom puts the workspace back, if that is wanted, and begins the turn in which
// the agent is told what came of it.
func (d dialogue) goOnFrom(ctx context.Context) (turn, error) {
	if err := (restorer{d.attempt}).restore(ctx); err != nil {
		return turn{}, err
	}
	if _, err := d.takeUp(ctx, false); err != nil {
		return turn{}, err
	}
	return d.beginTurn(ctx, whyRestored)
}

// beginTurn puts on record that the agent's next turn begins, and what it is
// told: from then on its messages count as delivered, and whatever process
// comes next starts exactly this turn.
func (d dialogue) beginTurn(ctx context.Context, why string) (t turn, err error) {
	upto, conversation := int64(0), ""
	d.ledger.look(func(s *seen) {
		t, upto, conversation = s.talk.turn, s.talk.turn.upto, s.talk.conversation
		for size, waiting := 0, s.talk.waiting(); len(waiting) > 0; waiting = waiting[1:] {
			if size += len(waiting[0].Text); size > maxTold && upto > t.upto {
				break
			}
			upto = waiting[0].Number
		}
	})
	id := agentID(t.number + 1)
	err = d.ledger.put(ctx, cofferdam.EventAgentTurn, string(id), map[string]string{
		fieldNumber: strconv.Itoa(t.number + 1), fieldWhy: why, fieldUpto: strconv.FormatInt(upto, 10),
		fieldExec: string(id), fieldConversation: conversation,
	})
	d.ledger.look(func(s *seen) { t = s.talk.turn })
	return t, err
}

// timeout is how long all turns together may take.
func (d dialogue) timeout() time.Duration {
	limit := d.o.AgentTimeout
	if s := d.plan.Request.Timeout; s > 0 {
		limit = seconds(s)
	}
	if b := d.plan.Budget.Time; b > 0 { // of all attempts
		limit = min(limit, max(0, time.Duration(b-d.plan.Spent.Time)*time.Millisecond))
	}
	return limit
}

// runTurn runs one turn to its end, or goes on with one that runs.
func (d dialogue) runTurn(ctx context.Context, t turn) error {
	start, err := d.start(t)
	if err != nil {
		return failFor(cofferdam.ReasonAgent, err)
	}
	told, took := 0, time.Duration(0)
	d.ledger.look(func(s *seen) { told, took = s.talk.told, s.talk.took })
	c := start.Command
	c.ID, c.Dir, c.Timeout = agentID(t.number), sandbox.WorkDir, d.timeout()-took
	c.Env = append(d.own(), c.Env...)
	if _, started := d.ledger.exec(c.ID); !started {
		if err := d.put(ctx, start.Files); err != nil {
			return err
		}
	}
	p := newPulse()
	reader := d.adapter.NewReader(func(e agent.Event) error {
		p.see(e)
		if told--; told >= 0 {
			return nil // an earlier process recorded it
		}
		return d.tell(ctx, e)
	})
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	gone, expired := "", false
	watch.Go(func() { gone = d.attend(watching, t, c.ID, p) })
	watch.Go(func() { expired = d.endsTurn(watching, c.ID) })
	ran, err := d.execute(ctx, d.box, policy.ByAgent, c, func(s sandbox.Stream, text []byte) error {
		if s != sandbox.Stdout {
			return nil
		}
		_, err := reader.Write(text)
		return err
	})
	stop()
	watch.Wait()
	if err != nil {
		return err
	}
	end, err := reader.Close()
	if err != nil {
		return err
	}
	ended := turnEnd{
		End: end, Exit: ran.Exit, Signal: ran.Signal, TimedOut: ran.TimedOut, TooMuch: slices.Contains(ran.Exhausted, exhaustedOutput),
		Seconds: ran.Ended.Sub(ran.Started).Seconds(), Gone: gone, Expired: expired,
	}
	if !d.asks(ended) { // a server it started for its next turn waits with it
		if err := d.endTree(ctx, c.ID); err != nil {
			return err
		}
	}
	return d.ledger.step(ctx, stepTurn, map[string]string{fieldNumber: strconv.Itoa(t.number), fieldData: encode(ended)})
}

// start says what to write and to run for a turn.
func (d dialogue) start(t turn) (agent.Start, error) {
	var said []string
	conversation, colds, tell := "", 0, ""
	d.ledger.look(func(s *seen) {
		conversation, colds, tell = s.talk.conversation, s.colds, s.notice
		for _, m := range s.talk.messages {
			if m.Number <= t.upto && (m.Number > t.from || conversation == "") {
				said = append(said, m.Text)
			}
		}
	})
	in := d.input()
	if t.number > 1 && conversation != "" {
		on := in
		on.Conversation, on.Message = conversation, strings.Join(said, "\n\n")
		switch t.why {
		case whyInterrupted:
			on.Message = interruption
		case whyRestored:
			on.Message = strings.TrimSpace(tell + "\n\n" + on.Message)
		}
		if s, err := d.adapter.Start(on); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			return s, err
		}
		// What it called its conversation is no name of one: it begins anew.
	}
	for _, text := range said {
		in.Text += "\n\nSaid afterwards:\n" + text
	}
	switch {
	case t.why == whyRestored:
		in.Text += "\n\n" + tell
	case t.number > 1 && colds > 0 && d.goesOn:
		in.Text += "\n\n" + afterColdKept
	case t.number > 1 && colds > 0:
		in.Text += "\n\n" + afterCold
	case t.number > 1:
		in.Text += "\n\n" + interruption
	default:
		in.Text += d.lostNote()
	}
	return d.adapter.Start(in)
}

// tell puts on record what the agent says it did.
func (a *attempt) tell(ctx context.Context, e agent.Event) error {
	kind, resource, fields := cofferdam.EventAgentTool, e.Tool, map[string]string{fieldText: e.Text, fieldKind: string(e.Kind)}
	switch e.Kind {
	case agent.Message:
		kind = cofferdam.EventAgentMessage
	case agent.Tool:
		fields["tool"] = e.Tool
	case agent.Answer:
		fields["error"] = strconv.FormatBool(e.Error)
	case agent.Change:
		kind, resource = cofferdam.EventAgentFile, e.Text
	case agent.Cost:
		kind = cofferdam.EventAgentCost
		fields["tokens"] = strconv.FormatInt(max(0, e.Tokens), 10)
		if e.Dollars > 0 {
			fields["dollars"] = fmt.Sprintf("%.6f", e.Dollars)
		}
	case agent.Begin:
		kind = cofferdam.EventAgentTurn
		fields[fieldConversation] = e.Text
	}
	return a.ledger.put(ctx, kind, resource, fields)
}

// conclude takes down how the agent ended.
func (d dialogue) conclude(ctx context.Context, end turnEnd) error {
	r := &d.result
	r.Said, r.Message, r.Exit, r.TimedOut, r.Met = end.Said, end.Message, end.Exit, end.TimedOut || end.Expired, d.met()
	if end.Expired {
		r.Reason = lifetime(d).over()
	}
	// What it did until then is captured all the same.
	if code, why := d.fault(end); code != "" {
		r.Failure, r.Reason = code, why
	}
	if err := d.endAsked(ctx); err != nil {
		return err
	}
	turns, unheard, heard := 0, 0, false
	d.ledger.look(func(s *seen) { turns, unheard, heard = s.talk.turn.number, len(s.talk.waiting()), s.heard })
	if heard {
		return nil // an earlier process put it on record
	}
	return d.ledger.put(ctx, cofferdam.EventAgentEnd, d.adapter.Name, map[string]string{
		"said": string(r.Said), fieldText: end.Message, "exit": strconv.Itoa(end.Exit), "timed_out": strconv.FormatBool(end.TimedOut),
		"failed": strconv.FormatBool(end.Failed), "skipped_lines": strconv.Itoa(end.Skipped), "dropped_events": strconv.Itoa(end.Dropped),
		"turns": strconv.Itoa(turns), "unheard_messages": strconv.Itoa(unheard),
	})
}

// met is the limits that the agent met in any of its turns or commands.
func (d dialogue) met() []string {
	var all []string
	d.ledger.look(func(s *seen) {
		for id, x := range s.execs {
			if x.result != nil && (strings.HasPrefix(string(id), string(execAgent)) || strings.HasPrefix(string(id), "loop-")) {
				all = append(all, met(x.result.Exhausted)...)
			}
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// endAsked ends what turns that asked a person left for the next one.
func (d dialogue) endAsked(ctx context.Context) error {
	if d.adapter.Brain || !d.plan.Request.Ask {
		return nil
	}
	turns := 0
	d.ledger.look(func(s *seen) { turns = s.talk.turn.number })
	for n := 1; n <= turns; n++ {
		if err := d.box.Kill(ctx, agentID(n)); err != nil && !lost(err) { // that of a box which did not come back is gone
			return err
		}
	}
	return nil
}

// fault says why the agent could not do its work, if it could not.
func (d dialogue) fault(end turnEnd) (code, reason string) {
	var calls provider
	interrupted, stuck := 0, false
	d.ledger.look(func(s *seen) { calls, interrupted, stuck = s.provider, s.talk.interrupted, s.rut.most >= stopStuck })
	over := d.ledger.overBudget()
	switch {
	case over != "": // whatever the agent made of it
		return cofferdam.ReasonBudget, over
	case end.Gone != "" && stuck:
		return cofferdam.ReasonAgent, end.Gone
	case end.Gone != "":
		return cofferdam.ReasonProvider, end.Gone
	case calls.failing() && (end.Failed || end.Exit != 0 && len(d.adapter.Providers) > 0 && !end.TimedOut):
		reason = calls.sentence()
		if last := lastLine(end.Message); last != "" {
			reason += "; the agent's last words: " + last
		}
		if calls.denied != "" {
			return cofferdam.ReasonPolicy, reason
		}
		return cofferdam.ReasonProvider, reason
	case end.died() && interrupted >= maxInterrupted:
		return cofferdam.ReasonAgent, fmt.Sprintf("the agent's process was ended by a signal %d times; it went on after the first %d", interrupted+1, interrupted)
	}
	return "", ""
}
