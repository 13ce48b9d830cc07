package vmm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
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
	p := &Process{Ended: make(chan struct{})}
	started := make(chan error)
	go onOwnThread(func() {
		if err := g.enter(); err != nil {
			started <- fmt.Errorf("making its root: %w", err)
			return
		}
		if err := g.confine(); err != nil {
			started <- err
			return
		}
		cmd := g.command(p)
		if err := cgroup.Start(cmd); err != nil {
			started <- err
			return
		}
		p.PID = cmd.Process.Pid
		started <- nil
		p.Err = cmd.Wait()
		close(p.Ended)
	})
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

// EndPatience is how long a monitor may take to be gone once its machine has ended:
// its sockets close first.
const EndPatience = 2 * time.Second

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
		return fmt.Errorf("its monitor has not ended; it printed: %.500s", p.Words())
	}
	return p.ending()
}

// ending says how the program ended and what it printed.
func (p *Process) ending() error {
	how := "exit status 0"
	if p.Err != nil {
		how = p.Err.Error()
	}
	return fmt.Errorf("its monitor ended (%s): %.500s", how, p.Words())
}

// KillFor ends the program for a reason, which Words repeats. It does not wait: the
// kernel may not let go of a program that hangs.
func (p *Process) KillFor(why string) {
	_, _ = p.Write([]byte("\nended by the driver: " + why + "\n")) // only keeps it
	if !p.Over() {
		_ = sandbox.Signal(p.PID, unix.SIGKILL) // it may be gone by now
	}
}

// onOwnThread runs fn on a thread that is thrown away afterwards and is never
// the main one, so that fn may change its namespaces and be a parent.
func onOwnThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn() // stays locked: the thread ends with this goroutine
		return
	}
	done := make(chan struct{})
	go func() {
		onOwnThread(fn)
		close(done)
	}()
	<-done
	runtime.UnlockOSThread()
}

// jailSize bounds what a monitor may write to the root that its jailer makes; the
// jailer puts a copy of the monitor there.
const jailSize = 64 << 20

// enter moves the calling thread into a mount namespace and root of its own.
func (g Program) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	flags, options := uintptr(unix.MS_NOSUID|unix.MS_NOEXEC), "mode=0755,size=1m"
	if g.Jailer {
		flags, options = unix.MS_NOSUID, fmt.Sprintf("mode=0755,size=%d", jailSize) // it puts devices and the monitor there
	}
	if err := unix.Mount("root", g.Root, "tmpfs", flags, options); err != nil {
		return err
	}
	binds := g.Binds
	if !g.Jailer {
		binds = append([]Bind{{From: "/usr", To: "/usr"}, {From: "/dev/null", To: "/dev/null", Writable: true}}, binds...)
	}
	for _, b := range binds {
		if err := g.bind(b); err != nil {
			return fmt.Errorf("%s: %w", b.To, err)
		}
	}
	if g.Jailer {
		return nil
	}
	for _, path := range g.Nodes {
		if err := g.make(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := g.makeScratch(); err != nil {
		return fmt.Errorf("%s: %w", g.Scratch, err)
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + name)
		if err != nil {
			continue // this system has no such folder, or /usr is not merged: Check says so
		}
		if err := os.Symlink(target, filepath.Join(g.Root, name)); err != nil {
			return err
		}
	}
	return g.pivot()
}

func (g Program) makeScratch() error {
	if g.Scratch == "" {
		return nil
	}
	to := filepath.Join(g.Root, g.Scratch)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return unix.Mount("scratch", to, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=0700,size=1m,uid=%d,gid=%d", g.UID, g.UID))
}

// pivot makes g.Root the root and lets go of the old one.
func (g Program) pivot() error {
	old := filepath.Join(g.Root, "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(g.Root, old); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return errors.Join(
		unix.Chdir("/"),
		unix.Unmount("/old", unix.MNT_DETACH),
		os.Remove("/old"),
		unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, ""),
	)
}

// make makes a device of the host's in the program's root.
func (g Program) make(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	to := filepath.Join(g.Root, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(to, st.Mode&unix.S_IFMT|0o600, int(st.Rdev)); err != nil {
		return err
	}
	return os.Chown(to, g.UID, g.UID)
}

// bind shows one file or folder of the host.
func (g Program) bind(b Bind) error {
	if b.Link != "" {
		to := filepath.Join(g.Root, b.To)
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(b.Link, to))
	}
	info, err := os.Stat(b.From)
	if err != nil {
		return err
	}
	to := filepath.Join(g.Root, b.To)
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if _, there := os.Lstat(to); there == nil {
		err = nil // in a folder that is shown already
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o444)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(b.From, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(to, &st); err != nil {
		return err
	}
	// In a user's namespace what the host's mount forbids has to stay forbidden.
	flags := uintptr(unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID) | uintptr(st.Flags)&(unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY)
	if info.Mode()&os.ModeDevice == 0 {
		flags |= unix.MS_NODEV
	}
	if !b.Writable {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", to, "", flags, "")
}
