package microvm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is one that runs confined: in namespaces of its own (mount, process,
// network, ipc, host name), as a user of its own, with a root that holds no more
// than what is listed, all of it read-only.
type program struct {
	path  string   // below /usr
	args  []string // without its name
	files []*os.File
	uid   int    // and gid; 0 keeps root, for a program that reads an image
	root  string // a folder to mount its root on
	binds []bound
	nodes []node
	most  int64 // bytes that a file it writes may have; 0: no bound
}

// bound is a file or folder of the host that the program sees.
type bound struct {
	from, to string
	writable bool
	link     string // a symbolic link to there instead, as it is in an image
}

// node is a device that the program may use: it gets one that is its user's.
type node struct {
	path string // of the host's, and the program's
}

// process is a program that was started.
type process struct {
	pid   int
	ended chan struct{} // closed once it is gone

	mu   sync.Mutex
	said bytes.Buffer // what it printed, bounded; guarded by mu
	err  error        // how it ended; set before ended is closed
}

// maxSaid bounds what is kept of a program's output.
const maxSaid = 8 << 10

// Write keeps the beginning of what the program prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Write(b[:min(len(b), maxSaid-p.said.Len())])
	return len(b), nil
}

// words is what the program printed, on one line.
func (p *process) words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(strings.Fields(p.said.String()), " ")
}

// start starts the program. It has a thread of ours as its parent for as long
// as it lives: when this process dies, however it dies, the kernel ends it.
func (g program) start() (*process, error) {
	p := &process{ended: make(chan struct{})}
	started := make(chan error)
	go onOwnThread(func() {
		if err := g.enter(); err != nil {
			started <- fmt.Errorf("making its root: %w", err)
			return
		}
		path, args := g.command()
		cmd := exec.Cmd{
			Path: path, Args: args, Dir: "/",
			Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, ExtraFiles: g.files, Stdout: p, Stderr: p,
			SysProcAttr: &syscall.SysProcAttr{
				Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
				Pdeathsig:  unix.SIGKILL,
				Setsid:     true,
			},
		}
		if g.uid != 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(g.uid), Gid: uint32(g.uid)}
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.ended)
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// limiter sets limits for itself and becomes another program.
const limiter = "/usr/bin/prlimit"

// command is the program's path and arguments. It makes no file that it was given
// larger than any has to be: a descriptor alone would let it fill the disk. The
// limit is set on the way in, since only some hosts let root set another's.
func (g program) command() (path string, args []string) {
	if g.most == 0 {
		return g.path, append([]string{filepath.Base(g.path)}, g.args...)
	}
	return limiter, append([]string{filepath.Base(limiter), fmt.Sprintf("--fsize=%d", g.most), "--", g.path}, g.args...)
}

// kill ends the program and waits until it is gone.
func (p *process) kill() {
	select {
	case <-p.ended: // its number may be another's
	default:
		_ = unix.Kill(p.pid, unix.SIGKILL) // it may be gone by now
		<-p.ended
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

// enter moves the calling thread into a mount namespace and root of its own.
func (g program) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NOEXEC)
	if err := unix.Mount("root", g.root, "tmpfs", flags, "mode=0755,size=1m"); err != nil {
		return err
	}
	binds := append([]bound{{from: "/usr", to: "/usr"}, {from: "/dev/null", to: "/dev/null", writable: true}}, g.binds...)
	for _, b := range binds {
		if err := g.bind(b); err != nil {
			return fmt.Errorf("%s: %w", b.to, err)
		}
	}
	for _, n := range g.nodes {
		if err := g.make(n); err != nil {
			return fmt.Errorf("%s: %w", n.path, err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + name)
		if err != nil {
			continue // this system has no such folder, or /usr is not merged: Check says so
		}
		if err := os.Symlink(target, filepath.Join(g.root, name)); err != nil {
			return err
		}
	}
	return g.pivot()
}

// pivot makes g.root the root and lets go of the old one.
func (g program) pivot() error {
	old := filepath.Join(g.root, "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(g.root, old); err != nil {
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
func (g program) make(n node) error {
	var st unix.Stat_t
	if err := unix.Stat(n.path, &st); err != nil {
		return err
	}
	to := filepath.Join(g.root, n.path)
	if err := unix.Mknod(to, st.Mode&unix.S_IFMT|0o600, int(st.Rdev)); err != nil {
		return err
	}
	return os.Chown(to, g.uid, g.uid)
}

// bind shows one file or folder of the host.
func (g program) bind(b bound) error {
	if b.link != "" {
		to := filepath.Join(g.root, b.to)
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(b.link, to))
	}
	info, err := os.Stat(b.from)
	if err != nil {
		return err
	}
	to := filepath.Join(g.root, b.to)
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o444)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(b.from, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID)
	if info.Mode()&os.ModeDevice == 0 {
		flags |= unix.MS_NODEV
	}
	if !b.writable {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", to, "", flags, "")
}
