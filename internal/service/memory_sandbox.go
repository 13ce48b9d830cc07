package service

import (
	"context"
	"fmt"

	"cofferdam"
)

// memorySandboxes is the box of every session that is not sealed, and the
// checkpoints that were taken of the workspace of t-1.
type memorySandboxes struct{ m *Memory }

// Boxes implements Sandboxes.
func (b memorySandboxes) Boxes(_ context.Context, scope cofferdam.Scope) (list []cofferdam.Sandbox, err error) {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	for _, s := range b.m.sessions {
		if s.Sealed.IsZero() {
			list = append(list, cofferdam.Sandbox{
				Schema: "cofferdam/sandbox/v1", ID: "b-aaaa1111", Scope: scope, Session: s.ID, Task: s.Task, Number: 1, Attempt: 1, Phase: "work", Tier: "gvisor",
				Life: cofferdam.BoxLife{State: "busy", Reason: "a command runs"}, Checkpoints: len(b.m.shelf),
			})
		}
	}
	return list, b.m.Fail
}

// Box implements Sandboxes.
func (b memorySandboxes) Box(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID) (cofferdam.Sandbox, error) {
	all, err := b.Boxes(ctx, scope)
	for _, v := range all {
		if v.Session == id {
			return v, err
		}
	}
	return cofferdam.Sandbox{}, notFound("sandbox", string(id))
}

// TakeCheckpoint implements Sandboxes.
func (b memorySandboxes) TakeCheckpoint(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, by cofferdam.Principal, comment string) (cofferdam.Checkpoint, error) {
	if _, err := b.Box(ctx, scope, id); err != nil {
		return cofferdam.Checkpoint{}, err
	}
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	n := len(b.m.shelf)
	c := cofferdam.Checkpoint{
		Schema: "cofferdam/checkpoint/v1", ID: fmt.Sprintf("s-%032d", n), Name: fmt.Sprintf("v%d", n), Scope: scope, Session: id, Workspace: "w-aaaa1111", Box: "b-aaaa1111",
		Tier: "gvisor", By: by.String(), Comment: comment, Signature: cofferdam.SignatureGood, Manifest: `{"id":"s"}`,
	}
	b.m.shelf = append([]cofferdam.Checkpoint{c}, b.m.shelf...)
	return c, nil
}

// Restore implements Sandboxes.
func (b memorySandboxes) Restore(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, by cofferdam.Principal, name string) (cofferdam.Restored, error) {
	if _, err := b.FindCheckpoint(ctx, scope, "w-aaaa1111", name); err != nil {
		return cofferdam.Restored{}, err
	}
	undo, err := b.TakeCheckpoint(ctx, scope, id, by, "before restoring "+name)
	return cofferdam.Restored{Schema: "cofferdam/restored/v1", Session: id, Checkpoint: name, Undo: undo.Name, Ended: []cofferdam.ExecID{"agent"}}, err
}

// Checkpoints implements Sandboxes.
func (b memorySandboxes) Checkpoints(context.Context, cofferdam.Scope, string) ([]cofferdam.Checkpoint, error) {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	return append([]cofferdam.Checkpoint(nil), b.m.shelf...), b.m.Fail
}

// FindCheckpoint implements Sandboxes.
func (b memorySandboxes) FindCheckpoint(ctx context.Context, scope cofferdam.Scope, workspace, name string) (cofferdam.Checkpoint, error) {
	all, err := b.Checkpoints(ctx, scope, workspace)
	for _, c := range all {
		if c.Name == name {
			return c, err
		}
	}
	return cofferdam.Checkpoint{}, notFound("checkpoint", name)
}

// RemoveCheckpoint implements Sandboxes.
func (b memorySandboxes) RemoveCheckpoint(ctx context.Context, _ cofferdam.Principal, w cofferdam.Workspace, name string) error {
	if _, err := b.FindCheckpoint(ctx, w.Scope, w.ID, name); err != nil {
		return err
	}
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	var rest []cofferdam.Checkpoint
	for _, c := range b.m.shelf {
		if c.Name != name {
			rest = append(rest, c)
		}
	}
	b.m.shelf = rest
	return nil
}

// Difference implements Sandboxes.
func (b memorySandboxes) Difference(ctx context.Context, scope cofferdam.Scope, workspace, from, to string) (cofferdam.Difference, error) {
	if _, err := b.FindCheckpoint(ctx, scope, workspace, from); err != nil {
		return cofferdam.Difference{}, err
	}
	file := &cofferdam.FileState{Kind: "file", Size: 3, Mode: "0644"}
	return cofferdam.Difference{
		Schema: "cofferdam/difference/v1", From: from, To: to, Added: 2, Changed: 1, Removed: 1, More: 1, Paths: []cofferdam.PathChange{
			{Path: "a\x1b[2Jb", Is: file}, {Path: "c", Was: file, Is: &cofferdam.FileState{Kind: "link", Size: 1, Mode: "0777"}}, {Path: "d\u202e", Was: file},
		},
	}, b.m.Fail
}
