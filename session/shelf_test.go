package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// shelf is a driver whose boxes have workspaces that outlive them, and checkpoints of
// those: folders that are copied to and from its boxes.
type shelf struct {
	sandbox.Driver
	boxes, dir string // where the fake has its boxes, and this its own

	mu        sync.Mutex
	holds     map[cofferdam.BoxID]sandbox.WorkspaceID
	had       map[sandbox.WorkspaceID]bool
	snapshots []sandbox.Snapshot
	spoiled   map[sandbox.SnapshotID]bool
	restores  int
	fails     error                   // of RestoreWorkspace
	point     func(name string) error // called at named places; its error is the call's
}

func newShelf(d sandbox.Driver, boxes, dir string) *shelf {
	return &shelf{Driver: d, boxes: boxes, dir: dir, holds: map[cofferdam.BoxID]sandbox.WorkspaceID{}, had: map[sandbox.WorkspaceID]bool{}, spoiled: map[sandbox.SnapshotID]bool{}}
}

func (d *shelf) work(id cofferdam.BoxID) string { return filepath.Join(d.boxes, string(id), "work") }
func (d *shelf) kept(name any) string           { return filepath.Join(d.dir, fmt.Sprint(name)) }

// copyFolder makes to what from is.
func copyFolder(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(to, 0o755), exec.Command("cp", "-a", from+"/.", to).Run())
}

func (d *shelf) Offers(context.Context) ([]sandbox.Offer, error) {
	return []sandbox.Offer{{Tier: sandbox.None, Can: []sandbox.Capability{sandbox.CanKeep, sandbox.CanCheckpoint}}}, nil
}

func (d *shelf) Create(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	w := s.Workspace
	s.Workspace, s.Epoch = "", 0
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.at("create before"); err != nil {
		return nil, err
	}
	b, err := d.Driver.Create(ctx, s)
	if err != nil || w == "" {
		return b, err
	}
	if d.had[w] {
		// What is there already is a mount point, so it is filled.
		if err := exec.Command("cp", "-a", d.kept(w)+"/.", d.work(s.ID)).Run(); err != nil {
			return nil, err
		}
	}
	d.holds[s.ID] = w
	return shelved{b, d, w, !d.had[w]}, d.at("create")
}

func (d *shelf) Open(ctx context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	b, err := d.Driver.Open(ctx, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.holds[id]; err == nil && w != "" {
		return shelved{b, d, w, false}, nil
	}
	return b, err
}

func (d *shelf) Snapshots(context.Context) ([]sandbox.Snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.snapshots), nil
}

func (d *shelf) SignSnapshot(_ context.Context, id sandbox.SnapshotID, note []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.snapshots {
		if d.snapshots[i].ID == id {
			d.snapshots[i].Note = note
		}
	}
	return d.at("sign")
}

func (d *shelf) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.snapshots = slices.DeleteFunc(d.snapshots, func(s sandbox.Snapshot) bool { return s.ID == id })
	return os.RemoveAll(d.kept(id))
}

func (d *shelf) whole(id sandbox.SnapshotID) error {
	if d.spoiled[id] {
		return &cofferdam.Error{Op: "test", Kind: cofferdam.Tampered, Subject: "snapshot " + string(id), Reason: "it is not what was kept"}
	}
	return nil
}

func (d *shelf) Differences(_ context.Context, c sandbox.Compare) (sandbox.Differences, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := errors.Join(d.whole(c.From), d.whole(c.To)); err != nil {
		return sandbox.Differences{}, d.whole(c.From)
	}
	to := d.kept(c.To)
	if c.Box != "" {
		to = d.work(c.Box)
	}
	var found sandbox.Differences
	out, err := exec.Command("diff", "-rq", "-x", ".git", d.kept(c.From), to).Output()
	if err == nil {
		return found, nil
	}
	for range bytes.Lines(out) {
		found.Changed++
		found.List = append(found.List, sandbox.Difference{Path: []byte("bad\xff\x1b"), Was: &sandbox.Found{Kind: sandbox.KindFile, Mode: 0o644}})
	}
	return found, nil
}

// cutAt has the process end at a place: the call of that name returns then, done or,
// with "before", undone.
func (d *shelf) cutAt(place string, end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.point = func(name string) error {
		if name != place {
			return nil
		}
		d.point = nil
		end()
		return errCut
	}
}

// at is called with mu held.
func (d *shelf) at(name string) error {
	if d.point == nil {
		return nil
	}
	return d.point(name)
}

func (d *shelf) RestoreWorkspace(_ context.Context, r sandbox.Restore) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.at("restore before"); err != nil {
		return err
	}
	for _, w := range d.holds {
		if w == r.Workspace {
			return &cofferdam.Error{Op: "test", Kind: cofferdam.Conflict, Subject: "workspace", Reason: "a box has it"}
		}
	}
	if err := errors.Join(d.whole(r.Snapshot), d.fails); err != nil {
		return errors.Join(d.fails, d.whole(r.Snapshot))
	}
	d.restores++
	return errors.Join(copyFolder(d.kept(r.Snapshot), d.kept(r.Workspace)), d.at("restore"))
}

// shelved is a box of it.
type shelved struct {
	sandbox.Box
	d     *shelf
	w     sandbox.WorkspaceID
	fresh bool
}

func (b shelved) Status(ctx context.Context) (sandbox.Status, error) {
	st, err := b.Box.Status(ctx)
	st.Workspace = &sandbox.Workspace{ID: b.w, Box: b.ID(), Fresh: b.fresh}
	return st, err
}

func (b shelved) Snapshot(_ context.Context, t sandbox.Take) (sandbox.Snapshot, error) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if err := errors.Join(t.Check("test.Snapshot"), b.d.at("snapshot before")); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := copyFolder(b.d.work(b.ID()), b.d.kept(t.ID)); err != nil {
		return sandbox.Snapshot{}, err
	}
	s := sandbox.Snapshot{
		ID: t.ID, Label: t.Label, Box: b.ID(), Workspace: b.w, Tier: sandbox.None, Digest: cofferdam.Digest("sha256:of-" + string(t.ID)), Taken: time.Now().UTC(),
		Scope: cofferdam.Scope{Organization: "o-1", Project: "p-1"},
	}
	b.d.snapshots = append(b.d.snapshots, s)
	return s, b.d.at("snapshot")
}

func (b shelved) Destroy(ctx context.Context) error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if err := b.d.at("destroy before"); err != nil {
		return err
	}
	if b.d.holds[b.ID()] != "" {
		if err := copyFolder(b.d.work(b.ID()), b.d.kept(b.w)); err != nil {
			return err
		}
		b.d.had[b.w] = true
		delete(b.d.holds, b.ID())
	}
	return errors.Join(b.Box.Destroy(context.WithoutCancel(ctx)), b.d.at("destroy"))
}

// leases gives every session of a task the same workspace.
type leases struct{}

func (leases) Take(_ context.Context, p session.Plan, _ sandbox.Tier, _ string, _ time.Duration) (session.Lease, error) {
	return session.Lease{ID: sandbox.WorkspaceID("w-" + string(p.Task)), Epoch: 1}, nil
}
func (leases) Ready(context.Context, session.Plan) error { return nil }
func (leases) Left(context.Context, session.Plan) error  { return nil }
