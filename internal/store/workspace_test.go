package store

import (
	"errors"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
	"cofferdam/workspace"
)

// TestWorkspacesStay keeps the record of a workspace through all that happens to
// it, and tries by SQL what may not be.
func TestWorkspacesStay(t *testing.T) {
	p := open(t)
	v := p.create(t, "")
	id := sandbox.WorkspaceID("w-" + strings.Repeat("0", 32))
	r := workspace.Record{ID: id, Scope: v.Scope, Task: v.ID, Number: v.Number, Attempt: 1, Repo: v.Repo, Tier: sandbox.GVisor, Epoch: 5, Made: at(1), Left: at(1)}
	if _, err := p.WorkspaceOf(t.Context(), v.ID, 1); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("none yet: %v", err)
	}
	if err := p.AddWorkspace(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.AddWorkspace(t.Context(), r), cofferdam.Conflict)
	refused := errors.New("not so")
	if _, err := p.ChangeWorkspace(t.Context(), id, func(r *workspace.Record) error { r.Ready = true; return refused }); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	_, err := p.ChangeWorkspace(t.Context(), "w-1", func(*workspace.Record) error { return nil })
	wantKind(t, err, cofferdam.NotFound)
	got, err := p.ChangeWorkspace(t.Context(), id, func(r *workspace.Record) error {
		r.Ready, r.Attempt, r.Bundle = true, 2, &cofferdam.Bundle{Commits: 3, Refs: []cofferdam.Ref{"refs/heads/x"}}
		return nil
	})
	if err != nil || !got.Ready {
		t.Fatal(got, err)
	}
	if got, err = p.WorkspaceOf(t.Context(), v.ID, 2); err != nil || got.ID != id || got.Bundle == nil || got.Bundle.Commits != 3 || !got.Made.Equal(at(1)) || got.Scope != v.Scope {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := p.ChangeWorkspace(t.Context(), id, func(r *workspace.Record) error { r.Epoch = 4; return nil }); err == nil {
		t.Error("an epoch went back")
	}
	db := raw(t, p)
	for query, want := range map[string]string{
		`DELETE FROM workspace`:                      "kept",
		`UPDATE workspace SET task = 't-other'`:      "cannot be changed",
		`UPDATE workspace SET project = 'p-other'`:   "cannot be changed",
		`UPDATE workspace SET body = 'no JSON'`:      "malformed",
		`UPDATE workspace SET body = '{"epoch": 1}'`: "does not go back",
	} {
		if _, err := db.ExecContext(t.Context(), query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
	// Removed, it is listed as long as there is a bundle.
	for _, step := range []struct {
		change func(*workspace.Record)
		listed int
	}{{func(r *workspace.Record) { r.Removed = at(9) }, 1}, {func(r *workspace.Record) { r.Bundle = nil }, 0}} {
		if _, err := p.ChangeWorkspace(t.Context(), id, func(r *workspace.Record) error { step.change(r); return nil }); err != nil {
			t.Fatal(err)
		}
		if all, err := p.Workspaces(t.Context()); err != nil || len(all) != step.listed {
			t.Errorf("%d are listed, want %d: %v", len(all), step.listed, err)
		}
	}
	plan := session.Plan{Scope: v.Scope, ID: cofferdam.SessionID(cofferdam.NewID("s")), Task: v.ID, Attempt: 1}
	if err := p.BeginSession(t.Context(), "work", 3, plan); err != nil {
		t.Fatal(err)
	}
	if try, err := p.SessionTry(t.Context(), plan.ID); err != nil || try != 3 {
		t.Errorf("try %d %v", try, err)
	}
	_, err = p.SessionTry(t.Context(), "s-none")
	wantKind(t, err, cofferdam.NotFound)
}
