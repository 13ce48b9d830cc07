package repo

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// buildView gives this thread a mount namespace of its own and mounts at root
// what a cage sees: /usr read-only, two devices, an empty /tmp and /home, and
// the binds. Preconditions: the thread is locked and will not be used again.
func buildView(root string, binds []bind) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size="+viewSize); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{"usr", 0o755}, {"dev", 0o755}, {"home", 0o555}, {"tmp", 0o1777}} {
		if err := mkdir(filepath.Join(root, d.name), d.mode); err != nil {
			return err
		}
	}
	all := append([]bind{{host: "/usr", inside: "/usr", exec: true}}, binds...)
	for _, name := range []string{"bin", "sbin", "lib", "lib64", "lib32"} {
		to, err := os.Readlink("/" + name)
		if err == nil { // merged /usr
			err = os.Symlink(to, filepath.Join(root, name))
		} else if info, serr := os.Stat("/" + name); serr == nil && info.IsDir() {
			all, err = append(all, bind{host: "/" + name, inside: "/" + name, exec: true}), nil
		} else {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	for _, b := range all {
		if err := b.mount(root, 0); err != nil {
			return err
		}
	}
	for _, dev := range []string{"/dev/null", "/dev/urandom"} {
		if err := (bind{host: dev, inside: dev, write: true}).mount(root, unix.MS_NODEV); err != nil {
			return err
		}
	}
	return nil
}

// mount shows b.host below root, without the flags in lift.
func (b bind) mount(root string, lift uintptr) error {
	at := filepath.Join(root, b.inside)
	if b.over {
		return b.cover(at)
	}
	info, err := os.Stat(b.host)
	if err != nil {
		return fmt.Errorf("show %s: %w", b.inside, err)
	}
	if _, err := os.Lstat(at); err != nil {
		if info.IsDir() {
			err = mkdir(at, 0o755)
		} else {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", b.inside, err)
		}
	}
	if err := unix.Mount(b.host, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s: %w", b.inside, err)
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if b.exec {
		flags &^= unix.MS_NOEXEC
	}
	if !b.write {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", at, "", flags&^lift, ""); err != nil {
		return fmt.Errorf("show %s: %w", b.inside, err)
	}
	return nil
}

// cover mounts b.host over the file at, which lies in a folder that a git
// process owns: it may have put a link there, so the file is opened without
// following one and named by its descriptor. The owner of b.host is root, so
// nothing in a cage can write to it.
func (b bind) cover(at string) error {
	fd, err := unix.Open(at, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cover %s: %w", b.inside, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cover %s: %w", b.inside, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("cover %s: it is not a file", b.inside)
	}
	if err := unix.Mount(b.host, fmt.Sprintf("/proc/thread-self/fd/%d", fd), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", b.inside, err)
	}
	return nil
}

// mkdir makes a folder with exactly this mode, whatever the process's umask.
func mkdir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	// Syscall, because os.FileMode has the sticky bit elsewhere.
	return syscall.Chmod(path, uint32(mode))
}

// privateListener gives this thread a network namespace of its own with
// nothing but a loopback, and listens there. Accepting works from any thread;
// reaching it only from processes that this thread starts.
func privateListener() (net.Listener, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("raise loopback: %w", err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return nil, fmt.Errorf("raise loopback: %w", err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return nil, fmt.Errorf("raise loopback: %w", err)
	}
	return net.Listen("tcp4", "127.0.0.1:0")
}

// dropPrivileges makes sure that what this thread starts can never gain a
// capability, also where it runs as user 0 (an upstream that root owns).
func dropPrivileges() error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no new privileges: %w", err)
	}
	return nil
}
