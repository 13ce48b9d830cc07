package repo

import (
	"path/filepath"
	"testing"

	"cofferdam"
)

// TestHidden: what only other agents' branches reach is hidden, what is shared
// with the session's own branch is not.
func TestHidden(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	git(t, work, "checkout", "--quiet", "-b", "cofferdam/t-1-1")
	shared := commit(t, work, "shared", "s\n")
	git(t, work, "branch", "cofferdam/t-2-1")
	theirs := commit(t, work, "theirs", "t\n")
	git(t, work, "checkout", "--quiet", "cofferdam/t-2-1")
	mine := commit(t, work, "mine", "m\n")
	fill(t, r, work)
	// A fetch leaves agents' branches alone; here they come all the same.
	bare := filepath.Join(t.TempDir(), "bare.git")
	git(t, "/", "clone", "--quiet", "--bare", work, bare)
	p, _ := r.mirror(testID)
	all := p.child("fetch", "--quiet", carrierURL, "+"+AgentRefs+"*:"+AgentRefs+"*")
	carried(&all, serveLocal(t, r, bare))
	if err := r.run(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		own    cofferdam.Ref
		hidden map[cofferdam.Commit]bool
	}{
		{"refs/heads/cofferdam/t-2-1", map[cofferdam.Commit]bool{theirs: true, mine: false, shared: false}},
		{"refs/heads/cofferdam/t-1-1", map[cofferdam.Commit]bool{theirs: false, mine: true, shared: false}},
		{"", map[cofferdam.Commit]bool{theirs: true, mine: true, shared: true}},
		{"refs/heads/cofferdam/t-9-1", map[cofferdam.Commit]bool{theirs: true, mine: true, shared: true}},
	} {
		got, err := r.Hidden(t.Context(), testID, c.own)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range c.hidden {
			if got[id] != want {
				t.Errorf("own %q: %s hidden is %v, want %v", c.own, id, got[id], want)
			}
		}
	}
}
