package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/watch"
)

// MakeFolder makes an empty folder at path, which belongs to the user of boxes. It
// has no size of its own: who gives it to a box watches it.
func MakeFolder(_ context.Context, path string, _ int64) error {
	return errors.Join(os.Mkdir(path, 0o755), os.Chown(path, sandbox.UserID, sandbox.UserID))
}

// Allowed is what a folder of a size in bytes may hold.
func Allowed(size int64) watch.Usage {
	return watch.Usage{Bytes: size, Files: size / mount.BytesPerInode(size)}
}

// Watched returns what watches a workspace that is a folder, where it is bound to dir.
func (h *Hold) Watched(dir string, box watch.Box) *watch.Folder {
	h.live = watch.NewFolder(dir, Allowed(h.Size), h.Used, box)
	return h.live
}

// Refresh puts into a list of workspaces what was counted last of those that boxes
// have as folders.
func Refresh(list []sandbox.Workspace, holds ...*Hold) {
	for _, h := range holds {
		for i := range list {
			if h != nil && h.live != nil && list[i].ID == h.ID {
				list[i].Used = h.live.Held()
			}
		}
	}
}

// count measures a workspace that is a folder.
func (s *Store) count(ctx context.Context, a *sandbox.Workspace) error {
	info, err := os.Lstat(s.image(a.ID))
	if err != nil || !info.IsDir() {
		return err
	}
	u, err := watch.Measure(ctx, s.image(a.ID), Allowed(a.Size))
	a.Used = u.Bytes
	return err
}

// Grace is how much more than its size a workspace that is a folder may hold and
// still be given to a box, which can then make room: what was written while it was
// looked at. Source: docs/SPECIFICATION.md, "Boxes of an ordinary user's keeper".
const Grace = 1 << 30

// bearable refuses a folder that holds so much that a box of it would be ended.
func (s *Store) bearable(ctx context.Context, a *sandbox.Workspace) error {
	err := s.count(ctx, a)
	if err != nil && !errors.Is(err, watch.ErrUncounted) {
		return err
	}
	reason := fmt.Sprintf("it holds %d MiB, and its size is %d MiB", a.Used>>20, a.Size>>20)
	switch {
	case err != nil:
		reason = err.Error()
	case a.Used <= a.Size+Grace:
		return nil
	}
	return &cofferdam.Error{
		Op: opAttach, Kind: cofferdam.Exhausted, Subject: "workspace " + string(a.ID), Reason: reason,
		Hint: "remove it: cofferdam workspace remove",
	}
}
