// Package assemble puts programs together that no compiler of this project makes: a few
// calls of the kernel, for amd64, without a runtime and without a library, so that one
// starts in a millisecond and holds a page or two.
//
// It never runs what it makes and knows nothing of what that is for. Its invariant: a
// program has one part that can be run and not written, and one that can be written and
// not run.
package assemble

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Program is one that is being put together. A method puts down the instructions for
// what it is named for.
type Program struct {
	code   []byte
	labels map[string]int // where each is
	jumps  map[int]string // where the way to a label is to be written, which may come later
	room   elf.Prog64
}

// New is a program that has room for so many bytes at an address, all zero when it
// starts. The address is a multiple of a page, above the first 5 MiB.
func New(address, bytes int) *Program {
	return &Program{labels: map[string]int{}, jumps: map[int]string{}, room: elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Align: page,
		Vaddr: uint64(address), Paddr: uint64(address), Memsz: uint64(bytes),
	}}
}

// Where the code is.
const start, page = 0x400000, 0x1000

// Register is one of the processor's, by its number there.
type Register byte

// The registers that are used: what a call of the kernel returned, which is where its
// number was; its arguments; and one that calls leave alone.
const (
	Result Register = 0 // rax
	First  Register = 7 // rdi
	Second Register = 6 // rsi
	Third  Register = 2 // rdx
	Kept   Register = 3 // rbx
)

// Value is what a register is given.
type Value struct {
	number, address uint32
	in              *Register
}

// Number is a value that is known now.
func Number(n int) Value { return Value{number: uint32(n)} }

// At is what lies at an address: 8 bytes.
func At(address int) Value { return Value{address: uint32(address)} }

// In is what another register has.
func In(r Register) Value { return Value{in: &r} }

func (p *Program) put(b ...byte)    { p.code = append(p.code, b...) }
func (p *Program) putLong(n uint32) { p.code = binary.LittleEndian.AppendUint32(p.code, n) }

// all64 makes the next instruction one on all 64 bits of a register.
const all64 = 0x48

// registers is an instruction on r and s.
func (p *Program) registers(op byte, r, s Register) { p.put(all64, op, 0xc0|byte(s)<<3|byte(r)) }

// memory is an instruction on r and what lies at an address.
func (p *Program) memory(op byte, r Register, address uint32) {
	p.put(all64, op, 0x04|byte(r)<<3, 0x25)
	p.putLong(address)
}

// Set gives r a value.
func (p *Program) Set(r Register, v Value) {
	switch {
	case v.in != nil:
		p.registers(0x89, r, *v.in) // mov r, s
	case v.address != 0:
		p.memory(0x8b, r, v.address) // mov r, [address]
	default:
		p.put(0xb8 | byte(r)) // mov r, number
		p.putLong(v.number)
	}
}

// Store puts r at an address.
func (p *Program) Store(address int, r Register) { p.memory(0x89, r, uint32(address)) }

// Add makes r the sum of r and s.
func (p *Program) Add(r, s Register) { p.registers(0x01, r, s) }

// Subtract makes r what is left of r without s.
func (p *Program) Subtract(r, s Register) { p.registers(0x29, r, s) }

// Call calls the kernel, by the number that the call has on amd64, with at most three
// arguments; those that are not given are as they were set.
func (p *Program) Call(number int, arguments ...Value) {
	for i, v := range arguments {
		p.Set([]Register{First, Second, Third}[i], v)
	}
	p.Set(Result, Number(number))
	p.put(0x0f, 0x05) // syscall
}

// Label names this place.
func (p *Program) Label(name string) { p.labels[name] = len(p.code) }

// jump goes on at a label if a condition of the processor holds.
func (p *Program) jump(condition byte, label string) {
	p.put(0x0f, 0x80|condition)
	p.jumps[len(p.code)] = label
	p.putLong(0)
}

// IfNotPositive goes on at a label if the last call returned an error, or nothing.
func (p *Program) IfNotPositive(label string) {
	p.registers(0x85, Result, Result) // test
	p.jump(0xe, label)                // jle
}

// IfNotZero goes on at a label if the last call returned anything but 0.
func (p *Program) IfNotZero(label string) {
	p.registers(0x85, Result, Result)
	p.jump(0x5, label) // jne
}

// IfLess goes on at a label if r is less than a number, or than what lies at an address;
// neither is below zero.
func (p *Program) IfLess(r Register, v Value, label string) {
	if v.address != 0 {
		p.memory(0x3b, r, v.address) // cmp r, [address]
	} else {
		p.put(all64, 0x81, 0xf8|byte(r)) // cmp r, number
		p.putLong(v.number)
	}
	p.jump(0x2, label) // jb
}

// File is the program as a file that can be run.
func (p *Program) File() []byte {
	for where, label := range p.jumps {
		binary.LittleEndian.PutUint32(p.code[where:], uint32(p.labels[label]-(where+4)))
	}
	code := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: start, Paddr: start, Align: page}
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phentsize: uint16(binary.Size(code)), Phnum: 2,
	}
	head.Ehsize = uint16(binary.Size(head))
	head.Phoff = uint64(head.Ehsize)
	before := uint64(head.Ehsize + head.Phnum*head.Phentsize)
	head.Entry = start + before
	code.Filesz = before + uint64(len(p.code))
	code.Memsz = code.Filesz
	var out bytes.Buffer
	for _, part := range []any{head, code, p.room, p.code} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes all
	}
	return out.Bytes()
}
