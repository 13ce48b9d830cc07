package workspace

import (
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestCheckpointsGoWithTheirWorkspace: those of a workspace that is removed go with it,
// and nobody else's.
func TestCheckpointsGoWithTheirWorkspace(t *testing.T) {
	w := newWorld(t, nil)
	w.attempt(1)
	w.attempt(2)
	w.shelf = []sandbox.Snapshot{{ID: "s-1", Workspace: w.id(1)}, {ID: "s-2", Workspace: w.id(2)}, {ID: "s-3", Workspace: w.id(1)}, {ID: "s-4"}}
	if err := w.k.Remove(t.Context(), w.records[w.id(1)].Scope, cofferdam.Principal{Name: "ann"}, "t-1", true); err != nil {
		t.Fatal(err)
	}
	if len(w.shelf) != 2 || w.shelf[0].ID != "s-2" || w.shelf[1].ID != "s-4" || len(w.disks) != 1 {
		t.Errorf("%+v, %d disks", w.shelf, len(w.disks))
	}
}
