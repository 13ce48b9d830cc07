package approval

import (
	"fmt"
	"testing"

	"cofferdam"
)

// TestNoFloodIsAnothers: an organisation whose notices are many has others wait for
// one of them at most, and loses its own where no more fit; what waits is bounded.
func TestNoFloodIsAnothers(t *testing.T) {
	n := newNotices()
	tell := func(of cofferdam.OrganizationID, id string) cofferdam.QuestionID {
		return n.add(cofferdam.Question{ID: cofferdam.QuestionID(id), Scope: cofferdam.Scope{Organization: of}})
	}
	lost := 0
	for i := range 1000 {
		if id := tell("o-loud", fmt.Sprintf("loud-%d", i)); id != "" {
			lost++
		}
	}
	if lost != 1000-maxNotices {
		t.Errorf("%d of 1000 are dropped, want all but %d", lost, maxNotices)
	}
	for i := range 3 {
		if id := tell("o-calm", fmt.Sprintf("calm-%d", i)); len(id) < 4 || id[:4] != "loud" {
			t.Errorf("notice %d of another costs %q", i, id)
		}
	}
	var order []cofferdam.QuestionID
	for {
		q, ok := n.take()
		if !ok {
			break
		}
		order = append(order, q.ID)
	}
	if len(order) != maxNotices {
		t.Fatalf("%d waited, want %d", len(order), maxNotices)
	}
	for i, want := range []cofferdam.QuestionID{"loud-0", "calm-0", "loud-1", "calm-1", "loud-2", "calm-2", "loud-3"} {
		if order[i] != want {
			t.Errorf("at %d: %s, want %s", i, order[i], want)
		}
	}
}

// TestMoreOrganisationsThanNotices: of more organisations than notices fit, each has one;
// who comes late loses their own, and whoever was there is told.
func TestMoreOrganisationsThanNotices(t *testing.T) {
	n := newNotices()
	id := func(i int) cofferdam.QuestionID { return cofferdam.QuestionID(fmt.Sprintf("a-%d", i)) }
	for i := range maxNotices + 20 {
		dropped := n.add(cofferdam.Question{ID: id(i), Scope: cofferdam.Scope{Organization: cofferdam.OrganizationID(fmt.Sprintf("o-%d", i))}})
		if want := id(i); i >= maxNotices && dropped != want || i < maxNotices && dropped != "" {
			t.Fatalf("notice %d costs %q", i, dropped)
		}
	}
	for i := range maxNotices {
		if q, ok := n.take(); !ok || q.ID != id(i) {
			t.Fatalf("at %d: %q, %v", i, q.ID, ok)
		}
	}
	if q, ok := n.take(); ok || len(n.lines) != 0 {
		t.Errorf("%q is left, and %d lines", q.ID, len(n.lines))
	}
}
