package git

import (
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// A policy that denies a repository's credential: the forge never sees it, git hears
// by which rule, and the record has it. Another repository's denial changes nothing.
func TestTheCredentialOfARepositoryIsAskedAbout(t *testing.T) {
	for text, denied := range map[string]bool{
		"[secret]\ndeny = [\"repo:demo\"]\n":                  true,
		"[secret]\ndeny = [\"repo:other\", \"model:demo\"]\n": false,
	} {
		upstream := newUpstream(t)
		f := newForge(t, filepath.Dir(upstream))
		w := newWorld(t, upstream, f.options(upstream))
		d, err := policy.ParseDocument(policy.ProjectName, []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.New(policy.Grant{Repo: w.repo.ID, Branch: own, Project: &d})
		if err != nil {
			t.Fatal(err)
		}
		w.caller.Policy = gateway.NewRules(set)
		out, err := w.git(t.TempDir(), "clone", "-q", w.url(), "tree")
		if (err != nil) != denied || (f.served.Load() == 0) != denied {
			t.Errorf("%s: %v, and the forge saw the credential %d times\n%s", text, err, f.served.Load(), out)
		}
		if denied && !strings.Contains(out, "project.secret.deny-1") {
			t.Errorf("%s: git heard %q", text, out)
		}
		on := false
		for _, e := range w.record.Events() {
			on = on || e.Kind == cofferdam.EventSecret && e.Resource == "repo:demo" && e.Verdict == cofferdam.Refused && e.Rule == "project.secret.deny-1"
		}
		if on != denied {
			t.Errorf("%s: on record as refused: %v", text, on)
		}
	}
}
