package assemble

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// Calls of the kernel on amd64, and where the programs here have room.
const (
	callWrite, callClose, callExit = 1, 3, 231

	room = 0x600000
)

// run runs a program and returns its exit code and what it printed.
func run(t *testing.T, p *Program) (code int, printed string) {
	t.Helper()
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		t.Skip("not run here: the programs are for Linux on amd64")
	}
	path := filepath.Join(t.TempDir(), "program")
	syscall.ForkLock.RLock() // a process made meanwhile would hold it open for writing
	err := os.WriteFile(path, p.File(), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path).Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// TestProgram: each thing that a program can do does that.
func TestProgram(t *testing.T) {
	exit := func(p *Program) { p.Call(callExit, In(Kept)) }
	jumps := func(condition func(p *Program)) func(*Program) {
		return func(p *Program) { // 7 if it goes on at the label
			p.Set(Kept, Number(7))
			condition(p)
			p.Set(Kept, Number(8))
			p.Label("there")
			exit(p)
		}
	}
	back := func(p *Program) { // to a label that comes before
		p.Set(Kept, Number(0))
		p.Set(Third, Number(2))
		p.Label("again")
		p.Add(Kept, Third)
		p.IfLess(Kept, Number(9), "again")
		exit(p)
	}
	for name, c := range map[string]struct {
		does func(*Program)
		want int
	}{
		"a number":         {func(p *Program) { p.Set(Kept, Number(42)); exit(p) }, 42},
		"a register":       {func(p *Program) { p.Set(Second, Number(43)); p.Set(Kept, In(Second)); exit(p) }, 43},
		"room is zero":     {func(p *Program) { p.Set(Kept, At(room)); exit(p) }, 0},
		"stored":           {func(p *Program) { p.Set(Third, Number(44)); p.Store(room+8, Third); p.Set(Kept, At(room+8)); exit(p) }, 44},
		"sum":              {func(p *Program) { p.Set(Kept, Number(40)); p.Set(Second, Number(5)); p.Add(Kept, Second); exit(p) }, 45},
		"difference":       {func(p *Program) { p.Set(Kept, Number(50)); p.Set(Second, Number(4)); p.Subtract(Kept, Second); exit(p) }, 46},
		"what a call says": {func(p *Program) { p.Call(callClose, Number(77)); p.Set(Kept, In(Result)); exit(p) }, 256 - int(syscall.EBADF)},
		"kept":             {func(p *Program) { p.Set(Kept, Number(47)); p.Call(callClose, Number(77)); exit(p) }, 47},
		"an error":         {jumps(func(p *Program) { p.Call(callClose, Number(77)); p.IfNotPositive("there") }), 7},
		"nothing":          {jumps(func(p *Program) { p.Call(callClose, Number(0)); p.IfNotPositive("there") }), 7},
		"something":        {jumps(func(p *Program) { p.Call(callWrite, Number(1), Number(room), Number(1)); p.IfNotPositive("there") }), 8},
		"not zero":         {jumps(func(p *Program) { p.Call(callClose, Number(77)); p.IfNotZero("there") }), 7},
		"zero":             {jumps(func(p *Program) { p.Call(callClose, Number(0)); p.IfNotZero("there") }), 8},
		"less":             {jumps(func(p *Program) { p.IfLess(Kept, Number(8), "there") }), 7},
		"as much":          {jumps(func(p *Program) { p.IfLess(Kept, Number(7), "there") }), 8},
		"less than there":  {jumps(func(p *Program) { p.Set(Third, Number(8)); p.Store(room, Third); p.IfLess(Kept, At(room), "there") }), 7},
		"as much as there": {jumps(func(p *Program) { p.Store(room, Kept); p.IfLess(Kept, At(room), "there") }), 8},
		"again and again":  {back, 10},
		"code is fixed":    {func(p *Program) { p.Store(start, Kept); exit(p) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(room, 64)
			c.does(p)
			if got, _ := run(t, p); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestArguments: a call has its arguments in their order, and what it is told to print
// is printed.
func TestArguments(t *testing.T) {
	p := New(room, 8)
	p.Set(Kept, Number('o'|'k'<<8))
	p.Store(room, Kept)
	p.Call(callWrite, Number(1), Number(room), Number(2))
	p.Call(callExit, Number(0))
	if code, out := run(t, p); code != 0 || out != "ok" {
		t.Errorf("%d, %q", code, out)
	}
}

// TestFile: what can be run cannot be written, and what can be written cannot be run.
func TestFile(t *testing.T) {
	p := New(room, 100)
	p.Call(callExit, Number(0))
	f, err := elf.NewFile(bytes.NewReader(p.File()))
	if err != nil || len(f.Progs) != 2 || f.Progs[0].Flags != elf.PF_R|elf.PF_X || f.Progs[1].Flags != elf.PF_R|elf.PF_W {
		t.Fatalf("%+v, %v", f, err)
	}
	if r := f.Progs[1]; r.Vaddr != room || r.Memsz != 100 || r.Filesz != 0 {
		t.Errorf("its room is %+v", r)
	}
}
