package loop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// use makes one call in a machine's folder.
func use(t *testing.T, m *machine, id, name, input string) done {
	t.Helper()
	b := &brain{}
	d, err := b.perform(t.Context(), hand{m, cofferdam.ExecID(id)}, newCall("c", name, input))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTools(t *testing.T) {
	m := newMachine(t)
	m.file("a.txt", "one\ntwo\nthree\n")
	m.file("-dash", "dash\n")
	m.file("empty", "")
	m.file("no-end", "last line has no end")
	m.file("binary", "a\xff\x00b")
	if err := os.Mkdir(filepath.Join(m.dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("mkfifo", filepath.Join(m.dir, "pipe")).Run(); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name, input string
		failed      bool
		says        string
	}{
		{"read", `{"path":"a.txt"}`, false, "the file has 3 lines\none\ntwo\nthree\n"},
		{"read", `{"path":"a.txt","line":2,"lines":1}`, false, "from line 2 on; the file has 3 lines\ntwo\n"},
		{"read", `{"path":"a.txt","line":"3"}`, false, "three"},
		{"read", `{"path":"a.txt","line":99}`, false, "from line 99 on"},
		{"read", `{"path":"a.txt","lines":1e9}`, false, "three"},
		{"read", `{"path":"-dash"}`, false, "dash"},
		{"read", `{"path":"empty"}`, false, "the file has 0 lines"},
		{"read", `{"path":"no-end"}`, false, "last line"},
		{"read", `{"path":"nowhere"}`, true, "there is no file nowhere"},
		{"read", `{"path":"folder"}`, true, "folder is a folder"},
		{"read", `{"path":"pipe"}`, true, "not an ordinary file"},
		{"read", `{"path":"/dev/zero"}`, true, "not an ordinary file"},
		{"read", `{"path":""}`, true, "there is no file"},
		{"read", `{"path":"a.txt","line":0}`, true, "line is not a number from 1"},
		{"read", `{"path":"a.txt","line":-4}`, true, "line is not a number from 1"},
		{"read", `{"path":"a.txt","line":true}`, true, "line is not a number from 1"},
		{"read", `{"path":7}`, true, "path is not a text"},
		{"read", `{}`, true, "path is missing"},
		{"read", `{"path":null}`, true, "path is missing"},
		{"shell", `{"command":"touch /work/ran","sandbox":false}`, true, `shell takes no "sandbox"`},
		{"shell", `{"command":"touch /work/ran","cwd":"/"}`, true, `shell takes no "cwd"`},
		{"read", `{"path":"a\u0000b"}`, true, "zero byte"},
		{"read", `{"path":"` + strings.Repeat("x", maxPath+1) + `"}`, true, "4096 bytes"},
		{"read", `nonsense`, true, "it is not a JSON object"},
		{"write", `{"path":"new/deep/f","text":"☕\u0000\n"}`, false, "written, 5 bytes"},
		{"write", `{"path":"-new","text":"x"}`, false, "written"},
		{"write", `{"path":"empty","text":""}`, false, "written, 0 bytes"},
		{"write", `{"path":"folder","text":"x"}`, true, "not an ordinary file"},
		{"write", `{"path":"pipe","text":"x"}`, true, "not an ordinary file"},
		{"write", `{"path":" ","text":"x"}`, true, "path is empty"},
		{"write", `{"path":"/proc/nowhere/x","text":"x"}`, true, "the file was not written"},
		{"edit", `{"path":"a.txt","old":"two\n","new":""}`, false, "changed"},
		{"edit", `{"path":"a.txt","old":"two","new":"2"}`, true, "does not occur"},
		{"edit", `{"path":"a.txt","old":"e","new":"E"}`, true, "occurs 3 times"},
		{"edit", `{"path":"a.txt","old":"","new":"E"}`, true, "old is empty"},
		{"edit", `{"path":"a.txt","old":"x","new":"x"}`, true, "the same"},
		{"edit", `{"path":"nowhere","old":"x","new":"y"}`, true, "there is no file"},
		{"edit", `{"path":"binary","old":"b","new":"B"}`, false, "changed"},
		{"search", `{"pattern":"^thr"}`, false, "a.txt:2:three"},
		{"search", `{"pattern":"thr","path":"a.txt"}`, false, "three"},
		{"search", `{"pattern":"nothing like it"}`, false, "nothing was found"},
		{"search", `{"pattern":"-e"}`, false, "nothing was found"},
		{"search", `{"pattern":"("}`, true, "the search ended"},
		{"search", `{"pattern":"x","path":"nowhere"}`, true, "the search ended"},
		{"search", `{"pattern":""}`, true, "pattern is empty"},
		{"shell", `{"command":"echo out; echo err >&2; exit 3"}`, true, "exit 3\nout\n[standard error]\nerr"},
		{"shell", `{"command":"true","timeout":1.5}`, false, "exit 0"},
		{"shell", `{"command":" "}`, true, "the command is empty"},
		{"shell", `{"command":"` + strings.Repeat("x", maxShell+1) + `"}`, true, "write a script"},
		{"teleport", `{}`, true, "there is no tool of this name"},
	} {
		d := use(t, m, fmt.Sprintf("loop-1-%d", i), tt.name, tt.input)
		text := d.head
		if d.text != "" {
			text += "\n" + d.text
		}
		if d.failed != tt.failed || !strings.Contains(text, tt.says) {
			t.Errorf("%s %.80s: failed %v\n%s", tt.name, tt.input, d.failed, text)
		}
	}
	if m.read("new/deep/f") != "☕\x00\n" || m.read("a.txt") != "one\nthree\n" || m.read("binary") != "a\xff\x00B" || m.read("empty") != "" {
		t.Error("the files are not as they should be")
	}
}

// TestWritesKeepLinks: a link is written through, and modes stay. Where links
// lead is the box's business; see testdata/attacks/CMP-04.txtar.
func TestWritesKeepLinks(t *testing.T) {
	m := newMachine(t)
	m.file("target", "old\n")
	if err := os.Chmod(filepath.Join(m.dir, "target"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", filepath.Join(m.dir, "link")); err != nil {
		t.Fatal(err)
	}
	use(t, m, "a", "write", `{"path":"link","text":"new\n"}`)
	use(t, m, "b", "edit", `{"path":"link","old":"new","new":"newer"}`)
	info, err := os.Lstat(filepath.Join(m.dir, "link"))
	if err != nil || info.Mode()&os.ModeSymlink == 0 || m.read("target") != "newer\n" {
		t.Errorf("%v %v %q", info, err, m.read("target"))
	}
	if info, err = os.Stat(filepath.Join(m.dir, "target")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
}

// stealthy changes what commands see or get, as other programs in the box, a
// redactor or a server that ended can.
type stealthy struct {
	*machine
	out   func(c sandbox.Command, o Output) Output
	stdin func([]byte) []byte
}

func (s stealthy) Exec(ctx context.Context, c sandbox.Command, stdin []byte) (Output, error) {
	if s.stdin != nil && stdin != nil {
		stdin = s.stdin(stdin)
	}
	o, err := s.machine.Exec(ctx, c, stdin)
	if s.out != nil {
		o = s.out(c, o)
	}
	return o, err
}

// TestEditChangesWhatItRead: nothing else, not twice, and not in part.
func TestEditChangesWhatItRead(t *testing.T) {
	edit := func(h Hands, id string) done {
		d, err := (&brain{}).perform(t.Context(), hand{h, cofferdam.ExecID(id)}, newCall("c", "edit", `{"path":"f","old":"b","new":"bb"}`))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	m := newMachine(t)
	m.file("f", "a b c\n")
	racing := stealthy{machine: m, out: func(c sandbox.Command, o Output) Output {
		if !c.Stdin {
			m.file("f", "changed meanwhile\n")
		}
		return o
	}}
	if d := edit(racing, "race"); !d.failed || m.read("f") != "changed meanwhile\n" {
		t.Errorf("%+v, the file is %q", d, m.read("f"))
	}
	m.file("f", "a b secret\n")
	redacted := stealthy{machine: m, out: func(_ sandbox.Command, o Output) Output {
		o.Out = strings.ReplaceAll(o.Out, "secret", "[redacted]")
		return o
	}}
	if d := edit(redacted, "redacted"); !d.failed || m.read("f") != "a b secret\n" {
		t.Errorf("%+v, the file is %q", d, m.read("f"))
	}
	cut := stealthy{machine: m, stdin: func(p []byte) []byte { return p[:len(p)-3] }}
	if d := edit(cut, "cut"); !d.failed || m.read("f") != "a b secret\n" {
		t.Errorf("%+v, the file is %q", d, m.read("f"))
	}
	// The write happened, and its process ended before it was known: it runs
	// again, under another id.
	if d := edit(m, "twice"); d.failed {
		t.Errorf("%+v", d)
	}
	delete(m.ran, "twice-write")
	if d := edit(m, "twice"); d.failed || m.read("f") != "a bb secret\n" {
		t.Errorf("%+v, the file is %q", d, m.read("f"))
	}
	m.file("f", strings.Repeat("x", MaxOutput)+"b")
	if d := edit(m, "large"); !d.failed || !strings.Contains(d.text, "edit takes 1048576 at most") {
		t.Errorf("%+v", d)
	}
}

func TestResultsAreBounded(t *testing.T) {
	m := newMachine(t)
	m.file("big", strings.Repeat("a long line of a file\n", 100_000))
	m.file("wide", strings.Repeat("x", 900_000)+"\n")
	p := newPlay(t, func(q seen) reply {
		if q.Turn == 1 {
			return reply{calls: []string{
				`shell {"command":"seq 1 200000"}`, `read {"path":"big","lines":5000}`, `search {"pattern":"a"}`, `read {"path":"wide"}`, `search {"pattern":"x"}`,
			}}
		}
		return reply{say: "done"}
	})
	p.machine = m
	p.end()
	for _, e := range p.memory.entries {
		if len(e.Body) > 3*maxShown {
			t.Errorf("entry %d has %d bytes", e.Number, len(e.Body))
		}
	}
	last := p.provider.asked[1]
	shown := last.Messages[2].Content
	if !strings.Contains(shown[0].Content, "\n1\n2\n") || !strings.Contains(shown[0].Content, "\n200000\n") || !strings.Contains(shown[0].Content, "bytes left out") {
		t.Errorf("%.200s", shown[0].Content)
	}
	if !strings.Contains(shown[2].Content, "these are the first") {
		t.Errorf("%.300s", shown[2].Content)
	}
	for _, e := range p.events {
		if len(e.Text) > 4<<10 {
			t.Errorf("an event has %d bytes", len(e.Text))
		}
	}
}
