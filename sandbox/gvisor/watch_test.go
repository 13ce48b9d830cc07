package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/volume"

	"golang.org/x/sys/unix"
)

// What is kept outlives the keeper, and one that is far over its size, however
// it came to be, is refused.
func TestUserWorkspaceOutlivesItsKeeper(t *testing.T) {
	needUser(t)
	o := options(t)
	d, err := New(o)
	must(t, err)
	b, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Workspace: sandbox.WorkspaceID(cofferdam.NewID("w"))})
	must(t, err)
	sh(t, b, "echo kept >/work/f; chmod 640 /work/f")
	spec := b.(*box).spec
	must(t, d.Close(t.Context()))
	d, err = New(o)
	must(t, err)
	defer func() { must(t, d.Close(t.Context())) }()
	spec.ID = cofferdam.BoxID(cofferdam.NewID("b"))
	b, err = d.Create(t.Context(), spec)
	must(t, err)
	if got, _ := sh(t, b, "cat /work/f; stat -c %a,%u /work/f"); got != "kept\n640,1000" {
		t.Errorf("it has %q", got)
	}
	must(t, b.Destroy(t.Context()))
	path := filepath.Join(o.Root, "workspaces", string(spec.Workspace), "disk", "big")
	f, err := os.Create(path)
	must(t, err)
	must(t, errors.Join(fallocate(f, small().Disk+volume.Grace+1<<20), f.Close()))
	spec.ID = cofferdam.BoxID(cofferdam.NewID("b"))
	if _, err := d.Create(t.Context(), spec); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(err.Error(), "its size is 64 MiB") {
		t.Errorf("far over its size: %v", err)
	}
	must(t, d.RemoveWorkspace(t.Context(), spec.Workspace))
}

// fallocate has size bytes of the disk belong to f without writing them.
func fallocate(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
