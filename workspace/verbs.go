package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"cofferdam"
)

// List returns the workspaces of a project that are there or have a bundle, the
// newest first.
func (k *Keeper) List(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Workspace, error) {
	all, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	var list []cofferdam.Workspace
	for _, v := range all {
		if v.Scope == scope {
			list = append(list, v.word())
		}
	}
	return list, nil
}

// word is the workspace as every face shows it.
func (v one) word() cofferdam.Workspace {
	w := cofferdam.Workspace{
		Schema: "cofferdam/workspace/v1", ID: string(v.ID), Scope: v.Scope, Task: v.Task, Number: v.Number, Attempt: v.attempt(),
		Tier: string(v.Tier), Size: v.Size, Used: v.Used, Made: v.Made, Left: v.Left, Noticed: v.Noticed, Removed: v.Removed, Note: v.Note, Bundle: v.Bundle, Earlier: v.Earlier,
	}
	switch {
	case !v.Removed.IsZero():
		w.State, w.Used = cofferdam.WorkspaceRemoved, 0
	case v.disk == nil:
		w.State = cofferdam.WorkspaceLost
	case v.disk.Box != "":
		w.State = cofferdam.WorkspaceInUse
	case v.stuck():
		w.State, w.Stuck = cofferdam.WorkspaceKept, true
	default:
		w.State, w.Until = cofferdam.WorkspaceKept, v.until.UTC()
	}
	return w
}

// find returns the workspace of that name: its id or a prefix of it, or its
// task's short name or id, which stand for the one of the latest attempt. After an
// @ may stand how the digest of a bundle begins: then it has that one alone.
func (k *Keeper) find(ctx context.Context, scope cofferdam.Scope, name string) (one, error) {
	name, bundle, chosen := strings.Cut(name, "@")
	v, err := k.named(ctx, scope, name)
	if err == nil && chosen {
		v.Record, err = v.choose(bundle)
	}
	return v, err
}

func (k *Keeper) named(ctx context.Context, scope cofferdam.Scope, name string) (one, error) {
	all, err := k.all(ctx)
	if err != nil {
		return one{}, err
	}
	var found []one
	for _, v := range all {
		if v.Scope != scope {
			continue
		}
		if name == short(v.Record) || name == string(v.Task) || len(name) >= 8 && strings.HasPrefix(string(v.ID), name) {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return one{}, &cofferdam.Error{
			Op: "workspace.find", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("workspace %.80q", name), Reason: "there is none of this name",
			Hint: "give a task, such as t-42, or an id that cofferdam workspace list shows",
		}
	}
	if slices.ContainsFunc(found, func(v one) bool { return v.Task != found[0].Task }) {
		return one{}, &cofferdam.Error{
			Op: "workspace.find", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("workspace %.80q", name), Reason: "more than one begins so",
			Hint: "give more of its id, or the task: cofferdam workspace list shows both",
		}
	}
	return slices.MaxFunc(found, func(a, b one) int { return a.Attempt - b.Attempt }), nil
}

// View returns one workspace.
func (k *Keeper) View(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Workspace, error) {
	v, err := k.find(ctx, scope, name)
	return v.word(), err
}

// claim finds a workspace and keeps it from being exported or removed by others;
// it waits for one of them.
func (k *Keeper) claim(ctx context.Context, scope cofferdam.Scope, name string) (one, func(), error) {
	v, err := k.named(ctx, scope, name)
	if err != nil {
		return v, nil, err
	}
	release, err := k.hold(ctx, v.ID)
	if err != nil {
		return v, nil, err
	}
	if v, err = k.named(ctx, scope, string(v.ID)); err != nil { // as it is by now
		release()
	}
	return v, release, err
}

// Export makes sure that there is a bundle of all that is in the workspace and
// nowhere else, as it is now. Of a name with a bundle's digest that one is it.
func (k *Keeper) Export(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Workspace, error) {
	const op = "workspace.Export"
	if strings.Contains(name, "@") {
		return k.View(ctx, scope, name)
	}
	v, release, err := k.claim(ctx, scope, name)
	if err != nil {
		return cofferdam.Workspace{}, err
	}
	defer release()
	w := v.word()
	switch w.State {
	case cofferdam.WorkspaceInUse:
		return w, inUse(op, v.Record)
	case cofferdam.WorkspaceKept:
		if v.Record, err = k.export(ctx, v.Record); cofferdam.KindOf(err) == cofferdam.Invalid && err != nil { // by what is in it, which stays
			return w, errors.Join(err, k.keeps(ctx, v.ID, err))
		}
		if err != nil {
			return w, err
		}
		w = v.word()
	case cofferdam.WorkspaceLost:
		if w.Bundle == nil {
			return w, v.lost(op)
		}
	}
	if w.Bundle == nil {
		return w, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: "workspace of " + w.Short(), Reason: "all that is in it is in the repository as well", Hint: "see cofferdam merge view " + w.Short()}
	}
	return w, nil
}

// lost says why nothing can be done with one whose disk is not to be seen.
func (v one) lost(op string) error {
	e := &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: "workspace of " + short(v.Record), Reason: "its disk is not there", Hint: "see cofferdam task view " + short(v.Record)}
	if v.away {
		e.Kind, e.Reason = cofferdam.Unavailable, "this host has no workspaces of tier "+string(v.Tier)+" now"
		e.Hint = "cofferdam doctor says what that tier takes"
	}
	return e
}

func inUse(op string, r Record) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: "workspace of " + short(r), Reason: "an agent works in it",
		Hint: "wait with cofferdam task wait " + short(r) + ", or end it with cofferdam task cancel " + short(r),
	}
}

// Bundle opens the bundle of a workspace, which Export made.
func (k *Keeper) Bundle(ctx context.Context, scope cofferdam.Scope, name string) (*os.File, error) {
	v, err := k.find(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	if v.Bundle == nil {
		return nil, &cofferdam.Error{Op: "workspace.Bundle", Kind: cofferdam.NotFound, Subject: "bundle of " + short(v.Record), Reason: "there is none", Hint: "cofferdam workspace export " + short(v.Record) + " makes it"}
	}
	f, err := os.Open(k.bundlePath(v.ID, v.Bundle.Digest))
	if err != nil {
		return nil, broken(err)
	}
	return f, nil
}

// Remove removes a workspace now; unless discard is set, what is in it and
// nowhere else is exported before. Of one that is removed already it discards the
// bundles, or does nothing.
func (k *Keeper) Remove(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, discard bool) error {
	v, release, err := k.claim(ctx, scope, name)
	if err != nil {
		return err
	}
	defer release()
	r := v.Record
	if v.disk != nil && v.disk.Box != "" {
		return inUse("workspace.Remove", r)
	}
	if v.disk == nil && v.away && r.Removed.IsZero() {
		return v.lost("workspace.Remove")
	}
	if v.disk != nil && r.Removed.IsZero() {
		if !discard {
			if r, err = k.export(ctx, r); err != nil {
				return err
			}
			k.o.Point("workspace:exported")
		}
		return k.remove(ctx, r, v.Session, "removed by "+by.Name, by)
	}
	if !discard {
		return nil
	}
	for _, b := range r.bundles() {
		if err := k.dropBundle(ctx, r, by, b, "removed by "+by.Name); err != nil {
			return err
		}
	}
	return nil
}
