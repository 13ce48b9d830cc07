package gvisor

import (
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestPoolKeepsWorkspaces: a box that was made ahead gives its own workspace to
// whoever asks for a new one, it is kept as any other, and who asks for one that
// is there gets that one.
func TestPoolKeepsWorkspaces(t *testing.T) {
	d := newPooled(t, 1)
	id := sandbox.WorkspaceID(cofferdam.NewID("w"))
	ask := func(id sandbox.WorkspaceID, epoch int64) *box {
		t.Helper()
		b, err := d.Create(t.Context(), sandbox.Spec{
			ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Workspace: id, Epoch: epoch,
			Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20},
		})
		if err != nil {
			t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
		}
		return b.(*box)
	}
	run := func(b *box, text string) {
		t.Helper()
		if r, err := sandbox.Run(t.Context(), b, sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("x")), Shell: text}, nil, nil); err != nil || r.Exit != 0 {
			t.Fatalf("%s: %+v %v", text, r, err)
		}
	}
	other := ask(sandbox.WorkspaceID(cofferdam.NewID("w")), 1) // from then on the kind is made ahead
	run(other, "echo other >/work/f")
	ahead := waiting(t, d, 1)[0]
	b := ask(id, 1)
	if b != ahead {
		t.Error("it was not made ahead")
	}
	if st, err := b.Status(t.Context()); err != nil || st.Workspace == nil || st.Workspace.ID != id || !st.Workspace.Fresh {
		t.Errorf("%+v %v", st.Workspace, err)
	}
	run(b, "test -z \"$(ls -A /work)\" && echo kept >/work/f")
	waiting(t, d, 1)
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := ask(id, 2)
	if st, err := again.Status(t.Context()); err != nil || st.Workspace == nil || st.Workspace.Fresh {
		t.Errorf("%+v %v", st.Workspace, err)
	}
	run(again, "grep -q kept /work/f")
	if list, err := d.Workspaces(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("%d workspaces are kept, %v: those of the pool are none", len(list), err)
	}
}
