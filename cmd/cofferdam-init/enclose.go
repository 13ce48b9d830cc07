package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/wall"
)

// starter makes a process; syscall.ForkExec is one.
type starter func(path string, argv []string, attr *syscall.ProcAttr) (int, error)

// enclosure is a box that this process builds around itself.
type enclosure struct {
	plan   wall.Plan
	once   bool     // one-off by its arguments, and its network device is made already
	caller *os.File // the other end of the talk at the start
}

// enclose builds the walls of a process box when the arguments ask for it, as
// sandbox/wall says, and returns what starts its commands. A one-off box runs
// its command here; then this does not return.
func enclose(args []string) (starter, error) {
	once := len(args) == 5 && args[4] == wall.WireFirst
	if len(args) != 4 && !once || args[1] != "--box" {
		return syscall.ForkExec, nil
	}
	closeOnExec()
	talk, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, err
	}
	e := &enclosure{once: once, caller: os.NewFile(uintptr(talk), "caller")}
	start, err := e.build(args[3])
	if err != nil {
		r := wall.Report{Error: err.Error()}
		var layer *wall.Error
		if errors.As(err, &layer) {
			r.Error, r.Layer = layer.Err.Error(), layer.Layer
		}
		told := e.tell(r, nil)
		if told == nil && (e.once || e.plan.Command != nil) {
			os.Exit(1) // the caller, whose error output this is, says it
		}
		return nil, errors.Join(err, told)
	}
	return start, nil
}

func (e *enclosure) build(planFile string) (starter, error) {
	if e.once {
		if err := e.wire(); err != nil {
			return nil, err
		}
	}
	if err := e.goOn(); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(planFile)
	if err != nil {
		return nil, err
	}
	data, err := readAll(fd)
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if e.plan, err = wall.Decode(data); err != nil {
		return nil, err
	}
	if e.plan.Command != nil {
		mindSignals() // those that are meant for the command reach it by themselves: it is in the same process group
	}
	if err := unix.Sethostname([]byte(e.plan.Hostname)); err != nil {
		return nil, &wall.Error{Layer: wall.LayerMount, Err: fmt.Errorf("set hostname: %w", err)}
	}
	if err := e.network(); err != nil {
		return nil, err
	}
	if err := e.plan.Build(); err != nil {
		return nil, err
	}
	if err := e.plan.Limit(); err != nil {
		return nil, err
	}
	if e.plan.Command != nil {
		return nil, e.runOnce()
	}
	if err := e.wired(); err != nil {
		return nil, err
	}
	reserveThreads()
	start, err := confined(e.plan)
	if err == nil {
		err = e.plan.Drop()
	}
	if err != nil {
		return nil, err
	}
	return start, errors.Join(e.tell(wall.Report{Built: true}, nil), e.caller.Close())
}

// spareThreads is three times what was seen in use.
const spareThreads = 32

// reserveThreads makes threads that stay with this process. It has the limit of
// processes that commands have, and where a limit counts what others run as
// root too it could not make one later: the Go runtime ends without.
func reserveThreads() {
	hold := make(chan struct{})
	var have, done sync.WaitGroup
	have.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread() // so that each has one of its own
			defer runtime.UnlockOSThread()
			have.Done()
			<-hold
		})
	}
	have.Wait()
	close(hold)
	done.Wait()
}

// readAll reads the plan from its beginning, in one piece, and closes it.
func readAll(fd int) ([]byte, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	data := make([]byte, st.Size)
	for at := 0; at < len(data); {
		n, err := unix.Pread(fd, data[at:], int64(at))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		at += n
	}
	return data, nil
}

// network raises the devices, unless that is done, and hands the TAP to the
// caller, if one is asked for. It is done while the host's /dev is still there.
func (e *enclosure) network() error {
	switch {
	case e.plan.Joined || e.once:
		return nil
	case !e.plan.TAP:
		return wall.Raise(false)
	}
	return e.wire()
}

// wire makes the network device and hands it to the caller.
func (e *enclosure) wire() error {
	tap, err := wall.OpenTAP(!e.once && e.plan.Command == nil)
	if err != nil {
		return err
	}
	defer unix.Close(tap)
	if err := wall.Raise(true); err != nil {
		return err
	}
	return e.tell(wall.Report{Wire: true}, unix.UnixRights(tap))
}

// listen returns the caller's next byte. Without the caller there is nothing to do.
func (e *enclosure) listen() (byte, error) {
	b := make([]byte, 1)
	n, err := unix.Read(int(e.caller.Fd()), b)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(int(e.caller.Fd()), b)
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return b[0], err
}

func (e *enclosure) tell(r wall.Report, rights []byte) error {
	p, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return unix.Sendmsg(int(e.caller.Fd()), p, rights, nil, unix.MSG_NOSIGNAL)
}

// confined starts a thread without rights and returns what makes processes on
// it: they have the rights of the thread that made them.
func confined(p wall.Plan) (starter, error) {
	type answer struct {
		pid int
		err error
	}
	calls, answers := make(chan func() (int, error)), make(chan answer)
	go func() {
		runtime.LockOSThread() // for good
		answers <- answer{0, p.Confine()}
		for call := range calls {
			pid, err := call()
			answers <- answer{pid, err}
		}
	}()
	if a := <-answers; a.err != nil {
		return nil, a.err
	}
	// Callers hold box.mu, so that each gets its own answer.
	return func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		calls <- func() (int, error) { return syscall.ForkExec(path, argv, attr) }
		a := <-answers
		return a.pid, a.err
	}, nil
}

// wired waits for the caller's word once it has the network device, which it
// has had all this time to serve.
func (e *enclosure) wired() error {
	if !e.plan.TAP {
		return nil
	}
	return e.goOn()
}

// goOn waits for the caller's word. A signal is none: it is for a command that has
// not begun.
func (e *enclosure) goOn() error {
	for {
		b, err := e.listen()
		if err != nil || b == 0 {
			return err
		}
	}
}

// runOnce runs the command of a one-off box and exits when it has ended, which
// ends whatever it left. It returns if a wall is missing.
func (e *enclosure) runOnce() error {
	runtime.LockOSThread()
	c := e.plan.Command
	folder := os.Chdir(c.Dir)
	if err := e.plan.Confine(); err != nil {
		return err
	}
	// The other threads can do no more than wait, but they need no rights either.
	if err := e.plan.Drop(); err != nil {
		return err
	}
	if err := e.wired(); err != nil {
		return err
	}
	if folder != nil {
		e.end(wall.Report{Ended: true, Exit: exitNotRunnable, Reason: fmt.Sprintf("enter folder %s: %s", c.Dir, cause(folder))})
	}
	attr := &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}}
	s := guest.Start{Dir: c.Dir, Argv: c.Argv, Env: c.Env}
	first, exit, reason := launch(s, func(path string) (int, error) { return syscall.ForkExec(path, c.Argv, attr) })
	if first == 0 {
		e.end(wall.Report{Ended: true, Exit: exit, Reason: reason})
	}
	go e.pass(first)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for command: %w", err)
		case pid == first && ws.Stopped():
			if err := e.tell(wall.Report{Stopped: int(ws.StopSignal())}, nil); err != nil {
				return err
			}
		case pid == first && ws.Signaled():
			e.end(wall.Report{Ended: true, Exit: 128 + int(ws.Signal()), Signal: int(ws.Signal())})
		case pid == first:
			e.end(wall.Report{Ended: true, Exit: ws.ExitStatus()})
		}
	}
}

// end reports the end of the command and ends the box with it.
func (e *enclosure) end(r wall.Report) {
	if e.tell(r, nil) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// pass sends signals on to the command, until the caller is gone: then the box ends.
func (e *enclosure) pass(pid int) {
	for {
		b, err := e.listen()
		if err != nil {
			os.Exit(1)
		}
		if b > 0 {
			_ = unix.Kill(pid, unix.Signal(b)) // it may have ended
		}
	}
}
