package policy

import (
	"testing"

	"cofferdam"
)

// A document over a task's own list takes out what it does not let a task have,
// and says so; the rest stays.
func TestUnderADocument(t *testing.T) {
	org := doc(t, OrganizationName, "[egress]\nlimit = [\"*.acme.test\", \"docs.test\"]\n")
	project := doc(t, ProjectName, "[egress]\nlimit = [\"a.acme.test\"]\nallow = [\"docs.test\"]\n")
	g := Grant{Allow: allow(t, "a.acme.test", "b.acme.test", "stranger.test", "splice:a.acme.test:8443")}.Under(Documents{&org, &project})
	if join(g.Allow) != "a.acme.test" || join(g.Dropped) != "b.acme.test,stranger.test,splice:a.acme.test:8443" {
		t.Errorf("allow %s, dropped %s", join(g.Allow), join(g.Dropped))
	}
	s := mustCompile(t, g)
	for url, want := range map[string]cofferdam.Verdict{
		"https://a.acme.test/": cofferdam.Allowed, "https://docs.test/": cofferdam.Allowed, "https://b.acme.test/": cofferdam.Refused, "https://stranger.test/": cofferdam.Refused,
	} {
		if d := s.Decide(get(t, url)); d.Verdict != want {
			t.Errorf("%s: %+v", url, d)
		}
	}
	if r, name := (Documents{&org, &project}).Beyond(allow(t, "a.acme.test", "b.acme.test")); r.String() != "b.acme.test" || name != ProjectName {
		t.Errorf("beyond: %s of %q", r, name)
	}
	if _, name := (Documents{}).Beyond(allow(t, "b.acme.test")); name != "" {
		t.Error("without documents something is beyond them")
	}
}

// A limit of hosts leaves the names of our own gateways alone, and the provider's.
func TestOwnNamesAreBeyondNoLimit(t *testing.T) {
	org := doc(t, OrganizationName, "[egress]\nlimit = [\"a.test\"]\n")
	p := Project{Narrows: true, Allow: allow(t, "a.test")}
	project := doc(t, ProjectName, "[egress]\nallow = [\"a.test\"]\n")
	g, err := Grant{Repo: "r-1", Model: "m", Provider: "api.provider.test"}.Under(Documents{&org, &project}).Narrow(p)
	if err != nil {
		t.Fatal(err)
	}
	s := mustCompile(t, g)
	for host, want := range map[cofferdam.Host]cofferdam.Verdict{
		"git.cofferdam.internal": cofferdam.Allowed, "model.cofferdam.internal": cofferdam.Allowed, "api.provider.test": cofferdam.Allowed,
		"other.cofferdam.internal": cofferdam.Refused, "b.test": cofferdam.Refused, "a.test": cofferdam.Allowed,
	} {
		if d := s.Decide(Query{Action: Resolve, Host: host}); d.Verdict != want {
			t.Errorf("%s: %+v", host, d)
		}
	}
	for _, host := range []cofferdam.Host{"git.cofferdam.internal", "api.provider.test"} {
		if d := s.Decide(Query{Action: Connect, Host: host, Port: 443}); d.Verdict != cofferdam.Refused {
			t.Errorf("connect to %s: %+v", host, d)
		}
	}
}

// A project file narrows what documents give as well, by host and by preset.
func TestAProjectFileNarrowsDocuments(t *testing.T) {
	org := doc(t, OrganizationName, "[egress]\nallow = [\"mirror.test\"]\n")
	project := doc(t, ProjectName, "[egress]\nallow = [\"a.test\", \"*.b.test\", \"preset:npm\", \"c.test\"]\n")
	p := Project{Narrows: true, Allow: allow(t, "a.test", "x.b.test", "stranger.test", "own.test"), Presets: []string{"npm", "pip"}}
	g, err := Grant{Allow: allow(t, "own.test", "other.test")}.Under(Documents{&org, &project}).Narrow(p)
	if err != nil {
		t.Fatal(err)
	}
	if join(g.Dropped) != "stranger.test,preset:pip" || join(g.Allow) != "own.test" {
		t.Errorf("allow %s, dropped %s", join(g.Allow), join(g.Dropped))
	}
	s := mustCompile(t, g)
	for url, want := range map[string]cofferdam.Verdict{
		"https://a.test/": cofferdam.Allowed, "https://x.b.test/": cofferdam.Allowed, "https://y.b.test/": cofferdam.Refused, "https://c.test/": cofferdam.Refused,
		"https://mirror.test/": cofferdam.Refused, "https://registry.npm.test/x": cofferdam.Allowed, "https://own.test/": cofferdam.Allowed, "https://other.test/": cofferdam.Refused,
		"https://stranger.test/": cofferdam.Refused,
	} {
		if d := s.Decide(get(t, url)); d.Verdict != want {
			t.Errorf("%s: %+v", url, d)
		}
	}
}

// A setup has what its definition names and nothing that documents give to the
// work; what they deny holds for it.
func TestBoundingDocumentsGiveNothing(t *testing.T) {
	org := doc(t, OrganizationName, "[egress]\nallow = [\"mirror.test\"]\ndeny = [\"paste.test\"]\nlimit = [\"a.test\", \"paste.test\"]\n")
	project := doc(t, ProjectName, "[egress]\nallow = [\"c.test\"]\nask = [\"a.test\"]\n")
	s := mustCompile(t, Grant{Allow: allow(t, "a.test", "paste.test", "mirror.test", "stranger.test")}.Under(Documents{&org, &project}.Bounding()))
	for url, want := range map[string]cofferdam.Verdict{
		"https://a.test/": cofferdam.Asked, "https://paste.test/": cofferdam.Refused, "https://mirror.test/": cofferdam.Allowed, "https://c.test/": cofferdam.Refused, "https://stranger.test/": cofferdam.Refused,
	} {
		if d := s.Decide(get(t, url)); d.Verdict != want {
			t.Errorf("%s: %+v", url, d)
		}
	}
	if d := mustCompile(t, Grant{}.Under(Documents{&org, &project}.Bounding())).Decide(get(t, "https://mirror.test/")); d.Verdict != cofferdam.Refused {
		t.Errorf("a setup has what the organisation gives to the work: %+v", d)
	}
	if len(project.with(Allow)) != 1 {
		t.Error("the document itself was changed")
	}
}

func TestParseOpening(t *testing.T) {
	for _, c := range []struct{ action, entry, want string }{
		{HTTP, "a.test", "a.test"},
		{Connect, "*.a.test:8443", "*.a.test:8443"},
		{Invoke, "github:list_*", "github:list_*"},
		{Push, "push:refs/heads/x", "push:refs/heads/x"},
		{HTTP, "splice:a.test", ""},
		{HTTP, "preset:npm", ""},
		{HTTP, "", ""},
		{Read, "/etc/passwd", ""},
		{Read, "read:etc", ""},
		{"fly", "a.test", ""},
		{Invoke, "", ""},
	} {
		r, err := ParseOpening(c.action, c.entry)
		if (err == nil) != (c.want != "") || err == nil && r.String() != c.want {
			t.Errorf("%s %q: %s, %v", c.action, c.entry, r, err)
		}
	}
}

// The second person is the organisation's to ask for.
func TestSecondPerson(t *testing.T) {
	if d := doc(t, OrganizationName, "second_person = true\n"); !d.Second {
		t.Error("not read")
	}
	if _, err := ParseDocument(ProjectName, []byte("second_person = true\n"), nil); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a project's: %v", err)
	}
}
