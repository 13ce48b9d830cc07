package cage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
