package git

import (
	"strings"
	"testing"

	"cofferdam"
)

// TestFreeBranch: what the upstream has is never given to an attempt, however it
// came there.
func TestFreeBranch(t *testing.T) {
	for name, c := range map[string]struct {
		has  []string
		want string // "" if there is none
	}{
		"nothing":             {nil, "t-1-1"},
		"neighbours":          {[]string{"cofferdam/t-1-10", "cofferdam/t-1-2", "cofferdam/t-11-1", "x/refs/heads/cofferdam/t-1-1"}, "t-1-1"},
		"the branch":          {[]string{"cofferdam/t-1-1"}, "t-1-1-2"},
		"the next two":        {[]string{"cofferdam/t-1-1", "cofferdam/t-1-1-2", "cofferdam/t-1-1-3"}, "t-1-1-4"},
		"the next, not it":    {[]string{"cofferdam/t-1-1-2"}, "t-1-1"},
		"a branch below":      {[]string{"cofferdam/t-1-1/notes"}, "t-1-1-2"},
		"a branch above":      {[]string{"cofferdam"}, ""},
		"a tag of that name":  {[]string{"../tags/cofferdam/t-1-1"}, "t-1-1"},
		"the branch, and not": {[]string{"cofferdam/t-1-1", "cofferdam/t-1-1-3"}, "t-1-1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			for _, ref := range c.has {
				full := strings.Replace("refs/heads/"+ref, "heads/../", "", 1)
				must(t, w.upstream, "update-ref", full, "refs/heads/main")
			}
			if err := w.gateway.Sync(t.Context(), w.repo); err != nil {
				t.Fatal(err)
			}
			got, err := w.gateway.FreeBranch(t.Context(), w.repo, "refs/heads/cofferdam/t-1-1")
			if c.want == "" {
				if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(cofferdam.HintOf(err), "git branch -m cofferdam") {
					t.Fatalf("%s, %v", got, err)
				}
				return
			}
			if err != nil || got != cofferdam.Ref("refs/heads/cofferdam/"+c.want) {
				t.Fatalf("%s, %v; want %s", got, err, c.want)
			}
			w.open(got)
			dir := w.clone()
			write(t, dir, "c.txt", "three\n")
			w.must(dir, "push", "origin", "HEAD:"+string(got)) // and git takes it
		})
	}
}
