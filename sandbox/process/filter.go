package process

import (
	"fmt"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"cofferdam/sandbox/wall"
)

// Answers of a filter, and where a system call's numbers lie in what it reads.
const (
	allow      = 0x7fff0000
	refuse     = 0x00050000 // with an errno
	kill       = 0x80000000 // the whole process
	atNumber   = 0
	atArch     = 4
	argument0  = 16 // low half: the kernel reads no more of what is judged here
	argument1  = 24
	argument2  = 32
	foreignABI = 0x40000000 // x32 on amd64; no number of arm64 is so large
	lastKnown  = unix.SYS_LISTNS
	namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
)

// refused are system calls that no command needs and that reach the kernel
// where others paid for it: each had holes that led out of a box, or speaks for
// the whole host. See docs/tiers.md.
var refused = []uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // work that no filter sees
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, // keys belong to a user, not to a box
	unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_LOOKUP_DCOOKIE,
}

// ioctls that type into a terminal for others, or change how the kernel reads it.
var refusedIoctls = []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD}

// families are those of sockets that a box may have: its own, and the network.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// Requests by which a process takes hold of another that did not ask for it.
var refusedTraces = []uint32{unix.PTRACE_ATTACH, unix.PTRACE_SEIZE}

// program returns the filter of system calls of every box.
//
// Another architecture and x32 end the process: their numbers mean other calls.
// clone3 does not exist for a box, because its flags lie where no filter can
// read them; the C library then uses clone. What is newer than this list does
// not exist either.
func program() []bpf.Instruction {
	no := bpf.RetConstant{Val: refuse | uint32(unix.EPERM)}
	missing := bpf.RetConstant{Val: refuse | uint32(unix.ENOSYS)}
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: atArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: atNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: foreignABI, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastKnown, SkipTrue: 1},
		missing,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		missing,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 4},
		bpf.LoadAbsolute{Off: argument0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: namespaces, SkipFalse: 1},
		no,
		bpf.RetConstant{Val: allow},
	}
	p = append(p, judge(unix.SYS_IOCTL, argument1, refusedIoctls, false, unix.EPERM)...)
	p = append(p, judge(unix.SYS_PTRACE, argument0, refusedTraces, false, unix.EPERM)...)
	p = append(p, sockets()...)
	for _, n := range append(append([]uint32{}, refused...), refusedHere...) {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: n, SkipTrue: 1}, no)
	}
	return append(p, bpf.RetConstant{Val: allow})
}

// judge answers one system call by one of its arguments: whether it is one of
// values decides, and refused gets errno.
func judge(call, argument uint32, values []uint32, allowed bool, errno unix.Errno) []bpf.Instruction {
	hit, miss := bpf.RetConstant{Val: refuse | uint32(errno)}, bpf.RetConstant{Val: allow}
	if allowed {
		hit, miss = miss, hit
	}
	n := len(values)
	p := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(n + 3)},
		bpf.LoadAbsolute{Off: argument, Size: 4},
	}
	for i, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(n - i)})
	}
	return append(p, miss, hit)
}

// sockets lets families through, and of netlink only what lists the box's own
// network.
func sockets() []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SOCKET, SkipTrue: uint8(len(families) + 6)},
		bpf.LoadAbsolute{Off: argument0, Size: 4},
	}
	for i, f := range families {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: f, SkipTrue: uint8(len(families) - i + 3)})
	}
	return append(p,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 2},
		bpf.LoadAbsolute{Off: argument2, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
		bpf.RetConstant{Val: refuse | uint32(unix.EAFNOSUPPORT)},
		bpf.RetConstant{Val: allow},
	)
}

// filter, onceFilter and teamFilter, of a shared folder, are those programs as the
// kernel takes them.
var (
	filter     = sync.OnceValues(func() ([]wall.Instruction, error) { return assemble(program()) })
	onceFilter = sync.OnceValues(func() ([]wall.Instruction, error) { return assemble(onceProgram(false)) })
	teamFilter = sync.OnceValues(func() ([]wall.Instruction, error) { return assemble(onceProgram(true)) })
)

func assemble(program []bpf.Instruction) ([]wall.Instruction, error) {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble filter of system calls: %w", err)
	}
	list := make([]wall.Instruction, len(raw))
	for i, r := range raw {
		list[i] = wall.Instruction{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return list, nil
}
