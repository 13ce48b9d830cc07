package session_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/session"
)

// papers are the documents that count, as a person may change them.
type papers struct {
	mu   sync.Mutex
	docs policy.Documents
	err  error
}

func (p *papers) read(context.Context, cofferdam.Scope) (policy.Documents, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.docs, p.err
}

func (p *papers) write(t *testing.T, organization, project string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.docs, p.err = policy.Documents{}, nil
	for _, d := range []struct {
		name, text string
		to         **policy.Document
	}{{policy.OrganizationName, organization, &p.docs.Organization}, {policy.ProjectName, project, &p.docs.Project}} {
		if d.text == "" {
			continue
		}
		read, err := policy.ParseDocument(d.name, []byte(d.text), nil)
		if err != nil {
			t.Fatal(err)
		}
		*d.to = &read
	}
}

// TestSessionsFollowThePolicy: what a person lets count judges a session that
// runs from its next request on, of its own project and organisation alone, and
// what cannot be made any more may do nothing.
func TestSessionsFollowThePolicy(t *testing.T) {
	docs := &papers{}
	docs.write(t, "", "[egress]\nallow = [\"docs.test\"]\n")
	var late atomic.Bool
	b := newBench(t, func(o *session.Options) {
		o.Documents = docs.read
		o.Openings = func(context.Context, cofferdam.TaskID) (all []policy.Opening, err error) {
			for i, host := range []string{"given.test", "unasked.test"} {
				if i == 0 || late.Load() {
					r, err := policy.ParseOpening(policy.HTTP, host)
					if err != nil {
						return nil, err
					}
					r.ID = fmt.Sprintf("given.a-%d", i)
					all = append(all, policy.Opening{Rule: r, Until: time.Now().Add(time.Hour)})
				}
			}
			return all, nil
		}
	})
	p := b.plan("echo it-runs; until [ -e /tmp/never ]; do sleep 1; done")
	p.Request.Allow = []string{"own.test", "other.test"}
	ctx, end := context.WithCancelCause(context.Background())
	done := b.start(ctx, p)
	b.until(p, "agent", "it-run")
	rules := b.wires[len(b.wires)-1].caller.Policy
	may := func(host cofferdam.Host) bool {
		return rules.Decide(policy.Query{Action: policy.HTTP, Host: host, Port: 443, Method: "GET", Path: "/"}).Verdict == cofferdam.Allowed
	}
	hosts := func(when string, want map[cofferdam.Host]bool) {
		t.Helper()
		for host, is := range want {
			if may(host) != is {
				t.Errorf("%s: %s is open: %v", when, host, !is)
			}
		}
	}
	hosts("at first", map[cofferdam.Host]bool{"docs.test": true, "own.test": true, "other.test": true, "given.test": true, "else.test": false})
	first := rules.Digest()

	docs.write(t, "[egress]\nlimit = [\"own.test\", \"given.test\", \"late.test\"]\n", "[egress]\nallow = [\"late.test\", \"beyond.test\"]\n")
	for _, elsewhere := range []cofferdam.Scope{{Organization: "o-2"}, {Organization: "o-1", Project: "p-2"}} {
		if moved, err := b.runner.Judge(t.Context(), elsewhere); err != nil || len(moved) != 0 || rules.Digest() != first {
			t.Errorf("%+v: moved %v, %v", elsewhere, moved, err)
		}
	}
	moved, err := b.runner.Judge(t.Context(), p.Scope)
	if err != nil || len(moved) != 1 || moved[p.ID] != rules.Digest() || rules.Digest() == first {
		t.Fatalf("moved %v, %v", moved, err)
	}
	narrow := map[cofferdam.Host]bool{"docs.test": false, "own.test": true, "other.test": false, "given.test": true, "late.test": true, "beyond.test": false}
	hosts("under a limit", narrow)
	said := false
	for _, e := range b.events(p) {
		said = said || e.Fields["step"] == "policy" && e.Fields["policy"] == string(moved[p.ID]) && e.Fields["dropped"] == "other.test" && e.Fields["organisation"] != ""
	}
	if !said {
		t.Error("by what it is judged now is not on record")
	}
	before := len(b.events(p))
	if moved, err = b.runner.Judge(t.Context(), cofferdam.Scope{Organization: "o-1"}); err != nil || len(moved) != 0 || len(b.events(p)) != before {
		t.Errorf("judged by the same: %v, %v, %d events more", moved, err, len(b.events(p))-before)
	}
	// What a person opens meanwhile counts, as far as it may, and moves nothing.
	docs.write(t, "[egress]\nlimit = [\"own.test\", \"given.test\", \"late.test\", \"unasked.test\"]\n", "[egress]\nallow = [\"late.test\", \"beyond.test\"]\n")
	if _, err = b.runner.Judge(t.Context(), p.Scope); err != nil || may("unasked.test") {
		t.Errorf("open before anybody opened it: %v", err)
	}
	late.Store(true)
	if moved, err = b.runner.Judge(t.Context(), p.Scope); err != nil || len(moved) != 0 || !may("unasked.test") {
		t.Errorf("what a person opened: moved %v, %v, open: %v", moved, err, may("unasked.test"))
	}

	docs.mu.Lock()
	docs.err = &cofferdam.Error{Kind: cofferdam.Invalid, Reason: "its signature does not fit"}
	docs.mu.Unlock()
	if _, err = b.runner.Judge(t.Context(), cofferdam.Scope{Organization: "o-1"}); err == nil {
		t.Error("documents that cannot be read judge")
	}
	hosts("without documents that can be read", map[cofferdam.Host]bool{"docs.test": false, "own.test": false, "late.test": false, "given.test": false})
	docs.write(t, "[egress]\nlimit = [\"own.test\", \"given.test\", \"late.test\"]\n", "[egress]\nallow = [\"late.test\", \"beyond.test\"]\n")
	if _, err = b.runner.Judge(t.Context(), cofferdam.Scope{Organization: "o-1"}); err != nil {
		t.Error(err)
	}
	hosts("once they can", narrow)

	end(session.ErrTaskEnded)
	if r := <-done; r.err != nil {
		t.Fatal(r.err)
	}
	if moved, err := b.runner.Judge(t.Context(), p.Scope); err != nil || len(moved) != 0 {
		t.Errorf("a session that has ended is judged: %v, %v", moved, err)
	}
}

// TestDocumentsThatCannotBeReadStartNothing: a session is refused with the reason.
func TestDocumentsThatCannotBeReadStartNothing(t *testing.T) {
	docs := &papers{err: &cofferdam.Error{Kind: cofferdam.Invalid, Subject: "version 3", Reason: "its signature does not fit"}}
	b := newBench(t, func(o *session.Options) { o.Documents = docs.read })
	if r := b.run(b.plan("true")); r.Failure != cofferdam.ReasonPolicy || r.Reason == "" {
		t.Errorf("%+v", r)
	}
	if len(b.wires) != 0 {
		t.Error("a box was connected")
	}
}

// Hosts of the operator's file are for the tasks of every organisation, and within
// the limit of each: docs/policy.md says so.
func TestTheOperatorsHostsAreForAllWithinTheirLimits(t *testing.T) {
	b := newBench(t, func(o *session.Options) {
		o.Allow, o.Presets = []string{"mirror.test", "preset:tools"}, map[string][]string{"tools": {"tools.test"}}
	})
	for _, c := range []struct {
		organization cofferdam.OrganizationID
		text         string
		want         map[cofferdam.Host]bool
	}{
		{"o-1", "", map[cofferdam.Host]bool{"mirror.test": true, "tools.test": true}},
		{"o-2", "", map[cofferdam.Host]bool{"mirror.test": true, "tools.test": true}},
		{"o-3", "[egress]\nlimit = [\"tools.test\"]\n", map[cofferdam.Host]bool{"mirror.test": false, "tools.test": true}},
		{"o-4", "[egress]\nlimit = []\n", map[cofferdam.Host]bool{"mirror.test": false, "tools.test": false}},
	} {
		docs := &papers{}
		docs.write(t, c.text, "")
		p := b.plan("true")
		p.Scope.Organization = c.organization
		g, err := b.runner.Grant(t.Context(), p, docs.docs)
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.New(g)
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range c.want {
			d := set.Decide(policy.Query{Action: policy.HTTP, Host: host, Port: 443, Method: "GET", Path: "/"})
			if (d.Verdict == cofferdam.Allowed) != want {
				t.Errorf("%s, %s: %s by %s", c.organization, host, d.Verdict, d.Rule)
			}
		}
	}
}
