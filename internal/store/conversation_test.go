package store

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
	"cofferdam/agent/loop"
	"cofferdam/session"
)

// talk begins a session and returns its id.
func (p place) talk(t *testing.T) cofferdam.SessionID {
	t.Helper()
	v := p.create(t, "")
	id := cofferdam.SessionID(cofferdam.NewID("s"))
	if err := p.BeginSession(t.Context(), "work", 1, session.Plan{Scope: p.scope, ID: id, Task: v.ID, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestConversation(t *testing.T) {
	p := open(t)
	id := p.talk(t)
	c := p.Conversation(p.scope, id)
	if entries, err := c.Entries(t.Context()); err != nil || len(entries) != 0 {
		t.Fatalf("before the first: %v %v", entries, err)
	}
	var want []loop.Entry
	for n := 1; n <= 12; n++ {
		e := loop.Entry{Number: n, Time: at(n), Body: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
		if err := c.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	got, err := p.Conversation(p.scope, id).Entries(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for name, e := range map[string]loop.Entry{"again": want[11], "gap": {Number: 14}, "zero": {}} {
		if err := c.Append(t.Context(), e); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	err = c.Append(t.Context(), loop.Entry{Number: 13, Body: make([]byte, MaxEntry+1)})
	if cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" {
		t.Errorf("too large: %v", err)
	}
	for _, query := range []string{`UPDATE conversation SET body = x'00'`, `DELETE FROM conversation`} {
		if _, err := p.write.Exec(query); err == nil {
			t.Errorf("%s went through", query)
		}
	}
}

// TestConversationIsOfOneProject: nothing of it crosses, and nothing follows
// the end of its session.
func TestConversationIsOfOneProject(t *testing.T) {
	p := open(t)
	id := p.talk(t)
	if err := p.Conversation(p.scope, id).Append(t.Context(), loop.Entry{Number: 1, Time: at(1), Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	other := cofferdam.Scope{Organization: p.scope.Organization, Project: "p-other"}
	if entries, err := p.Conversation(other, id).Entries(t.Context()); err != nil || len(entries) != 0 {
		t.Errorf("another project reads %v %v", entries, err)
	}
	if err := p.Conversation(other, id).Append(t.Context(), loop.Entry{Number: 2, Body: []byte("{}")}); err == nil {
		t.Error("another project writes")
	}
	if err := p.SaveResult(t.Context(), session.Result{Session: id}); err != nil {
		t.Fatal(err)
	}
	if err := p.Conversation(p.scope, id).Append(t.Context(), loop.Entry{Number: 2, Body: []byte("{}")}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("after the end: %v", err)
	}
}

// TestConversationIsBounded fills one to the byte.
func TestConversationIsBounded(t *testing.T) {
	p := open(t)
	id := p.talk(t)
	c := p.Conversation(p.scope, id)
	_, err := p.write.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO conversation SELECT ?, ?, ?, i, ?, x'7b7d' FROM n`, MaxEntries, id, p.scope.Organization, p.scope.Project, stamp(at(1)))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	err = c.Append(t.Context(), loop.Entry{Number: MaxEntries + 1, Body: []byte("{}")})
	if cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("entry %d: %v", MaxEntries+1, err)
	}
	t.Logf("looking at %d entries took %s", MaxEntries, time.Since(begun))
}
