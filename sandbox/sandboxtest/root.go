package sandboxtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// startIn starts cofferdam-init in a pid namespace of its own, with a root that
// shows the host. The mounts live in a mount namespace of one thread and its
// child, so nothing of them is left on the host.
func startIn(b *fakeBox, in, out *os.File) (*exec.Cmd, error) {
	type started struct {
		cmd *exec.Cmd
		err error
	}
	done := make(chan started)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			done <- started{err: fmt.Errorf("make mount namespace: %w", err)}
			return
		}
		if err := b.mountRoot(); err != nil {
			done <- started{err: fmt.Errorf("mount root of box: %w", err)}
			return
		}
		cmd := exec.Command("/cofferdam-init")
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.ExtraFiles, cmd.Stderr = []*os.File{in, out}, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.root(), Cloneflags: unix.CLONE_NEWPID}
		err := cmd.Start()
		done <- started{cmd, err}
	}()
	s := <-done
	if s.err != nil {
		return nil, s.err
	}
	return s.cmd, nil
}

// mountRoot builds the box's root: the image's entries, bound one by one, and
// what every box has besides.
func (b *fakeBox) mountRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("box", b.root(), "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	split := map[string]bool{"/": true, "/home": true}
	for _, f := range b.spec.Files {
		for dir := filepath.Dir(f.Path); dir != "/"; dir = filepath.Dir(dir) {
			split[dir] = true
		}
	}
	image := b.spec.Image
	if image == "host" {
		image = "/"
	}
	if err := b.show(image, "/", split); err != nil {
		return err
	}
	for path, source := range map[string]string{sandbox.WorkDir: b.work(), sandbox.EnvDir: b.spec.Env, sandbox.HomeDir: "", "/proc": "", "/tmp": ""} {
		if err := os.MkdirAll(b.root()+path, 0o755); err != nil {
			return err
		}
		if source == "" {
			continue
		}
		if err := unix.Mount(source, b.root()+path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	if b.spec.Env != "" && !b.spec.SetupPhase {
		const readOnly = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY
		if err := unix.Mount("", b.root()+sandbox.EnvDir, "", readOnly, ""); err != nil {
			return err
		}
	}
	return b.place()
}

// place writes the box's files and pid 1.
func (b *fakeBox) place() error {
	for _, f := range b.spec.Files {
		mode := f.Mode
		if mode == 0 {
			mode = 0o444
		}
		path := b.root() + f.Path
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if f.Link != "" {
			if err := os.Symlink(f.Link, path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, f.Data, mode); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(b.fake.init)
	if err != nil {
		return err
	}
	// A process that another thread forks meanwhile would hold the program open
	// for writing until it executes its own, and nobody may start it until then.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(b.root()+"/cofferdam-init", program, 0o755)
}

// show makes the entries of one of the image's folders appear in the box:
// folders in split are made anew, so that they can hold more.
func (b *fakeBox) show(image, dir string, split map[string]bool) error {
	entries, err := os.ReadDir(filepath.Join(image, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if path == "/proc" || path == sandbox.WorkDir || path == sandbox.EnvDir || path == sandbox.HomeDir || b.hasFile(path) {
			continue
		}
		if err := b.showEntry(filepath.Join(image, path), path, e, split); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (b *fakeBox) hasFile(path string) bool {
	for _, f := range b.spec.Files {
		if f.Path == path {
			return true
		}
	}
	return false
}

func (b *fakeBox) showEntry(source, path string, e fs.DirEntry, split map[string]bool) error {
	target := b.root() + path
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		to, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(to, target)
	case e.IsDir():
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if split[path] {
			image := strings.TrimSuffix(source, path)
			return b.show("/"+strings.TrimPrefix(image, "/"), path, split)
		}
	default:
		if err := os.WriteFile(target, nil, 0o600); err != nil {
			return err
		}
	}
	flags := uintptr(unix.MS_BIND)
	if path == "/dev" || path == "/sys" { // what is mounted there belongs to it
		flags |= unix.MS_REC
	}
	return unix.Mount(source, target, "", flags, "")
}
