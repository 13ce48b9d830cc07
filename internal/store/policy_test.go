package store

import (
	"fmt"
	"testing"
	"time"

	"cofferdam"
)

func TestProposalsAreBounded(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	propose := func() (cofferdam.PolicyVersion, error) {
		return s.ProposePolicy(ctx, cofferdam.PolicyVersion{Scope: scope, Text: "x", Digest: "sha256:x", Why: "why", ProposedBy: "person:ann", Proposed: time.Now()})
	}
	var last cofferdam.PolicyVersion
	for range maxProposals {
		if last, err = propose(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := propose(); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Fatalf("one too many: %v", err)
	}
	// The organisation's own are counted by themselves.
	if v, err := s.ProposePolicy(ctx, cofferdam.PolicyVersion{Scope: cofferdam.Scope{Organization: scope.Organization}, Text: "x", Digest: "sha256:x", ProposedBy: "person:ann", Proposed: time.Now()}); err != nil || v.Version != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	last.State, last.DecidedBy, last.Decided, last.Signature = cofferdam.PolicyTaken, "person:bob", time.Now(), "note"
	if err := s.DecidePolicy(ctx, last); err != nil {
		t.Fatal(err)
	}
	v, err := propose() // those before the one that counts wait for nobody
	if err != nil || v.Version != maxProposals+1 {
		t.Errorf("%+v, %v", v, err)
	}
	all, err := s.PolicyVersions(ctx, scope)
	if err != nil || len(all) != maxProposals+1 || all[0].Version != v.Version || all[0].Why != "why" || all[1].State != cofferdam.PolicyTaken {
		t.Errorf("%d versions, %v, %+v", len(all), err, all[0])
	}
}

// What an answer opened is found again for its task alone, and its uses are
// counted by the database, also past the end of a process.
func TestOpenings(t *testing.T) {
	s, ctx := open(t), t.Context()
	task := s.create(t, "")
	var ids []cofferdam.QuestionID
	for i, b := range []*cofferdam.Bounds{{Entry: "a.test", Seconds: 60, Uses: 2}, nil, {Entry: "b.test", Seconds: 60}} {
		q := cofferdam.Question{
			Schema: "cofferdam/approval/v1", ID: cofferdam.QuestionID(cofferdam.NewID("a")), Scope: task.Scope, Task: task.ID, Hash: cofferdam.Digest(fmt.Sprint("h", i)), Needs: 1,
			State: cofferdam.QuestionOpen, Created: time.Now().UTC(),
		}
		if err := s.AddQuestion(ctx, q); err != nil {
			t.Fatal(err)
		}
		if err := s.UseOpening(ctx, q.ID, 2); err == nil {
			t.Error("used before anybody answered")
		}
		state := cofferdam.QuestionAllowed
		if i == 2 {
			state = cofferdam.QuestionDenied
		}
		a := cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, Allow: i < 2, Proof: "password", Time: time.Now().UTC(), Bounds: b}
		if _, err := s.Answer(ctx, q.ID, a, state); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, q.ID)
	}
	list, err := s.Openings(ctx, task.ID)
	if err != nil || len(list) != 1 || list[0].ID != ids[0] || list[0].Answers[0].Bounds.Uses != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if list, err := s.Openings(ctx, "t-other"); err != nil || len(list) != 0 {
		t.Errorf("another task has %+v, %v", list, err)
	}
	for i, want := range []bool{true, true, false, false} {
		if err := s.UseOpening(ctx, ids[0], 2); (err == nil) != want || err != nil && cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("use %d: %v", i+1, err)
		}
	}
	for _, raw := range []string{`UPDATE opening SET used = 1`, `UPDATE opening SET used = 9`, `DELETE FROM opening`} {
		if _, err := s.write.ExecContext(ctx, raw); err == nil {
			t.Errorf("%s passed", raw)
		}
	}
	if err := s.UseOpening(ctx, ids[0], 0); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("of no acts: %v", err)
	}
}

// What an answer opened for a number of bytes is counted by the database, past the
// end of a process, and no more than the answers say, whoever asks for it.
func TestOpeningsInBytes(t *testing.T) {
	s, ctx := open(t), t.Context()
	task := s.create(t, "")
	add := func(b *cofferdam.Bounds) cofferdam.QuestionID {
		q := cofferdam.Question{
			Schema: "cofferdam/approval/v1", ID: cofferdam.QuestionID(cofferdam.NewID("a")), Scope: task.Scope, Task: task.ID, Hash: cofferdam.Digest(cofferdam.NewID("h")), Needs: 1,
			State: cofferdam.QuestionOpen, Created: time.Now().UTC(), Proposed: b,
		}
		if err := s.AddQuestion(ctx, q); err != nil {
			t.Fatal(err)
		}
		return q.ID
	}
	b := &cofferdam.Bounds{Entry: "a.test:443", Seconds: 60, Bytes: 1000}
	id := add(b)
	if err := s.TakeBytes(ctx, id, 1, 1000); err == nil {
		t.Error("taken before anybody answered")
	}
	a := cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, Allow: true, Proof: "password", Time: time.Now().UTC(), Bounds: b}
	if _, err := s.Answer(ctx, id, a, cofferdam.QuestionAllowed); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		n    int64
		most int64
		fits bool
	}{{1001, 1000, false}, {600, 1000, true}, {401, 1000, false}, {400, 1000, true}, {1, 1000, false}, {-500, 1000, true}, {500, 1000, true}, {1, 1000, false}} {
		if err := s.TakeBytes(ctx, id, c.n, c.most); (err == nil) != c.fits || err != nil && cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("%d: take %d of %d: %v", i, c.n, c.most, err)
		}
	}
	if err := s.TakeBytes(ctx, id, 1, 5000); err == nil {
		t.Error("more than the answer says was taken")
	}
	for _, raw := range []string{`UPDATE opening_bytes SET used = 2000`, `UPDATE opening_bytes SET used = -1`, `DELETE FROM opening_bytes`} {
		if _, err := s.write.ExecContext(ctx, raw); err == nil {
			t.Errorf("%s passed", raw)
		}
	}
	if list, err := s.Openings(ctx, task.ID); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.EndOpening(ctx, id, time.Now(), "used up"); err != nil {
		t.Error(err)
	}
	if err := s.EndOpening(ctx, id, time.Now(), "again"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("ended twice: %v", err)
	}
	if list, err := s.Openings(ctx, task.ID); err != nil || len(list) != 0 {
		t.Errorf("after its end: %+v, %v", list, err)
	}
	// A no to a host is one to it on another port, and to no other host.
	no := a
	no.Allow, no.Bounds = false, nil
	if _, err := s.Answer(ctx, add(&cofferdam.Bounds{Entry: "b.test:8443", Seconds: 1}), no, cofferdam.QuestionDenied); err != nil {
		t.Fatal(err)
	}
	for entry, want := range map[string]bool{"b.test": true, "b.test:443": true, "b.test:8443": true, "a.b.test": false, "b.tes": false, "b.test.test": false} {
		_, _, denied, err := s.Tally(ctx, cofferdam.Question{Task: task.ID, Hash: "h-none", Proposed: &cofferdam.Bounds{Entry: entry}}, time.Now())
		if err != nil || denied.IsZero() == want {
			t.Errorf("%s: %v, %v", entry, denied, err)
		}
	}
}
