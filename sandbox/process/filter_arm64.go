package process

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are refused system calls that amd64 has under other names or not at all.
var refusedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}

// modeCallsHere are those that amd64 has besides.
var modeCallsHere []modeCall
