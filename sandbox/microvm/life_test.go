package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// testStandStill pauses and suspends a box: what runs in it goes on.
func testStandStill(t *testing.T, b *box) {
	ctx := context.Background()
	startCounting(t, b)
	sh(t, b, "echo kept >/work/file; echo kept >/tmp/file")
	if err := b.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx, sandbox.Command{ID: "late", Shell: "true"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a command in a paused box: %v", err)
	}
	if err := b.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	began, pid := time.Now(), b.machine().Process().PID
	if err := b.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("suspended after %s", time.Since(began))
	if b.machine() != nil || exists(b.memoryFile()) || exists(fmt.Sprintf("/proc/%d", pid)) {
		t.Error("a suspended box has a machine, or memory")
	}
	began = time.Now()
	if err := b.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("resumed after %s", time.Since(began))
	if got, _ := sh(t, b, "cat /work/file /tmp/file"); got != "kept\nkept" {
		t.Errorf("after suspending: %q", got)
	}
	for i := range 4 { // what is just being started when all is brought to rest
		c := sandbox.Command{ID: cofferdam.ExecID(fmt.Sprint("begun", i)), Shell: "echo begun"}
		if err := errors.Join(b.Start(ctx, c), b.Suspend(ctx), b.Resume(ctx)); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if r, err := sandbox.Run(ctx, b, c, &out, nil); err != nil || r.Exit != 0 || out.String() != "begun\n" {
			t.Errorf("round %d: %+v, %v, %q", i, r, err, out.String())
		}
	}
}

const counting = "i=0; while [ ! -e /work/stop ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo over"

func startCounting(t *testing.T, b *box) {
	t.Helper()
	if err := b.Start(context.Background(), sandbox.Command{ID: "count", Shell: counting}); err != nil {
		t.Fatal(err)
	}
}

// testCopies makes two boxes of one snapshot: each of the three is another
// machine, and what ran goes on in each.
func testCopies(t *testing.T, b *box) {
	ctx := context.Background()
	id := sandbox.SnapshotID("s-" + strings.Repeat("0", 32))
	s, err := b.Snapshot(ctx, sandbox.Take{ID: id, Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshot of %d MiB, box paused for %s", s.Size>>20, s.Paused)
	var seen []string
	for i, hostname := range []string{"", "copy1", "copy2"} {
		copied := sandbox.Box(b)
		if i > 0 {
			began := time.Now()
			copied = newBox(t, b.d, func(s *sandbox.Spec) { *s = b.spec; s.ID, s.Snapshot, s.Hostname = newID(), id, hostname })
			t.Logf("copy made after %s", time.Since(began))
			sh(t, copied, "true")
			t.Logf("and its first command ended after %s", time.Since(began))
		}
		if got, _ := sh(t, copied, "cat /work/file /tmp/file | tr '\\n' ' '"); got != "kept kept" {
			t.Errorf("copy %d: %q", i, got)
		}
		asked := time.Now()
		if now, _ := sh(t, copied, "date +%s"); !near(now, asked) {
			t.Errorf("copy %d: its clock says %q", i, now)
		}
		got, _ := sh(t, copied, "hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1")
		seen = append(seen, got)
		sh(t, copied, "echo mine >/work/file; touch /work/stop")
		if c, err := copied.Wait(ctx, sandbox.Idle); err != nil || c.State != sandbox.Idle {
			t.Errorf("copy %d: what ran in it did not end: %+v, %v", i, c, err)
		}
	}
	for i := range seen {
		for j := range i {
			for k, a := range strings.Split(seen[i], "\n") {
				if a == strings.Split(seen[j], "\n")[k] {
					t.Errorf("copies %d and %d share %q", i, j, a)
				}
			}
		}
	}
	wantCount(t, b)
	f, err := os.OpenFile(filepath.Join(b.d.snapshots.Dir, string(id), memoryCopy), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("changed"), 1<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, err = b.d.Create(ctx, func() sandbox.Spec { s := b.spec; s.ID, s.Snapshot = newID(), id; return s }())
	if cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("a box of a snapshot that was changed: %v", err)
	}
	if err := b.d.RemoveSnapshot(ctx, id); err != nil {
		t.Error(err)
	}
}

// wantCount wants the counting command of before to have gone on without a gap.
func wantCount(t *testing.T, b sandbox.Box) {
	t.Helper()
	var out bytes.Buffer
	r, err := sandbox.Run(context.Background(), b, sandbox.Command{ID: "count", Shell: counting}, &out, nil)
	lines := strings.Fields(out.String())
	if err != nil || r.Exit != 0 || r.Lost || len(lines) < 2 || lines[len(lines)-1] != "over" {
		t.Fatalf("the command that ran all the time: %+v, %v, %.100q", r, err, out.String())
	}
	for i, line := range lines[:len(lines)-1] {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

// near says whether a clock that was asked at some time from then to now has the
// host's seconds, give or take a few.
func near(text string, then time.Time) bool {
	const few = 5 * time.Second
	n, err := strconv.ParseInt(text, 10, 64)
	clock := time.Unix(n, 0)
	return err == nil && clock.After(then.Add(-few)) && clock.Before(time.Now().Add(few))
}

// makeEnv makes an environment with files 0 to 2 that say text, as a setup leaves
// one. A file that nobody has read yet is not in a guest's memory.
func makeEnv(path, text string) error {
	dir, err := os.MkdirTemp("", "cofferdam-env-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return exec.Command("mkfs.ext4", "-q", "-d", dir, path, "4M").Run()
}

// testEnvironmentAtRest: while a box rests its environment is made anew, or is
// removed. The box has the one that it knew.
func testEnvironmentAtRest(t *testing.T, b *box) {
	ctx := context.Background()
	if got, _ := sh(t, b, "cat /env/0"); got != "the first" {
		t.Fatalf("before: %q", got)
	}
	for i, while := range []struct {
		name string
		do   func() error
	}{
		{"made anew", func() error {
			return errors.Join(makeEnv(b.spec.Env+".new", "the second"), os.Rename(b.spec.Env+".new", b.spec.Env))
		}},
		{"removed", func() error { return os.Remove(b.spec.Env) }},
	} {
		if err := b.Suspend(ctx); err != nil {
			t.Fatal(err)
		}
		if err := while.do(); err != nil {
			t.Fatal(err)
		}
		if err := b.Resume(ctx); err != nil {
			t.Fatalf("%s: %v", while.name, err)
		}
		if got, _ := sh(t, b, fmt.Sprint("cat /env/", i+1)); got != "the first" {
			t.Errorf("%s: %q", while.name, got)
		}
	}
}

// testChangedAtRest: who reads what a box left on disk changes nothing; one byte that
// is written there, with the times of before, ends the box and not the next step.
func testChangedAtRest(t *testing.T, b *box) {
	ctx := context.Background()
	memory := filepath.Join(b.path(suspendedDir), memoryCopy)
	if err := b.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(memory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(memory); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Resume(ctx), b.Suspend(ctx)); err != nil {
		t.Fatalf("after it was read: %v", err)
	}
	f, err := os.OpenFile(memory, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{1}, 1<<20)
	if err := errors.Join(err, f.Close(), os.Chtimes(memory, before.ModTime(), before.ModTime())); err != nil {
		t.Fatal(err)
	}
	err = b.Resume(ctx)
	if st, e := b.Status(ctx); cofferdam.KindOf(err) != cofferdam.Tampered || e != nil || st.State != sandbox.Failed || b.machine() != nil {
		t.Errorf("memory that was changed: %v, and it is %s, %v", err, st.State, e)
	}
}
