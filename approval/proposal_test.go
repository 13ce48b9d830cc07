package approval

import (
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
)

// proposed is an agent's proposal to open a host.
func proposed(hash cofferdam.Digest, entry string) cofferdam.Question {
	q := question(hash)
	q.Proposed = &cofferdam.Bounds{Entry: entry, Seconds: 600, Uses: 10, Bytes: 1000}
	return q
}

// TestAnAnswerStaysWithinTheProposal: a person allows what was shown, or less, and
// never more.
func TestAnAnswerStaysWithinTheProposal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), proposed("h-1", "a.test"))
		for name, b := range map[string]cofferdam.Bounds{
			"another host": {Entry: "b.test", Seconds: 60, Uses: 1, Bytes: 1}, "a port more": {Entry: "a.test:22", Seconds: 60, Uses: 1, Bytes: 1}, "all below": {Entry: "*.a.test", Seconds: 60, Uses: 1, Bytes: 1},
			"longer": {Entry: "a.test", Seconds: 601, Uses: 1, Bytes: 1}, "more requests": {Entry: "a.test", Seconds: 60, Uses: 11, Bytes: 1}, "any number": {Entry: "a.test", Seconds: 60, Bytes: 1},
			"more bytes": {Entry: "a.test", Seconds: 60, Uses: 1, Bytes: 1001}, "any size": {Entry: "a.test", Seconds: 60, Uses: 1},
		} {
			a := person("ann", true)
			a.Bounds = &b
			if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, a); cofferdam.KindOf(err) != cofferdam.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", true)); err != nil {
			t.Fatal(err)
		}
		if o := <-done; o.err != nil || o.q.Answers[0].Bounds == nil || *o.q.Answers[0].Bounds != *q.Proposed {
			t.Errorf("as it was shown: %+v", o)
		}
		q, done = l.ask(t.Context(), proposed("h-2", "b.test"))
		for q.Hash != "h-2" {
			q = <-l.told
		}
		less := person("ann", true)
		less.Bounds = &cofferdam.Bounds{Entry: "b.test", Seconds: 1, Uses: 1, Bytes: 1}
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, less); err != nil {
			t.Fatal(err)
		}
		if o := <-done; o.err != nil || *o.q.Answers[0].Bounds != *less.Bounds {
			t.Errorf("less: %+v", o)
		}
	})
}

// TestTheSameHostIsNotProposedAgainAtOnce: other words why are no other question.
func TestTheSameHostIsNotProposedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), proposed("h-1", "a.test"))
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", false)); err != nil {
			t.Fatal(err)
		}
		<-done
		if _, err := l.Ask(t.Context(), proposed("h-2", "a.test")); cofferdam.KindOf(err) != cofferdam.Denied || len(l.store.all) != 1 {
			t.Errorf("%v, %d questions", err, len(l.store.all))
		}
		time.Sleep(Quiet)
		go func() { _, _ = l.Ask(t.Context(), proposed("h-3", "a.test")) }()
		synctest.Wait()
		if len(l.store.all) != 2 {
			t.Error("not asked after a while")
		}
		time.Sleep(2 * DefaultWait)
	})
}

// TestAnOpeningEndsOnceOnRecord: what is used up is over for good, and why is said
// once.
func TestAnOpeningEndsOnceOnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q := cofferdam.Question{Task: "t-1", Action: "request", Resource: "a.test", Hash: "h-1"}
		a := person("ann", true)
		a.Bounds = &cofferdam.Bounds{Entry: "a.test", Seconds: 60, Bytes: 10}
		q, err := l.Open(t.Context(), q, a)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := l.EndOpening(t.Context(), q.Scope, q.ID, "used up"); err != nil {
				t.Error(err)
			}
		}
		n := 0
		for _, e := range l.record.events {
			if e.Kind == cofferdam.EventApprovalEnd && e.Fields["why"] == "used up" && e.Fields["question"] == string(q.ID) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("on record %d times", n)
		}
	})
}
