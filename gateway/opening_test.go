package gateway_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// An answer that opens a host for two requests lets two pass without another
// question, the one that asked among them; the third is asked about anew.
func TestAnOpeningIsCounted(t *testing.T) {
	c, rec, d := asking(t, askAsked)
	d.bounds = &cofferdam.Bounds{Entry: "asked.test", Seconds: 3600, Uses: 2}
	for i, questions := range []int{1, 1, 2} {
		r := request("asked.test")
		err := gateway.Handle(t.Context(), c, r, func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
		if err != nil || len(d.asked) != questions {
			t.Fatalf("request %d: %v, %d questions\n%s", i+1, err, len(d.asked), verdicts(rec))
		}
		if i == 1 {
			d.bounds = nil
		}
	}
	if c.Policy.Set().Expires().IsZero() == false {
		t.Error("what is used up is still open")
	}
}

// What was opened counts for its time and its host alone, and never against a
// deny that comes later.
func TestAnOpeningEnds(t *testing.T) {
	c, _, d := asking(t, askAsked)
	d.bounds = &cofferdam.Bounds{Entry: "new.test", Seconds: 3600}
	r := request("asked.test")
	pass := func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }
	if err := gateway.Handle(t.Context(), c, r, pass); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[cofferdam.Host]bool{"new.test": true, "other.test": false} {
		err := gateway.Handle(t.Context(), c, request(host), pass)
		if (err == nil) != want || err != nil && cofferdam.KindOf(err) != cofferdam.Denied {
			t.Errorf("%s: %v", host, err)
		}
	}
	p, err := policy.ParseDocument("project", []byte("[egress]\ndeny = [\"new.test\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Policy.Replace(policy.Grant{Project: &p}); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Handle(t.Context(), c, request("new.test"), pass); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("opened against a deny: %v", err)
	}
}

// Two people open what both say, within the narrower bounds.
func TestOpening(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	says := func(name string, allow bool, b *cofferdam.Bounds) cofferdam.Answer {
		return cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: name}, Allow: allow, Bounds: b, Time: at}
	}
	bounds := func(entry string, seconds float64, uses int) *cofferdam.Bounds {
		return &cofferdam.Bounds{Entry: entry, Seconds: seconds, Uses: uses}
	}
	for name, c := range map[string]struct {
		state   cofferdam.QuestionState
		answers []cofferdam.Answer
		opens   bool
		seconds float64
		uses    int
	}{
		"one":             {cofferdam.QuestionAllowed, []cofferdam.Answer{says("ann", true, bounds("a.test", 60, 0))}, true, 60, 0},
		"the narrower":    {cofferdam.QuestionAllowed, []cofferdam.Answer{says("ann", true, bounds("a.test", 60, 0)), says("bob", true, bounds("a.test", 90, 3))}, true, 60, 3},
		"not the same":    {cofferdam.QuestionAllowed, []cofferdam.Answer{says("ann", true, bounds("a.test", 60, 0)), says("bob", true, bounds("b.test", 60, 0))}, false, 0, 0},
		"one of two":      {cofferdam.QuestionAllowed, []cofferdam.Answer{says("ann", true, bounds("a.test", 60, 0)), says("bob", true, nil)}, false, 0, 0},
		"the one act":     {cofferdam.QuestionAllowed, []cofferdam.Answer{says("ann", true, nil)}, false, 0, 0},
		"not allowed yet": {cofferdam.QuestionOpen, []cofferdam.Answer{says("ann", true, bounds("a.test", 60, 0))}, false, 0, 0},
		"nobody":          {cofferdam.QuestionAllowed, nil, false, 0, 0},
	} {
		g, opens, err := gateway.OpeningOf(cofferdam.Question{ID: "a-1", Action: policy.HTTP, State: c.state, Answers: c.answers})
		if err != nil || opens != c.opens || opens && (g.ID != "given.a-1" || g.Pattern != "a.test" || g.Uses != c.uses || g.Until.Sub(at).Seconds() != c.seconds) {
			t.Errorf("%s: %v, %v, %+v", name, err, opens, g)
		}
	}
	for _, entry := range []string{"", "*", "splice:a.test", "preset:npm", "https://a.test", "a.test/x", "localhost", "10.0.0.1"} {
		q := cofferdam.Question{ID: "a-1", Action: policy.HTTP, State: cofferdam.QuestionAllowed, Answers: []cofferdam.Answer{says("ann", true, bounds(entry, 60, 0))}}
		if g, opens, err := gateway.OpeningOf(q); err == nil || opens {
			t.Errorf("%q opens %+v", entry, g)
		}
	}
}

// While acts are judged, asked about and allowed, a person takes a policy that
// denies the host. What began after that is refused, whoever answers yes, and so
// is what waited.
func TestNoAnswerOutrunsADeny(t *testing.T) {
	for range 20 {
		c, _, d := asking(t, askAsked)
		var mu sync.Mutex
		d.bounds = &cofferdam.Bounds{Entry: "asked.test", Seconds: 60}
		c.Ask = locked{&mu, d}
		no, err := policy.ParseDocument("project", []byte("[egress]\ndeny = [\"asked.test\"]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var denied atomic.Bool
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					late := denied.Load() // before it begins
					err := gateway.Handle(t.Context(), c, request("asked.test"), func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
					if late && err == nil {
						t.Error("passed after the deny")
					}
				}
			})
		}
		if err := c.Policy.Replace(policy.Grant{Project: &no}); err != nil {
			t.Error(err)
		}
		denied.Store(true)
		all.Wait()
	}
}

// locked is a desk for several at a time.
type locked struct {
	mu *sync.Mutex
	d  *desk
}

func (l locked) Ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d.Ask(ctx, q)
}

func (l locked) Use(ctx context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d.Use(ctx, id, hash)
}

func (l locked) UseOpening(ctx context.Context, id cofferdam.QuestionID, most int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d.UseOpening(ctx, id, most)
}

func (l locked) TakeBytes(ctx context.Context, id cofferdam.QuestionID, n, most int64) error {
	return l.d.TakeBytes(ctx, id, n, most)
}

func (l locked) EndOpening(ctx context.Context, scope cofferdam.Scope, id cofferdam.QuestionID, why string) error {
	return l.d.EndOpening(ctx, scope, id, why)
}

// As many people are asked as the rule wants.
func TestHandleAsksTwoPeople(t *testing.T) {
	c, _, d := asking(t, "[[egress.rule]]\nid = \"two\"\neffect = \"ask\"\nhosts = [\"asked.test\"]\npeople = 2\n")
	if err := gateway.Handle(t.Context(), c, request("asked.test"), func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }); err != nil {
		t.Fatal(err)
	}
	if len(d.asked) != 1 || d.asked[0].Needs != 2 {
		t.Errorf("asked: %+v", d.asked)
	}
}
