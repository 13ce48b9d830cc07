package gvisor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// segments fails if a program is not one segment that can be run and not written, and
// one that is the other way round.
func segments(t *testing.T, program []byte) []*elf.Prog {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil || len(f.Progs) != 2 || f.Progs[0].Flags != elf.PF_R|elf.PF_X || f.Progs[1].Flags != elf.PF_R|elf.PF_W {
		t.Fatalf("%+v, %v", f, err)
	}
	return f.Progs
}

// TestRename: the program gives a name of any length that a Spec may have, and no
// command of the box may run it to any effect.
func TestRename(t *testing.T) {
	segments(t, renameProgram())
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Hostname = "first" }).(*box)
	for _, name := range []string{"a", "t-42", strings.Repeat("x", 63)} {
		if err := nameBox(d.conf, b.container, name); err != nil {
			t.Fatal(err)
		}
		if got, r := sh(t, b, "uname -n"); got != name || r.Exit != 0 {
			t.Errorf("the box is called %q, want %q", got, name)
		}
	}
	before, _ := sh(t, b, "uname -n")
	said, _ := sh(t, b, "printf mine | /"+programDir+"/"+renameName+" | od -An -tu1")
	if after, _ := sh(t, b, "uname -n"); said != "255" || after != before {
		t.Errorf("a command renamed the box to %q: it said %q", after, said)
	}
}

// waits is a standby that runs here, outside of any box.
type waits struct {
	cmd       *exec.Cmd
	say, hear *os.File
	out       bytes.Buffer
}

// standBy starts one.
func standBy(t *testing.T) *waits {
	t.Helper()
	if !hasCode {
		t.Skip("not run here: there is no program for this processor")
	}
	path := filepath.Join(t.TempDir(), standbyName)
	syscall.ForkLock.RLock() // a process made meanwhile would hold it open for writing
	err := os.WriteFile(path, standbyProgram(), 0o755)
	syscall.ForkLock.RUnlock()
	must(t, err)
	in, say, err := os.Pipe()
	must(t, err)
	hear, out, err := os.Pipe()
	must(t, err)
	w := &waits{cmd: exec.Command(path), say: say, hear: hear}
	w.cmd.ExtraFiles, w.cmd.Stdout = []*os.File{in, out}, &w.out
	must(t, w.cmd.Start(), in.Close(), out.Close())
	t.Cleanup(func() {
		say.Close()
		hear.Close()
		_ = w.cmd.Process.Kill() // it has ended, if nothing is wrong
	})
	return w
}

// message is what a standby reads that is to become a program with these arguments.
func message(folder, program string, args ...string) []byte {
	const head = 5 * 8
	lists, text := head+8*(len(args)+2), []byte{}
	var words []uint64
	place := func(s string) uint64 {
		text = append(append(text, s...), 0)
		return uint64(guest.StandbyAt + lists + len(text) - len(s) - 1)
	}
	words = append(words, 0, place(folder), place(program), guest.StandbyAt+head, guest.StandbyAt+uint64(lists)-8)
	for _, arg := range args {
		words = append(words, place(arg))
	}
	words = append(words, 0, 0) // ends the arguments; there is no environment
	words[0] = uint64(lists + len(text))
	out, _ := binary.Append(nil, binary.LittleEndian, words) // a slice takes all
	return append(out, text...)
}

// TestStandbyProgram: it becomes what it reads, in whatever pieces that comes; where it
// cannot it says why, and it ends when nobody can tell it anything any more.
func TestStandbyProgram(t *testing.T) {
	if room := segments(t, standbyProgram())[1]; room.Vaddr != guest.StandbyAt || room.Memsz != guest.StandbyRoom {
		t.Errorf("its room is %+v", room)
	}
	echo := message("/usr", "/bin/sh", "sh", "-c", "pwd; echo $0 $#; test -e /proc/$$/fd/3 || test -e /proc/$$/fd/4 || echo closed", "x", "y")
	for name, c := range map[string]struct {
		told []byte
		each int           // bytes at once; 0: all
		why  syscall.Errno // that it could not
		out  string
	}{
		"at once":            {told: echo, out: "/usr\nx 1\nclosed\n"},
		"in pieces":          {told: echo, each: 1, out: "/usr\nx 1\nclosed\n"},
		"in odd pieces":      {told: echo, each: 13, out: "/usr\nx 1\nclosed\n"},
		"nothing":            {},
		"a part of a number": {told: echo[:5]},
		"a part":             {told: echo[:len(echo)-1]},
		"more than its room": {told: append(binary.LittleEndian.AppendUint64(nil, guest.StandbyRoom+1), make([]byte, guest.StandbyRoom-8)...)},
		"no folder":          {told: message("/nothing", "/bin/sh", "sh"), why: unix.ENOENT},
		"a file":             {told: message("/etc/passwd", "/bin/sh", "sh"), why: unix.ENOTDIR},
		"no program":         {told: message("/", "/nothing", "x"), why: unix.ENOENT},
		"no right":           {told: message("/", "/etc/passwd", "x"), why: unix.EACCES},
		"no address":         {told: binary.LittleEndian.AppendUint64(nil, 8), why: unix.EFAULT},
	} {
		t.Run(name, func(t *testing.T) {
			w := standBy(t)
			each := c.each
			if each == 0 {
				each = max(len(c.told), 1)
			}
			for rest := c.told; len(rest) > 0; rest = rest[min(each, len(rest)):] {
				_, err := w.say.Write(rest[:min(each, len(rest))])
				must(t, err)
			}
			if c.why != 0 {
				var why int32
				must(t, binary.Read(w.hear, binary.LittleEndian, &why))
				if why != -int32(c.why) {
					t.Errorf("it says %d, want %d", why, -int32(c.why))
				}
				must(t, w.cmd.Process.Signal(syscall.Signal(0))) // it waits for us
			}
			must(t, w.say.Close())
			more, err := io.ReadAll(w.hear)
			must(t, err, w.cmd.Wait())
			if len(more) > 0 || w.out.String() != c.out {
				t.Errorf("it printed %q and said % x, want %q", w.out.String(), more, c.out)
			}
		})
	}
}
