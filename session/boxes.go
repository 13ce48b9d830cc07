package session

import (
	"context"
	"errors"
	"slices"

	"cofferdam"
	"cofferdam/sandbox"
)

// Boxes returns the boxes of a project's sessions that run here, those of the
// latest tasks first. One that is being made or ended meanwhile may be missing.
func (r *Runner) Boxes(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Sandbox, error) {
	r.mu.Lock()
	var ids []cofferdam.SessionID
	for id, l := range r.alive {
		if l.of.plan.Scope == scope {
			ids = append(ids, id)
		}
	}
	r.mu.Unlock()
	kept, err := r.o.Driver.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	var list []cofferdam.Sandbox
	for _, id := range ids {
		v, err := r.box(ctx, scope, id, kept)
		if cofferdam.KindOf(err) == cofferdam.NotFound && err != nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b cofferdam.Sandbox) int {
		if a.Number != b.Number {
			return int(b.Number - a.Number)
		}
		return b.Created.Compare(a.Created)
	})
	return list, nil
}

// Box returns the box of a session that runs here; NotFound if it has none now.
func (r *Runner) Box(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID) (cofferdam.Sandbox, error) {
	kept, err := r.o.Driver.Snapshots(ctx)
	if err != nil {
		return cofferdam.Sandbox{}, err
	}
	return r.box(ctx, scope, id, kept)
}

func (r *Runner) box(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, kept []sandbox.Snapshot) (cofferdam.Sandbox, error) {
	a, box, err := r.worker(ctx, "session.Box", scope, id)
	var none *cofferdam.Error
	if errors.As(err, &none) && none.Kind == cofferdam.Conflict {
		gone := *none
		gone.Kind = cofferdam.NotFound
		return cofferdam.Sandbox{}, &gone
	}
	if err != nil {
		return cofferdam.Sandbox{}, err
	}
	st, err := box.Status(ctx)
	if err != nil {
		return cofferdam.Sandbox{}, err
	}
	life, err := r.Life(ctx, id)
	if err != nil {
		return cofferdam.Sandbox{}, err
	}
	v := cofferdam.Sandbox{
		Schema: "cofferdam/sandbox/v1", ID: st.ID, Scope: scope, Session: id, Task: a.plan.Task, Number: a.plan.Number, Attempt: a.plan.Attempt, Phase: string(a.plan.Phase),
		Tier: string(st.Tier), Kernel: st.Kernel, Image: a.image.Name, Environment: a.env.Digest, Workspace: string(a.kept.ID), Flags: st.Flags, Limits: st.Limits,
		Life: life, Created: st.Created,
	}
	for _, s := range kept {
		if a.kept.ID != "" && s.Workspace == a.kept.ID && !s.Memory {
			v.Checkpoints++
			v.Size += s.Size
		}
	}
	return v, nil
}
