package process

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// refusedHere are refused system calls that only this architecture has.
var refusedHere = []uint32{
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_SYSFS, unix.SYS_USTAT,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}

// modeCallsHere give a file its mode and are only on this architecture.
var modeCallsHere = []modeCall{{unix.SYS_CHMOD, 1, 0, true}, {unix.SYS_CREAT, 1, 0, false}, {unix.SYS_MKNOD, 1, 0, false}, {unix.SYS_OPEN, 2, 1, false}}
