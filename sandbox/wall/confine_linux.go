package wall

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access rights of Landlock.
const (
	read  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fixed = read | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV // nothing is made or removed
	// ofFile are those that a rule for a file may have.
	ofFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	all    = 1<<16 - 1 // of version 5
)

// MinLandlock is the version that can link and rename files between folders
// under its rules: Linux 5.19, Debian 12, Ubuntu 22.04.2.
const MinLandlock = 2

// LandlockVersion returns what the kernel offers; 0 is nothing.
func LandlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// handled returns the rights and scopes that a version of Landlock rules.
func handled(version int) (access, scoped uint64) {
	access = 1<<13 - 1 // version 1
	for i, bit := range []uint64{unix.LANDLOCK_ACCESS_FS_REFER, unix.LANDLOCK_ACCESS_FS_TRUNCATE, 0, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV} {
		if version >= i+2 {
			access |= bit
		}
	}
	if version >= 6 {
		scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return access, scoped
}

// Landlock lets this thread, and what it starts, write only the given files and
// below the given folders, and read and run everything that the root has.
func Landlock(write []string) error {
	version := LandlockVersion()
	if version < MinLandlock {
		return fmt.Errorf("the kernel has version %d of it, and %d is needed", version, MinLandlock)
	}
	access, scoped := handled(version)
	attr := struct{ access, network, scoped uint64 }{access, 0, scoped}
	size := unsafe.Sizeof(attr)
	if version < 6 {
		size = 8 // older kernels refuse what they do not know, even a zero in some
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("make rules: %w", errno)
	}
	defer unix.Close(int(set))
	rules := []rule{{"/", read}, {"/dev", fixed}, {"/proc", fixed}}
	for _, dir := range write {
		rules = append(rules, rule{dir, all})
	}
	for _, r := range rules {
		err := r.add(int(set), access)
		if errors.Is(err, unix.ENOENT) && r.access == fixed {
			continue // this root has no such folder
		}
		if err != nil {
			return fmt.Errorf("rule for %s: %w", r.path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("restrict: %w", errno)
	}
	return nil
}

// rule allows access below a folder.
type rule struct {
	path   string
	access uint64
}

func (r rule) add(set int, handled uint64) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		handled &= ofFile
	}
	var beneath [12]byte // packed: u64 access, s32 descriptor
	*(*uint64)(unsafe.Pointer(&beneath[0])) = r.access & handled
	*(*int32)(unsafe.Pointer(&beneath[8])) = int32(fd)
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Confine takes from this thread, and from all that it will start, every right
// that the plan does not keep. The other threads of the process keep theirs, so
// from here on no other process can look into this one.
// Preconditions: the goroutine is locked to its thread for good.
func (p Plan) Confine() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &Error{LayerRights, err}
	}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if p.Keep&(1<<c) != 0 {
			continue
		}
		// A capability that an older kernel does not know is invalid.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return &Error{LayerRights, fmt.Errorf("drop capability %d for good: %w", c, err)}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return &Error{LayerRights, err}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return &Error{LayerRights, fmt.Errorf("forbid new privileges: %w", err)}
	}
	if err := Landlock(p.Write); err != nil {
		return &Error{LayerLandlock, err}
	}
	header, data := p.kept()
	if err := unix.Capset(&header, &data[0]); err != nil {
		return &Error{LayerRights, fmt.Errorf("drop capabilities: %w", err)}
	}
	if err := filter(p.Filter); err != nil {
		return &Error{LayerSeccomp, err}
	}
	return nil
}

func (p Plan) kept() (unix.CapUserHeader, [2]unix.CapUserData) {
	low, high := uint32(p.Keep), uint32(p.Keep>>32)
	return unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{
		{Effective: low, Permitted: low}, {Effective: high, Permitted: high},
	}
}

// Drop takes the same capabilities from every thread of the process.
func (p Plan) Drop() error {
	header, data := p.kept()
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if errno != 0 {
		return &Error{LayerRights, fmt.Errorf("drop capabilities: %w", errno)}
	}
	return nil
}

// filter installs a seccomp filter on this thread.
func filter(program []Instruction) error {
	if len(program) == 0 {
		return errors.New("the plan has no filter")
	}
	raw := make([]unix.SockFilter, len(program))
	for i, x := range program {
		raw[i] = unix.SockFilter{Code: x.Code, Jt: x.Jt, Jf: x.Jf, K: x.K}
	}
	prog := unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(raw)
	if errno != 0 {
		return errno
	}
	return nil
}

// Limit sets the limits that processes inherit.
func (p Plan) Limit() error {
	limits := map[int]int64{unix.RLIMIT_NOFILE: p.Files, unix.RLIMIT_NPROC: p.PIDs}
	for what, n := range limits {
		if n <= 0 {
			continue
		}
		v := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
		if err := syscall.Setrlimit(what, &v); err != nil {
			return &Error{LayerRights, fmt.Errorf("set limit %d to %d: %w", what, n, err)}
		}
	}
	return syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{})
}
