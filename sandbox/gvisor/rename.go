package gvisor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path"
	"runtime"
)

// renameName is the program that gives a box its hostname, beside pid 1.
const renameName = "rename"

// renameArgs are the arguments of what sets the hostname of a box. A start of
// cofferdam-init in gVisor takes 11 to 22 ms, and every box that was made ahead
// and every copy has one; this takes 1.
func renameArgs(name string) []string {
	if runtime.GOARCH == "amd64" {
		return []string{path.Join("/", programDir, renameName), name}
	}
	return []string{path.Join("/", programDir, "init"), "--hostname", name}
}

// renameCode is sethostname(argv[1], strlen(argv[1])) in machine code of amd64: it
// exits with 0, or with 1 if it may not.
var renameCode = []byte{
	0x48, 0x8b, 0x7c, 0x24, 0x10, // mov rdi, [rsp+16]: argc, argv[0], argv[1] are at rsp
	0x31, 0xf6, // xor esi, esi
	0x80, 0x3c, 0x37, 0x00, // next: cmp byte [rdi+rsi], 0
	0x74, 0x05, // je done
	0x48, 0xff, 0xc6, // inc rsi
	0xeb, 0xf5, // jmp next
	0xb8, 0xaa, 0x00, 0x00, 0x00, // done: mov eax, 170 (sethostname)
	0x0f, 0x05, // syscall
	0x31, 0xff, // xor edi, edi
	0x85, 0xc0, // test eax, eax
	0x0f, 0x95, 0xc0, // setne al
	0x0f, 0xb6, 0xf8, // movzx edi, al
	0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, 231 (exit_group)
	0x0f, 0x05, // syscall
}

// renameProgram is renameCode as a program: one segment that can be read and run.
func renameProgram() []byte {
	const at, page = 0x400000, 0x1000
	head, segment := elf.Header64{}, elf.Prog64{}
	start := uint64(binary.Size(head) + binary.Size(segment))
	size := start + uint64(len(renameCode))
	head = elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Entry: at + start,
		Phoff: uint64(binary.Size(head)), Ehsize: uint16(binary.Size(head)), Phentsize: uint16(binary.Size(segment)), Phnum: 1,
	}
	segment = elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: at, Paddr: at, Filesz: size, Memsz: size, Align: page}
	var out bytes.Buffer
	for _, part := range []any{head, segment, renameCode} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes all
	}
	return out.Bytes()
}
