package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"cofferdam"
	"cofferdam/sandbox"
)

// Bounds of one box's commands and output.
const (
	// StreamCap is what one stream's journal holds before its writer waits.
	StreamCap = 64 << 20
	// BoxCap is what all journals of a box hold together, in memory-backed
	// files: beyond it each stream still gets Window bytes, so none starves.
	BoxCap = 256 << 20
	// MaxRunning commands run at once in a box: pid 1 holds three descriptors
	// for each, and the smallest sensible open-files limit is 1,024.
	MaxRunning = 256
	// MaxCommands is how many commands a box takes in its life; their results
	// stay in memory so that Start is idempotent.
	MaxCommands = 1 << 14
)

// Options says how pid 1 runs commands.
type Options struct {
	Config          // uid, gid and limits inside the box
	Env    []string // of every command, before its own; nil: DefaultEnv
	Dir    string   // where commands start that name no folder; "": sandbox.WorkDir
	// StreamCap and BoxCap replace the constants of that name where not 0.
	StreamCap, BoxCap int64
	// Watch, if not nil, is called when a command is about to start. What it
	// returns, if not nil, is called once when the command has ended, before
	// anybody sees the result, and may complete it: the driver names the
	// limits that were met there. It may block, but must return.
	Watch func(id cofferdam.ExecID) func(*sandbox.Result)
	// Life, if not nil, moves to busy and idle as commands run, and to failed
	// when the talk is lost while its driver is not ending the box.
	Life *sandbox.Life
}

// DefaultEnv is the environment of a command that adds nothing.
func DefaultEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + sandbox.HomeDir, "USER=agent", "LOGNAME=agent", "SHELL=/bin/sh",
		"LANG=C.UTF-8", "TMPDIR=/tmp",
	}
}

// Host is the host's half of one box. Safe for concurrent use.
type Host struct {
	o      Options
	w, r   *os.File
	dir    string
	frames chan outgoing // to pid 1, in order
	wake   chan struct{} // there are new limits to send
	ready  chan struct{} // closed once pid 1 said hello
	done   chan struct{} // closed once the box is lost or Close was called
	loops  sync.WaitGroup

	calls sync.WaitGroup // calls that were taken and whose frame is not queued yet; counted up under mu while not held

	mu       sync.Mutex
	hello    Hello
	lost     string                        // why done is closed
	held     string                        // why no call is taken; "": calls are
	rest     chan struct{}                 // while pid 1 is asked to be quiet: closing it lets the sender go on
	quiet    chan struct{}                 // closed once pid 1 is quiet; nil: nobody waits for that
	awake    chan Awake                    // takes pid 1's next answer; nil: nobody waits for one
	asked    []Kind                        // quiets and wakes told to pid 1 and not answered, in order
	tally    *tally                        // asked of pid 1 and not answered; nil: nobody asked
	commands map[cofferdam.ExecID]*command // all, also ended ones
	list     []*command                    // by number - 1; nil: never sent
	running  int                           // commands without a result
	retained int64                         // bytes in all journals
	limits   map[*stream]int64             // output limits to send
	kills    map[*command][]chan<- Killed  // who waits for a kill's end
}

// NewHost speaks to the pid 1 that reads w and writes r, keeps output as files
// in journalDir (made if missing, mode 0700; it should be in memory) and owns
// all three from now on. It does not wait for pid 1: Ready does.
func NewHost(w, r *os.File, journalDir string, o Options) (*Host, error) {
	if !o.Unbounded && (o.UID <= 0 || o.GID <= 0) {
		return nil, &cofferdam.Error{
			Op: "guest.NewHost", Kind: cofferdam.Invalid, Subject: "start commands",
			Reason: fmt.Sprintf("uid %d and gid %d must not be 0", o.UID, o.GID),
		}
	}
	if o.Env == nil {
		o.Env = DefaultEnv()
	}
	if o.Dir == "" {
		o.Dir = sandbox.WorkDir
	}
	if o.StreamCap == 0 {
		o.StreamCap = StreamCap
	}
	if o.BoxCap == 0 {
		o.BoxCap = BoxCap
	}
	o.Version = Version
	if err := os.MkdirAll(journalDir, 0o700); err != nil {
		return nil, fmt.Errorf("make journal folder: %w", err)
	}
	config, err := json.Marshal(o.Config)
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	h := newHost(w, r, journalDir, o)
	h.frames <- outgoing{b: AppendFrame(nil, Frame{Kind: KindConfig, Payload: config})}
	run(h, nil)
	return h, nil
}

// newHost is a Host whose loops do not run yet.
func newHost(w, r *os.File, journalDir string, o Options) *Host {
	return &Host{
		o: o, w: w, r: r, dir: journalDir,
		frames: make(chan outgoing, 16), wake: make(chan struct{}, 1),
		ready: make(chan struct{}), done: make(chan struct{}),
		commands: map[cofferdam.ExecID]*command{}, limits: map[*stream]int64{},
		kills: map[*command][]chan<- Killed{},
	}
}

// run starts the loops; with rest nothing is said until that is closed.
func run(h *Host, rest <-chan struct{}) {
	h.loops.Add(2)
	go h.sendLoop(outgoing{rest: rest})
	go h.receiveLoop()
}

// Ready returns once pid 1 answered and can run commands.
func (h *Host) Ready(ctx context.Context) error {
	select {
	case <-h.ready:
	case <-h.done:
		return h.lostError("guest.Ready", "start box")
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.hello.Version != Version:
		return &cofferdam.Error{
			Op: "guest.Ready", Kind: cofferdam.Unavailable, Subject: "start box",
			Reason: fmt.Sprintf("its cofferdam-init speaks version %d of the protocol, this program version %d", h.hello.Version, Version),
			Hint:   "install all programs of one release together",
		}
	case h.hello.Error != "":
		return &cofferdam.Error{Op: "guest.Ready", Kind: cofferdam.Unavailable, Subject: "start box", Reason: h.hello.Error}
	}
	return nil
}

// Done is closed once the box is gone: pid 1 closed its pipe, broke the
// protocol, or Close was called. Commands that still ran are lost then.
func (h *Host) Done() <-chan struct{} { return h.done }

// Running returns how many commands have no result yet.
func (h *Host) Running() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// Close ends the talk, which makes pid 1 and with it the box end. Commands
// without a result are lost for the given reason. The journals are removed;
// who is attached still gets what was in them. Closing twice is no error.
func (h *Host) Close(reason string) error {
	h.lose(reason)
	h.loops.Wait()
	h.mu.Lock()
	list := h.list
	h.mu.Unlock()
	for _, c := range list {
		if c != nil {
			c.streams[sandbox.Stdout].hold()
			c.streams[sandbox.Stderr].hold()
		}
	}
	if err := os.RemoveAll(h.dir); err != nil {
		return fmt.Errorf("remove journals: %w", err)
	}
	return nil
}

// lose ends the talk once.
func (h *Host) lose(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != "" {
		return
	}
	if reason == "" {
		reason = "the box ended"
	}
	h.lost = reason
	if h.o.Life != nil && h.o.Life.Now().State != sandbox.Stopping { // first: who sees the end finds its reason
		_ = h.o.Life.Move(sandbox.Failed, reason, sandbox.ByBox) // refused once it is over
	}
	close(h.done)
	h.w.Close()
	h.r.Close()
	for _, c := range h.list {
		if c != nil {
			c.finish(true)
		}
	}
}

func (h *Host) lostError(op, subject string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Unavailable, Subject: subject, Reason: h.lost,
		Hint: "the box is gone; start a new one",
	}
}

// outgoing is a frame as it goes over the pipe.
type outgoing struct {
	b    []byte
	rest <-chan struct{} // if not nil: nothing follows b until it is closed
}

// sendLoop is the only writer of h.w, so that no caller holds a lock while a
// box does not read. Only while it rests does Wake write.
func (h *Host) sendLoop(out outgoing) {
	defer h.loops.Done()
	for {
		if _, err := h.w.Write(out.b); err != nil {
			h.lose("the box ended: its control pipe was closed")
			return
		}
		if out.rest != nil {
			select {
			case <-h.done:
				return
			case <-out.rest:
			}
		}
		select {
		case <-h.done:
			return
		case out = <-h.frames:
		case <-h.wake:
			out = h.withLimits()
		}
	}
}

// withLimits returns the waiting limits behind all frames that were queued
// before: the start frame of each of these commands is among them.
func (h *Host) withLimits() outgoing {
	limits := h.takeLimits()
	var all outgoing
	for n := len(h.frames); n > 0 && all.rest == nil; n-- {
		f := <-h.frames
		if all.rest = f.rest; f.rest != nil { // pid 1 hears nothing after that
			all.b, limits = append(all.b, limits...), nil
		}
		all.b = append(all.b, f.b...)
	}
	all.b = append(all.b, limits...)
	return all
}

// takeLimits returns the waiting limits as frames.
func (h *Host) takeLimits() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b []byte
	for s, to := range h.limits {
		l := AppendLimit(nil, Limit{Stream: byte(s.which), Offset: to})
		b = AppendFrame(b, Frame{Kind: KindLimit, Command: s.c.number, Payload: l})
	}
	clear(h.limits)
	return b
}

// send queues frames for pid 1, which come in one piece.
func (h *Host) send(ctx context.Context, op string, fs ...Frame) error {
	var b []byte
	for _, f := range fs {
		b = AppendFrame(b, f)
	}
	select {
	case h.frames <- outgoing{b: b}:
		return nil
	case <-h.done:
		return h.lostError(op, "reach box")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receiveLoop takes what pid 1 says. It never waits for anything but the pipe.
func (h *Host) receiveLoop() {
	defer h.loops.Done()
	r := NewReader(h.r, ChunkSize+1)
	for {
		f, err := r.Next()
		if err == nil {
			err = h.receive(f)
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrProtocol):
			h.lose("the box was ended: its pid 1 said what it may not (" + err.Error() + ")")
			return
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			h.lose("the box ended")
			return
		default:
			h.lose("the box ended: " + err.Error())
			return
		}
	}
}

// receive handles one frame of a peer that may be hostile.
func (h *Host) receive(f Frame) error {
	switch f.Kind {
	case KindHello:
		return h.receiveHello(f.Payload)
	case KindIsQuiet, KindAwake:
		return h.receiveRest(f)
	case KindCounted:
		return h.receiveCounted(f)
	}
	h.mu.Lock()
	var c *command
	if n := int64(f.Command); n >= 1 && n <= int64(len(h.list)) {
		c = h.list[n-1]
	}
	h.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%w: kind %d for command %d", ErrProtocol, f.Kind, f.Command)
	}
	switch f.Kind {
	case KindStarted:
		return nil
	case KindOutput:
		if len(f.Payload) < 2 || f.Payload[0] < 1 || f.Payload[0] > 2 {
			return fmt.Errorf("%w: output frame", ErrProtocol)
		}
		return c.streams[f.Payload[0]].receive(f.Payload[1:])
	case KindOutputEnd:
		if len(f.Payload) != 1 || f.Payload[0] < 1 || f.Payload[0] > 2 {
			return fmt.Errorf("%w: output end frame", ErrProtocol)
		}
		return c.receiveEnd(c.streams[f.Payload[0]])
	case KindExit:
		return c.receiveExit(f.Payload)
	case KindStdinLimit:
		return c.receiveStdinLimit(f.Payload)
	case KindKilled:
		return c.receiveKilled(f.Payload)
	}
	return fmt.Errorf("%w: kind %d", ErrProtocol, f.Kind)
}

func (h *Host) receiveHello(p []byte) error {
	var hello Hello
	if err := json.Unmarshal(p, &hello); err != nil {
		return fmt.Errorf("%w: hello: %w", ErrProtocol, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hello != (Hello{}) || hello == (Hello{}) {
		return fmt.Errorf("%w: second or empty hello", ErrProtocol)
	}
	h.hello = hello
	close(h.ready)
	return nil
}

// journalPath is where a stream's output is kept.
func (h *Host) journalPath(number uint32, s sandbox.Stream) string {
	return filepath.Join(h.dir, fmt.Sprintf("%d.%d", number, s))
}
