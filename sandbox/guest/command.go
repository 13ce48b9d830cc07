package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// command is one command of a box. Its fields are guarded by Host.mu unless
// they are fixed before others see it.
type command struct {
	h       *Host
	id      cofferdam.ExecID
	number  uint32
	stdin   bool
	sent    chan struct{} // closed once its start frame is on its way, or dropped
	streams [3]*stream    // by sandbox.Stream; 0 is unused
	watch   func(*sandbox.Result)
	writing chan struct{} // holds one token while nobody writes standard input

	changed    chan struct{} // closed and replaced whenever a field below changes
	dropped    bool          // the start frame was never sent
	exit       *Exit         // how its first process ended
	finishing  bool          // its result is being made
	ended      bool          // result is final
	result     sandbox.Result
	timer      *time.Timer
	due        time.Time     // when timer ends; zero: it has no timeout
	left       time.Duration // what is left of the timeout while the host is held
	timedOut   bool
	killing    bool // somebody asked for its end
	sweeps     int  // kills that pid 1 has not answered yet
	stdinSent  int64
	stdinLimit int64
	stdinEnded bool
}

// change tells everybody who waits for c. Host.mu is held.
func (c *command) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Start starts a command and returns without waiting for it. A second start
// with the same ID does nothing.
func (h *Host) Start(ctx context.Context, sc sandbox.Command) error {
	start, err := h.check(sc)
	if err != nil {
		return err
	}
	for {
		c, isNew, err := h.register(sc)
		if err != nil {
			return err
		}
		if isNew {
			return h.launch(ctx, c, sc, start)
		}
		select {
		case <-c.sent:
		case <-ctx.Done():
			return ctx.Err()
		}
		h.mu.Lock()
		dropped := c.dropped
		h.mu.Unlock()
		if !dropped {
			return nil
		}
	}
}

// register finds or makes the command with sc's ID.
func (h *Host) register(sc sandbox.Command) (c *command, isNew bool, err error) {
	const op = "guest.Start"
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.commands[sc.ID]; c != nil {
		return c, false, nil
	}
	subject := "start command " + string(sc.ID)
	switch {
	case h.lost != "":
		return nil, false, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: subject, Reason: h.lost,
			Hint: "the box is gone; start a new one",
		}
	case h.held != "":
		return nil, false, refusal(h.held, op, subject)
	case h.running >= MaxRunning:
		return nil, false, &cofferdam.Error{
			Op: op, Kind: cofferdam.Exhausted, Subject: subject,
			Reason: fmt.Sprintf("%d commands run in this box already", MaxRunning), Hint: "wait for one to end or kill one",
		}
	case len(h.list) >= MaxCommands:
		return nil, false, &cofferdam.Error{
			Op: op, Kind: cofferdam.Exhausted, Subject: subject,
			Reason: fmt.Sprintf("this box has run %d commands", MaxCommands), Hint: "start a new box",
		}
	}
	if h.retained >= h.o.BoxCap {
		h.reclaim()
	}
	if h.retained >= h.o.BoxCap {
		return nil, false, &cofferdam.Error{
			Op: op, Kind: cofferdam.Exhausted, Subject: subject,
			Reason: "output of earlier commands that nobody took fills the box's journals", Hint: "attach to those commands first",
		}
	}
	c = &command{
		h: h, id: sc.ID, number: uint32(len(h.list) + 1), stdin: sc.Stdin,
		sent: make(chan struct{}), changed: make(chan struct{}), writing: make(chan struct{}, 1),
		result: sandbox.Result{Started: time.Now()}, stdinEnded: !sc.Stdin, stdinLimit: Window,
	}
	c.writing <- struct{}{}
	for _, s := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		c.streams[s] = newStream(h, c, s)
	}
	h.commands[sc.ID], h.list = c, append(h.list, c)
	h.running++
	h.calls.Add(1)
	h.moveLife()
	return c, true, nil
}

// moveLife says in the box's life whether commands run. Host.mu is held.
func (h *Host) moveLife() {
	if h.o.Life == nil || h.held != "" || h.lost != "" {
		return
	}
	// A step that the box's state refuses is one that its driver makes itself.
	if h.running > 0 {
		_ = h.o.Life.Move(sandbox.Busy, "a command runs", sandbox.ByCaller)
	} else if h.o.Life.Now().State == sandbox.Busy {
		_ = h.o.Life.Move(sandbox.Idle, "its last command ended", sandbox.ByBox)
	}
}

// launch sends the start frame of a command that was just registered.
func (h *Host) launch(ctx context.Context, c *command, sc sandbox.Command, start []byte) error {
	if h.o.Watch != nil {
		c.watch = h.o.Watch(c.id)
	}
	err := h.send(ctx, "guest.Start", Frame{Kind: KindStart, Command: c.number, Payload: start})
	defer h.calls.Done()
	if err != nil && c.watch != nil {
		defer func() {
			if c.dropped { // it never ran, but somebody watches for its end
				c.watch(&sandbox.Result{Lost: true})
			}
		}()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(c.sent)
	if err != nil && h.lost == "" { // ctx ended first: as if it had never been asked
		c.dropped = true
		delete(h.commands, c.id)
		h.list[c.number-1] = nil
		h.running--
		h.moveLife()
		return err
	}
	if err != nil {
		return err
	}
	for _, s := range c.streams[1:] {
		s.grant()
	}
	if sc.Timeout > 0 {
		c.expireIn(sc.Timeout)
	}
	return nil
}

// expireIn ends c when its time is up. The time that its box stands still does
// not count. Host.mu is held.
func (c *command) expireIn(after time.Duration) {
	h := c.h
	if h.held != "" {
		c.left = after
		return
	}
	c.due = time.Now().Add(after)
	c.timer = time.AfterFunc(after, func() { c.expire() })
}

// check refuses what no command may be and encodes the rest.
func (h *Host) check(c sandbox.Command) ([]byte, error) {
	start := Start{Stdin: c.Stdin, Dir: c.Dir, Argv: c.Argv}
	if c.Shell != "" {
		start.Argv = []string{"/bin/sh", "-c", c.Shell}
	}
	if start.Dir == "" {
		start.Dir = h.o.Dir
	}
	start.Env = mergeEnv(h.o.Env, c.Env)
	if reason := refuse(c, start); reason != "" {
		return nil, &cofferdam.Error{Op: "guest.Start", Kind: cofferdam.Invalid, Subject: "start command", Reason: reason}
	}
	return AppendStart(nil, start), nil
}

// refuse says what is wrong with a command, or nothing.
func refuse(c sandbox.Command, s Start) string {
	size := len(s.Dir)
	for _, v := range slices.Concat(s.Argv, s.Env, []string{s.Dir}) {
		size += len(v) + 4
		if strings.IndexByte(v, 0) >= 0 {
			return "an argument, variable or folder contains a zero byte"
		}
	}
	for _, v := range c.Env {
		if strings.IndexByte(v, '=') < 1 {
			return fmt.Sprintf("environment entry %.40q is not NAME=value", v)
		}
	}
	switch {
	case !validID(c.ID):
		return fmt.Sprintf("id %.80q is not 1 to 64 of a-z, 0-9 and hyphen", string(c.ID))
	case (c.Shell == "") == (len(c.Argv) == 0):
		return "give either arguments or shell text"
	case len(c.Shell) > 65536:
		return fmt.Sprintf("shell text of %d bytes is over 65,536", len(c.Shell))
	case c.Shell == "" && c.Argv[0] == "":
		return "the program's name is empty"
	case !strings.HasPrefix(s.Dir, "/"):
		return fmt.Sprintf("folder %.80q is not absolute", s.Dir)
	case c.Timeout < 0:
		return "the timeout is negative"
	case size > MaxStart-1024:
		return fmt.Sprintf("arguments and environment are over %d bytes", MaxStart-1024)
	}
	return ""
}

func validID(id cofferdam.ExecID) bool {
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return len(id) >= 1 && len(id) <= 64
}

// mergeEnv returns base with the entries of add, which win by name.
func mergeEnv(base, add []string) []string {
	at := map[string]int{}
	var env []string
	for _, v := range slices.Concat(base, add) {
		name, _, _ := strings.Cut(v, "=")
		if i, ok := at[name]; ok {
			env[i] = v
			continue
		}
		at[name] = len(env)
		env = append(env, v)
	}
	return env
}

// find returns a command once its start frame is on its way.
func (h *Host) find(ctx context.Context, op string, id cofferdam.ExecID) (*command, error) {
	h.mu.Lock()
	c := h.commands[id]
	h.mu.Unlock()
	if c != nil {
		select {
		case <-c.sent:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c == nil || c.dropped {
		return nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("command %.64q", string(id)),
			Reason: "no such command in this box",
		}
	}
	return c, nil
}

// Result returns what is known of a command: its final result with ended true,
// or what it has done so far.
func (h *Host) Result(ctx context.Context, id cofferdam.ExecID) (r sandbox.Result, ended bool, err error) {
	c, err := h.find(ctx, "guest.Result", id)
	if err != nil {
		return sandbox.Result{}, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r = c.result
	if !c.ended {
		r.Stdout, r.Stderr = c.streams[sandbox.Stdout].received, c.streams[sandbox.Stderr].received
	}
	return r, c.ended, nil
}

// receiveExit takes the end of a command's first process.
func (c *command) receiveExit(p []byte) error {
	h := c.h
	var e Exit
	if err := json.Unmarshal(p, &e); err != nil || e.Exit < 0 || e.Exit > 255 {
		return fmt.Errorf("%w: exit frame", ErrProtocol)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.exit != nil {
		return fmt.Errorf("%w: command %d ended twice", ErrProtocol, c.number)
	}
	c.exit, c.result.Ended = &e, time.Now()
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, s := range c.streams[1:] {
		s.lastCall()
		s.grant()
	}
	c.finish(false)
	c.change()
	return nil
}

// receiveEnd takes the end of a stream.
func (c *command) receiveEnd(s *stream) error {
	h := c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.ended {
		return fmt.Errorf("%w: stream ended twice", ErrProtocol)
	}
	s.ended = true
	c.finish(false)
	return nil
}

// finish makes c's result once its process and both streams have ended and no
// kill of it is under way, so that a result after a kill means that all of it is
// gone; or at once if it is lost. Host.mu is held; the watcher is called without it.
func (c *command) finish(lost bool) {
	h := c.h
	out, errs := c.streams[sandbox.Stdout], c.streams[sandbox.Stderr]
	whole := c.exit != nil && out.ended && errs.ended && c.sweeps == 0
	if c.finishing || (!lost && !whole) {
		return
	}
	c.finishing = true
	r := c.result
	r.Stdout, r.Stderr = out.received, errs.received
	r.TimedOut = c.timedOut
	switch {
	case !whole:
		r.Lost, r.Reason, r.Ended = true, h.lost, time.Now()
	case c.timedOut:
		r.Reason = "stopped with everything it started: its time was up"
	case c.exit.Reason != "":
		r.Reason = c.exit.Reason
	case c.killing && c.exit.Signal != 0:
		r.Reason = "killed on request"
	case c.exit.Signal != 0:
		r.Reason = fmt.Sprintf("ended by signal %d", c.exit.Signal)
	}
	if whole {
		r.Exit, r.Signal = c.exit.Exit, c.exit.Signal
	}
	if c.timedOut {
		r.Exhausted = []sandbox.Exhaustion{sandbox.ExhaustedTime}
	}
	if c.exit != nil {
		r.Exhausted = append(r.Exhausted, seen(c.exit.Met, h.o.OwnKernel)...)
	}
	go func() {
		if c.watch != nil {
			c.watch(&r)
		}
		out.close()
		errs.close()
		h.mu.Lock()
		defer h.mu.Unlock()
		c.result, c.ended = r, true
		h.running--
		h.moveLife()
		c.change()
	}()
}

// seen keeps of what pid 1 says the limits that only it can see, once each.
func seen(met []sandbox.Exhaustion, ownKernel bool) []sandbox.Exhaustion {
	var list []sandbox.Exhaustion
	known := []sandbox.Exhaustion{sandbox.ExhaustedTemp, sandbox.ExhaustedPIDs, sandbox.ExhaustedFiles}
	if ownKernel {
		known = append(known, sandbox.ExhaustedMemory, sandbox.ExhaustedDisk)
	}
	for _, e := range known {
		if slices.Contains(met, e) {
			list = append(list, e)
		}
	}
	return list
}
