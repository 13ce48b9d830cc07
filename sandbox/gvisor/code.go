package gvisor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path"
	"runtime"

	"cofferdam/sandbox/guest"
)

// Programs beside pid 1. A start of cofferdam-init in gVisor takes 11 to 22 ms and a
// Go program holds a megabyte; these take 1, and a page or two.
const (
	renameName  = "rename"
	standbyName = "standby"
)

// hasCode says that there are programs of machine code for this processor.
const hasCode = runtime.GOARCH == "amd64"

// standbyPath is guest.Config.Standby of a box; "" where there is none.
func standbyPath() string {
	if !hasCode {
		return ""
	}
	return path.Join("/", programDir, standbyName)
}

// renameCode sets the hostname in machine code of amd64: it reads the name from its
// input, says in one byte whether it could not, and ends.
var renameCode = []byte{
	0x48, 0x81, 0xec, 0x80, 0x00, 0x00, 0x00, // sub rsp, 128
	0x31, 0xff, // xor edi, edi
	0x48, 0x89, 0xe6, // mov rsi, rsp
	0xba, 0x41, 0x00, 0x00, 0x00, // mov edx, 65: one more than a name has
	0x31, 0xc0, // xor eax, eax (read)
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x7e, 0x26, // jle ended
	0x48, 0x89, 0xe7, // mov rdi, rsp
	0x89, 0xc6, // mov esi, eax
	0xb8, 0xaa, 0x00, 0x00, 0x00, // mov eax, 170 (sethostname)
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x0f, 0x95, 0x04, 0x24, // setne byte [rsp]
	0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1
	0x48, 0x89, 0xe6, // mov rsi, rsp
	0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, 1
	0xb8, 0x01, 0x00, 0x00, 0x00, // mov eax, 1 (write)
	0x0f, 0x05, // syscall
	0x31, 0xff, // ended: xor edi, edi
	0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, 231 (exit_group)
	0x0f, 0x05, // syscall
}

// standbyCode waits for what guest.Config.Standby says and becomes it: chdir, execve.
// If it cannot it writes why, and ends when nobody can tell it anything any more.
var standbyCode = []byte{
	0xb8, 0x48, 0x00, 0x00, 0x00, // mov eax, 72 (fcntl)
	0xbf, 0x03, 0x00, 0x00, 0x00, // mov edi, 3
	0xbe, 0x02, 0x00, 0x00, 0x00, // mov esi, 2 (F_SETFD)
	0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, 1 (FD_CLOEXEC)
	0x0f, 0x05, // syscall
	0xb8, 0x48, 0x00, 0x00, 0x00, // mov eax, 72
	0xbf, 0x04, 0x00, 0x00, 0x00, // mov edi, 4
	0x0f, 0x05, // syscall
	0xbd, 0x00, 0x00, 0x50, 0x00, // mov ebp, guest.StandbyAt
	0x31, 0xdb, // xor ebx, ebx: bytes that were read
	0x31, 0xc0, // more: xor eax, eax (read)
	0xbf, 0x03, 0x00, 0x00, 0x00, // mov edi, 3
	0x48, 0x8d, 0x74, 0x1d, 0x00, // lea rsi, [rbp+rbx]
	0xba, 0x00, 0x00, 0x01, 0x00, // mov edx, guest.StandbyRoom
	0x29, 0xda, // sub edx, ebx
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x7e, 0x53, // jle ended
	0x01, 0xc3, // add ebx, eax
	0x83, 0xfb, 0x08, // cmp ebx, 8
	0x72, 0xe0, // jb more
	0x3b, 0x5d, 0x00, // cmp ebx, [rbp]: the length of all of it
	0x72, 0xdb, // jb more
	0x48, 0x8b, 0x7d, 0x08, // mov rdi, [rbp+8]: the folder
	0xb8, 0x50, 0x00, 0x00, 0x00, // mov eax, 80 (chdir)
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x13, // jne failed
	0x48, 0x8b, 0x7d, 0x10, // mov rdi, [rbp+16]: the program
	0x48, 0x8b, 0x75, 0x18, // mov rsi, [rbp+24]: its arguments
	0x48, 0x8b, 0x55, 0x20, // mov rdx, [rbp+32]: its environment
	0xb8, 0x3b, 0x00, 0x00, 0x00, // mov eax, 59 (execve)
	0x0f, 0x05, // syscall
	0x89, 0x45, 0x00, // failed: mov [rbp], eax
	0xbf, 0x04, 0x00, 0x00, 0x00, // mov edi, 4
	0x48, 0x89, 0xee, // mov rsi, rbp
	0xba, 0x04, 0x00, 0x00, 0x00, // mov edx, 4
	0xb8, 0x01, 0x00, 0x00, 0x00, // mov eax, 1 (write)
	0x0f, 0x05, // syscall
	0x31, 0xc0, // xor eax, eax (read)
	0xbf, 0x03, 0x00, 0x00, 0x00, // mov edi, 3
	0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, 1
	0x0f, 0x05, // syscall
	0x31, 0xff, // ended: xor edi, edi
	0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, 231 (exit_group)
	0x0f, 0x05, // syscall
}

// programOf is code as a program: one segment that can be read and run, and, if it
// needs room, one that can be written, at guest.StandbyAt.
func programOf(code []byte, room uint64) []byte {
	const at, page = 0x400000, 0x1000
	segments := []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: at, Paddr: at, Align: page}}
	if room > 0 {
		segments = append(segments, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Vaddr: guest.StandbyAt, Paddr: guest.StandbyAt, Memsz: room, Align: page,
		})
	}
	head := elf.Header64{}
	start := uint64(binary.Size(head) + binary.Size(segments))
	segments[0].Filesz = start + uint64(len(code))
	segments[0].Memsz = segments[0].Filesz
	head = elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Entry: at + start,
		Phoff: uint64(binary.Size(head)), Ehsize: uint16(binary.Size(head)),
		Phentsize: uint16(binary.Size(segments[0])), Phnum: uint16(len(segments)),
	}
	var out bytes.Buffer
	for _, part := range []any{head, segments, code} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes all
	}
	return out.Bytes()
}
