package cage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/wall"

	"golang.org/x/sys/unix"
)

// Program is one that runs confined: in namespaces of its own (mount, process,
// network, ipc, host name), as a user of its own that gains no rights, with a
// root that holds no more than what is listed, all of it read-only.
type Program struct {
	Path  string   // below /usr
	Args  []string // without its name
	Files []*os.File
	UID   int    // and gid
	Root  string // a folder to mount its root on
	Binds []Bind
	Nodes []string // devices that it may use: it gets ones that are its user's
	// Scratch is a folder in memory that is its own, for sockets; "": none.
	Scratch string
	Most    int64 // bytes that a file it writes may have; 0: no bound
	// Memory bounds its own memory in bytes, without files that it shares, and
	// Tasks the threads of its user, where no control group does; 0: no bound.
	Memory, Tasks int64

	// Output is where it prints; nil: the first words are kept for Words.
	Output *os.File
	// Keep are capabilities that it has all the same; for none of a guest's bytes.
	Keep []uintptr
	// Landlock lets it write only what Write lists, files or folders of its root.
	Landlock bool
	Write    []string
	// Jailer says that it builds its own jail: it is root, its root is the host's,
	// and what Binds list lies below Root, which is a file system in memory.
	Jailer bool
	// Namespace is the network that it is in; nil: one with nothing.
	Namespace *os.File
}

// Bind is a file or folder of the host that the program sees.
type Bind struct {
	From, To string
	Writable bool
	Link     string // a symbolic link to there instead, as it is in an image
}

// Process is a program that was started.
type Process struct {
	Name  string // of its file
	PID   int
	Ended chan struct{} // closed once it is gone
	Err   error         // how it ended; set before Ended is closed

	mu   sync.Mutex
	said bytes.Buffer // what it printed, bounded; guarded by mu
}

// maxSaid bounds what is kept of a program's output.
const maxSaid = 8 << 10

// Write keeps the beginning of what the program prints.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Write(b[:min(len(b), maxSaid-p.said.Len())])
	return len(b), nil
}

// Words is what the program printed, on one line.
func (p *Process) Words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(strings.Fields(p.said.String()), " ")
}

// Start starts the program. It has a thread of ours as its parent for as long
// as it lives: when this process dies, however it dies, the kernel ends it.
func (g Program) Start() (*Process, error) {
	p := &Process{Name: filepath.Base(g.Path), Ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		err := netns.OnOwnThread(func() error {
			if err := g.enter(); err != nil {
				return fmt.Errorf("making its root: %w", err)
			}
			if err := g.confine(); err != nil {
				return err
			}
			cmd := g.command(p)
			if err := cmd.Start(); err != nil {
				return err
			}
			p.PID = cmd.Process.Pid
			started <- nil
			p.Err = cmd.Wait()
			close(p.Ended)
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// limiter sets limits for itself and becomes another program.
const limiter = "/usr/bin/prlimit"

// command is what to start. It makes no file that it was given larger than any
// has to be: a descriptor alone would let it fill the disk. The limit is set on
// the way in, since only some hosts let root set another's.
func (g Program) command(p *Process) *exec.Cmd {
	path, args := g.Path, append([]string{filepath.Base(g.Path)}, g.Args...)
	if limits := g.limits(); len(limits) > 0 {
		path, args = limiter, slices.Concat([]string{filepath.Base(limiter)}, limits, []string{"--", g.Path}, g.Args)
	}
	cmd := &exec.Cmd{
		Path: path, Args: args, Dir: "/",
		Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, ExtraFiles: g.Files, Stdout: p, Stderr: p,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			Pdeathsig:  unix.SIGKILL,
			Setsid:     true,
		},
	}
	if g.Output != nil {
		cmd.Stdout = g.Output
	}
	if g.Namespace == nil {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if !g.Jailer {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(g.UID), Gid: uint32(g.UID)}
		cmd.SysProcAttr.AmbientCaps = g.Keep
	}
	return cmd
}

// limits are the limiter's arguments.
func (g Program) limits() (list []string) {
	for name, bound := range map[string]int64{"fsize": g.Most, "data": g.Memory, "nproc": g.Tasks} {
		if bound > 0 {
			list = append(list, fmt.Sprintf("--%s=%d", name, bound))
		}
	}
	return list
}

// confine takes from this thread, and from what it starts, the way to rights that
// it has not; the thread is thrown away afterwards.
func (g Program) confine() error {
	if g.Namespace != nil {
		if err := unix.Setns(int(g.Namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering its network namespace: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if !g.Landlock {
		return nil
	}
	if err := wall.Landlock(g.Write); err != nil {
		return fmt.Errorf("setting Landlock: %w", err)
	}
	return nil
}

// Kill ends the program and waits until it is gone.
func (p *Process) Kill() {
	select {
	case <-p.Ended: // its number may be another's
	default:
		_ = sandbox.Signal(p.PID, unix.SIGKILL) // it may be gone by now
		<-p.Ended
	}
}

// While returns a context that also ends with the program; its cause says so.
func (p *Process) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.Ended:
			cancel(p.ending())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Over says whether the program has ended.
func (p *Process) Over() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// LastWords waits for the program's end, for so long at most, and says how it ended
// and what it printed.
func (p *Process) LastWords(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-p.Ended:
	case <-ctx.Done():
	}
	if !p.Over() {
		return fmt.Errorf("%s has not ended; it printed: %.500s", p.Name, p.Words())
	}
	return p.ending()
}

// ending says how the program ended and what it printed.
func (p *Process) ending() error {
	how := "exit status 0"
	if p.Err != nil {
		how = p.Err.Error()
	}
	return fmt.Errorf("%s ended (%s): %.500s", p.Name, how, p.Words())
}

// KillFor ends the program for a reason, which Words repeats. It does not wait: the
// kernel may not let go of a program that hangs.
func (p *Process) KillFor(why string) {
	_, _ = p.Write([]byte("\nended by the driver: " + why + "\n")) // only keeps it
	if !p.Over() {
		_ = sandbox.Signal(p.PID, unix.SIGKILL) // it may be gone by now
	}
}
