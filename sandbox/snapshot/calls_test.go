package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestDifferencesOfABox: a box is compared as it is now, and nothing of that stays.
// Another project hears the same of one that it has not as of one that there is not.
func TestDifferencesOfABox(t *testing.T) {
	const id cofferdam.BoxID = "b-0123456789abcdef0123456789abcdef"
	mine, other := cofferdam.Scope{Organization: "o-1", Project: "p-1"}, cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	spec := sandbox.Spec{ID: id, Scope: mine}
	st := newStore(t)
	took := 0
	take := func(_ context.Context, t sandbox.Take) (*Stored, error) {
		took++
		s, err := st.Add(t, spec, 0)
		if err != nil {
			return nil, err
		}
		return s, errors.Join(fill(s), os.WriteFile(s.Path(Tree+"/new"), nil, 0o600))
	}
	c := Calls{Of: st, Find: func(_ context.Context, asked cofferdam.BoxID) (cofferdam.Scope, Taker, error) {
		if asked != id {
			return cofferdam.Scope{}, nil, &cofferdam.Error{Op: "driver.Open", Kind: cofferdam.NotFound, Reason: "in other words"}
		}
		return mine, take, nil
	}}
	of := func(scope cofferdam.Scope) sandbox.SnapshotID {
		s, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{Scope: scope}, 0)
		must(t, err)
		must(t, fill(s), st.Keep(t.Context(), s))
		return s.ID
	}
	first, theirs := of(mine), of(other)
	d, err := c.Differences(t.Context(), sandbox.Compare{Scope: mine, From: first, Box: id})
	must(t, err)
	if d.Added != 1 || d.Changed+d.Removed != 0 || string(d.List[0].Path) != "new" || took != 1 {
		t.Errorf("%+v, taken %d times", d, took)
	}
	_, hidden := c.Differences(t.Context(), sandbox.Compare{Scope: other, From: theirs, Box: id})
	wantKind(t, "another project's box", hidden, cofferdam.NotFound)
	const none cofferdam.BoxID = "b-0123456789abcdef0123456789abcde0"
	_, missing := c.Differences(t.Context(), sandbox.Compare{Scope: other, From: theirs, Box: none})
	wantKind(t, "no box", missing, cofferdam.NotFound)
	if h, m := say(hidden, id), say(missing, none); h != m || took != 1 {
		t.Errorf("another project hears %q, and of none %q; taken %d times", h, m, took)
	}
	if got := list(t, st); len(got) != 2 {
		t.Errorf("left: %q", got)
	}
}

// say is all that a caller hears of an error about a box, but for the box's id.
func say(err error, id cofferdam.BoxID) string {
	var e *cofferdam.Error
	if !errors.As(err, &e) {
		return ""
	}
	return strings.ReplaceAll(fmt.Sprint(e.Op, e.Kind, e.Subject, e.Reason, e.Hint, e.Err), string(id), "")
}
