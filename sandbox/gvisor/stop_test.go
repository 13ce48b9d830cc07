package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/netns"

	"golang.org/x/sys/unix"
)

// countUp is a command that prints a number ten times per second and ends with
// the exit code that it reads. A read that times out between a digit and its
// newline has the digit: it is kept.
const countUp = `i=0; line=; while :; do read -t 0.1 code; how=$?; line=$line$code; [ $how -le 128 ] && exit $line; i=$((i+1)); echo $i; done`

// output is what a command has printed until now.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) add(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) Len() int { return len(o.String()) }

// until waits until n lines are there.
func (o *output) until(t *testing.T, n int) {
	t.Helper()
	for range 6000 {
		if strings.Count(o.String(), "\n") >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not %d lines in a minute: %q", n, o.String())
}

// follow collects a command's output until it ends.
func follow(t *testing.T, b sandbox.Box, id cofferdam.ExecID, from int64) (out *output, wait func() sandbox.Result) {
	t.Helper()
	out = new(output)
	type end struct {
		r   sandbox.Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := b.Attach(context.Background(), id, sandbox.Offsets{Stdout: from}, func(_ sandbox.Stream, _ int64, p []byte) error {
			out.add(p)
			return nil
		})
		ended <- end{r, err}
	}()
	return out, func() sandbox.Result {
		t.Helper()
		select {
		case e := <-ended:
			if e.err != nil {
				t.Fatalf("attach: %v", e.err)
			}
			return e.r
		case <-time.After(time.Minute):
			t.Fatal("the command does not end")
		}
		return sandbox.Result{}
	}
}

// wantNumbers fails unless text counts from 1 without a gap.
func wantNumbers(t *testing.T, text string) int {
	t.Helper()
	lines := strings.Fields(text)
	for i, l := range lines {
		if l != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, l)
		}
	}
	return len(lines)
}

func state(t *testing.T, b sandbox.Box) sandbox.Status {
	t.Helper()
	s, err := b.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// must fails at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
		}
	}
}

// processes lists what runs in the box's control group.
func processes(t testing.TB, b sandbox.Box) []string {
	t.Helper()
	x := b.(*box)
	data, err := os.ReadFile(x.d.groups.Dir("memory", string(x.name)) + "/cgroup.procs")
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// cpuTime is what the processes of a box have used.
func cpuTime(t testing.TB, b sandbox.Box) time.Duration {
	t.Helper()
	var sum int64
	for _, pid := range processes(t, b) {
		data, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		var user, system int64
		fmt.Sscan(f[11], &user)
		fmt.Sscan(f[12], &system)
		sum += user + system
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// TestPause: a paused box uses no time, refuses calls at once and goes on where
// it was; what computes without system calls stops too.
func TestPause(t *testing.T) {
	ctx := context.Background()
	b := newBox(t, newDriver(t))
	must(t, b.Start(ctx, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countUp}, Stdin: true}))
	must(t, b.Start(ctx, sandbox.Command{ID: "spin", Shell: "while :; do :; done"}))
	out, wait := follow(t, b, "count", 0)
	out.until(t, 3)
	must(t, b.Pause(ctx), b.Pause(ctx))
	if s := state(t, b); s.State != sandbox.Suspended {
		t.Errorf("status %+v", s)
	}
	seen, used := stoodStill(t, b, out)
	began := time.Now()
	err := b.Start(ctx, sandbox.Command{ID: "new", Shell: "true"})
	if cofferdam.KindOf(err) != cofferdam.Conflict || cofferdam.HintOf(err) == "" || time.Since(began) > 30*time.Second {
		t.Errorf("start in a paused box: %v after %v", err, time.Since(began))
	}
	time.Sleep(time.Second)
	if out.Len() != seen {
		t.Error("a paused box prints")
	}
	if more := cpuTime(t, b) - used; more > 20*time.Millisecond {
		t.Errorf("a paused box used %v in a second", more)
	}
	must(t, b.Resume(ctx), b.Resume(ctx))
	if s := state(t, b); s.State != sandbox.Busy {
		t.Errorf("status %+v", s)
	}
	out.until(t, strings.Count(out.String(), "\n")+2)
	must(t, b.Write(ctx, "count", []byte("7\n"), true), b.Kill(ctx, "spin"))
	if r := wait(); r.Exit != 7 || r.Lost {
		t.Errorf("%+v", r)
	}
	if n := wantNumbers(t, out.String()); out.Len() <= seen || n < 3 {
		t.Errorf("%d numbers", n)
	}
	if _, err := b.Wait(ctx, sandbox.Idle); err != nil { // a killed command's end is told a moment later
		t.Fatal(err)
	}
	var states []sandbox.BoxState
	for i, c := range state(t, b).Changes {
		if c.Sequence != int64(i+1) || c.Reason == "" || c.Actor == "" || c.Time.IsZero() {
			t.Errorf("change %+v", c)
		}
		states = append(states, c.State)
	}
	if got := fmt.Sprint(states); got != "[creating ready busy suspending suspended busy idle]" {
		t.Errorf("changes %s", got)
	}
}

// stoodStill waits until a paused box has come to rest, which on a busy machine is a
// moment later, and returns what it has printed and used by then.
func stoodStill(t *testing.T, b sandbox.Box, out *output) (seen int, used time.Duration) {
	t.Helper()
	for range 60 {
		seen, used = out.Len(), cpuTime(t, b)
		if time.Sleep(time.Second); out.Len() == seen && cpuTime(t, b) == used {
			return seen, used
		}
	}
	t.Error("a paused box goes on")
	return seen, used
}

// wantClock fails unless text is a time in seconds between asked and now.
func wantClock(t *testing.T, text string, asked time.Time) {
	t.Helper()
	var s int64
	if fmt.Sscan(text, &s); s < asked.Unix()-1 || s > time.Now().Unix()+1 {
		t.Errorf("its clock says %s between %d and %d", text, asked.Unix(), time.Now().Unix())
	}
}

// TestSuspend: on disk a box has no process; its commands, streams, exit codes,
// files in memory, address and device are there again afterwards.
func TestSuspend(t *testing.T) {
	ctx := context.Background()
	b := newBox(t, newDriver(t))
	const who = `cat /etc/machine-id; cat /proc/net/route; python3 -c "
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for ask in 0x8915, 0x8927: print(fcntl.ioctl(s, ask, struct.pack('256s', b'` + netns.Device + `'))[18:24].hex())"`
	before, _ := sh(t, b, "echo kept >/tmp/f; echo kept >/work/f; "+who)
	if mac := strings.ReplaceAll(netns.BoxMAC, ":", ""); !strings.HasSuffix(before, mac) {
		t.Errorf("the box is not %s:\n%s", mac, before)
	}
	must(t, b.Start(ctx, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countUp}, Stdin: true}))
	out, wait := follow(t, b, "count", 0)
	out.until(t, 1)
	if ps := processes(t, b); len(ps) == 0 {
		t.Error("a running box has no process")
	}
	for range 2 {
		began := time.Now()
		must(t, b.Suspend(ctx), b.Suspend(ctx))
		t.Logf("suspended in %v", time.Since(began))
		if ps := processes(t, b); len(ps) > 0 {
			t.Errorf("a suspended box has processes %v", ps)
		}
		if s := state(t, b); s.State != sandbox.Suspended {
			t.Errorf("status %+v", s)
		}
		if err := b.Start(ctx, sandbox.Command{ID: "new", Shell: "true"}); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("start in a suspended box: %v", err)
		}
		began = time.Now()
		must(t, b.Resume(ctx))
		t.Logf("resumed in %v", time.Since(began))
	}
	must(t, b.Write(ctx, "count", []byte("9\n"), true))
	if r := wait(); r.Exit != 9 || r.Lost {
		t.Errorf("%+v", r)
	}
	wantNumbers(t, out.String())
	after, r := sh(t, b, "cat /tmp/f /work/f >/dev/null || exit 3; "+who)
	if after != before || r.Exit != 0 {
		t.Errorf("before:\n%s\nafter (exit %d):\n%s", before, r.Exit, after)
	}
	asked := time.Now()
	now, _ := sh(t, b, "date +%s")
	wantClock(t, now, asked)
	q, err := b.Wire(ctx)
	must(t, err)
	defer q.Close()
	must(t, b.Start(ctx, sandbox.Command{ID: "send", Shell: "exec bash -c 'for i in $(seq 50); do echo x >/dev/udp/10.99.0.1/53; sleep 0.05; done'"}))
	must(t, q.SetReadDeadline(time.Now().Add(time.Minute)))
	if n, err := q.Read(make([]byte, 1<<16)); err != nil || n < 14 {
		t.Errorf("the wire is dead: %d bytes, %v", n, err)
	}
}

// TestSuspendedBoxIsRemoved: nothing of a box that is destroyed on disk stays.
func TestSuspendedBoxIsRemoved(t *testing.T) {
	d := newDriver(t)
	for _, stop := range []func(sandbox.Box) error{
		func(b sandbox.Box) error { return b.Suspend(context.Background()) },
		func(b sandbox.Box) error { return b.Pause(context.Background()) },
	} {
		b := newBox(t, d)
		must(t, stop(b), b.Destroy(context.Background()))
		x := b.(*box)
		if _, err := os.Lstat(x.dir); !os.IsNotExist(err) {
			t.Errorf("its folder: %v", err)
		}
		if c, err := b.Wait(context.Background(), sandbox.Deleted); err != nil || c.State != sandbox.Deleted {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

// TestBoxThatIsKilledSaysSo: the end of a box's processes is a state with a
// reason, whether somebody asks or not.
func TestBoxThatIsKilledSaysSo(t *testing.T) {
	b := newBox(t, newDriver(t))
	must(t, unix.Kill(b.(*box).container.SandboxPid(), unix.SIGKILL))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := b.Wait(ctx, sandbox.Failed)
	if err != nil || c.State != sandbox.Failed || c.Reason == "" || c.Actor != sandbox.ByBox {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestBoxThatCannotGoOn: what was written is gone, so the box is failed, says so,
// and the outcome of its command is reported.
func TestBoxThatCannotGoOn(t *testing.T) {
	ctx := context.Background()
	b := newBox(t, newDriver(t))
	must(t, b.Start(ctx, sandbox.Command{ID: "cat", Argv: []string{"cat"}, Stdin: true}))
	_, wait := follow(t, b, "cat", 0)
	must(t, b.Suspend(ctx), os.RemoveAll(b.(*box).path(suspendedDir)))
	if err := b.Resume(ctx); err == nil || cofferdam.HintOf(err) == "" {
		t.Errorf("resume of nothing: %v", err)
	}
	if s := state(t, b); s.State != sandbox.Failed || !strings.Contains(s.Reason, "could not be resumed") {
		t.Errorf("status %+v", s)
	}
	if r := wait(); !r.Lost || r.Reason == "" {
		t.Errorf("its command: %+v", r)
	}
	if err := b.Resume(ctx); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("resume of a box that failed: %v", err)
	}
}

// TestSuspendedMemoryIsProved: what was written to the memory of a box on disk, a
// single byte of any file, or a file that stands for another, is never gone on with.
func TestSuspendedMemoryIsProved(t *testing.T) {
	d := newDriver(t)
	for name, change := range map[string]func(path string){
		"": func(path string) { // the benign twin: who only reads
			_, err := os.ReadFile(path)
			must(t, err)
		},
		"a byte": func(path string) {
			info, err := os.Stat(path)
			must(t, err)
			flip(t, path, info.Size()/2)
			must(t, os.Chtimes(path, info.ModTime(), info.ModTime())) // as if it had not been
		},
		"another file": func(path string) {
			data, err := os.ReadFile(path)
			must(t, err, os.Remove(path))
			must(t, os.WriteFile(path, data, 0o600))
		},
		"a file less": func(path string) { must(t, os.Remove(path)) },
	} {
		b := newBox(t, d)
		sh(t, b, "echo memory >/tmp/f")
		must(t, b.Suspend(t.Context()))
		files, err := filepath.Glob(b.(*box).path(suspendedDir) + "/*")
		if err != nil || len(files) == 0 {
			t.Fatalf("nothing is on disk: %v", err)
		}
		for _, path := range files {
			change(path)
		}
		err = b.Resume(t.Context())
		if name == "" {
			must(t, err)
			if got, _ := sh(t, b, "cat /tmp/f"); got != "memory" {
				t.Errorf("it goes on with %q", got)
			}
			continue
		}
		if cofferdam.KindOf(err) != cofferdam.Tampered || state(t, b).State != sandbox.Failed {
			t.Errorf("%s: %v, and it is %s", name, err, state(t, b).State)
		}
		must(t, b.Destroy(t.Context()))
	}
}
