package gvisor

import (
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
	"cofferdam/sandbox/snapshot"
)

func newSnapshotID() sandbox.SnapshotID { return sandbox.SnapshotID(cofferdam.NewID("s")) }

// identityText prints all that makes a box itself.
const identityText = `cat /etc/machine-id; hostname; cat /etc/hostname; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo; date +%s`

// TestForkIntoFive: clones go on with the memory, commands and workspace of the
// box they were taken of, each under an identity of its own (R10), and from then
// on nothing of one is seen by another.
func TestForkIntoFive(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t)
	parent := newBox(t, d, func(s *sandbox.Spec) { s.Hostname = "parent" })
	sh(t, parent, "echo memory >/tmp/m; mkdir -p /work/deep; echo disk >/work/deep/f; ln -s /etc/passwd /work/link; ln /work/deep/f /work/hard; : >/work/hole; truncate -s 8M /work/hole")
	must(t, parent.Start(ctx, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countUp}, Stdin: true}))
	out, wait := follow(t, parent, "count", 0)
	out.until(t, 1)
	id := newSnapshotID()
	snap, err := parent.Snapshot(ctx, sandbox.Take{ID: id, Memory: true})
	must(t, err)
	t.Logf("%d KiB, stood still for %v", snap.Size>>10, snap.Paused)
	if snap.ID != id || snap.Box != parent.ID() || snap.Tier != sandbox.GVisor || len(snap.Digest) != 71 || snap.Size == 0 || snap.Paused == 0 {
		t.Errorf("%+v", snap)
	}
	if _, err := parent.Snapshot(ctx, sandbox.Take{ID: id, Memory: true}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("the same id again: %v", err)
	}
	sh(t, parent, "echo later >/tmp/m; echo later >/work/deep/f") // no clone sees it
	clones := make([]sandbox.Box, 5)
	var making sync.WaitGroup
	began := time.Now()
	for i := range clones {
		making.Go(func() {
			var err error
			clones[i], err = d.Create(ctx, sandbox.Spec{
				ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Snapshot: id,
				Hostname: fmt.Sprintf("clone-%d", i),
			})
			if err != nil {
				t.Errorf("clone %d: %v (%s)", i, err, cofferdam.HintOf(err))
			}
		})
	}
	making.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("5 clones ready after %v", time.Since(began))
	must(t, d.RemoveSnapshot(ctx, id), d.RemoveSnapshot(ctx, id))
	seen := map[string]bool{}
	for i, c := range append(clones, parent) {
		if i < 5 {
			t.Cleanup(func() { must(t, c.Destroy(ctx)) })
		}
		asked := time.Now()
		got, _ := sh(t, c, identityText)
		f := strings.Fields(got)
		if len(f) != 5 {
			t.Fatalf("clone %d: %q", i, got)
		}
		t.Logf("%s: 32 random bytes %s", f[1], f[3])
		if f[0] != string(c.ID()[2:]) || f[1] != f[2] || i < 5 && f[1] != fmt.Sprintf("clone-%d", i) {
			t.Errorf("clone %d is %q", i, f)
		}
		for _, own := range []string{f[0], f[1], f[3]} {
			if seen[own] {
				t.Errorf("%q is another's too", own)
			}
			seen[own] = true
		}
		wantClock(t, f[4], asked)
	}
	checkClones(t, clones)
	must(t, parent.Write(ctx, "count", []byte("1\n"), true))
	if r := wait(); r.Exit != 1 {
		t.Errorf("the parent's command: %+v", r)
	}
	wantNumbers(t, out.String())
}

// checkClones looks at what clones have of their parent and of each other.
func checkClones(t *testing.T, clones []sandbox.Box) {
	t.Helper()
	ctx := context.Background()
	for i, c := range clones {
		if s := state(t, c); s.State != sandbox.Busy {
			t.Errorf("clone %d: %+v", i, s)
		}
		got, r := sh(t, c, `cat /tmp/m /work/deep/f; readlink /work/link; stat -c %h /work/hard; stat -c %s /work/hole; ls /work | wc -l; echo mine >/work/own-$(hostname)`)
		if got != "memory\ndisk\n/etc/passwd\n2\n8388608\n4" || r.Exit != 0 {
			t.Errorf("clone %d has %q, exit %d", i, got, r.Exit)
		}
		// Its command goes on: what it prints from here on is its own.
		must(t, c.Write(ctx, "count", fmt.Appendf(nil, "%d\n", 40+i), true))
		done, _, err := c.(*box).Host.Result(ctx, "count")
		must(t, err)
		_, wait := follow(t, c, "count", done.Stdout)
		if r := wait(); r.Exit != 40+i || r.Lost {
			t.Errorf("clone %d: %+v", i, r)
		}
		if _, err := c.Attach(ctx, "count", sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return nil }); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("clone %d: output of before the copy: %v", i, err)
		}
	}
}

// TestSnapshotIsProved: one flipped byte, in any file, and nothing is made from
// a snapshot; one that was not touched outlives its box and its keeper.
func TestSnapshotIsProved(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t)
	parent := newBox(t, d)
	sh(t, parent, "echo disk >/work/f; echo memory >/tmp/f")
	id := newSnapshotID()
	_, err := parent.Snapshot(ctx, sandbox.Take{ID: id, Memory: true})
	must(t, err)
	spec := parent.(*box).spec
	must(t, parent.Destroy(ctx))
	clone := func() error {
		s := spec
		s.ID, s.Snapshot = cofferdam.BoxID(cofferdam.NewID("b")), id
		b, err := d.Create(ctx, s)
		if err != nil {
			return err
		}
		if got, _ := sh(t, b, "cat /work/f /tmp/f"); got != "disk\nmemory" {
			t.Errorf("a clone has %q", got)
		}
		return b.Destroy(ctx)
	}
	must(t, clone())
	d.snapshots = snapshot.Store{Dir: d.snapshots.Dir, Tier: "gvisor"} // as a new keeper has it
	must(t, clone())
	files, err := filepath.Glob(filepath.Join(d.snapshots.Dir, string(id), "*"))
	must(t, err)
	inner, err := filepath.Glob(filepath.Join(d.snapshots.Dir, string(id), memoryDir, "*"))
	must(t, err)
	flipped := 0
	for _, path := range append(files, inner...) {
		info, err := os.Stat(path)
		must(t, err)
		if info.IsDir() {
			continue
		}
		flip(t, path, info.Size()/2)
		if err := clone(); cofferdam.KindOf(err) != cofferdam.Tampered || !strings.Contains(err.Error(), "not what was written") {
			t.Errorf("%s flipped: %v", path, err)
		}
		flip(t, path, info.Size()/2)
		flipped++
	}
	if flipped < 4 {
		t.Errorf("only %d files", flipped)
	}
	must(t, clone())
	spec.Limits.PIDs++
	if err := clone(); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("with other limits: %v", err)
	}
	must(t, d.RemoveSnapshot(ctx, id))
	if err := clone(); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("after its end: %v", err)
	}
	for _, bad := range []sandbox.SnapshotID{"s-1", "../x", sandbox.SnapshotID("s-" + strings.Repeat("/", 32))} {
		if err := d.RemoveSnapshot(ctx, bad); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("remove %q: %v", bad, err)
		}
		id = bad
		if err := clone(); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("from %q: %v", bad, err)
		}
	}
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	one := make([]byte, 1)
	_, err = f.ReadAt(one, at)
	must(t, err)
	one[0] ^= 1
	_, err = f.WriteAt(one, at)
	must(t, err)
}
