package microvm

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
	"cofferdam/sandbox/sandboxtest"
	"cofferdam/sandbox/watch"
)

// openIn returns a driver of a state folder that the test's end closes.
func openIn(t *testing.T, o Options, root string) *Driver {
	t.Helper()
	o.Root = root
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// small are limits for machines of tests.
func small() cofferdam.Limits {
	return cofferdam.Limits{Memory: 256 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 1, PIDs: 128, OpenFiles: 256}
}

// stateFolder is an empty one, of the options of newDriver.
func stateFolder(t *testing.T) (Options, string) {
	t.Helper()
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("not run here: it starts many emulated machines; COFFERDAM_SOAK=1 runs it")
	}
	root, err := os.MkdirTemp("", "cm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if programs := os.Getenv(victimPrograms); programs != "" {
		cache := filepath.Join(filepath.Dir(programs), "cofferdam-test-cache")
		return Options{Cache: cache, Init: filepath.Join(programs, "cofferdam-init"), Kernel: testKernel()}, root
	}
	return newDriver(t).o, root
}

// What the process that is killed has of this one.
const (
	victimPrograms = "COFFERDAM_TEST_PROGRAMS"
	victimImage    = "COFFERDAM_TEST_IMAGE"
)

// TestKilledInTheMiddle: see sandboxtest.Killed.
func TestKilledInTheMiddle(t *testing.T) {
	o, root := stateFolder(t)
	image := os.Getenv(victimImage)
	if image == "" {
		image = smallImage(t)
		t.Setenv(victimImage, image)
		t.Setenv(victimPrograms, filepath.Dir(o.Init))
	}
	sandboxtest.Killed{
		Root: root, Snapshots: filepath.Join(root, "snapshot"), Files: "*",
		Open:   func(t *testing.T, root string) sandbox.Driver { return openIn(t, o, root) },
		Change: func(s *sandbox.Spec) { s.Image, s.Limits = image, small() },
	}.Run(t)
}

// sums is what a machine holds; to read all takes it minutes.
const sums = "for f in /tmp/f /work/f; do wc -c <$f; tail -c 65536 $f; done | sha256sum"

// TestFullDiskOfTheHost: while a machine is written down the disk of the state
// folder gets full. The machine goes on, the error says so, nothing half is kept,
// and with room again all works.
func TestFullDiskOfTheHost(t *testing.T) {
	ctx := context.Background()
	o, root := stateFolder(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(mount.Make(ctx, disk, 512<<20, false), mount.Image(disk, root, false)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mount.Unmount(root); err != nil {
			t.Error(err)
		}
	})
	d := openIn(t, o, root)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Limits = small() })
	sh(t, b, "head -c 1048576 /dev/urandom >/tmp/f; head -c 1048576 /dev/urandom >/work/f; sync")
	want, _ := sh(t, b, sums)
	d.snapshots.Free = -1 << 40 // the check before it is turned off
	free, _, err := watch.Space(root)
	if err != nil {
		t.Fatal(err)
	}
	ballast, err := os.Create(filepath.Join(root, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	if err := unix.Fallocate(int(ballast.Fd()), 0, 0, free-16<<20); err != nil {
		t.Fatal(err)
	}
	snapshot := func() error {
		_, err := b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Memory: true})
		return err
	}
	for name, call := range map[string]func() error{"snapshot": snapshot, "suspend": func() error { return b.Suspend(ctx) }} {
		if err := call(); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(cofferdam.HintOf(err), "free space") {
			t.Errorf("%s on a full disk: %v (%s)", name, err, cofferdam.HintOf(err))
		}
		half, err := filepath.Glob(root + "/boxes/*/suspended")
		kept, e := os.ReadDir(d.snapshots.Dir)
		if err := errors.Join(err, e); err != nil || len(half) > 0 || len(kept) > 0 {
			t.Errorf("%s: left %q and %v, %v", name, half, kept, err)
		}
		if got, r := sh(t, b, "cat /tmp/f | wc -c"); strings.TrimSpace(got) != "1048576" || r.Exit != 0 {
			t.Errorf("%s: the machine says %q, %+v", name, got, r)
		}
	}
	if err := errors.Join(os.Remove(ballast.Name()), ballast.Close(), snapshot(), b.Suspend(ctx), b.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	if got, _ := sh(t, b, sums); got != want {
		t.Errorf("it holds %q, not %q", got, want)
	}
}
