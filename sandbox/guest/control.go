package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Write sends p to a command that was started with Stdin and returns once all
// of it is on its way; eof closes the command's input. What a command does not
// read makes Write wait.
func (h *Host) Write(ctx context.Context, id cofferdam.ExecID, p []byte, eof bool) error {
	const op = "guest.Write"
	c, err := h.find(ctx, op, id)
	if err != nil || len(p) == 0 && !eof {
		return err
	}
	select { // one writer at a time, so that two do not mix
	case <-c.writing:
		defer func() { c.writing <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		n, ends, err := h.mayWrite(ctx, c, len(p), eof)
		if err != nil {
			return err
		}
		err = h.send(ctx, op, inputFrames(c, p[:n], ends)...)
		if err != nil { // taken back before whoever waits for calls keeps it
			h.mu.Lock()
			c.stdinSent -= int64(n)
			c.stdinEnded = c.stdinEnded && !ends
			h.mu.Unlock()
		}
		h.calls.Done()
		if err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
	}
}

// inputFrames are those of a part of a command's input. Its last part and its end
// go as one: a command may end on its last line before we have said that it is.
func inputFrames(c *command, p []byte, ends bool) []Frame {
	var fs []Frame
	if len(p) > 0 {
		fs = append(fs, Frame{Kind: KindStdin, Command: c.number, Payload: p})
	}
	if ends {
		fs = append(fs, Frame{Kind: KindStdinEnd, Command: c.number})
	}
	return fs
}

// mayWrite waits until some of want bytes may be sent and counts them as sent; with
// eof, ends says that they are the last, and the input counts as closed.
// Without an error the caller queues them and then calls h.calls.Done.
func (h *Host) mayWrite(ctx context.Context, c *command, want int, eof bool) (n int, ends bool, err error) {
	for {
		h.mu.Lock()
		room, changed := c.stdinLimit-c.stdinSent, c.changed
		reason := ""
		switch {
		case !c.stdin:
			reason = "it was started without input"
		case c.exit != nil || c.finishing:
			reason = "it has ended"
		case c.stdinEnded:
			reason = "its input was closed before"
		case h.held != "":
			reason = h.held
		}
		n := int(max(0, min(int64(want), room, ChunkSize)))
		ok := reason == "" && (want == 0 || n > 0)
		ends := ok && eof && n == want
		if ok {
			c.stdinSent += int64(n)
			c.stdinEnded = ends
			h.calls.Add(1)
		}
		h.mu.Unlock()
		if reason != "" {
			return 0, false, &cofferdam.Error{
				Op: "guest.Write", Kind: cofferdam.Conflict,
				Subject: "write to command " + string(c.id), Reason: reason,
			}
		}
		if ok {
			return n, ends, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
	}
}

func (c *command) receiveStdinLimit(p []byte) error {
	h := c.h
	l, err := ParseLimit(p)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.Offset < c.stdinLimit || l.Offset > c.stdinSent+Window {
		return fmt.Errorf("%w: input limit", ErrProtocol)
	}
	c.stdinLimit = l.Offset
	c.change()
	return nil
}

// Kill ends a command and everything it started, also what left its session,
// and returns when that is done. On an ended command it ends what that one left.
func (h *Host) Kill(ctx context.Context, id cofferdam.ExecID) error {
	c, err := h.find(ctx, "guest.Kill", id)
	if err != nil {
		return err
	}
	done := make(chan Killed, 1)
	h.mu.Lock()
	if h.lost != "" { // nothing of it can run any more
		h.mu.Unlock()
		return nil
	}
	if h.held != "" {
		defer h.mu.Unlock()
		return refusal(h.held, "guest.Kill", "kill command "+string(id))
	}
	c.killing = true
	c.sweeps++
	h.calls.Add(1)
	h.kills[c] = append(h.kills[c], done)
	h.mu.Unlock()
	defer h.unwait(c, done)
	if !h.order(ctx.Done(), c) {
		return ctx.Err()
	}
	select {
	case k := <-done:
		if k.Left > 0 {
			return &cofferdam.Error{
				Op: "guest.Kill", Kind: cofferdam.Unavailable, Subject: "kill command " + string(id),
				Reason: fmt.Sprintf("%d of its processes did not end", k.Left), Hint: "destroy the box: that ends everything in it",
			}
		}
		return nil
	case <-h.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unwait removes a waiter whose answer has not come.
func (h *Host) unwait(c *command, done chan<- Killed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kills[c] = slices.DeleteFunc(h.kills[c], func(d chan<- Killed) bool { return d == done })
	if len(h.kills[c]) == 0 {
		delete(h.kills, c)
	}
}

func (c *command) receiveKilled(p []byte) error {
	h := c.h
	var k Killed
	if err := json.Unmarshal(p, &k); err != nil {
		return fmt.Errorf("%w: killed frame", ErrProtocol)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.sweeps == 0 {
		return fmt.Errorf("%w: nobody asked to kill", ErrProtocol)
	}
	for _, done := range h.kills[c] {
		done <- k // has room for its one answer
	}
	delete(h.kills, c)
	c.sweeps--
	c.finish(false)
	return nil
}

// order tells pid 1 to kill c, whose sweeps and the host's calls count it already, and says whether
// that is on its way or needless; false if giveUp came first.
func (h *Host) order(giveUp <-chan struct{}, c *command) bool {
	defer h.calls.Done()
	select {
	case h.frames <- outgoing{b: AppendFrame(nil, Frame{Kind: KindKill, Command: c.number})}:
	case <-h.done:
	case <-giveUp:
		h.mu.Lock()
		defer h.mu.Unlock()
		c.sweeps--
		c.finish(false)
		return false
	}
	return true
}

// Relieve makes pid 1 end the process that holds the most memory: the driver
// asks for it before the kernel would end the whole box.
func (h *Host) Relieve(ctx context.Context) error {
	return h.send(ctx, "guest.Relieve", Frame{Kind: KindRelieve})
}

// expire ends a command whose time is up.
func (c *command) expire() {
	h := c.h
	h.mu.Lock()
	late := c.exit == nil && !c.finishing
	switch {
	case late && h.held != "": // it fired just before
		late, c.left = false, time.Millisecond
	case late:
		c.timedOut = true
		c.sweeps++
		h.calls.Add(1)
	}
	h.mu.Unlock()
	if late {
		h.order(nil, c) // until the box ends
	}
}

// Attach sends a command's output from the given offsets to sink and returns
// its result once it has ended and all output was taken. The sink's nil
// acknowledges: acknowledged output may be dropped when room is needed, so an
// offset before what was kept is refused.
func (h *Host) Attach(ctx context.Context, id cofferdam.ExecID, from sandbox.Offsets, sink sandbox.Sink) (sandbox.Result, error) {
	c, err := h.find(ctx, "guest.Attach", id)
	if err != nil {
		return sandbox.Result{}, err
	}
	r := &reader{h: h, c: c}
	r.at[sandbox.Stdout], r.at[sandbox.Stderr] = from.Stdout, from.Stderr
	defer r.close()
	if err := r.attach(); err != nil {
		return sandbox.Result{}, err
	}
	defer r.detach()
	buf := make([]byte, ChunkSize)
	for {
		if err := ctx.Err(); err != nil {
			return sandbox.Result{}, err
		}
		s, n, changed := r.next()
		if s == nil && changed == nil {
			return c.result, nil // final: no longer written
		}
		if s == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := r.read(s, buf[:n]); err != nil {
			return sandbox.Result{}, &cofferdam.Error{
				Op: "guest.Attach", Kind: cofferdam.Unavailable,
				Subject: "read output of command " + string(id), Err: err,
			}
		}
		if err := sink(s.which, r.at[s.which], buf[:n]); err != nil {
			return sandbox.Result{}, err
		}
		r.confirm(s, int64(n))
	}
}
