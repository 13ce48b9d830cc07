// Command cofferdam-init is pid 1 of a box: it starts every command, reaps what
// they leave behind, carries their output to the host and ends what it is told
// to end. sandbox/guest has the talk between the two.
//
// It decides nothing and trusts nothing that runs beside it; it holds no secret
// and opens no socket. Its invariant: it is the only process of the box with
// privileges, no descriptor of its own reaches a command, and when the host's
// pipe closes it exits, which ends the box.
//
// Outside of boxes it is what stands between the keeper and a program that has to begin
// somewhere else than the keeper is: in a box's control groups (enter) or in a process
// id namespace (hold).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// The descriptors of the control pipes.
const (
	controlIn  = 3
	controlOut = 4
)

func main() {
	asked, err := false, error(nil)
	for _, other := range []func([]string) (bool, error){enter, rename, hold} {
		if asked, err = other(os.Args); asked {
			break
		}
	}
	if !asked {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-init: "+err.Error())
		os.Exit(1)
	}
}

// run serves the host until its pipe closes.
func run() error {
	start, err := enclose(os.Args)
	if err != nil {
		return err
	}
	in, out, err := control()
	if err != nil {
		return err
	}
	b := &box{out: out, commands: map[uint32]*command{}, byPID: map[int]*command{}, forkExec: start}
	r := guest.NewReader(in, guest.MaxStart)
	f, err := r.Next()
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	hello := guest.Hello{Version: guest.Version, PID: os.Getpid()}
	if err := b.configure(f); err != nil {
		hello.Error = err.Error()
	}
	b.sendJSON(guest.KindHello, 0, hello)
	go b.reap()
	for {
		f, err := r.Next()
		if err != nil {
			b.end()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read control pipe: %w", err)
		}
		if hello.Error == "" {
			b.handle(f)
		}
	}
}

// closeOnExec marks every descriptor we were given, so that no command has it.
func closeOnExec() {
	const all = ^uint(0) >> 1
	if unix.CloseRange(controlIn, all, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	for fd := controlIn; fd < 1024; fd++ {
		unix.CloseOnExec(fd)
	}
}

// box is all that pid 1 knows.
type box struct {
	config  guest.Config
	outMu   sync.Mutex // held from quiet to wake
	out     io.Writer
	resting bool // between quiet and wake; of the reader of the host's pipe alone

	// mu is held while a process is made and while one is reaped, so that a
	// process id is never looked up before it is known or after it is used anew.
	mu       sync.Mutex
	commands map[uint32]*command // until exit and both streams' ends were sent
	byPID    map[int]*command    // running first processes
	standby  *standby            // until the first command; guarded by mu
	forkExec starter             // makes the process of a command; called with mu held

	group   *group // of all commands, where the kernel is the box's own; set before the first
	meter   meter
	watched bool // guarded by mu: the meter is being read
}

// configure prepares this process for what its children inherit.
func (b *box) configure(f guest.Frame) error {
	if f.Kind != guest.KindConfig || json.Unmarshal(f.Payload, &b.config) != nil {
		return errors.New("the host's first word was not its config")
	}
	if b.config.Version != guest.Version {
		return fmt.Errorf("the host speaks version %d of the protocol, cofferdam-init version %d", b.config.Version, guest.Version)
	}
	if os.Getpid() != 1 { // whom a kill means is told by a mark, and the marks of every box are the same
		return errors.New("it is not pid 1 of a pid namespace of its own")
	}
	if b.config.Unbounded {
		b.config.UID, b.config.GID = 0, 0
	} else if b.config.UID <= 0 || b.config.GID <= 0 {
		return errors.New("commands may not run as root")
	}
	mindSignals()
	unix.Umask(0o022)
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	if b.config.OwnKernel {
		g, err := newGroup(b.config.PIDs)
		if err != nil {
			return err
		}
		b.group, b.forkExec = g, g.start
	}
	limits := []struct {
		name string
		what int
		to   int64
	}{{"open files", unix.RLIMIT_NOFILE, b.config.OpenFiles}, {"processes", unix.RLIMIT_NPROC, b.config.PIDs}}
	for _, l := range limits {
		// A limit of the user's would be met before the group's, and not counted.
		if l.to <= 0 || l.what == unix.RLIMIT_NPROC && b.group != nil {
			continue
		}
		v := syscall.Rlimit{Cur: uint64(l.to), Max: uint64(l.to)}
		if err := syscall.Setrlimit(l.what, &v); err != nil {
			return fmt.Errorf("limit %s to %d: %w", l.name, l.to, err)
		}
	}
	if b.config.Standby != "" {
		if err := b.standBy(); err != nil {
			return fmt.Errorf("start what waits for the first command: %w", err)
		}
	}
	return become(b.config.Identity)
}

// handle does what a frame asks. It must not wait: the host may be waiting too.
func (b *box) handle(f guest.Frame) {
	switch f.Kind {
	// Before mu is taken: a process that is being made may be frozen, with mu held,
	// until wake.
	case guest.KindQuiet:
		b.quiet()
		return
	case guest.KindWake:
		b.wake(f.Payload)
		return
	}
	b.mu.Lock()
	c := b.commands[f.Command]
	b.mu.Unlock()
	switch f.Kind {
	case guest.KindStart:
		s, err := guest.ParseStart(f.Payload)
		if err != nil || c != nil {
			return // a host that breaks the protocol is a broken host
		}
		if c = b.first(f.Command, s); c == nil {
			c = newCommand(b, f.Command)
		}
		b.mu.Lock()
		b.commands[f.Command] = c
		watched := b.watched
		b.watched = true
		b.mu.Unlock()
		if !watched {
			go b.watch()
		}
		go c.start(s)
	case guest.KindKill:
		go b.kill(f.Command, c)
	case guest.KindRelieve:
		go relieve()
	case guest.KindCount:
		go b.tell()
	case guest.KindLimit:
		l, err := guest.ParseLimit(f.Payload)
		if err == nil && c != nil && (l.Stream == 1 || l.Stream == 2) {
			c.outlets[l.Stream].allow(l.Offset)
		}
	case guest.KindStdin:
		if c != nil {
			c.inlet.put(f.Payload)
		}
	case guest.KindStdinEnd:
		if c != nil {
			c.inlet.end()
		}
	}
}

// send writes one frame. Without the host there is nothing left to do.
func (b *box) send(kind guest.Kind, command uint32, p []byte) {
	frame := guest.AppendFrame(nil, guest.Frame{Kind: kind, Command: command, Payload: p})
	b.write(frame)
}

func (b *box) write(frame []byte) {
	b.outMu.Lock()
	defer b.outMu.Unlock()
	if _, err := b.out.Write(frame); err != nil {
		b.end()
		os.Exit(1)
	}
}

func (b *box) sendJSON(kind guest.Kind, command uint32, v any) {
	p, err := json.Marshal(v)
	if err != nil {
		return // impossible: the messages hold numbers and strings only
	}
	b.send(kind, command, p)
}
