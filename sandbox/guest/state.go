package guest

import (
	"cmp"
	"os"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// State is what a Host knows at rest: enough for another Host to go on with a
// copy of its box. What a copy has of output begins where the state was taken.
type State struct {
	Hello    Hello          `json:"hello"`
	Commands []CommandState `json:"commands,omitempty"`
	Counting bool           `json:"counting,omitempty"` // pid 1 was asked for a count and has not answered
}

// CommandState is one command of a State.
type CommandState struct {
	ID      cofferdam.ExecID `json:"id"` // "": its number was never used
	Stdin   bool             `json:"stdin,omitempty"`
	Ended   bool             `json:"ended,omitempty"`
	Result  sandbox.Result   `json:"result"`
	Exit    *Exit            `json:"exit,omitempty"`
	Streams [3]StreamState   `json:"streams"` // by sandbox.Stream; 0 is unused
	Left    time.Duration    `json:"left,omitempty"`

	TimedOut   bool  `json:"timed_out,omitempty"`
	Killing    bool  `json:"killing,omitempty"`
	Sweeps     int   `json:"sweeps,omitempty"`
	StdinSent  int64 `json:"stdin_sent,omitempty"`
	StdinLimit int64 `json:"stdin_limit,omitempty"`
	StdinEnded bool  `json:"stdin_ended,omitempty"`
}

// StreamState is how far an output was.
type StreamState struct {
	Received int64 `json:"received,omitempty"`
	Granted  int64 `json:"granted,omitempty"`
	Slack    int64 `json:"slack,omitempty"`
	Ended    bool  `json:"ended,omitempty"`
}

// State returns what h knows. It means something between Hold with Quiet, and Wake.
func (h *Host) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := State{Hello: h.hello, Counting: h.tally != nil}
	for _, c := range h.list {
		if c == nil || c.dropped || !isClosed(c.sent) { // pid 1 never heard of it
			st.Commands = append(st.Commands, CommandState{})
			continue
		}
		cs := CommandState{
			ID: c.id, Stdin: c.stdin, Ended: c.ended, Result: c.result, Exit: c.exit, Left: c.left, TimedOut: c.timedOut, Killing: c.killing,
			Sweeps: c.sweeps, StdinSent: c.stdinSent, StdinLimit: c.stdinLimit, StdinEnded: c.stdinEnded,
		}
		for _, s := range c.streams[1:] {
			cs.Streams[s.which] = StreamState{Received: s.received, Granted: s.granted, Slack: s.slack, Ended: s.ended}
		}
		st.Commands = append(st.Commands, cs)
	}
	return st
}

// RestoreHost is NewHost for a pid 1 that was at rest in state st. It is held:
// Wake, then Release.
func RestoreHost(w, r *os.File, journalDir string, o Options, st State) (*Host, error) {
	if err := os.MkdirAll(journalDir, 0o700); err != nil {
		return nil, err
	}
	o.Env, o.Dir = append([]string{}, o.Env...), cmp.Or(o.Dir, sandbox.WorkDir)
	if len(o.Env) == 0 {
		o.Env = DefaultEnv()
	}
	o.StreamCap, o.BoxCap = cmp.Or(o.StreamCap, StreamCap), cmp.Or(o.BoxCap, BoxCap)
	h := newHost(w, r, journalDir, o)
	h.hello, h.held = st.Hello, "the box is being made"
	close(h.ready)
	if st.Counting { // the answer has somewhere to go
		h.tally = &tally{done: make(chan struct{})}
	}
	for i, cs := range st.Commands {
		h.list = append(h.list, nil)
		if cs.ID != "" {
			restoreCommand(h, uint32(i+1), cs)
		}
	}
	rest := make(chan struct{})
	h.rest = rest
	run(h, rest) // nothing is said before Wake
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.list {
		if c == nil || c.ended {
			continue
		}
		for _, s := range c.streams[1:] {
			h.limits[s] = s.granted // said again: it may have been on its way
			s.grant()
		}
		c.finish(false) // it had all but its result
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return h, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// restoreCommand makes one command anew. Nobody else has h yet.
func restoreCommand(h *Host, number uint32, cs CommandState) {
	c := &command{
		h: h, id: cs.ID, number: number, stdin: cs.Stdin, sent: make(chan struct{}), changed: make(chan struct{}), writing: make(chan struct{}, 1),
		exit: cs.Exit, ended: cs.Ended, finishing: cs.Ended, result: cs.Result, left: cs.Left, timedOut: cs.TimedOut, killing: cs.Killing,
		sweeps: cs.Sweeps, stdinSent: cs.StdinSent, stdinLimit: cs.StdinLimit, stdinEnded: cs.StdinEnded,
	}
	close(c.sent)
	c.writing <- struct{}{}
	for i := range sandbox.Stream(2) {
		s := newStream(h, c, i+1)
		f := cs.Streams[i+1]
		s.base, s.acked, s.written, s.received = f.Received, f.Received, f.Received, f.Received
		s.granted, s.slack, s.ended = max(f.Granted, f.Received), f.Slack, f.Ended
		c.streams[i+1] = s
	}
	h.commands[c.id], h.list[number-1] = c, c
	if c.ended {
		return
	}
	h.running++
	if h.o.Watch != nil {
		c.watch = h.o.Watch(c.id)
	}
}
