package microvm

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"cofferdam/sandbox"
	"cofferdam/sandbox/volume"
)

// openWorkspaces opens those that are kept. Each tier has its own, and no other
// driver is given them: what is on these disks was written by a kernel that is the
// agent's neighbour, and the host's must not mount it.
func (d *Driver) openWorkspaces() error {
	dir := cmp.Or(d.o.Workspaces, filepath.Join(d.o.Root, "workspaces"))
	d.keeps = map[sandbox.Tier]*volume.Store{}
	for _, t := range []sandbox.Tier{sandbox.MicroVM, sandbox.Emulated} {
		s, err := volume.Open(filepath.Join(dir, string(t)), t, nil)
		if err != nil {
			return err
		}
		d.keeps[t] = s
	}
	return nil
}

// Workspaces returns every workspace that is kept.
func (d *Driver) Workspaces(context.Context) ([]sandbox.Workspace, error) {
	var all []sandbox.Workspace
	for _, s := range d.keeps {
		list, err := s.List()
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// RemoveWorkspace removes a workspace that no box has.
func (d *Driver) RemoveWorkspace(_ context.Context, id sandbox.WorkspaceID) error {
	var errs []error
	for _, s := range d.keeps {
		errs = append(errs, s.Remove(id))
	}
	return errors.Join(errs...)
}

// keep takes the workspace that the spec names.
func (b *box) keep(ctx context.Context) (err error) {
	if b.kept, err = b.d.keeps[b.spec.Tier].Attach(ctx, volume.Of(b.spec), ""); err != nil {
		return err
	}
	b.spec.Limits.Disk = b.kept.Size
	return nil
}

// workDisk is the path of the workspace.
func (b *box) workDisk() string {
	if b.kept != nil {
		return b.kept.Image
	}
	return b.path("work.img")
}

// letGo gives a kept workspace back, once the machine has ended and the host has
// all of it on disk.
func (b *box) letGo() error {
	if b.kept == nil {
		return nil
	}
	// A monitor that opened it by its name had it as its own.
	if err := os.Chown(b.kept.Image, 0, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.kept.Release(nil)
}
