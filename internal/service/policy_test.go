package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/policy"
	"cofferdam/proof"
)

// tess and tom are people of the tests, who need no factor.
func owner(name string, roles ...identity.Membership) context.Context {
	c := identity.Caller{Principal: cofferdam.Principal{Kind: cofferdam.TestPerson, Name: name}, Member: "m-" + name, Organization: scope.Organization, Memberships: roles}
	if len(roles) == 0 {
		c.Memberships = []identity.Membership{{Member: "m-" + name, Role: identity.Owner}}
	}
	return WithActing(context.Background(), Acting{Caller: c, Scope: scope})
}

func propose(t *testing.T, s *Service, ctx context.Context, level cofferdam.PolicyLevel, text string) cofferdam.PolicyProposal {
	t.Helper()
	p, err := s.ProposePolicy(ctx, cofferdam.PolicyRequest{Level: level, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func take(t *testing.T, s *Service, ctx context.Context, p cofferdam.PolicyProposal) {
	t.Helper()
	if _, err := s.DecidePolicy(ctx, p.Version, cofferdam.PolicyDecision{Level: p.Level, Hash: p.Hash, Take: true}); err != nil {
		t.Fatal(err)
	}
}

// record keeps the host's log.
type record struct {
	mu     sync.Mutex
	events []cofferdam.Event
	broken error
}

func (r *record) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.events = append(r.events, e)
	}
	return e, r.broken
}

func TestAProposalCountsOnceItIsTaken(t *testing.T) {
	s, _ := world(t)
	rec := &record{}
	s.Record = rec
	var judged []cofferdam.Scope
	s.Judge = func(_ context.Context, scope cofferdam.Scope) error { judged = append(judged, scope); return nil }
	tess := owner("tess")
	p := propose(t, s, tess, "", "[egress]\nallow = [\"a.test\"]\n")
	if p.Version != 1 || p.Counts || p.Before != 0 || p.Second || !slices.Equal(p.Opens, []string{"egress allow: a.test"}) {
		t.Errorf("proposed: %+v", p)
	}
	if _, err := s.Policy(tess, "", 0); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("a proposal counts: %v", err)
	}
	if d, err := s.documents(tess, scope); err != nil || d.Project != nil || len(judged) != 0 {
		t.Errorf("a proposal judges: %+v, %v", d, err)
	}
	take(t, s, tess, p)
	v, err := s.Policy(tess, "", 0)
	if err != nil || !v.Counts || v.DecidedBy != "test-person:tess" || len(judged) != 1 || judged[0] != scope {
		t.Errorf("taken: %+v, %v, judged %v", v, err, judged)
	}
	if d, err := s.documents(tess, scope); err != nil || d.Project == nil || d.Project.Digest() != v.Digest {
		t.Errorf("what counts: %+v, %v", d, err)
	}
	c, err := proof.OpenPolicy([]byte(v.Signature), s.PublicKey)
	if err != nil || c.Version != 1 || c.Digest != v.Digest || c.ProposedBy != "test-person:tess" || c.Scope != scope {
		t.Errorf("signed: %+v, %v", c, err)
	}
	if len(rec.events) != 2 || rec.events[0].Kind != cofferdam.EventPolicyPropose || rec.events[1].Kind != cofferdam.EventPolicyChange || !rec.events[1].Durable ||
		rec.events[1].Fields["digest"] != string(v.Digest) || rec.events[1].Fields["proof"] != "test-person" {
		t.Errorf("on record: %+v", rec.events)
	}
	// The next one is seen beside it, and one that is not taken changes nothing.
	next := propose(t, s, tess, "", "[egress]\nallow = [\"b.test\"]\n")
	if next.Before != 1 || !slices.Equal(next.Opens, []string{"egress allow: b.test"}) || !slices.Equal(next.Closes, []string{"egress allow: a.test"}) {
		t.Errorf("beside version 1: %+v", next)
	}
	if _, err := s.DecidePolicy(tess, next.Version, cofferdam.PolicyDecision{Hash: next.Hash}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DecidePolicy(tess, next.Version, cofferdam.PolicyDecision{Hash: next.Hash, Take: true}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("taken after it was rejected: %v", err)
	}
	if v, err := s.Policy(tess, "", 0); err != nil || v.Version != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}

// What a person saw is what counts: another version that was taken meanwhile, or
// the organisation's document that changed, is a reason to look again.
func TestADecisionIsAboutWhatWasSeen(t *testing.T) {
	s, _ := world(t)
	tess := owner("tess")
	one, two := propose(t, s, tess, "", "[egress]\nallow = [\"a.test\"]\n"), propose(t, s, tess, "", "[egress]\nallow = [\"a.test\", \"b.test\"]\n")
	for name, r := range map[string]cofferdam.PolicyDecision{
		"no hash":      {Take: true},
		"another hash": {Take: true, Hash: one.Hash},
	} {
		if _, err := s.DecidePolicy(tess, two.Version, r); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	take(t, s, tess, one)
	if _, err := s.DecidePolicy(tess, two.Version, cofferdam.PolicyDecision{Take: true, Hash: two.Hash}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("beside another version: %v", err)
	}
	if seen, err := s.Policy(tess, "", two.Version); err != nil || seen.Hash == two.Hash || !slices.Equal(seen.Opens, []string{"egress allow: b.test"}) {
		t.Errorf("%+v, %v", seen, err)
	} else {
		take(t, s, tess, seen)
	}
	three := propose(t, s, tess, "", "[egress]\nallow = [\"c.test\"]\n")
	take(t, s, tess, propose(t, s, tess, cofferdam.OfOrganization, "[egress]\nlimit = [\"a.test\"]\n"))
	if _, err := s.DecidePolicy(tess, three.Version, cofferdam.PolicyDecision{Take: true, Hash: three.Hash}); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "beyond the limit") {
		t.Errorf("beyond what the organisation allows now: %v", err)
	}
}

func TestASecondPerson(t *testing.T) {
	s, _ := world(t)
	tess, tom := owner("tess"), owner("tom")
	org := propose(t, s, tess, cofferdam.OfOrganization, "second_person = true\n")
	no := func(ctx context.Context, p cofferdam.PolicyProposal) {
		t.Helper()
		if _, err := s.DecidePolicy(ctx, p.Version, cofferdam.PolicyDecision{Level: p.Level, Hash: p.Hash, Take: true}); cofferdam.KindOf(err) != cofferdam.Forbidden {
			t.Errorf("version %d of the %s: %v", p.Version, p.Level, err)
		}
	}
	no(tess, org) // also of the change that asks for it: whoever asks must have somebody
	take(t, s, tom, org)
	p := propose(t, s, tom, "", "[egress]\nallow = [\"a.test\"]\n")
	if !p.Second {
		t.Errorf("%+v", p)
	}
	no(tom, p)
	take(t, s, tess, p)
	// Anybody may stand behind a program, who decides among them.
	if _, err := s.AddMember(tess, cofferdam.MemberRequest{Name: "ci", Service: true, Role: "author"}); err != nil {
		t.Fatal(err)
	}
	program := identity.Caller{Principal: cofferdam.Principal{Kind: cofferdam.Service, Name: "ci"}, Member: "m-ci", Organization: scope.Organization, Memberships: []identity.Membership{{Member: "m-ci", Role: identity.Author, Project: scope.Project}}}
	ci := WithActing(context.Background(), Acting{Caller: program, Scope: scope})
	no(tom, propose(t, s, ci, "", "[egress]\nallow = [\"c.test\"]\n"))
	// A text that cannot be read any more, because a preset is gone, asks as before.
	s.Presets = map[string][]string{"npm": {"a.test"}}
	take(t, s, tess, propose(t, s, tom, cofferdam.OfOrganization, "second_person = true\n[egress]\nlimit = [\"preset:npm\"]\n"))
	s.Presets = nil
	if v := propose(t, s, tom, cofferdam.OfOrganization, "second_person = true\n[egress]\ndeny = [\"y.test\"]\n"); !v.Second {
		t.Errorf("%+v", v)
	} else {
		no(tom, v)
		take(t, s, tess, v)
	}
	take(t, s, tess, propose(t, s, tom, cofferdam.OfOrganization, "second_person = true\n"))
	off := propose(t, s, tess, cofferdam.OfOrganization, "[egress]\ndeny = [\"x.test\"]\n")
	if !slices.Contains(off.Opens, "changes of policy by one person alone") {
		t.Errorf("%+v", off.Opens)
	}
	no(tess, off)
	take(t, s, tom, off)
	take(t, s, tom, propose(t, s, tom, "", "[egress]\nallow = [\"b.test\"]\n"))
}

// Who may: an author of one project proposes there, and only an owner decides,
// of the organisation only one of all of it. A program proposes, and never decides.
func TestRolesOfPolicy(t *testing.T) {
	s, _ := world(t)
	in := func(r identity.Role) context.Context {
		return owner("pat", identity.Membership{Member: "m-pat", Project: scope.Project, Role: r})
	}
	text := cofferdam.PolicyRequest{Text: "[egress]\nallow = [\"a.test\"]\n"}
	of := cofferdam.PolicyRequest{Text: "[egress]\ndeny = [\"a.test\"]\n", Level: cofferdam.OfOrganization}
	if _, err := s.ProposePolicy(in(identity.Viewer), text); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("a viewer proposes: %v", err)
	}
	p, err := s.ProposePolicy(in(identity.Author), text)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []identity.Role{identity.Viewer, identity.Author, identity.Reviewer, identity.Operator} {
		if _, err := s.DecidePolicy(in(r), p.Version, cofferdam.PolicyDecision{Hash: p.Hash, Take: true}); cofferdam.KindOf(err) != cofferdam.Forbidden {
			t.Errorf("%s decides: %v", r, err)
		}
	}
	if _, err := s.ProposePolicy(in(identity.Owner), of); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an owner of one project proposes for the organisation: %v", err)
	}
	whole := propose(t, s, owner("tess"), cofferdam.OfOrganization, of.Text)
	if _, err := s.DecidePolicy(in(identity.Owner), whole.Version, cofferdam.PolicyDecision{Level: cofferdam.OfOrganization, Hash: whole.Hash, Take: true}); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an owner of one project decides for the organisation: %v", err)
	}
	take(t, s, in(identity.Owner), p)
	program := identity.Caller{Principal: cofferdam.Principal{Kind: cofferdam.Service, Name: "ci"}, Member: "m-ci", Organization: scope.Organization, Memberships: []identity.Membership{{Member: "m-ci", Role: identity.Owner}}}
	ci := WithActing(context.Background(), Acting{Caller: program, Scope: scope})
	next, err := s.ProposePolicy(ci, cofferdam.PolicyRequest{Text: "[egress]\nallow = [\"b.test\"]\n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DecidePolicy(ci, next.Version, cofferdam.PolicyDecision{Hash: next.Hash, Take: true}); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("a program decides: %v", err)
	}
	// Somebody of another organisation sees none of it.
	other := WithActing(context.Background(), Acting{Caller: program, Scope: cofferdam.Scope{Organization: "o-2", Project: "p-1"}})
	if _, err := s.ListPolicies(other, ""); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("another organisation: %v", err)
	}
}

func TestBadPolicies(t *testing.T) {
	s, _ := world(t)
	tess := owner("tess")
	for name, c := range map[string]struct {
		r    cofferdam.PolicyRequest
		says string
	}{
		"level":       {cofferdam.PolicyRequest{Level: "team"}, "neither project nor organization"},
		"key":         {cofferdam.PolicyRequest{Text: "\negres = 1\n"}, "line 2"},
		"second":      {cofferdam.PolicyRequest{Text: "second_person = true\n"}, "only the organisation"},
		"its test":    {cofferdam.PolicyRequest{Text: "[[test]]\nexpect = \"allow\"\nurl = \"https://a.test/\"\n"}, "expected allow"},
		"cedar":       {cofferdam.PolicyRequest{Text: "[cedar]\ntext = '''permit (principal, action, resource) when { context.nothing };'''\n"}, ""},
		"too long":    {cofferdam.PolicyRequest{Text: "# " + strings.Repeat("x", 1<<20)}, "larger than"},
		"why":         {cofferdam.PolicyRequest{Why: strings.Repeat("x", maxWhy+1)}, "longer than"},
		"not UTF-8":   {cofferdam.PolicyRequest{Text: "# \xff\n"}, ""},
		"no preset":   {cofferdam.PolicyRequest{Text: "[egress]\nallow = [\"preset:none\"]\n"}, "no such preset"},
		"log-only":    {cofferdam.PolicyRequest{Text: "mode = \"log-only\"\n"}, "until"},
		"for ever":    {cofferdam.PolicyRequest{Text: "mode = \"log-only\"\nuntil = " + time.Now().Add(maxLogOnly+time.Hour).UTC().Format(time.RFC3339) + "\n"}, "90 days at most"},
		"whole world": {cofferdam.PolicyRequest{Text: "[egress]\nallow = [\"*\"]\n"}, ""},
	} {
		if _, err := s.ProposePolicy(tess, c.r); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), c.says) || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int64{-1, 0, 1, 99} {
		if _, err := s.DecidePolicy(tess, n, cofferdam.PolicyDecision{Take: true}); err == nil {
			t.Errorf("version %d was decided", n)
		}
	}
}

// Without a record nothing counts, and what was changed in the database counts
// for nobody.
func TestPolicyThatNobodyTook(t *testing.T) {
	s, m := world(t)
	rec := &record{}
	s.Record = rec
	tess := owner("tess")
	p := propose(t, s, tess, "", "[egress]\nallow = [\"a.test\"]\n")
	rec.broken = fmt.Errorf("disk full")
	if _, err := s.DecidePolicy(tess, p.Version, cofferdam.PolicyDecision{Hash: p.Hash, Take: true}); err == nil {
		t.Error("taken without a record")
	}
	if _, err := s.Policy(tess, "", 0); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("it counts: %v", err)
	}
	rec.broken = nil
	take(t, s, tess, p)
	good := m.policies.all[0]
	for name, change := range map[string]func(*cofferdam.PolicyVersion){
		"text":      func(v *cofferdam.PolicyVersion) { v.Text = "[egress]\nallow = [\"evil.test\"]\n" },
		"version":   func(v *cofferdam.PolicyVersion) { v.Version = 2 },
		"signature": func(v *cofferdam.PolicyVersion) { v.Signature = "" },
		"people":    func(v *cofferdam.PolicyVersion) { v.DecidedBy = "person:eve" },
	} {
		m.policies.all[0] = good
		change(&m.policies.all[0])
		if d, err := s.documents(tess, scope); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if _, err := s.CreateTask(as(alice), cofferdam.TaskRequest{Text: "x", Command: "true", Allow: []string{"b.test"}, Checks: []cofferdam.Check{{Command: "true"}}}); err == nil {
			t.Errorf("%s: a task was taken", name)
		}
	}
	// Nor does one count that another project has taken.
	m.policies.all[0] = good
	m.policies.all[0].Project = "p-other"
	if d, err := Document(tess, s.Policies, m.policies.all[0].Scope, nil, s.PublicKey); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("%+v, %v", d, err)
	}
}

// A task's own list is within what the documents let it have, before it starts.
func TestAllowBeyondThePolicy(t *testing.T) {
	s, _ := world(t)
	tess := owner("tess")
	take(t, s, tess, propose(t, s, tess, cofferdam.OfOrganization, "[egress]\nlimit = [\"*.acme.test\"]\n"))
	r := request()
	r.Allow = []string{"a.acme.test"}
	if _, err := s.CreateTask(as(alice), r); err != nil {
		t.Error(err)
	}
	r.Allow = []string{"a.acme.test", "stranger.test"}
	if _, err := s.CreateTask(as(alice), r); cofferdam.KindOf(err) != cofferdam.Denied || !strings.Contains(err.Error(), "stranger.test is beyond what the policy of the organisation") {
		t.Errorf("%v", err)
	}
}

func TestExplainSuggestReplay(t *testing.T) {
	s, m := world(t)
	tess := owner("tess")
	task, err := s.CreateTask(as(alice), request())
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.ExplainPolicy(tess, cofferdam.PolicyQuestion{URL: "https://a.test/x"})
	if err != nil || e.Decision.Verdict != cofferdam.Refused || !strings.Contains(e.Next, "--allow a.test") {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []cofferdam.PolicyQuestion{{}, {URL: "https://a.test", Action: "invoke"}, {Action: "fly", On: "x"}, {Action: "invoke"}, {URL: "ftp://a.test"}, {URL: "https://a.test", Of: "t-99"}} {
		if _, err := s.ExplainPolicy(tess, bad); err == nil || cofferdam.HintOf(err) == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := s.SuggestPolicy(tess, "t-1"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("of a task that has not begun: %v", err)
	}
	m.AddSession(cofferdam.Session{ID: "s-0001", Task: task.ID, Phase: "work"})
	for i := range MaxList + 3 { // more than one page
		q, err := json.Marshal(policy.Query{Action: policy.HTTP, Host: "a.test", Port: 443, Method: "GET", Path: "/x"})
		if err != nil {
			t.Fatal(err)
		}
		event := cofferdam.Event{Kind: cofferdam.EventRequest, Verdict: cofferdam.Refused, Rule: policy.DefaultDeny, Fields: map[string]string{cofferdam.FieldQuery: string(q)}}
		if i == 0 {
			event = cofferdam.Event{Kind: cofferdam.EventSessionOpen}
		}
		m.Emit("s-0001", event)
	}
	for _, of := range []string{"t-1", "s-0001"} {
		g, err := s.SuggestPolicy(tess, of)
		if err != nil || g.Events != MaxList+3 || !strings.Contains(g.Text, `hosts = ["a.test"]`) {
			t.Fatalf("%+v, %v", g, err)
		}
		r, err := s.ReplayPolicy(tess, cofferdam.PolicyTrial{Text: g.Text, Of: of})
		if err != nil || len(r.Changes) != MaxList+2 || r.Changes[0].Now != cofferdam.Allowed || r.Same != 0 {
			t.Errorf("%d changes, %v", len(r.Changes), err)
		}
		r, err = s.ReplayPolicy(tess, cofferdam.PolicyTrial{Level: cofferdam.OfOrganization, Text: "[egress]\ndeny = [\"a.test\"]\n", Of: of})
		if err != nil || len(r.Changes) != 0 || r.Same != MaxList+2 {
			t.Errorf("%d changes, %d the same, %v", len(r.Changes), r.Same, err)
		}
	}
	if _, err := s.ReplayPolicy(tess, cofferdam.PolicyTrial{Text: "egres = 1", Of: "t-1"}); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("%v", err)
	}
}

// What judges nobody any more can be put right: a policy whose text cannot be read,
// since a preset is gone, or whose signature does not fit.
func TestABrokenPolicyCanBeReplaced(t *testing.T) {
	s, m := world(t)
	tess, tom := owner("tess"), owner("tom")
	take(t, s, tess, propose(t, s, tess, "", "[egress]\nallow = [\"preset:npm\"]\n"))
	s.Presets = nil
	if _, err := s.documents(tess, scope); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a preset that is gone: %v", err)
	}
	p := propose(t, s, tess, "", "[egress]\nallow = [\"a.test\"]\n")
	if len(p.Findings) != 1 || !strings.Contains(p.Findings[0], "version 1 cannot be read any more") || !slices.Equal(p.Opens, []string{"egress allow: a.test"}) {
		t.Errorf("%+v", p)
	}
	take(t, s, tess, p)
	take(t, s, tom, propose(t, s, tess, cofferdam.OfOrganization, "second_person = true\n"))
	m.policies.all[len(m.policies.all)-1].Signature = ""
	if _, err := s.documents(tess, scope); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a signature that does not fit: %v", err)
	}
	p = propose(t, s, tess, cofferdam.OfOrganization, "[egress]\ndeny = [\"x.test\"]\n")
	if _, err := s.DecidePolicy(tess, p.Version, cofferdam.PolicyDecision{Level: p.Level, Hash: p.Hash, Take: true}); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("put right by one person: %v", err)
	}
	take(t, s, tom, p)
	if d, err := s.documents(tess, scope); err != nil || d.Organization == nil || d.Project == nil {
		t.Errorf("%+v, %v", d, err)
	}
}
