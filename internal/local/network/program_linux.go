package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// endPatience is how long the program may take to end what it serves, which is longer
// than a wire waits for its connections, and to hear an answer.
const endPatience = 15 * time.Second

// Trust implements Gateways.
func (p Program) Trust(ctx context.Context, keys string, roots []byte) (Trust, error) {
	var t Trust
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, p.File, "trust", keys)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(roots), &said
	out, err := cmd.Output()
	if text := strings.TrimSpace(strings.TrimPrefix(said.String(), "cofferdam-wire: ")); err != nil && text != "" {
		return t, heardReason(text)
	}
	if err != nil {
		return t, p.unusable(err)
	}
	return t, Receive(bytes.NewReader(out), &t)
}

// heardReason is the error of another program, by its words.
func heardReason(text string) error {
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT} {
		if strings.Contains(text, cause.Error()) {
			return fmt.Errorf("%s: %w", strings.TrimSuffix(text, ": "+cause.Error()), cause)
		}
	}
	return errors.New(text)
}

// Open implements Gateways. The program is not started before it is needed, but
// held from now on, before the command begins.
func (p Program) Open(_ context.Context, s Setup, record cofferdam.Recorder) (Way, error) {
	held, err := p.hold()
	if err != nil {
		return nil, p.unusable(err)
	}
	return &far{program: p, held: held, setup: s, record: record, kept: -1, patience: endPatience}, nil
}

func (p Program) unusable(err error) error {
	reason := err.Error()
	if system := syscall.Errno(0); errors.As(err, &system) {
		reason = "it cannot be started: " + system.Error()
	}
	if errors.Is(err, fs.ErrNotExist) {
		reason = "it is not there, and without it a command has no network"
	}
	return &cofferdam.Error{
		Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "program " + p.File, Reason: reason,
		Hint: "install all programs of one release together, in one folder: make build", Err: err,
	}
}

// far is a way out that another program serves from the first packet on.
type far struct {
	program Program
	held    *os.File // what is started
	setup   Setup
	record  cofferdam.Recorder
	box     Box
	over    chan struct{} // closed when nobody serves any more; nil: never connected

	patience time.Duration // endPatience

	mu     sync.Mutex
	ended  bool     // guarded by mu
	tap    *os.File // while this process has it, before the program and after; guarded by mu
	kept   int      // a queue of the device while the program has it, for after; -1 for none; guarded by mu
	talk   *os.File // with the program; nil before it was started; guarded by mu
	told   bool     // the program knows what is to be served; guarded by mu
	kill   func()   // ends the program; like talk
	failed error    // why it did not serve to the end, unless Lost was told; until over is closed that of mu
}

// Connect implements Way. The program is started when the box sends its first
// packet, which waits in the device: most commands send none, and all would wait
// for it.
func (f *far) Connect(b Box) error {
	raw, err := b.TAP.SyscallConn()
	if err != nil {
		return errors.Join(err, b.TAP.Close())
	}
	f.box, f.tap, f.over = b, b.TAP, make(chan struct{})
	go func() {
		defer close(f.over)
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

// serve starts the program and puts on record what it does, until it ends. What the
// command has to know of an end that came too soon, it hears from its network.
func (f *far) serve() {
	cmd, err := f.start()
	if err == nil && cmd != nil {
		unfrozen := watch(cmd.Process.Pid, f.kill)
		talk := f.write()
		patience := f.patience // nobody hears it: it ends by itself
		if said := (*cofferdam.Error)(nil); errors.As(talk, &said) {
			patience = 0
		}
		time.AfterFunc(patience, f.kill) // by then it may have ended
		err = reason(talk, cmd.Wait())
		if unfrozen() {
			err = gone("did not go on", errors.New("somebody has stopped it"))
		}
	}
	if tap := f.lose(err, cmd != nil); tap != nil {
		outage(tap, f.box.PID)
	}
}

// lose notes that the program has ended and why, and returns the device if the run
// goes on without it.
func (f *far) lose(err error, started bool) *os.File {
	f.mu.Lock()
	if err == nil && started && !f.ended {
		err = errors.New("it ended before the run")
	}
	if known := (*cofferdam.Error)(nil); err != nil && !errors.As(err, &known) {
		err = gone("ended", err)
	}
	f.failed = err
	if f.ended || err == nil || f.box.Lost == nil {
		f.mu.Unlock()
		return nil
	}
	f.failed = nil
	if f.kept >= 0 && unix.SetNonblock(f.kept, true) == nil { // else the box waits for what never comes
		f.tap, f.kept = os.NewFile(uintptr(f.kept), "tap"), -1
	}
	tap := f.tap
	f.mu.Unlock()
	f.box.Lost(err)
	return tap
}

// reason is why the program does not serve any more: what it said itself or the run
// has had enough of, else how it ended, which the end of the talk follows from.
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
	f.keep()
	err = errors.Join(cmd.Start(), f.tap.Close())
	if f.tap = nil; err != nil {
		return nil, errors.Join(f.program.unusable(err), talk.Close())
	}
	f.talk, f.kill = talk, func() { _ = cmd.Process.Kill() } // it may have ended
	return cmd, nil
}

// keep keeps a queue of the device for when the program is gone. It is not polled
// meanwhile: this process would wake with every packet. f.mu is held.
func (f *far) keep() {
	raw, err := f.tap.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // it is open
		if n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			f.kept = n
		}
	})
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
			if err = f.setup.admit(e.Event); err != nil {
				break
			}
			e.Event.Durable = e.Durable
			var a Answer
			var unwritten error
			if a.Event, unwritten = f.record.Record(context.Background(), e.Event); unwritten != nil {
				a.Error = unwritten.Error()
			}
			if err = f.answer(a); errors.Is(unwritten, ErrFull) {
				err = unwritten
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if closed := f.talk.Close(); errors.Is(err, io.EOF) {
		return closed
	}
	return misspoken(err)
}

// misspoken is an error of a talk that goes on: a program that says what it may not, or
// does not listen, serves no more. Other errors stay as they are.
func misspoken(err error) error {
	if known := (*cofferdam.Error)(nil); errors.As(err, &known) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return err
	}
	return gone("did not keep to the talk", err)
}

// gone is why there is no network any more.
func gone(what string, err error) error {
	return &cofferdam.Error{Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "network of this run", Reason: "its program " + what + ": " + err.Error(), Hint: "run the command again; what had passed is on record", Err: err}
}

// tell says what is to be served, and that it is over if that came first: a program
// that is told to end before anything else cannot know what it is told.
func (f *far) tell() error {
	err := Send(f.talk, f.setup)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = true
	if err == nil && f.ended {
		err = f.say(Answer{End: true})
	}
	return err
}

func (f *far) answer(a Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.say(a)
}

// say tells the program something, which a program that does not listen must not hold
// up: nor the end of the run with it. f.mu is held.
func (f *far) say(a Answer) error {
	_ = f.talk.SetWriteDeadline(time.Now().Add(f.patience)) // it can be waited for
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
		_ = f.say(Answer{End: true}) // or it has ended
	}
}

// Close implements Way.
func (f *far) Close() error {
	f.End()
	if f.over == nil {
		return f.held.Close()
	}
	defer f.held.Close() // it was only read
	select {
	case <-f.over:
	case <-time.After(f.patience):
		f.mu.Lock()
		if f.talk != nil {
			f.kill()
		}
		f.mu.Unlock()
		<-f.over
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept >= 0 {
		_ = unix.Close(f.kept) // nothing was written to it
	}
	if f.tap != nil {
		return errors.Join(f.failed, f.tap.Close())
	}
	return f.failed
}
