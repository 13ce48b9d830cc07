package outside

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// Program are the gateways in a program of their own.
type Program struct {
	File   string   // cofferdam-wire
	Writes []string // folders that the command can write, without links
}

// endPatience is how long the program may take to end what it serves: longer than
// a wire waits for its connections.
const endPatience = 15 * time.Second

// Trust implements Gateways.
func (p Program) Trust(ctx context.Context, keys string, roots []byte) (Trust, error) {
	var t Trust
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, p.File, "trust", keys)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(roots), &said
	out, err := cmd.Output()
	if text := strings.TrimSpace(strings.TrimPrefix(said.String(), "cofferdam-wire: ")); err != nil && text != "" {
		return t, errors.New(text)
	}
	if err != nil {
		return t, p.unusable(err)
	}
	return t, Receive(bytes.NewReader(out), &t)
}

// Open implements Gateways. The program is not started before it is needed, but
// held from now on, before the command begins.
func (p Program) Open(_ context.Context, s Setup, record cofferdam.Recorder) (Way, error) {
	held, err := p.hold()
	if err != nil {
		return nil, p.unusable(err)
	}
	return &far{program: p, held: held, setup: s, record: record, over: make(chan struct{})}, nil
}

func (p Program) unusable(err error) error {
	return &cofferdam.Error{
		Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "program " + p.File, Reason: err.Error(),
		Hint: "install all programs of one release together: make build", Err: err,
	}
}

// far is a way out that another program serves from the first packet on.
type far struct {
	program Program
	held    *os.File // what is started
	setup   Setup
	record  cofferdam.Recorder
	over    chan struct{} // closed by End
	serving chan struct{} // closed when nobody serves any more; nil: never connected

	mu     sync.Mutex
	ended  bool     // guarded by mu
	tap    *os.File // until the program has it; guarded by mu
	talk   *os.File // with the program; nil before it was started; guarded by mu
	told   bool     // the program knows what is to be served; guarded by mu
	kill   func()   // ends the program; like talk
	failed error    // why it did not serve; until serving is closed that of mu
}

// Connect implements Way. The program is started when the box sends its first
// packet, which waits in the device: most commands send none, and all would wait
// for it.
func (f *far) Connect(tap *os.File) error {
	raw, err := tap.SyscallConn()
	if err != nil {
		return errors.Join(err, tap.Close())
	}
	f.tap, f.serving = tap, make(chan struct{})
	go func() {
		defer close(f.serving)
		if raw.Read(sends) == nil { // else the box ended, or its run
			f.serve()
		}
	}()
	return nil
}

// sends says whether a packet waits in the device, and leaves it there.
func sends(device uintptr) bool {
	waiting := []unix.PollFd{{Fd: int32(device), Events: unix.POLLIN}}
	n, err := unix.Poll(waiting, 0)
	return err == nil && n > 0
}

// serve starts the program and puts on record what it does, until it ends.
func (f *far) serve() {
	cmd, err := f.start()
	if err == nil && cmd != nil {
		err = reason(f.write(), cmd.Wait())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && cmd != nil && !f.ended {
		err = errors.New("it ended before the run")
	}
	if known := (*cofferdam.Error)(nil); err != nil && !errors.As(err, &known) {
		err = &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "network of this run", Reason: "its program ended: " + err.Error(),
			Hint: "run the command again; what had passed is on record", Err: err,
		}
	}
	f.failed = err
}

// reason is why the program does not serve any more: what it said itself, else how
// it ended, which the end of the talk follows from.
func reason(talk, ended error) error {
	if said := (*cofferdam.Error)(nil); ended == nil || errors.As(talk, &said) {
		return talk
	}
	return ended
}

// start starts the program; nil if nothing is to be served any more.
func (f *far) start() (*exec.Cmd, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil, nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, f.program.unusable(err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "talk")
	defer theirs.Close()
	talk := os.NewFile(uintptr(ends[0]), "talk")
	cmd := exec.Command("/proc/self/fd/5") // the third of ExtraFiles: no name leads elsewhere meanwhile
	cmd.Args = []string{f.program.File}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs, f.tap, f.held}
	// What a terminal sends is for the command, not for its network.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), f.tap.Close()); err != nil {
		f.tap = nil
		return nil, errors.Join(f.program.unusable(err), talk.Close())
	}
	f.tap, f.talk, f.kill = nil, talk, func() { _ = cmd.Process.Kill() } // it may have ended
	return cmd, nil
}

// write is the record of what the program does.
func (f *far) write() error {
	err := f.tell()
	for first := true; err == nil; first = false {
		var e Entry
		switch err = Receive(f.talk, &e); {
		case err != nil:
		case first && e.Error != "":
			err = f.program.unusable(errors.New(e.Error))
		case !first:
			e.Event.Durable = e.Durable
			var a Answer
			var unwritten error
			if a.Event, unwritten = f.record.Record(context.Background(), e.Event); unwritten != nil {
				a.Error = unwritten.Error()
			}
			err = f.answer(a)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	closed := f.talk.Close()
	if errors.Is(err, io.EOF) {
		return closed
	}
	return err
}

// tell says what is to be served, and that it is over if that came first: a program
// that is told to end before anything else cannot know what it is told.
func (f *far) tell() error {
	err := Send(f.talk, f.setup)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = true
	if err == nil && f.ended {
		err = Send(f.talk, Answer{End: true})
	}
	return err
}

func (f *far) answer(a Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Send(f.talk, a)
}

// Serve implements Way: every box of Linux has a device.
func (f *far) Serve(l net.Listener, _ string) error {
	return errors.Join(errors.New("this box has a network device"), l.Close())
}

// End implements Way.
func (f *far) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.ended = true
	if f.tap != nil {
		_ = f.tap.SetReadDeadline(time.Now()) // it can be waited for
	}
	if f.told {
		_ = Send(f.talk, Answer{End: true}) // or it has ended
	}
}

// Close implements Way.
func (f *far) Close() error {
	f.End()
	if f.serving == nil {
		return f.held.Close()
	}
	defer f.held.Close() // it was only read
	select {
	case <-f.serving:
	case <-time.After(endPatience):
		f.mu.Lock()
		if f.talk != nil {
			f.kill()
		}
		f.mu.Unlock()
		<-f.serving
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tap != nil {
		return errors.Join(f.failed, f.tap.Close())
	}
	return f.failed
}
