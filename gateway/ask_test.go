package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// desk is people who answer as a test says.
type desk struct {
	answer func(q cofferdam.Question) error
	asked  []cofferdam.Question
	uses   map[cofferdam.Digest]int // that are left
	opened map[cofferdam.QuestionID]int
	bounds *cofferdam.Bounds // of the answer

	mu    sync.Mutex
	bytes map[cofferdam.QuestionID]int64 // guarded by mu
	ended []string                       // guarded by mu
}

func (d *desk) Ask(_ context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	q.ID = cofferdam.QuestionID(fmt.Sprintf("q-%d", len(d.asked)+1))
	d.asked = append(d.asked, q)
	err := d.answer(q)
	if err == nil {
		q.Answers = []cofferdam.Answer{{By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, Allow: true, Bounds: d.bounds, Time: time.Now()}}
		q.State = cofferdam.QuestionAllowed
		d.uses[q.Hash]++
	}
	return q, err
}

func (d *desk) Use(_ context.Context, _ cofferdam.QuestionID, hash cofferdam.Digest) error {
	if d.uses[hash] == 0 {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "no answer is left"}
	}
	d.uses[hash]--
	return nil
}

func (d *desk) UseOpening(_ context.Context, id cofferdam.QuestionID, most int) error {
	if d.opened == nil {
		d.opened = map[cofferdam.QuestionID]int{}
	}
	if d.opened[id] >= most {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "used up"}
	}
	d.opened[id]++
	return nil
}

func (d *desk) TakeBytes(_ context.Context, id cofferdam.QuestionID, n, most int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes == nil {
		d.bytes = map[cofferdam.QuestionID]int64{}
	}
	if d.bytes[id]+n > most {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "used up"}
	}
	d.bytes[id] += n
	return nil
}

func (d *desk) EndOpening(_ context.Context, _ cofferdam.Scope, id cofferdam.QuestionID, why string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if text := string(id) + " " + why; !slices.Contains(d.ended, text) { // as the desk does: once
		d.ended = append(d.ended, text)
	}
	return nil
}

func asking(t *testing.T, text string) (*gateway.Caller, *gatewaytest.Recorder, *desk) {
	t.Helper()
	p, err := policy.ParseDocument("project", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Project: &p})
	d := &desk{answer: func(cofferdam.Question) error { return nil }, uses: map[cofferdam.Digest]int{}}
	c.Ask = d
	return c, rec, d
}

func verdicts(rec *gatewaytest.Recorder) string {
	var all []string
	for _, e := range rec.Events() {
		all = append(all, string(e.Verdict)+e.Outcome+":"+e.Rule)
	}
	return strings.Join(all, " ")
}

const askAsked = "[egress]\nask = [\"asked.test\"]\n"

func TestHandleAsks(t *testing.T) {
	c, rec, d := asking(t, askAsked)
	r := request("asked.test")
	r.Show = func(context.Context) (gateway.Shown, error) { return gateway.Show([]byte("GET / HTTP/1.1"), "v1"), nil }
	var at string
	err := gateway.Handle(t.Context(), c, r, func(context.Context) (gateway.Outcome, error) {
		at = verdicts(rec)
		return gateway.Outcome{}, nil
	})
	if err != nil || at != "asked:project.egress.ask-1 allowed:project.egress.ask-1" {
		t.Fatalf("%v; on record when it was forwarded: %s", err, at)
	}
	e := rec.Events()
	if e[1].Fields["approval"] != "q-1" || e[1].Fields["allowed_by"] != "person:ann" || !e[1].Durable || *e[2].Of != e[1].Seq {
		t.Errorf("on record: %+v", e)
	}
	if q := d.asked[0]; string(q.Bytes) != "GET / HTTP/1.1" || q.Target != "v1" || q.Policy != c.Policy.Digest() || q.Session != c.Session || q.Hash == "" {
		t.Errorf("asked: %+v", q)
	}
	if c.Counts.Refused.Load() != 0 || d.uses[d.asked[0].Hash] != 0 {
		t.Error("it counts as refused, or the answer is not used up")
	}
}

func TestHandleTakesNoForAnAnswer(t *testing.T) {
	no := &cofferdam.Error{Kind: cofferdam.Denied, Reason: "ann said no", Hint: "do something else"}
	for _, c := range []struct {
		name   string
		change func(c *gateway.Caller, d *desk, r *gateway.Request)
		rule   string
	}{
		{"a no", func(_ *gateway.Caller, d *desk, _ *gateway.Request) {
			d.answer = func(cofferdam.Question) error { return no }
		}, gateway.RuleAnswer},
		{"nobody to ask", func(c *gateway.Caller, _ *desk, _ *gateway.Request) { c.Ask = nil }, gateway.RuleNobody},
		{"what cannot be shown", func(_ *gateway.Caller, _ *desk, r *gateway.Request) {
			r.Show = func(context.Context) (gateway.Shown, error) {
				return gateway.Shown{}, &cofferdam.Error{Kind: cofferdam.Exhausted, Reason: "it is larger than a person can see"}
			}
		}, gateway.RuleUnshown},
		{"an answer that is used up", func(_ *gateway.Caller, d *desk, _ *gateway.Request) {
			d.answer = func(q cofferdam.Question) error { d.uses[q.Hash] = -1; return nil }
		}, gateway.RuleAnswer},
		{"another policy meanwhile", func(c *gateway.Caller, d *desk, _ *gateway.Request) {
			d.answer = func(cofferdam.Question) error {
				g := c.Policy.Set().Grant()
				g.Branch = "refs/heads/other"
				return c.Policy.Replace(g)
			}
		}, gateway.RuleMoved},
	} {
		caller, rec, d := asking(t, askAsked)
		r := request("asked.test")
		c.change(caller, d, &r)
		err := gateway.Handle(t.Context(), caller, r, func(context.Context) (gateway.Outcome, error) {
			t.Errorf("%s: forwarded", c.name)
			return gateway.Outcome{}, nil
		})
		decision, _ := gateway.DecisionOf(err)
		if cofferdam.KindOf(err) != cofferdam.Denied || decision.Rule != c.rule || decision.Reason == "" {
			t.Errorf("%s: %v, %+v", c.name, err, decision)
		}
		if got := verdicts(rec); got != "asked:project.egress.ask-1 refused:"+c.rule || caller.Counts.Refused.Load() != 1 {
			t.Errorf("%s: on record: %s, counted %d", c.name, got, caller.Counts.Refused.Load())
		}
	}
}

func give(t *testing.T, c *gateway.Caller, host string) {
	t.Helper()
	rules, err := policy.ParseAllow([]string{host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rules[0].ID = "given-" + host
	if err := c.Policy.Give(policy.Opening{Rule: rules[0], Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
}

// What a person opens for the rest of a task counts from then on, also for what
// waits already, and is on record as what it is.
func TestGivenRulesCount(t *testing.T) {
	c, rec, d := asking(t, askAsked)
	before := c.Policy.Digest()
	give(t, c, "new.test")
	give(t, c, "asked.test")
	if c.Policy.Digest() == before {
		t.Error("another policy has the same digest")
	}
	for _, host := range []cofferdam.Host{"new.test", "asked.test"} {
		rec.Clear()
		if err := gateway.Handle(t.Context(), c, request(host), func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }); err != nil {
			t.Error(err)
		}
		if e := rec.Events(); e[0].Rule != "given-"+string(host) || len(d.asked) != 0 {
			t.Errorf("on record: %+v", e[0])
		}
	}
}

// TestAnAnswerIsBoundToAllOfAnAct: whatever of an act differs, its target's version,
// the policy and the session among it, the question is another one, and an answer to
// one lets no other pass.
func TestAnAnswerIsBoundToAllOfAnAct(t *testing.T) {
	act := func(change func(*gateway.Caller, *gateway.Request)) cofferdam.Digest {
		c, _, d := asking(t, askAsked)
		c.Session = "s-one"
		r := request("asked.test")
		r.Show = func(context.Context) (gateway.Shown, error) { return gateway.Show([]byte("body"), "v1"), nil }
		change(c, &r)
		d.answer = func(cofferdam.Question) error { return &cofferdam.Error{Kind: cofferdam.Denied, Reason: "no"} }
		if err := gateway.Handle(t.Context(), c, r, passing); cofferdam.KindOf(err) != cofferdam.Denied || len(d.asked) != 1 {
			t.Fatalf("%v, %d asked", err, len(d.asked))
		}
		return d.asked[0].Hash
	}
	shows := func(body, target string) func(*gateway.Caller, *gateway.Request) {
		return func(_ *gateway.Caller, r *gateway.Request) {
			r.Show = func(context.Context) (gateway.Shown, error) { return gateway.Show([]byte(body), target), nil }
		}
	}
	same := func(*gateway.Caller, *gateway.Request) {}
	if act(same) != act(same) {
		t.Error("the same act has two hashes")
	}
	seen := map[cofferdam.Digest]string{act(same): "as it was"}
	for name, change := range map[string]func(*gateway.Caller, *gateway.Request){
		"bytes": shows("Body", "v1"), "the first bytes alone": shows("bod", "v1"), "target": shows("body", "v2"), "no target": shows("body", ""),
		"resource": func(_ *gateway.Caller, r *gateway.Request) { r.Resource = "POST asked.test" },
		"method":   func(_ *gateway.Caller, r *gateway.Request) { r.Query.Method = "POST" },
		"path":     func(_ *gateway.Caller, r *gateway.Request) { r.Query.Path = "/other" },
		"port":     func(_ *gateway.Caller, r *gateway.Request) { r.Query.Port = 443 },
		"session":  func(c *gateway.Caller, _ *gateway.Request) { c.Session = "s-two" },
		"policy": func(c *gateway.Caller, _ *gateway.Request) {
			g := c.Policy.Set().Grant()
			g.Allow = gatewaytest.Allow(t, "more.test")
			if err := c.Policy.Replace(g); err != nil {
				t.Error(err)
			}
		},
	} {
		h := act(change)
		if before, ok := seen[h]; ok {
			t.Errorf("%s: the hash is that of %s", name, before)
		}
		seen[h] = name
	}
}
