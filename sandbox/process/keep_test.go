package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestStoppedOnceOnDisk: a box whose workspace cannot be put on disk does not
// count as stopped, and nobody else gets the workspace; ending it again helps.
func TestStoppedOnceOnDisk(t *testing.T) {
	d := newDriver(t)
	id := sandbox.WorkspaceID(cofferdam.NewID("w"))
	spec := sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: sandbox.HostImage, Workspace: id, Epoch: 1,
		Limits: cofferdam.Limits{Disk: 64 << 20},
	}
	b, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	t.Cleanup(func() { _ = b.Destroy(context.Background()) }) // the test says what is wrong
	if r, err := sandbox.Run(t.Context(), b, sandbox.Command{ID: "write", Shell: "echo kept >/work/f"}, nil, nil); err != nil || r.Exit != 0 {
		t.Fatal(r, err)
	}
	// What says that the box has left cannot be written: a folder is in the way.
	inTheWay := filepath.Join(d.o.Root, "workspaces", string(id), "about.json.new")
	if err := errors.Join(os.Remove(inTheWay), os.Mkdir(inTheWay, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err == nil {
		t.Error("it was destroyed")
	}
	if st, err := b.Status(t.Context()); err != nil || st.State != sandbox.Stopping {
		t.Errorf("it is %s, %v", st.State, err)
	}
	second := spec
	second.ID, second.Epoch = cofferdam.BoxID(cofferdam.NewID("b")), 2
	if _, err := d.Create(t.Context(), second); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil {
		t.Errorf("another gets its workspace: %v", err)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := b.Status(t.Context()); err != nil || st.State != sandbox.Stopped && st.State != sandbox.Deleted {
		t.Errorf("it is %s, %v", st.State, err)
	}
	next, err := d.Create(t.Context(), second)
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	defer next.Destroy(t.Context())
	if r, err := sandbox.Run(t.Context(), next, sandbox.Command{ID: "read", Shell: "grep -q kept /work/f"}, nil, nil); err != nil || r.Exit != 0 {
		t.Errorf("it is not there: %+v %v", r, err)
	}
}
