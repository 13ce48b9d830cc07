package merge

import (
	"context"
	"fmt"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// Land moves the base branch of t by move, if policy lets it: the documents of
// organisation and project that count now are asked for land of that branch, and
// the answer is on record before. What a rule asks about is answered by the people
// who approved exactly this commit: two different ones, if it wants two. by is who
// wanted it. move is called at most once; an error that it did not return itself
// says why it was not called, or that its outcome is not on record.
func (s *Service) Land(ctx context.Context, t cofferdam.Task, by cofferdam.Principal, move func(context.Context) error) error {
	set, err := s.o.Rules(ctx, t)
	if err != nil {
		return err
	}
	c := &gateway.Caller{
		Scope: t.Scope, Task: t.ID, Actor: by, Policy: gateway.NewRules(set), Ask: words{s, t}, Record: s.o.Record, Live: ctx,
	}
	fields := map[string]string{"old": string(t.BaseAt), "new": string(t.Head), "receipt": string(t.Receipt)}
	for name, d := range map[string]*policy.Document{"organisation": set.Grant().Organization, "project": set.Grant().Project} {
		if d != nil {
			fields[name] = string(d.Digest())
		}
	}
	return gateway.Handle(ctx, c, gateway.Request{
		Source: "merge", Kind: cofferdam.EventLand, Resource: string(t.Base), Query: question(t), Fields: fields, Durable: true,
		Show: func(context.Context) (gateway.Shown, error) {
			return gateway.Show([]byte(t.Head), string(t.BaseAt)), nil
		},
	}, func(ctx context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, move(ctx) })
}

func question(t cofferdam.Task) policy.Query {
	return policy.Query{Action: policy.Land, Repo: t.Repo, Ref: t.Base}
}

// standing is what policy says now of landing t. It lets nothing pass.
func (s *Service) standing(ctx context.Context, t cofferdam.Task) (cofferdam.Landing, error) {
	set, err := s.o.Rules(ctx, t)
	if err != nil {
		return cofferdam.Landing{}, err
	}
	d := set.Decide(question(t))
	return cofferdam.Landing{Verdict: d.Verdict, Rule: d.Rule, Reason: d.Reason, People: max(1, d.People), Policy: set.Base()}, nil
}

// BuiltIn are the rules of landing where nobody writes a policy: what is approved
// may land.
func BuiltIn(context.Context, cofferdam.Task) (*policy.Set, error) { return policy.New(policy.Grant{}) }

// words are the people who approved t's commit, as the answer to a rule that asks
// about its landing. Nothing else can be answered by them.
type words struct {
	s *Service
	t cofferdam.Task
}

var _ gateway.Asker = words{}

// Ask implements gateway.Asker. It waits for nobody: who has not approved by now
// may do so, and the landing can be asked for again.
func (w words) Ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	all, err := w.s.o.Store.Approvals(ctx, w.t.ID, w.t.Head)
	if err != nil {
		return q, err
	}
	for _, a := range all {
		if a.Commit == w.t.Head && a.By.IsPerson() {
			q.Answers = append(q.Answers, cofferdam.Answer{By: a.By, Allow: true, Time: a.Time})
		}
	}
	if n := len(q.Answers); n < q.Needs {
		return q, &cofferdam.Error{
			Op: "merge.Land", Kind: cofferdam.Denied, Subject: w.t.Short(), Reason: fmt.Sprintf("rule %s wants %d people to approve the commit, and %d did", q.Rule, q.Needs, n),
			Hint: "another person runs cofferdam merge approve " + w.t.Short() + ", then cofferdam merge land " + w.t.Short() + " again",
		}
	}
	q.ID, q.State = cofferdam.QuestionID("merge:"+string(w.t.Head)), cofferdam.QuestionAllowed
	return q, nil
}

// Use implements gateway.Asker: a commit lands once, which the branch itself sees to.
func (words) Use(context.Context, cofferdam.QuestionID, cofferdam.Digest) error { return nil }

// UseOpening implements gateway.Asker: an approval opens nothing beyond its commit.
func (words) UseOpening(context.Context, cofferdam.QuestionID, int) error { return errNothingOpen }

// TakeBytes implements gateway.Asker.
func (words) TakeBytes(context.Context, cofferdam.QuestionID, int64, int64) error {
	return errNothingOpen
}

// EndOpening implements gateway.Asker.
func (words) EndOpening(context.Context, cofferdam.Scope, cofferdam.QuestionID, string) error {
	return nil
}

var errNothingOpen = &cofferdam.Error{Op: "merge.Land", Kind: cofferdam.Conflict, Subject: "approval of a commit", Reason: "it opens nothing", Hint: "approve the commit that is there"}
