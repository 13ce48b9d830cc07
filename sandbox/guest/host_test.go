package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

func TestCommands(t *testing.T) {
	b := newBox(t, guest.Options{})
	script := filepath.Join(b.work, "script")
	plain := filepath.Join(b.work, "plain")
	for name, mode := range map[string]os.FileMode{script: 0o755, plain: 0o644} {
		if err := os.WriteFile(name, []byte("#!/no/such/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		c      sandbox.Command
		exit   int
		stdout string
		stderr string
		reason string
	}{
		{"output is kept apart", sandbox.Command{Shell: "echo out; echo err >&2; exit 3"}, 3, "out\n", "err\n", ""},
		{"arguments are not changed", sandbox.Command{Argv: []string{"printf", "%s|", "a b", "", "$HOME", "\xff\xfe"}}, 0, "a b||$HOME|\xff\xfe|", "", ""},
		{"no input ends at once (BR-02)", sandbox.Command{Argv: []string{"cat"}}, 0, "", "", ""},
		{"missing program", sandbox.Command{Argv: []string{"no-such-program"}}, 127, "", "", "run no-such-program: no such program"},
		{"missing path", sandbox.Command{Argv: []string{"/no/such"}}, 127, "", "", "run /no/such: no such program"},
		{"missing interpreter", sandbox.Command{Argv: []string{"./script"}}, 127, "", "", "interpreter"},
		{"not executable", sandbox.Command{Argv: []string{"./plain"}}, 126, "", "", "permission denied"},
		{"a folder is no program", sandbox.Command{Argv: []string{"/usr"}}, 126, "", "", "permission denied"},
		{"missing folder", sandbox.Command{Argv: []string{"true"}, Dir: "/no/such"}, 126, "", "", "enter folder /no/such: no such file"},
		{"signal", sandbox.Command{Shell: "kill -SEGV $$"}, 139, "", "", "ended by signal 11"},
		{
			"user, group, privileges",
			sandbox.Command{Shell: "id -u; id -g; grep -E 'NoNewPrivs|CapEff|CapPrm|CapAmb' /proc/self/status | tr -d '\\t'"},
			0,
			"1000\n1000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\n", "", "",
		},
		{"environment, the command's last", sandbox.Command{Shell: "echo $USER $HOME $A", Env: []string{"A=1", "USER=me", "A=2"}}, 0, "me /home/agent 2\n", "", ""},
		{"own outputs can be opened by name (BR-26)", sandbox.Command{Shell: "echo a >/dev/stdout; echo b >/dev/stderr; echo c >/proc/self/fd/1"}, 0, "a\nc\n", "b\n", ""},
		{"no descriptor but three", sandbox.Command{Shell: "ls /proc/self/fd | wc -l"}, 0, "4\n", "", ""},
		{"own session", sandbox.Command{Shell: "set -- $(cat /proc/$$/stat); test $6 = $$ && echo leader"}, 0, "leader\n", "", ""},
		// The real-time signals above 31 belong to the C library and pass through Go's hands untouched.
		{"default signals", sandbox.Command{Shell: "echo $(( 0x$(sed -n 's/SigIgn:.//p' /proc/self/status) & 0x7fffffff ))"}, 0, "0\n", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, stdout, stderr := b.do(t, tt.c)
			if r.Exit != tt.exit || stdout != tt.stdout || stderr != tt.stderr {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d, %q, %q", r.Exit, stdout, stderr, tt.exit, tt.stdout, tt.stderr)
			}
			if !strings.Contains(r.Reason, tt.reason) || (tt.reason == "") != (r.Reason == "") {
				t.Errorf("reason %q, want %q", r.Reason, tt.reason)
			}
			if r.Started.IsZero() || r.Ended.Before(r.Started) || r.Lost || r.TimedOut {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	b := newBox(t, guest.Options{})
	long := strings.Repeat("x", 65537)
	many := make([]string, 200)
	for i := range many {
		many[i] = long
	}
	for name, c := range map[string]sandbox.Command{
		"no id":             {Argv: []string{"true"}},
		"bad id":            {ID: "../x", Argv: []string{"true"}},
		"long id":           {ID: cofferdam.ExecID(strings.Repeat("a", 65)), Argv: []string{"true"}},
		"nothing":           {ID: "a"},
		"both":              {ID: "a", Argv: []string{"true"}, Shell: "true"},
		"long shell":        {ID: "a", Shell: long},
		"empty program":     {ID: "a", Argv: []string{""}},
		"zero byte":         {ID: "a", Argv: []string{"echo", "a\x00b"}},
		"relative folder":   {ID: "a", Argv: []string{"true"}, Dir: "x"},
		"bad environment":   {ID: "a", Argv: []string{"true"}, Env: []string{"=x"}},
		"negative timeout":  {ID: "a", Argv: []string{"true"}, Timeout: -1},
		"more than 4 MiB":   {ID: "a", Argv: many},
		"zero byte in env":  {ID: "a", Argv: []string{"true"}, Env: []string{"A=\x00"}},
		"zero byte in dir":  {ID: "a", Argv: []string{"true"}, Dir: "/\x00"},
		"env without value": {ID: "a", Argv: []string{"true"}, Env: []string{"A"}},
	} {
		if err := b.Start(testContext(t), c); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
	if _, err := b.Attach(testContext(t), "nobody", sandbox.Offsets{}, nil); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("attach to nobody: %v", err)
	}
	if err := b.Kill(testContext(t), "nobody"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("kill nobody: %v", err)
	}
	if err := b.Write(testContext(t), "nobody", nil, true); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("write to nobody: %v", err)
	}
	if r, _, _ := b.do(t, sandbox.Command{Argv: []string{"true"}}); r.Exit != 0 {
		t.Errorf("the box does not work any more: %+v", r)
	}
}

func TestLargeArguments(t *testing.T) {
	b := newBox(t, guest.Options{})
	argv := []string{"sh", "-c", `for a; do printf %s "$a"; done | wc -c`, "sh"}
	for range 15 {
		argv = append(argv, strings.Repeat("y", 100_000))
	}
	if r, stdout, _ := b.do(t, sandbox.Command{Argv: argv}); r.Exit != 0 || strings.TrimSpace(stdout) != "1500000" {
		t.Errorf("exit %d, %q bytes", r.Exit, stdout)
	}
	r, _, _ := b.do(t, sandbox.Command{Argv: []string{"true", strings.Repeat("y", 200_000)}})
	if r.Exit != 126 || !strings.Contains(r.Reason, "argument list too long") {
		t.Errorf("one argument over the kernel's bound: %+v", r)
	}
}

func TestStartIsIdempotent(t *testing.T) {
	b := newBox(t, guest.Options{})
	c := sandbox.Command{ID: "once", Shell: "echo ran >>ran"}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := b.Start(testContext(t), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.finish(t, c.ID)
	if got, err := os.ReadFile(filepath.Join(b.work, "ran")); err != nil || string(got) != "ran\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestInput(t *testing.T) {
	b := newBox(t, guest.Options{})
	ctx := testContext(t)
	start := func(id cofferdam.ExecID, shell string) {
		t.Helper()
		if err := b.Start(ctx, sandbox.Command{ID: id, Shell: shell, Stdin: true}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("all bytes arrive", func(t *testing.T) {
		start("sum", "cat")
		in := pattern(3 << 20)
		go func() {
			if err := b.Write(ctx, "sum", in, true); err != nil {
				t.Error(err)
			}
		}()
		if _, stdout, _ := b.finish(t, "sum"); stdout != string(in) {
			t.Errorf("%d bytes came back of %d, or other ones", len(stdout), len(in))
		}
		if err := b.Write(ctx, "sum", []byte("x"), false); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("write after the end: %v", err)
		}
	})
	t.Run("who does not read makes the writer wait, and nobody else", func(t *testing.T) {
		start("deaf", "sleep 1000")
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if err := b.Write(short, "deaf", pattern(1<<20), false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		if r, _, _ := b.do(t, sandbox.Command{Argv: []string{"true"}}); r.Exit != 0 {
			t.Errorf("another command: %+v", r)
		}
		if err := b.Kill(ctx, "deaf"); err != nil {
			t.Error(err)
		}
	})
	t.Run("who closes its input does not stop the writer", func(t *testing.T) {
		start("closed", "exec <&-; read x; sleep 0.3; echo done")
		if err := b.Write(ctx, "closed", pattern(1<<20), true); err != nil && cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("write: %v", err)
		}
		if r, stdout, _ := b.finish(t, "closed"); r.Exit != 0 || stdout != "done\n" {
			t.Errorf("%+v %q", r, stdout)
		}
	})
	t.Run("without input", func(t *testing.T) {
		if err := b.Start(ctx, sandbox.Command{ID: "none", Shell: "sleep 1000"}); err != nil {
			t.Fatal(err)
		}
		if err := b.Write(ctx, "none", []byte("x"), false); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("write: %v", err)
		}
		b.Kill(ctx, "none")
	})
}

// pattern is n bytes in which every place can be told from its neighbours.
func pattern(n int) []byte {
	p := make([]byte, 0, n+32)
	for i := 0; len(p) < n; i++ {
		p = fmt.Appendf(p, "%x\xff\x00\n", i)
	}
	return p[:n]
}

func TestTailIsNotLost(t *testing.T) { // BR-29
	b := newBox(t, guest.Options{})
	for i := range 30 {
		for _, tt := range []struct {
			shell string
			want  int
		}{{"seq 1 100000", 588895}, {"head -c 66890 /dev/zero", 66890}} {
			if _, stdout, _ := b.do(t, sandbox.Command{Shell: tt.shell}); len(stdout) != tt.want {
				t.Fatalf("round %d, %s: %d bytes, want %d", i, tt.shell, len(stdout), tt.want)
			}
		}
	}
}

func TestFiftyAtOnce(t *testing.T) {
	b := newBox(t, guest.Options{})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			want := strings.Repeat(fmt.Sprintf("%d ", i), 20_000)
			shell := fmt.Sprintf("i=0; while [ $i -lt 20 ]; do printf '%%s' '%s'; i=$((i+1)); done; exit %d", strings.Repeat(fmt.Sprintf("%d ", i), 1000), i)
			if r, stdout, _ := b.do(t, sandbox.Command{Shell: shell}); r.Exit != i || stdout != want {
				t.Errorf("command %d: exit %d, %d bytes", i, r.Exit, len(stdout))
			}
		})
	}
	wg.Wait()
	if n := b.Running(); n != 0 {
		t.Errorf("%d still running", n)
	}
}

func TestBackgroundDoesNotHoldTheCommand(t *testing.T) {
	b := newBox(t, guest.Options{})
	long := longSleep()
	r, stdout, _ := b.do(t, sandbox.Command{ID: "bg", Shell: "sleep " + long + " & echo started"})
	if r.Exit != 0 || stdout != "started\n" || r.Ended.Sub(r.Started) > 10*time.Second {
		t.Errorf("%+v %q", r, stdout)
	}
	for end := time.Now().Add(time.Minute); !alive(t, "sleep\x00"+long); time.Sleep(5 * time.Millisecond) { // its shell may have ended before it began
		if time.Now().After(end) {
			t.Fatal("what runs in the background did not live on")
		}
	}
	if r, stdout, _ := b.do(t, sandbox.Command{Shell: "(until test -e late; do sleep 0.01; done; echo late) & echo early; touch late"}); stdout != "early\nlate\n" {
		t.Errorf("%+v %q", r, stdout)
	}
	if err := b.Kill(testContext(t), "bg"); err != nil { // also after its end
		t.Error(err)
	}
	if alive(t, "sleep\x00"+long) {
		t.Error("what runs in the background outlived the kill")
	}
}

// killFirst kills pid 1 of the box. Its parent, unshare, asks the kernel to kill it with
// itself; of some hundred times that was seen not to happen once.
func (b *box) killFirst() error {
	pid := b.init.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(first, syscall.SIGKILL)
}

func TestBoxEnds(t *testing.T) {
	b := newBox(t, guest.Options{})
	ctx := testContext(t)
	if err := b.Start(ctx, sandbox.Command{ID: "a", Shell: "echo before; sleep 1000"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := b.Attach(ctx, "a", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error {
		out.Write(p)
		return b.killFirst()
	})
	if err != nil || !r.Lost || r.Reason == "" || out.String() != "before\n" {
		t.Errorf("%+v, %v, %q", r, err, out.String())
	}
	select {
	case <-b.Done():
	case <-ctx.Done():
		t.Fatal("the box has not ended")
	}
	if err := b.Start(ctx, sandbox.Command{ID: "b", Shell: "true"}); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("start afterwards: %v", err)
	}
	if err := b.Kill(ctx, "a"); err != nil {
		t.Errorf("kill afterwards: %v", err)
	}
}

func TestHostEnds(t *testing.T) {
	b := newBox(t, guest.Options{})
	long := longSleep()
	if err := b.Start(testContext(t), sandbox.Command{ID: "a", Shell: "trap '' TERM HUP; setsid sleep " + long + " & sleep " + long}); err != nil {
		t.Fatal(err)
	}
	for !alive(t, "sleep\x00"+long) {
	}
	if err := b.Close("over"); err != nil {
		t.Fatal(err)
	}
	b.init.Wait()
	if alive(t, "sleep\x00"+long) {
		t.Error("a command outlived its host")
	}
	if _, err := os.Stat(b.journals); !os.IsNotExist(err) {
		t.Errorf("journals are still there: %v", err)
	}
}

// TestNothingLeaks runs many commands and looks for what they left behind here
// and in pid 1.
func TestNothingLeaks(t *testing.T) {
	b := newBox(t, guest.Options{})
	batch := func() {
		for range 8 {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { b.do(t, sandbox.Command{Shell: "cat; echo out; echo err >&2; sleep 0 &", Stdin: false}) })
			}
			wg.Wait()
		}
	}
	count := func() (ours, theirs int) {
		pid1 := childOf(t, b.init.Process.Pid)
		for range 6000 { // what just ended needs a moment
			ours, theirs = entries(t, "/proc/self/fd"), entries(t, "/proc/"+pid1+"/fd")
			if theirs <= 12 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return ours, theirs
	}
	batch()
	ours, theirs := count()
	batch()
	if o, th := count(); o > ours+4 || th > theirs+4 {
		t.Errorf("descriptors grew from %d to %d here and from %d to %d in pid 1", ours, o, theirs, th)
	}
}

func childOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil || len(bytes.Fields(b)) != 1 {
		t.Fatalf("children of unshare: %q, %v", b, err)
	}
	return string(bytes.Fields(b)[0])
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestCloseUnderReaders takes the journals away while somebody still reads.
func TestCloseUnderReaders(t *testing.T) {
	b := newBox(t, guest.Options{})
	c := sandbox.Command{ID: "a", Shell: "seq 1 100000; sleep 1000"}
	if err := b.Start(testContext(t), c); err != nil {
		t.Fatal(err)
	}
	settled(t, b, "a", 588895)
	var out collector
	closed := make(chan error, 1)
	r, err := b.Attach(testContext(t), "a", sandbox.Offsets{}, func(s sandbox.Stream, off int64, p []byte) error {
		if off == 0 {
			closed <- b.Close("closed")
		}
		return out.sink(s, off, p)
	})
	if err != nil || !r.Lost || r.Reason != "closed" || out[1].Len() != 588895 {
		t.Errorf("%+v, %v, %d bytes", r, err, out[1].Len())
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := b.Attach(testContext(t), "a", sandbox.Offsets{}, nil); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("attach after the journals are gone: %v", err)
	}
}

func TestWatch(t *testing.T) {
	var watched []cofferdam.ExecID
	b := newBox(t, guest.Options{Watch: func(id cofferdam.ExecID) func(*sandbox.Result) {
		watched = append(watched, id)
		return func(r *sandbox.Result) { r.Exhausted = append(r.Exhausted, sandbox.ExhaustedDisk) }
	}})
	r, _, _ := b.do(t, sandbox.Command{ID: "w", Shell: "exit 1"})
	if len(r.Exhausted) != 1 || r.Exhausted[0] != sandbox.ExhaustedDisk || len(watched) != 1 || watched[0] != "w" {
		t.Errorf("%+v %v", r, watched)
	}
}

func TestLimits(t *testing.T) {
	b := newBox(t, guest.Options{Config: guest.Config{OpenFiles: 1024, PIDs: 300}})
	if _, stdout, _ := b.do(t, sandbox.Command{Shell: "ulimit -Hn; ulimit -Sn; ulimit -Hu 2>/dev/null || bash -c 'ulimit -Hu'"}); stdout != "1024\n1024\n300\n" {
		t.Errorf("limits %q", stdout)
	}
}
