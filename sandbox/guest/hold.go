package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// quietPatience is how long pid 1 may take to answer quiet and wake: it answers
// within milliseconds unless the host is overloaded. An emulated machine that goes
// on on a busy host was seen to need more than ten seconds.
const quietPatience = 30 * time.Second

// Hold makes calls that the box would have to answer fail with a Conflict that
// says why, instead of waiting, until Release. Timeouts stand still meanwhile.
// Attach goes on: it reads what is kept here.
func (h *Host) Hold(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held = why; h.lost != "" {
		return
	}
	for _, c := range h.list {
		if c == nil {
			continue
		}
		if c.timer != nil && c.timer.Stop() {
			c.left = max(time.Until(c.due), time.Millisecond)
		}
		c.change() // who waits for room to write looks again
	}
}

// Release takes calls again.
func (h *Host) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = ""
	for _, c := range h.list {
		if c != nil && c.left > 0 && c.exit == nil && !c.finishing {
			left := c.left
			c.left = 0
			c.expireIn(left)
		}
	}
	h.moveLife()
}

// GoOn takes calls again after the box stood still: its life says which state
// it goes on in, and why.
func (h *Host) GoOn(why, actor string) error {
	state := sandbox.Ready
	switch ever, running := h.Commands(); {
	case running > 0:
		state = sandbox.Busy
	case ever > 0:
		state = sandbox.Idle
	}
	err := h.o.Life.Move(state, why, actor)
	h.Release()
	return err
}

// refusal is what a call gets while the host is held. Host.mu is held.
func refusal(why, op, subject string) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: subject, Reason: why,
		Hint: "resume the box, or wait until it is ready again",
	}
}

// Quiet brings the talk to rest: pid 1 says nothing more after it returns, no
// frame is half sent, and none is on its way. The host must be held. Wake ends
// it; when Quiet itself fails, pid 1 is told to go on at once.
func (h *Host) Quiet(ctx context.Context) error {
	const op = "guest.Quiet"
	ctx, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	taken := make(chan struct{})
	go func() {
		h.calls.Wait() // until calls taken before Hold are queued, or the box is lost
		close(taken)
	}()
	select {
	case <-taken:
	case <-ctx.Done():
		return silent(op, "its pid 1 does not read")
	}
	rest, answer := make(chan struct{}), make(chan struct{})
	h.mu.Lock()
	h.rest, h.quiet, h.asked = rest, answer, append(h.asked, KindQuiet)
	h.mu.Unlock()
	var err error
	select {
	case h.frames <- outgoing{b: AppendFrame(nil, Frame{Kind: KindQuiet}), rest: rest}:
	case <-h.done:
		return h.lostError(op, "reach box")
	case <-ctx.Done():
		h.mu.Lock()
		h.rest, h.quiet, h.asked = nil, nil, h.asked[:max(0, len(h.asked)-1)] // it was not told; it may answer all the same
		h.mu.Unlock()
		return silent(op, "its pid 1 does not read")
	}
	select {
	case <-answer:
		return nil
	case <-h.done:
		err = h.lostError(op, "reach box")
	case <-ctx.Done():
		err = silent(op, "its pid 1 did not come to rest")
	}
	h.mu.Lock()
	h.rest, h.quiet, h.awake, h.asked = nil, nil, nil, append(h.asked, KindWake) // late answers are nobody's
	h.mu.Unlock()
	close(rest)
	_ = h.send(context.WithoutCancel(ctx), op, Frame{Kind: KindWake, Payload: []byte("{}")}) // err says it already
	return err
}

// Wake tells pid 1 who the box is from here on and returns once it knows. After
// Quiet it ends the silence; before that it only says the new identity.
func (h *Host) Wake(ctx context.Context, id Identity) error {
	const op = "guest.Wake"
	ctx, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	p, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	answer, f := make(chan Awake, 1), Frame{Kind: KindWake, Payload: p}
	h.mu.Lock()
	rest := h.rest
	h.rest, h.quiet, h.awake, h.asked = nil, nil, answer, append(h.asked, KindWake)
	h.mu.Unlock()
	if rest == nil {
		err = h.send(ctx, op, f)
	} else {
		err = say(h.w, f)
		close(rest)
	}
	if err != nil {
		return silent(op, err.Error())
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return &cofferdam.Error{Op: op, Kind: cofferdam.Unavailable, Subject: "name box", Reason: a.Error, Hint: "destroy the box and start a new one"}
		}
		return nil
	case <-h.done:
		return h.lostError(op, "reach box")
	case <-ctx.Done():
		return silent(op, "its pid 1 did not answer")
	}
}

// say writes one frame while the sender rests. A pipe that is full is one that
// pid 1 does not read.
func say(w *os.File, f Frame) error {
	if err := w.SetWriteDeadline(time.Now().Add(quietPatience)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return err
	}
	_, err := w.Write(AppendFrame(nil, f))
	if e := w.SetWriteDeadline(time.Time{}); err == nil && !errors.Is(e, os.ErrNoDeadline) {
		err = e
	}
	return err
}

func silent(op, reason string) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Unavailable, Subject: "reach box", Reason: reason, Hint: "destroy the box and start a new one",
	}
}

// receiveRest takes pid 1's answers to quiet and wake, each only once asked for. Who
// asked may have gone away, and have told pid 1 something else meanwhile: answers
// come in the order of what was asked, and one may be lost with its line.
func (h *Host) receiveRest(f Frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	to := map[Kind]Kind{KindIsQuiet: KindQuiet, KindAwake: KindWake}[f.Kind]
	i := slices.Index(h.asked, to)
	if i < 0 || f.Kind == KindIsQuiet && len(f.Payload) > 0 {
		return fmt.Errorf("%w: kind %d that nobody asked for", ErrProtocol, f.Kind)
	}
	h.asked = slices.Delete(h.asked, 0, i+1)
	if f.Kind == KindIsQuiet {
		if h.quiet != nil && !slices.Contains(h.asked, KindQuiet) { // else it answers one before
			close(h.quiet)
			h.quiet = nil
		}
		return nil
	}
	var a Awake
	if err := json.Unmarshal(f.Payload, &a); err != nil {
		return fmt.Errorf("%w: awake: %w", ErrProtocol, err)
	}
	if h.awake != nil { // else it was told twice, since its first answer took too long
		h.awake <- a
		h.awake = nil
	}
	return nil
}

// Commands says how many commands the box was ever asked to run, and how many
// of them have no result yet.
func (h *Host) Commands() (ever, running int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.list), h.running
}

// Ends opens pid 1's ends of the two pipes: what it reads, then what it writes.
// While they are open, a box whose processes are gone is not taken for ended.
func (h *Host) Ends() ([2]*os.File, error) {
	in, err := otherEnd(h.w, os.O_RDONLY)
	if err != nil {
		return [2]*os.File{}, err
	}
	out, err := otherEnd(h.r, os.O_WRONLY)
	if err != nil {
		return [2]*os.File{}, errors.Join(err, in.Close())
	}
	return [2]*os.File{in, out}, nil
}

// otherEnd opens the pipe behind f the other way round.
func otherEnd(f *os.File, flags int) (other *os.File, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := raw.Control(func(fd uintptr) {
		other, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), flags|unix.O_NONBLOCK, 0)
	})
	return other, errors.Join(err, e)
}
