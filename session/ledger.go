package session

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/sandbox"
	"cofferdam/trace"
)

// ledger is the session's log and what it says so far. Everything that has to
// survive this process is learned from events, by the same function for those
// that an earlier process recorded and those of this one, so that there is one
// truth. It is the Recorder of the session's gateways.
type ledger struct {
	log   *trace.Log
	event cofferdam.Event // what all events of this room have in common

	mu   sync.Mutex
	seen seen                // guarded by mu
	open map[uint64]struct{} // what this process let through and has no outcome yet; guarded by mu
}

// seen is what the log says.
type seen struct {
	opened    bool
	setups    int    // begun
	clean     string // id of the latest box that was seen to hold no secret of the setup
	boxed     string // id of the latest box that was to be made
	ready     string // id of the latest box that ran
	wires     int    // connected to that box
	talk             // with the agent
	resting          // of the box, while the agent waits
	restores         // of the workspace, and its checkpoints
	verdicts         // of policy, and people's part in them
	stopwatch        // of the agent
	rut       rut    // that it is stuck in
	heard     bool   // its end
	names     []wire.Name
	execs     map[cofferdam.ExecID]*execution
	checks    map[int]CheckRun
	box       Box
	result    *Result
	usage     cofferdam.Usage
	calls     map[uint64]cofferdam.Usage // what was let through, takes something and has no outcome yet
	low       map[string]bool            // of which limits it was warned
	limit     string                     // the reason why the budget ended it; "" if it did not
	acts      int64                      // decisions
	thwarted  int                        // acts of git that were allowed and failed, and may succeed later
	taken     int                        // pushes that were allowed and failed because the branch is somebody else's
	ended     bool                       // sealed
	invalid   error                      // an event of our own that cannot be read
}

// execution is one command of a box, as the log says it.
type execution struct {
	offsets sandbox.Offsets // of output on record
	result  *sandbox.Result
	// As they were when it began: see seen.
	wires, thwarted, taken int
}

// Steps of a session, in the field "step" of session.state events.
const (
	fieldStep    = "step"
	stepSetup    = "setup"       // the environment is being made
	stepSecrets  = "secrets"     // those of the setup are gone
	stepEnv      = "environment" // what the box starts from is known
	stepBox      = "box"         // the agent's box is to be made
	stepReady    = "ready"       // it runs
	stepWire     = "wire"        // it is connected
	stepCheck    = "check"       // a check has ended
	stepResult   = "result"      // all is done that will be
	stepPolicy   = cofferdam.StepPolicy
	fieldNumber  = "number"  // of a check
	fieldData    = "data"    // of a check or a result: JSON
	fieldText    = "text"    // for people
	fieldObjects = "objects" // set by the git gateway if what is in a push is why it failed
	fieldBranch  = "branch"  // set by the git gateway if the branch of a push is somebody else's
	fieldExec    = "exec"    // id of a command
	fieldStream  = "stream"  // stdout, stderr
	fieldOffset  = "offset"  // of the first byte, as the command wrote it
	fieldLength  = "length"  // of what the command wrote
	fieldBox     = "box"     // id
	fieldTier    = "tier"    // of the box
	fieldKernel  = "kernel"  // of the box
	fieldImage   = "image"   // of the box
	fieldFlags   = "flags"   // of the sandbox program
	fieldEnv     = "env"     // digest of the environment
	fieldPolicy  = "policy"  // digest of the policy
	fieldHit     = "hit"     // the environment was there already
	fieldFound   = "found"   // whether the environment was there, for people
	fieldRecipe  = "recipe"  // file that says what the environment is
	fieldDigest  = "digest"  // of the image
	fieldDropped = "dropped" // rules of the project file that the grant does not cover
	fieldTries   = "tries"   // of the setup
)

// openLedger reads what is on record.
func openLedger(ctx context.Context, log *trace.Log, event cofferdam.Event) (*ledger, error) {
	l := &ledger{log: log, event: event, open: map[uint64]struct{}{}}
	l.seen.execs, l.seen.checks, l.seen.calls = map[cofferdam.ExecID]*execution{}, map[int]CheckRun{}, map[uint64]cofferdam.Usage{}
	err := l.each(ctx, func(e cofferdam.Event) error {
		l.seen.note(e)
		return l.seen.invalid
	})
	return l, err
}

// page is how many events are read at a time.
const page = 256

// each passes every event on record to fn, in order.
func (l *ledger) each(ctx context.Context, fn func(cofferdam.Event) error) error {
	for from := uint64(0); ; {
		events, err := l.log.Events(ctx, from, page)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := fn(e); err != nil {
				return err
			}
			from = e.Seq + 1
		}
		if len(events) == 0 {
			return nil
		}
	}
}

// Record implements cofferdam.Recorder.
func (l *ledger) Record(ctx context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	e, err := l.log.Record(ctx, e)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen.note(e)
		switch {
		case e.Of != nil:
			delete(l.open, *e.Of)
		case e.Verdict == cofferdam.Allowed:
			l.open[e.Seq] = struct{}{}
		}
	}
	return e, err
}

// inFlight counts what the gateways let through and what has no outcome yet.
func (l *ledger) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// put records an event of this room.
func (l *ledger) put(ctx context.Context, kind, resource string, fields map[string]string) error {
	e := l.event
	e.Kind, e.Resource, e.Fields = kind, resource, fields
	_, err := l.Record(ctx, e)
	return err
}

// step records that a step of the session has been reached.
func (l *ledger) step(ctx context.Context, step string, fields map[string]string) error {
	if fields == nil {
		fields = map[string]string{}
	}
	fields[fieldStep] = step
	return l.put(ctx, cofferdam.EventSessionState, step, fields)
}

// look runs fn over what the log says so far.
func (l *ledger) look(fn func(s *seen)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(&l.seen)
}

// exec returns what the log says of a command.
func (l *ledger) exec(id cofferdam.ExecID) (x execution, started bool) {
	l.look(func(s *seen) {
		if known, ok := s.execs[id]; ok {
			x, started = *known, true
		}
	})
	return x, started
}

// nextBox says which of a session's boxes comes next: of its checks, each has one
// of its own. After the last check it is still that one's.
func (s *seen) nextBox(checks int) int {
	n := 0
	for ; n < checks-1; n++ {
		if _, done := s.checks[n]; !done {
			break
		}
	}
	return n
}

// note learns from one event.
func (s *seen) note(e cofferdam.Event) {
	switch e.Verdict {
	case cofferdam.Refused:
		s.usage.Refused++
		s.acts++
	case cofferdam.Allowed:
		s.acts++
	}
	if name, ok := wire.NameOf(e); ok {
		s.names = append(s.names, name)
	}
	s.talk.note(e)
	s.resting.note(e)
	s.restores.note(e)
	s.verdicts.note(e)
	s.stopwatch.note(e, s.waited)
	s.rut.note(e)
	f := e.Fields
	switch e.Kind {
	case cofferdam.EventSessionOpen:
		s.opened = true
	case cofferdam.EventSessionSeal:
		s.ended = true
	case cofferdam.EventSessionState:
		s.noteStep(f)
	case cofferdam.EventAgentEnd:
		s.heard = true
	case cofferdam.EventModelCall:
		s.noteModel(e)
	case cofferdam.EventFetch, cofferdam.EventPush:
		switch failed := e.Of != nil && e.Outcome == gateway.Failed; {
		case failed && f[fieldBranch] != "":
			s.taken++
		case failed && f[fieldObjects] == "":
			s.thwarted++
		}
	case cofferdam.EventExecStart:
		if e.Of != nil || e.Verdict != cofferdam.Allowed && e.Verdict != "" { // what came of it, or it was not started; an earlier server judged none
			break
		}
		s.execs[cofferdam.ExecID(f[fieldExec])] = &execution{wires: s.wires, thwarted: s.thwarted, taken: s.taken}
	case cofferdam.EventExecOutput:
		if x := s.execs[cofferdam.ExecID(f[fieldExec])]; x != nil {
			end := number(f[fieldOffset]) + number(f[fieldLength])
			if f[fieldStream] == streamName(sandbox.Stderr) {
				x.offsets.Stderr = end
			} else {
				x.offsets.Stdout = end
			}
		}
	case cofferdam.EventExecEnd:
		if x := s.execs[cofferdam.ExecID(f[fieldExec])]; x != nil {
			x.result = &sandbox.Result{}
			s.decode(f[fieldData], x.result)
		}
	}
	s.noteSpent(e)
}

func (s *seen) noteStep(f map[string]string) {
	switch f[fieldStep] {
	case stepSetup:
		s.setups++
	case stepSecrets:
		s.clean = f[fieldBox]
	case stepBox:
		s.boxed = f[fieldBox]
		s.wires, s.names = 0, nil // those before were other boxes'
	case stepReady:
		s.ready = f[fieldBox]
		s.box = Box{
			Tier: f[fieldTier], Kernel: f[fieldKernel], Image: f[fieldImage],
			Environment: cofferdam.Digest(f[fieldEnv]), Found: f[fieldFound], Policy: cofferdam.Digest(f[fieldPolicy]),
		}
	case stepWire:
		s.wires++
	case stepCheck:
		var run CheckRun
		s.decode(f[fieldData], &run)
		s.checks[int(number(f[fieldNumber]))] = run
	case stepResult:
		s.result = &Result{}
		s.decode(f[fieldData], s.result)
	case stepFiles:
		s.files = [2]int{int(number(f[fieldTries])), int(number(f[fieldNumber]))}
	case stepTurn:
		s.talk.turn.end = &turnEnd{}
		s.decode(f[fieldData], s.talk.turn.end)
		s.took += seconds(s.talk.turn.end.Seconds)
		s.stopwatch.lap(seconds(s.talk.turn.end.Seconds))
	}
}

// noteModel counts what model calls spend. A call without an outcome, because
// this process ended in the middle of it, has spent what was reserved for it.
func (s *seen) noteModel(e cofferdam.Event) {
	f := e.Fields
	if e.Verdict == cofferdam.Refused && (e.Rule == cofferdam.RuleBudget || e.Rule == cofferdam.RuleUnpriced) {
		s.limit = e.Reason
	}
	if e.Of == nil {
		if tokens, reserved := f[cofferdam.FieldReservedTokens]; reserved {
			s.calls[e.Seq] = cofferdam.Usage{ModelCalls: 1, InputTokens: number(tokens), Cost: number(f[cofferdam.FieldReservedCost])}
		}
		return
	}
	delete(s.calls, *e.Of)
	if f[cofferdam.FieldCutBy] == cofferdam.RuleBudget {
		s.limit = e.Reason
	}
	if _, counted := f[cofferdam.FieldInputTokens]; counted {
		s.usage.ModelCalls++
		s.usage.InputTokens += number(f[cofferdam.FieldInputTokens])
		s.usage.OutputTokens += number(f[cofferdam.FieldOutputTokens])
		s.usage.Cost += number(f[cofferdam.FieldCost])
		if f[cofferdam.FieldUnpriced] != "" {
			s.usage.Unpriced++
		}
	}
}

// spent is the usage, with what calls without an outcome may have spent.
func (s *seen) spent() cofferdam.Usage {
	u := s.usage
	for _, c := range s.calls {
		u = u.Plus(c)
	}
	u.Time = (s.ran + s.stopwatch.open(s.waited)).Milliseconds()
	return u
}

// overBudget returns why the budget ended the work; "" if it did not.
func (l *ledger) overBudget() (why string) {
	l.look(func(s *seen) { why = s.limit })
	return why
}

// decode reads JSON that this room recorded.
func (s *seen) decode(text string, v any) {
	if err := json.Unmarshal([]byte(text), v); err != nil && s.invalid == nil {
		s.invalid = &cofferdam.Error{
			Op: "session.Run", Kind: cofferdam.Internal, Subject: "trace of the session",
			Reason: "an event of the platform cannot be read back", Err: err,
		}
	}
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("encoding a result: " + err.Error()) // cannot happen: it holds text and numbers
	}
	return string(text)
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
