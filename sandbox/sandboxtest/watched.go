package sandboxtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Watched runs what every driver must pass that has neither control groups nor
// images to mount: those of an ordinary user's keeper. open returns one that may go
// on without, strict one that may not.
func Watched(t *testing.T, open, strict func(t *testing.T) sandbox.Driver) {
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"status says what is watched", testWatchedStatus},
		{"memory", testWatchedMemory},
		{"memory of what a command left behind", testWatchedLeftover},
		{"workspace in memory", testWorkspaceInMemory},
		{"kept workspace", testWatchedWorkspace},
		{"a command that is over by itself", testOverByItself},
		{"files are counted", testWatchedFiles},
		{"a box ends for what it writes", testEndsForWriting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t)
			tt.run(t, &subject{Driver: d, tier: tierOf(t, d)})
		})
	}
	t.Run("limits are required", func(t *testing.T) { // who demands them gets no box without, and hears what to do
		d := strict(t)
		_, err := d.Create(testContext(t), (&subject{tier: tierOf(t, open(t))}).watched())
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "control-groups") || !strings.Contains(cofferdam.HintOf(err), "--limits watched") {
			t.Errorf("%v, hint %q", err, cofferdam.HintOf(err))
		}
	})
}

// watched is a spec with small limits.
func (s *subject) watched() sandbox.Spec {
	return sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: sandbox.HostImage,
		Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 2, PIDs: 128, OpenFiles: 256},
	}
}

// small makes a box of it; with keep its workspace is kept, and goes with the test.
func (s *subject) small(t *testing.T, keep bool, disk int64) (*testBox, sandbox.Spec) {
	t.Helper()
	spec := s.watched()
	spec.Limits.Disk = disk
	if keep {
		spec.Workspace, spec.Epoch = sandbox.WorkspaceID(cofferdam.NewID("w")), 1
		t.Cleanup(func() { s.forget(t, spec.Workspace) })
	}
	return s.box(t, func(x *sandbox.Spec) { *x = spec }), spec
}

// result runs text and returns what became of it.
func (b *testBox) result(t *testing.T, text string) (sandbox.Result, string) {
	t.Helper()
	r, out, _ := b.do(t, sandbox.Command{Shell: text, Timeout: patience})
	return r, strings.TrimSpace(out)
}

// until waits for what is true at some time.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for ctx := testContext(t); !ok(); time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

func testWatchedStatus(t *testing.T, s *subject) {
	for keep, want := range map[bool]string{false: sandbox.WorkspaceMemory, true: sandbox.WorkspaceWatched} {
		b, _ := s.small(t, keep, 64<<20)
		st, err := b.Status(testContext(t))
		if err != nil || !slices.Contains(st.Flags, sandbox.LimitsWatched) || !slices.Contains(st.Flags, want) || (st.Workspace != nil) != keep {
			t.Errorf("%+v, %v: want %s", st, err, want)
		}
	}
}

// A hog is ended, and the box goes on. It grows by 100 MiB a second, so that a watch on
// a busy machine sees it before it has more than gVisor's reserve, at which the box ends.
func testWatchedMemory(t *testing.T, s *subject) {
	b, _ := s.small(t, false, 64<<20)
	const hog = "exec python3 -c 'import time\nx = []\nwhile len(x) < %: x.append(bytearray(10 << 20)); time.sleep(0.1)'"
	if r, _ := b.result(t, strings.Replace(hog, "%", "20", 1)); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("200 MiB of 512: %+v", r)
	}
	if r, _ := b.result(t, strings.Replace(hog, "%", "200", 1)); r.Signal == 0 || r.Lost || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("2 GiB of 512 MiB: %+v", r)
	}
	if r, got := b.result(t, "echo on"); got != "on" || r.Exit != 0 {
		t.Errorf("afterwards: %q, %+v", got, r)
	}
}

// What a command left behind is ended, or the box is, though no command runs.
func testWatchedLeftover(t *testing.T, s *subject) {
	b, _ := s.small(t, false, 64<<20)
	const hog = `setsid python3 -c 'import os, time
while not os.path.exists("/tmp/go"): time.sleep(0.05)
x = []
while len(x) < 96: x.append(bytearray(16 << 20)); time.sleep(0.1)
open("/work/over", "w").close(); time.sleep(600)' >/dev/null 2>&1 & echo there`
	if r, got := b.result(t, hog); got != "there" || r.Exit != 0 {
		t.Fatalf("%q, %+v", got, r)
	}
	if jobs, err := b.Jobs(testContext(t)); err != nil || len(jobs) == 0 {
		t.Fatalf("control: it is not there: %+v, %v", jobs, err)
	}
	if r, _ := b.result(t, "touch /tmp/go"); r.Exit != 0 {
		t.Fatalf("%+v", r)
	}
	until(t, "it is ended", func() bool {
		jobs, err := b.Jobs(testContext(t))
		if err != nil {
			st, err := b.Status(testContext(t))
			return err == nil && st.State.Over()
		}
		return len(jobs) == 0
	})
	if st, err := b.Status(testContext(t)); err != nil || st.State.Over() {
		return
	}
	if r, got := b.result(t, "ls /work"); !r.Lost && got != "" {
		t.Errorf("a hog without a command got its memory: %s", got)
	}
}

// A workspace holds what the limit of disk says and no more, and the box goes on
// when it is full.
func testWorkspaceInMemory(t *testing.T, s *subject) {
	b, _ := s.small(t, false, 64<<20)
	if r, _ := b.result(t, "head -c 40M /dev/zero >/work/a"); r.Exit != 0 { // the benign twin
		t.Errorf("40 MiB: %+v", r)
	}
	if r, _ := b.result(t, "head -c 40M /dev/zero >/work/b"); r.Exit == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) {
		t.Errorf("80 MiB of 64: %+v", r)
	}
	if _, got := b.result(t, "rm /work/b; echo more >/work/c; cat /work/c"); got != "more" {
		t.Errorf("afterwards: %q", got)
	}
}

// wantEnded wants a command to be ended for what it wrote.
func (b *testBox) wantEnded(t *testing.T, text string) {
	t.Helper()
	if r, _ := b.result(t, text); r.TimedOut || r.Signal == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) || !strings.Contains(r.Reason, "/work holds") {
		t.Errorf("%s: %+v", text, r)
	}
}

// wantRoom waits until the workspace is found to be within its size.
func (b *testBox) wantRoom(t *testing.T) {
	t.Helper()
	until(t, "it has room", func() bool {
		r, _ := b.result(t, "true")
		return !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk)
	})
}

// A workspace that is kept is a folder of the host's: what is over its size ends,
// whichever way it was written, and the box can make room and goes on.
func testWatchedWorkspace(t *testing.T, s *subject) {
	b, spec := s.small(t, true, 64<<20)
	if r, _ := b.result(t, "head -c 40M /dev/zero >/work/a; ln /work/a /work/b; sync"); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("40 MiB with two names: %+v", r)
	}
	b.wantEnded(t, "setsid cat /dev/zero >/work/c & cat /dev/zero >/work/d; wait")
	if r, _ := b.result(t, "rm /work/b; rm /work/c /work/d"); r.Signal != 0 { // what makes room is not ended
		t.Errorf("making room: %+v", r)
	}
	b.wantRoom(t)
	b.wantEnded(t, "exec 3>/work/e; rm /work/e; cat /dev/zero >&3") // it has no name any more
	b.wantRoom(t)
	// Nor has this one, and no first thread holds it.
	b.wantEnded(t, `exec python3 -c 'import ctypes, os, threading
def write():
    f = os.open("/work/f", os.O_WRONLY | os.O_CREAT); os.unlink("/work/f")
    while True: os.write(f, bytes(1 << 20))
threading.Thread(target=write).start()
ctypes.CDLL(None).pthread_exit(None)'`)
	b.wantRoom(t)
	if r, got := b.result(t, "ls /work; echo more >/work/g; cat /work/g"); got != "a\nmore" || r.Exit != 0 || len(r.Exhausted) > 0 {
		t.Errorf("afterwards: %q, %+v", got, r)
	}
	if w := s.workspace(t, spec.Workspace); w.Used < 40<<20 || w.Used > 64<<20 {
		t.Errorf("listed: %+v", w)
	}
}

// A command that ends by itself before anybody sees that it wrote too much costs the
// box nothing: the next one can make room.
func testOverByItself(t *testing.T, s *subject) {
	b, spec := s.small(t, true, 64<<20)
	if r, _ := b.result(t, "fallocate -l 100M /work/x"); r.Signal != 0 {
		t.Logf("it was seen at once: %+v", r)
	}
	until(t, "somebody sees what it wrote", func() bool { return s.workspace(t, spec.Workspace).Used >= 100<<20 })
	time.Sleep(time.Second) // in which it is looked at some times
	if r, got := b.result(t, "ls /work; rm /work/x"); got != "x" || r.Exit != 0 {
		t.Errorf("%q, %+v", got, r)
	}
	b.wantRoom(t)
}

// As many files as an image of the size would take, and no more.
func testWatchedFiles(t *testing.T, s *subject) {
	b, spec := s.small(t, true, 16<<20)
	if r, _ := b.result(t, "cd /work && seq 3000 | xargs touch && sleep 3"); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin: 4096 may be
		t.Errorf("3000 files: %+v, %+v", r, s.workspace(t, spec.Workspace))
	}
	b.wantEnded(t, "cd /work && seq 3000 6000 | xargs touch; exec sleep 150")
	if r, _ := b.result(t, "rm /work/*"); r.Exit != 0 {
		t.Errorf("making room: %+v", r)
	}
	b.wantRoom(t)
}

// Where nothing is left to be ended but the box, it ends, and says why; and what
// cannot be counted is given to no other.
func testEndsForWriting(t *testing.T, s *subject) {
	for name, c := range map[string]struct{ text, why string }{
		"nobody's": {"(setsid sh -c 'while ! test -e /tmp/go; do sleep 0.1; done; sleep 5; cat /dev/zero >/work/x' >/dev/null 2>&1 &); touch /tmp/go", "writes on"},
		"deep":     {"cd /work; for i in $(seq 300); do mkdir d && cd d || exit 3; done; exec sleep 150", "nested more than"},
	} {
		b, spec := s.small(t, true, 64<<20)
		if err := b.Start(testContext(t), sandbox.Command{ID: "one", Shell: c.text}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := b.Wait(ctx, sandbox.Failed)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if st, err := b.Status(testContext(t)); err != nil || st.State != sandbox.Failed || !strings.Contains(st.Reason, c.why) {
			t.Errorf("%s: %s, %q, %v", name, st.State, st.Reason, err)
		}
		if err := b.Destroy(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if name == "nobody's" { // that can be made room in, unless it is over by far
			continue
		}
		spec.ID, spec.Epoch = cofferdam.BoxID(cofferdam.NewID("b")), 2
		if _, err := s.Create(testContext(t), spec); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(cofferdam.HintOf(err), "workspace remove") {
			t.Errorf("%s: the next box: %v", name, err)
		}
	}
}
