package flow

import (
	"context"
	"testing"

	"cofferdam"
	"cofferdam/proof"
	"cofferdam/task"
)

// testTaken: an upstream that has the attempt's branch from an earlier server
// costs nothing but a number, which every session is told.
func testTaken(t *testing.T, ctx context.Context, s *stage) {
	set := func(v bool) {
		s.actors.mu.Lock()
		defer s.actors.mu.Unlock()
		s.actors.branched = v
	}
	set(true)
	defer set(false)
	v, err := s.create(ctx, "good")
	if err == nil {
		v, err = s.until(ctx, v, cofferdam.InReview)
	}
	want := task.Branch(v.Number, 1) + "-2"
	if err != nil || v.State != cofferdam.InReview || v.Branch != want {
		t.Fatalf("%s on %s (%s), %v; want %s", v.State, v.Branch, v.Comment, err, want)
	}
	for purpose, sees := range map[string]cofferdam.Ref{forBase: want, forWork: "", forProof: want} {
		p, _, _, err := s.store.LatestSession(ctx, v.ID, 1, purpose)
		if err != nil || p.Sees != sees || (purpose == forWork) != (p.Branch == want) {
			t.Errorf("%s writes %q and sees %q, %v", purpose, p.Branch, p.Sees, err)
		}
	}
	kept, err := s.store.ReceiptFor(ctx, v.ID, v.Head)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := proof.OpenReceipt(kept.Note, s.key); err != nil || r.Branch != want {
		t.Errorf("the receipt is for %s, %v", r.Branch, err)
	}
}
