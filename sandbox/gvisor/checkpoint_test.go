package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/difference"

	"golang.org/x/sys/unix"
)

// TestCheckpointIsProved: a flipped byte of a checkpoint in the state folder, and it is
// neither compared nor put back; the workspace stays as it is, and so does the work.
func TestCheckpointIsProved(t *testing.T) {
	ctx := t.Context()
	d := newDriver(t)
	w := sandbox.WorkspaceID(cofferdam.NewID("w"))
	spec := sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: "host", Workspace: w, Epoch: 1, Limits: cofferdam.Limits{Disk: 64 << 20},
	}
	b, err := d.Create(ctx, spec)
	must(t, err)
	sh(t, b, "echo canary-old >/work/f")
	var taken []sandbox.Snapshot
	for i := range 2 {
		s, err := b.Snapshot(ctx, sandbox.Take{ID: newSnapshotID(), Label: sandbox.Label{Order: i}})
		must(t, err)
		taken = append(taken, s)
	}
	sh(t, b, "echo canary-new >/work/f")
	must(t, b.Destroy(ctx))
	restore := func(s sandbox.Snapshot) error {
		return d.RestoreWorkspace(ctx, sandbox.Restore{Workspace: w, Epoch: 1, Snapshot: s.ID, Digest: s.Digest})
	}
	found, err := filepath.Glob(filepath.Join(d.o.Root, "snapshots", string(taken[0].ID), "work*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("control: its workspace is %q, %v", found, err)
	}
	must(t, changeLast(found[0]))
	for name, err := range map[string]error{"put back": restore(taken[0]), "compared": differ(ctx, d, taken[0].ID, taken[1].ID), "compared with": differ(ctx, d, taken[1].ID, taken[0].ID)} {
		if cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("%s: %v", name, err)
		}
	}
	holds := func(want string) {
		t.Helper()
		spec.ID, spec.Epoch = cofferdam.BoxID(cofferdam.NewID("b")), spec.Epoch+1
		b, err := d.Create(ctx, spec)
		must(t, err)
		if got, _ := sh(t, b, "cat /work/f"); got != want {
			t.Errorf("it holds %q, not %q", got, want)
		}
		must(t, b.Destroy(ctx))
	}
	holds("canary-new")
	if err := restore(taken[1]); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("who comes late: %v", err)
	}
	must(t, d.RestoreWorkspace(ctx, sandbox.Restore{Workspace: w, Epoch: spec.Epoch, Snapshot: taken[1].ID, Digest: taken[1].Digest})) // the benign twin
	holds("canary-old")
	must(t, d.RemoveWorkspace(ctx, w))
}

func differ(ctx context.Context, d *Driver, from, to sandbox.SnapshotID) error {
	_, err := d.Differences(ctx, sandbox.Compare{From: from, To: to})
	return err
}

// changeLast changes one byte of what is not zero in a file, or in the first file of a
// folder.
func changeLast(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "f")
	}
	data, err := os.ReadFile(path)
	for i := len(data) - 1; i >= 0; i-- {
		if data[i] != 0 {
			data[i]++
			break
		}
	}
	return errors.Join(err, os.WriteFile(path, data, 0o600))
}

// TestFillImage: what was taken as a folder, where workspaces have their size by
// quota, becomes the image that a kept workspace is; nothing in it is followed, and
// nothing stays mounted.
func TestFillImage(t *testing.T) {
	if isUser() {
		t.Skip("an ordinary user mounts no image")
	}
	d := newDriver(t)
	from, image := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	must(t,
		os.WriteFile(from+"/f", []byte("x"), 0o640), os.Symlink("/etc/passwd", from+"/link"), os.Mkdir(from+"/d", 0o700), os.Link(from+"/f", from+"/d/hard"),
		os.Symlink("/etc", from+"/folder"), unix.Mkfifo(from+"/pipe", 0o600), os.Chmod(from, 0o755), d.fillImage(t.Context(), from, image, 64<<20),
	)
	got, err := difference.Of(t.Context(), from, image)
	if err != nil || len(got.List) != 0 {
		t.Errorf("it differs: %+v, %v", got, err)
	}
	left, err := os.ReadDir(d.boxDir(""))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
