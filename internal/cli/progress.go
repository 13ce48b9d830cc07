package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"cofferdam"
	"cofferdam/client"
)

// Bounds of following. Source: docs/SPECIFICATION.md, "Command line".
const (
	patience   = 2 * time.Minute // for a server that is gone, before giving up
	again      = time.Second     // between two tries
	maxRefused = 20              // refusals that are printed; the rest is counted
)

// progress shows a task on its way: without a terminal one line per change of
// state and per refusal; with one a line that rewrites itself.
type progress struct {
	a     *app
	each  func(cofferdam.Progress) error // instead of showing, for --json
	live  bool                           // a terminal
	begun time.Time
	tick  chan struct{} // closed by stop
	wg    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	task    cofferdam.Task
	note    string // what the agent did last
	next    map[cofferdam.SessionID]uint64
	refused int
	helped  []string                     // entries for which the command that opens them was shown
	seen    bool                         // a state was printed
	plain   map[cofferdam.SessionID]bool // its agent says nothing in events, only in its output
	cost    string                       // what the agent says it spent so far
	spent   cofferdam.Usage
}

func (a *app) newProgress(t cofferdam.Task) *progress {
	p := &progress{a: a, task: t, begun: time.Now(), tick: make(chan struct{})}
	p.live = a.Terminal(a.Err) && a.Getenv("TERM") != "dumb" && !a.quiet && !a.json
	if p.live {
		p.wg.Go(p.draw)
	}
	return p
}

// draw keeps the clock of the rewriting line going. Nothing under a second.
func (p *progress) draw() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.mu.Lock()
			p.rewrite()
			p.mu.Unlock()
		case <-p.tick:
			return
		}
	}
}

// stop ends the rewriting line and wipes it.
func (p *progress) stop() {
	if p.tick == nil {
		return
	}
	close(p.tick)
	p.wg.Wait()
	if p.live {
		fmt.Fprint(p.a.Err, "\r\x1b[K")
	}
}

// rewrite draws the line. The caller holds mu.
func (p *progress) rewrite() {
	if time.Since(p.begun) < time.Second {
		return
	}
	line := fmt.Sprintf("%s %s %s", p.task.Short(), p.task.State, time.Since(p.begun).Round(time.Second))
	if p.refused > 0 {
		line += fmt.Sprintf(", %d refused", p.refused)
	}
	if u := p.spent; u.ModelCalls > 0 {
		line += fmt.Sprintf(", %d tokens%s", u.InputTokens+u.OutputTokens, money(u, ", "))
	}
	if p.cost != "" {
		line += ", " + p.cost
	}
	if p.note != "" {
		line += ": " + p.note
	}
	line = clean(line)
	if width := p.a.Width(); utf8.RuneCountInString(line) >= width {
		line = cut(line, max(2, width-1))
	}
	fmt.Fprint(p.a.Err, "\r\x1b[K"+line)
}

// follow shows the task until it is at rest. A server that goes away, as in an
// upgrade, is waited for: the task goes on without us, and events already seen
// are not shown twice.
func (p *progress) follow(ctx context.Context, cl *client.Client) (cofferdam.Task, error) {
	deadline := time.Now().Add(patience)
	for {
		err := cl.FollowTask(ctx, string(p.task.ID), func(item cofferdam.Progress) error {
			deadline = time.Now().Add(patience)
			return p.take(item)
		})
		if err == nil && codeOf(p.state()) != 8 {
			return p.state(), nil
		}
		if ctx.Err() != nil {
			return p.state(), context.Cause(ctx)
		}
		if err != nil && cofferdam.KindOf(err) != cofferdam.Unavailable || time.Now().After(deadline) {
			if err == nil {
				err = errors.New("the server ended the stream too early, again and again")
			}
			return p.state(), err
		}
		p.a.Sleep(ctx, again)
	}
}

func (p *progress) state() cofferdam.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.task
}

func (p *progress) take(item cofferdam.Progress) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := item.Event; e != nil {
		if p.next == nil {
			p.next = map[cofferdam.SessionID]uint64{}
		}
		if e.Seq < p.next[e.Session] {
			return nil
		}
		p.next[e.Session] = e.Seq + 1
	}
	if p.each != nil {
		if item.Task != nil {
			p.task = *item.Task
		}
		return p.each(item)
	}
	switch {
	case item.Task != nil:
		p.changed(*item.Task)
	case item.Event != nil:
		p.happened(*item.Event)
	}
	return nil
}

func (p *progress) changed(t cofferdam.Task) {
	was := p.task
	p.task, p.note = t, ""
	if p.live {
		p.rewrite()
		return
	}
	if p.seen && was.State == t.State && was.Attempt == t.Attempt {
		return
	}
	p.seen = true
	if codeOf(t) == 8 { // how it ends is told by sentence
		p.a.say("%s %s", t.Short(), t.State)
	}
}

func (p *progress) happened(e cofferdam.Event) {
	addCall(&p.spent, e)
	switch {
	case e.Verdict == cofferdam.Refused:
		p.refused++
		if p.refused <= maxRefused {
			p.print(fmt.Sprintf("%s refused %s %s by %s: %s", p.task.Short(), e.Kind, e.Resource, e.Rule, e.Reason))
			p.help(e)
		} else if p.refused == maxRefused+1 {
			p.print(p.task.Short() + " more refusals are in the trace")
		}
	case e.Verdict == cofferdam.Asked:
		p.print(fmt.Sprintf("%s waits for a person: %s %s by %s; see cofferdam approval list", p.task.Short(), e.Kind, e.Resource, e.Rule))
	case e.Kind == cofferdam.EventSessionOpen:
		if p.plain == nil {
			p.plain = map[cofferdam.SessionID]bool{}
		}
		p.plain[e.Session] = e.Fields["reader"] == "lines"
	case e.Kind == cofferdam.EventBudgetWarn, e.Kind == cofferdam.EventSessionStuck:
		p.print(fmt.Sprintf("%s warning: %s", p.task.Short(), e.Fields["text"]))
	case e.Kind == cofferdam.EventTaskMessage:
		p.print(fmt.Sprintf("%s is told by %s: %s", p.task.Short(), e.Actor.Name, e.Fields["text"]))
	case e.Kind == cofferdam.EventExecOutput && p.plain[e.Session]: // others say in events what they do
		text := strings.TrimSpace(e.Fields["text"])
		p.note = text[strings.LastIndexByte(text, '\n')+1:]
	default:
		p.acted(e)
	}
	if p.live {
		p.rewrite()
	}
}

// help says once how a person lets the task have what it was refused.
func (p *progress) help(e cofferdam.Event) {
	command, entry := letIn(p.task, e)
	if command == "" || slices.Contains(p.helped, entry) {
		return
	}
	p.helped = append(p.helped, entry) // no more than maxRefused
	p.print(fmt.Sprintf("%s hint: to let it in for this task: %s", p.task.Short(), command))
}

// acted notes what the agent does, as it tells it.
func (p *progress) acted(e cofferdam.Event) {
	if e.Of != nil { // what came of it; its beginning was told
		return
	}
	switch e.Kind {
	case cofferdam.EventAgentMessage, cofferdam.EventAgentTool, cofferdam.EventExecStart:
		text := e.Fields["text"]
		if e.Kind == cofferdam.EventExecStart && e.Resource != "" && strings.Contains(text, "\n") { // a script: its name says more than its first words
			text = ""
		}
		p.note = strings.TrimSuffix(strings.TrimPrefix(e.Resource+": "+strings.Join(strings.Fields(text), " "), ": "), ": ")
	case cofferdam.EventAgentFile:
		p.note = "changed " + e.Resource
	case cofferdam.EventSessionState:
		if e.Fields["step"] == "queued" {
			p.note = e.Fields["text"]
		}
	case cofferdam.EventAgentTurn:
		if e.Fields["why"] == "interrupted" {
			p.note = "goes on after an interruption"
		}
	case cofferdam.EventAgentCost:
		p.cost = e.Fields["tokens"] + " tokens"
		if d, err := strconv.ParseFloat(e.Fields["dollars"], 64); err == nil && d >= 0 && d < 1e6 {
			p.cost += fmt.Sprintf(" ($%.2f)", d)
		}
	}
}

// print puts a line above the rewriting one.
func (p *progress) print(line string) {
	if p.live {
		fmt.Fprint(p.a.Err, "\r\x1b[K")
	}
	p.a.say("%s", cut(line, 400))
}
