package policy_test

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
)

// Each class lets through all that the one before it does, and none of them
// anything that the policy beside it does not.
func TestClassesAreOrdered(t *testing.T) {
	classes := policy.Classes()
	moved := make([]int, len(classes))
	property(t, func(t *testing.T, g generator) {
		text := g.document(policy.ProjectName, "", "deny", "ask", "allow")
		org := parsed(t, policy.OrganizationName, g.document(policy.OrganizationName, "", restricting...))
		var sets []*policy.Set
		for _, c := range classes {
			under, err := policy.WithClass(text, c.Name)
			if err != nil {
				t.Fatal(err)
			}
			project := parsed(t, policy.ProjectName, under)
			if g.IntN(2) == 0 { // as it is kept
				project = parsed(t, policy.ProjectName, project.Seal())
			}
			given := policy.Grant{Repo: "r-1", Branch: "refs/heads/work/1", Model: "m1", At: now}
			sets = append(sets, set(t, given.Under(policy.Documents{Organization: org, Project: project})))
		}
		given := policy.Grant{Repo: "r-1", Branch: "refs/heads/work/1", Model: "m1", At: now}
		sets = append(sets, set(t, given.Under(policy.Documents{Organization: org, Project: parsed(t, policy.ProjectName, text)})))
		for range asked {
			q := g.query()
			for i := range classes {
				narrow, wide := sets[i].Decide(q), sets[i+1].Decide(q)
				if order(narrow) < order(wide) {
					t.Errorf("%+v is %s by %s in class %s, and %s by %s in what is wider\n%s", q, narrow.Verdict, narrow.Rule, classes[i].Name, wide.Verdict, wide.Rule, text)
				}
				if order(narrow) > order(wide) {
					moved[i]++
				}
			}
		}
	})
	for i, n := range moved {
		if n < 5 {
			t.Errorf("class %s differs from what is wider in %d answers alone", classes[i].Name, n)
		}
	}
}

// What the classes say of the acts that they are about.
func TestWhatClassesSay(t *testing.T) {
	const text = "[egress]\nallow = [\"a.test\", \"splice:s.test\"]\n[tool]\nallow = [\"github:*\"]\n"
	get := policy.Query{Action: policy.HTTP, Host: "a.test", Port: 443, Method: "GET", Path: "/x"}
	post, socket := get, get
	post.Method = "POST"
	socket.Splice = true
	stranger := post
	stranger.Host = "b.test"
	for _, c := range []struct {
		q    policy.Query
		want string // of read-only, ask-to-write, write and no class: a yes, n no, 1 or 2 people
	}{
		{get, "aaaa"},
		{post, "n1aa"},
		{socket, "n11a"},
		{stranger, "nnnn"},
		{policy.Query{Action: policy.Resolve, Host: "a.test"}, "aaaa"},
		{policy.Query{Action: policy.Connect, Host: "a.test", Port: 443}, "aaaa"},
		{policy.Query{Action: policy.Connect, Host: "s.test", Port: 443, Splice: true}, "n11a"},
		{policy.Query{Action: policy.Push, Repo: "r-1", Ref: "refs/heads/work/1"}, "naaa"},
		{policy.Query{Action: policy.Push, Repo: "r-1", Ref: "refs/heads/main"}, "nnnn"},
		{policy.Query{Action: policy.Fetch, Repo: "r-1"}, "aaaa"},
		{policy.Query{Action: policy.Call, Model: "m1"}, "aaaa"},
		{policy.Query{Action: policy.Use, Name: "model:m1"}, "aaaa"},
		{policy.Query{Action: policy.Run, Name: policy.ByAgent}, "aaaa"},
		{policy.Query{Action: policy.Invoke, Name: "own:shell"}, "aaaa"},
		{policy.Query{Action: policy.Invoke, Name: "github:delete_repo"}, "11aa"},
		{policy.Query{Action: policy.Land, Ref: "refs/heads/main"}, "n2aa"},
	} {
		got := ""
		for _, class := range []string{"read-only", "ask-to-write", "write", ""} {
			under, err := policy.WithClass(text, class)
			if err != nil {
				t.Fatal(err)
			}
			s := set(t, policy.Grant{Project: parsed(t, policy.ProjectName, under), Repo: "r-1", Branch: "refs/heads/work/1", Model: "m1"})
			got += map[int]string{0: "a", 1: "1", 2: "2", 3: "n"}[order(s.Decide(c.q))]
		}
		if got != c.want {
			t.Errorf("%+v: %s, not %s", c.q, got, c.want)
		}
	}
}

// What is kept has the class in it, and what somebody writes in its place is
// refused.
func TestAClassIsKept(t *testing.T) {
	const text = "# ours\nclass = \"read-only\"\n\n[egress]\nallow = [\"a.test\"]\n"
	d := parsed(t, policy.ProjectName, text)
	kept := parsed(t, policy.ProjectName, d.Seal())
	if !kept.Sealed || kept.Class() != "read-only" || kept.Base.Digest() != d.Base.Digest() || kept.Seal() != kept.Text || !kept.Ships() || !strings.Contains(kept.Text, string(kept.Base.Digest())) {
		t.Errorf("%+v\n%s", kept, kept.Text)
	}
	if c := analysis.Diff(*d, *kept); c.Widens() || len(c.Closes)+len(c.Asks) > 0 {
		t.Errorf("kept is another: %+v", c)
	}
	for name, bad := range map[string]string{
		"no such class":   "class = \"root\"\n",
		"no name":         "class = \"../read-only\"\n",
		"another digest":  strings.Replace(kept.Text, "forbid", "permit", 1),
		"base alone":      strings.Replace(kept.Text, "class = \"read-only\"\n", "", 1),
		"a class gives":   sealed("mine", "[egress]\nallow = [\"a.test\"]\n"),
		"class of class":  sealed("mine", "class = \"write\"\n"),
		"a class logs":    sealed("mine", "mode = \"log-only\"\nuntil = 2026-12-01T00:00:00Z\n"),
		"name of a layer": sealed("organisation", "second_person = true\n"),
		"name of its ids": sealed("organization", "[egress]\ndeny = [\"a.test\"]\n"),
		"broken":          sealed("mine", "egres = 1\n"),
	} {
		if _, err := policy.ParseDocument(policy.ProjectName, []byte(bad), nil); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v\n%s", name, err, bad)
		}
	}
	for from, to := range map[string]string{text: "write", kept.Text: "write", "[egress]\nallow = []\n": "read-only", "": "write", "# a comment alone": "write"} {
		got, err := policy.WithClass(from, to)
		if err != nil {
			t.Fatalf("%v\n%s", err, from)
		}
		if d := parsed(t, policy.ProjectName, got); d.Class() != to || d.Sealed || strings.Count(got, "class =") != 1 {
			t.Errorf("%q under %s is\n%s", from, to, got)
		}
		without, err := policy.WithClass(got, "")
		if d := parsed(t, policy.ProjectName, without); err != nil || d.Class() != "" {
			t.Errorf("%v\n%s", err, without)
		}
	}
	if _, err := policy.WithClass(text, "root"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("%v", err)
	}
	// Both layers may be under one, and two programs' versions of one may meet.
	old := parsed(t, policy.OrganizationName, sealed("read-only", "[cedar]\ntext = \"\"\"@id(\"reads\") forbid (principal, action == Action::\"request\", resource);\"\"\"\n"))
	for _, org := range []*policy.Document{parsed(t, policy.OrganizationName, "class = \"read-only\"\n"), parsed(t, policy.OrganizationName, "class = \"write\"\n"), old} {
		set(t, policy.Grant{Organization: org, Project: d})
	}
	if old.Ships() {
		t.Error("a class of nobody's ships")
	}
}

// sealed is a document under a class of that text.
func sealed(name, text string) string {
	base := policy.Document{Name: name, Text: text}
	d := policy.Document{Text: "class = \"" + name + "\"\n", Base: &base}
	return d.Seal()
}

// From class to class, the diff says what becomes possible and what does not.
func TestDiffOfClasses(t *testing.T) {
	doc := func(class string) policy.Document {
		text, err := policy.WithClass("[egress]\nallow = [\"a.test\"]\n", class)
		if err != nil {
			t.Fatal(err)
		}
		return *parsed(t, policy.ProjectName, text)
	}
	own := *parsed(t, policy.ProjectName, sealed("mine", "# Mine.\n[egress]\ndeny = [\"b.test\"]\n")+"[egress]\nallow = [\"a.test\"]\n")
	for _, c := range []struct {
		name                     string
		before, after            policy.Document
		opens, closes, unbounded int
	}{
		{"the same", doc("write"), doc("write"), 0, 0, 0},
		{"wider", doc("read-only"), doc("ask-to-write"), 1, 0, 0},
		{"narrower", doc("write"), doc("read-only"), 0, 1, 0},
		{"into one", doc(""), doc("write"), 0, 1, 0},
		{"out of one", doc("read-only"), doc(""), 1, 0, 0},
		{"into that of nobody", doc("read-only"), own, 0, 0, 1},
		{"out of that of nobody", own, doc("read-only"), 0, 0, 1},
	} {
		d := analysis.Diff(c.before, c.after)
		if len(d.Opens) != c.opens || len(d.Closes) != c.closes || len(d.Unbounded) != c.unbounded || strings.Count(strings.Join(append(d.Opens, d.Closes...), ""), "class ") < c.opens+c.closes {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}
