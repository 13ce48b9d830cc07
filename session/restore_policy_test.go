package session_test

import (
	"context"
	"testing"

	"cofferdam"
	"cofferdam/session"
)

// A policy that denies going back to a checkpoint: the workspace and what runs in it
// stay as they are, the record names the rule, and another checkpoint may be gone
// back to.
func TestPolicyDeniesARestore(t *testing.T) {
	b, _ := steered(t, restoring)
	docs := &papers{}
	docs.write(t, "[box]\ndeny = [\"restore:v0\"]\n", "")
	b.change = func(change func(*session.Options)) func(*session.Options) {
		return func(o *session.Options) {
			if change != nil {
				change(o)
			}
			o.Documents = docs.read
		}
	}(b.change)
	shelving(b)
	p := b.pretended()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "first")
	b.checkpoint(p, "as it began")
	b.checkpoint(p, "the same again")
	b.let("go")
	b.until(p, "agent", "second")
	if _, err := b.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v0"); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Fatalf("%v", err)
	}
	refused := false
	for _, e := range b.events(p) {
		refused = refused || e.Kind == cofferdam.EventRestoreAsk && e.Verdict == cofferdam.Refused && e.Rule == "organization.box.deny-1" && e.Actor == ada
	}
	if !refused || len(b.of(p, cofferdam.EventRestore)) != 0 {
		t.Errorf("on record as refused: %v; %q", refused, b.of(p, cofferdam.EventRestore))
	}
	if back, err := b.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v1"); err != nil || back.Checkpoint != "v1" {
		t.Fatalf("what is not denied: %+v %v", back, err)
	}
	b.until(p, "agent-2", "sees one")
	b.let("end1")
	<-done
}
