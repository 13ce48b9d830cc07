package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/watch"
)

// TestFullDiskOfTheHost: while a box is written down the disk of the state folder
// gets full. The box goes on, the error says so, nothing half is kept, and with
// room again all works. The check before it is turned off for that; with it,
// nothing is begun.
func TestFullDiskOfTheHost(t *testing.T) {
	ctx := context.Background()
	o := options(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := mount.Make(ctx, disk, 384<<20, false); err != nil {
		t.Fatal(err)
	}
	if err := mount.Image(disk, o.Root, false); err != nil {
		t.Skipf("not run here: %v", err)
	}
	t.Cleanup(func() { must(t, mount.Unmount(o.Root)) })
	d, err := New(o)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close(ctx)) })
	b := newBox(t, d)
	sh(t, b, "head -c 24M /dev/urandom >/tmp/f; head -c 40M /dev/urandom >/work/f; sync")
	want, _ := sh(t, b, "cat /tmp/f /work/f | sha256sum")
	must(t, b.Start(ctx, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countUp}, Stdin: true}))
	out, wait := follow(t, b, "count", 0)
	calls := map[string]func() error{
		"snapshot": func() error { _, err := b.Snapshot(ctx, sandbox.Take{ID: newSnapshotID(), Memory: true}); return err },
		"suspend":  func() error { return b.Suspend(ctx) },
	}
	left := func(what string) {
		t.Helper()
		half, err := filepath.Glob(o.Root + "/boxes/*/suspended")
		kept, e := os.ReadDir(d.snapshots.Dir)
		if err := errors.Join(err, e); err != nil || len(half) > 0 || len(kept) > 0 {
			t.Errorf("%s: left %q and %v, %v", what, half, kept, err)
		}
		if s := state(t, b); s.State != sandbox.Busy {
			t.Errorf("%s: the box is %s: %s", what, s.State, s.Reason)
		}
	}
	for name, call := range calls {
		if err := call(); cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" {
			t.Errorf("%s below what stays free: %v", name, err)
		}
		left(name)
	}
	d.snapshots.Free = -1 << 40
	ballast := filepath.Join(o.Root, "ballast")
	fillUp(t, ballast, 12<<20)
	for name, call := range calls {
		if err := call(); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(cofferdam.HintOf(err), "free space") {
			t.Errorf("%s on a full disk: %v", name, err)
		} else {
			t.Logf("%s: %v (%s)", name, err, cofferdam.HintOf(err))
		}
		left(name)
	}
	must(t, os.Remove(ballast), calls["snapshot"](), calls["suspend"](), b.Resume(ctx))
	if got, r := sh(t, b, "cat /tmp/f /work/f | sha256sum"); got != want || r.Exit != 0 {
		t.Errorf("it holds %q, not %q", got, want)
	}
	must(t, b.Write(ctx, "count", []byte("7\n"), true))
	if r := wait(); r.Exit != 7 || r.Lost {
		t.Errorf("the command that ran all the time: %+v", r)
	}
	wantNumbers(t, out.String())
}

// fillUp makes a file that leaves so many bytes of its disk.
func fillUp(t *testing.T, path string, leave int64) {
	t.Helper()
	free, _, err := watch.Space(filepath.Dir(path))
	must(t, err)
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, free-leave))
}
