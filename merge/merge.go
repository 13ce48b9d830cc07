// Package merge shows what a task wants merged and takes a person's word for
// it. A Change puts the diff, the proof and everything the agent tried and was
// not allowed on one page; an approval is a person's word for exactly one
// commit that a receipt covers.
//
// It never moves a branch itself (package git does, asked by package flow, once
// policy let Land do it) and never
// believes a stored copy of a proof: what it shows comes out of the signed
// note, which is checked each time. The invariant: an approval exists only for
// a commit with a receipt that holds, only from a person, and only after it is
// on record; a commit that was not shown cannot be approved.
package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/internal/repo"
	"cofferdam/policy"
	"cofferdam/proof"
)

// Bounds of what a person is shown. The trace has all of it.
const (
	MaxRefusals = 500     // refusals on the page of a change, the first ones
	pageSize    = 1000    // events read from a log at once
	maxScan     = 250_000 // events of one session that are looked through; above gateway.MaxActs
)

// Store keeps approvals. Errors are *cofferdam.Error: NotFound where there is none.
type Store interface {
	// AddApproval keeps a person's word. Each person has one for a commit; giving
	// it again returns it.
	AddApproval(ctx context.Context, t cofferdam.Task, a cofferdam.Approval) (cofferdam.Approval, error)
	// Approval returns the first word for exactly this commit of the task.
	Approval(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (cofferdam.Approval, error)
	// Approvals returns all words for it, the first first; none is no error.
	Approvals(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) ([]cofferdam.Approval, error)
	// TaskByID returns a task as it is now.
	TaskByID(ctx context.Context, id cofferdam.TaskID) (cofferdam.Task, error)
}

// Repos reads mirrors; package repo offers it.
type Repos interface {
	Log(ctx context.Context, id cofferdam.RepoID, base, head cofferdam.Commit) ([]string, error)
	Diff(ctx context.Context, id cofferdam.RepoID, base, head cofferdam.Commit) (repo.Diff, error)
	Resolve(ctx context.Context, id cofferdam.RepoID, ref cofferdam.Ref) (cofferdam.Commit, error)
}

// Trace reads the record of a session; package trace offers it.
type Trace interface {
	// Events returns at most limit events; none means that there are no more.
	Events(ctx context.Context, id cofferdam.SessionID, from uint64, limit int) ([]cofferdam.Event, error)
}

// Options is what a Service is made from. All fields but Now and Rules are needed.
type Options struct {
	Store Store
	Repos Repos
	Trace Trace
	// Receipt returns the signed note for exactly this commit of the task.
	Receipt   func(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) ([]byte, error)
	PublicKey string             // that receipts are checked with
	Record    cofferdam.Recorder // of the host log
	Now       func() time.Time   // nil: time.Now
	// Rules are those by which the landing of a task's commit is judged now; nil:
	// BuiltIn.
	Rules func(ctx context.Context, t cofferdam.Task) (*policy.Set, error)
}

// Service shows changes and takes approvals. Safe for concurrent use.
type Service struct{ o Options }

// New returns a Service.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rules == nil {
		o.Rules = BuiltIn
	}
	return &Service{o}
}

// View returns what t wants merged. Everything in it that came from the agent
// is hostile text.
func (s *Service) View(ctx context.Context, t cofferdam.Task) (cofferdam.Change, error) {
	c := cofferdam.Change{Schema: "cofferdam/merge/v1", Task: t, Commits: []string{}, Files: []cofferdam.FileChange{}, Refusals: []cofferdam.Event{}}
	if t.Head == "" || t.BaseAt == "" {
		return c, &cofferdam.Error{Op: "merge.View", Kind: cofferdam.NotFound, Subject: "change of " + t.Short(), Reason: "there is no commit to show", Hint: "cofferdam task view " + t.Short()}
	}
	commits, err := s.o.Repos.Log(ctx, t.Repo, t.BaseAt, t.Head)
	if err != nil {
		return c, err
	}
	d, err := s.o.Repos.Diff(ctx, t.Repo, t.BaseAt, t.Head)
	if err != nil {
		return c, err
	}
	c.Commits, c.Diff, c.Truncated = append(c.Commits, commits...), d.Text, d.Truncated
	c.Files = append(c.Files, d.Files...)
	for _, f := range c.Files {
		c.Beyond = append(c.Beyond, t.Request.Contract.Beyond([]string{f.Path})...)
	}
	switch r, err := s.receipt(ctx, t, t.Head); {
	case err == nil:
		report := r.Report()
		c.Proof = &report
	case !notFound(err):
		return c, err
	}
	c.Commands = map[string]int{}
	refusals, more, err := s.refusals(ctx, t, c.Commands)
	if err != nil {
		return c, err
	}
	c.Refusals, c.Truncated = append(c.Refusals, refusals...), c.Truncated || more
	switch a, err := s.o.Store.Approval(ctx, t.ID, t.Head); {
	case err == nil && a.Commit == t.Head:
		c.Approval = &a
	case err != nil && !notFound(err):
		return c, err
	}
	if c.Approvals, err = s.o.Store.Approvals(ctx, t.ID, t.Head); err != nil {
		return c, err
	}
	c.Landing, err = s.standing(ctx, t)
	return c, err
}

// Approve takes a person's word for commit, which must be what the task wants
// merged now and what its receipt proves. how is what showed that it is theirs.
func (s *Service) Approve(ctx context.Context, t cofferdam.Task, word cofferdam.ApproveRequest, by cofferdam.Principal, how string) (cofferdam.Approval, error) {
	const op = "merge.Approve"
	commit := word.Commit
	none := cofferdam.Approval{}
	if !by.IsPerson() || by.Name == "" {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "approve " + t.Short(), Reason: "only a person may approve, and this is " + by.String(), Hint: "a person runs cofferdam merge approve " + t.Short() + " at a terminal"}
	}
	t, err := s.o.Store.TaskByID(ctx, t.ID) // as it is now, not as it was shown
	if err != nil {
		return none, err
	}
	view := "cofferdam merge view " + t.Short() + " shows what there is now"
	if commit == "" || commit != t.Head {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "approve " + t.Short(), Reason: fmt.Sprintf("the task wants %.12s merged, not %.12s", orNothing(t.Head), orNothing(commit)), Hint: view}
	}
	rule, err := s.standing(ctx, t)
	if err != nil {
		return none, err
	}
	if word.Policy != rule.Policy {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "approve " + t.Short(), Reason: "the policy is another one than was shown", Hint: view}
	}
	said, err := s.o.Store.Approvals(ctx, t.ID, commit)
	if err != nil {
		return none, err
	}
	if i := slices.IndexFunc(said, func(a cofferdam.Approval) bool { return a.By == by }); i >= 0 {
		return said[i], nil
	}
	if t.State != cofferdam.InReview {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "approve " + t.Short(), Reason: fmt.Sprintf("the task is %s, not in review", t.State), Hint: view}
	}
	r, err := s.proven(ctx, op, t)
	if err != nil {
		return none, err
	}
	if rule.Verdict == cofferdam.Refused {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Denied, Subject: "approve " + t.Short(), Reason: "nobody may land it: " + rule.Reason, Hint: "an owner can change the policy: cofferdam policy explain --action land " + string(t.Base)}
	}
	a := cofferdam.Approval{Commit: commit, By: by, Time: s.o.Now().UTC()}
	fields := map[string]string{"commit": string(commit), "receipt": string(r.ID), "proof": how, cofferdam.FieldPolicy: string(rule.Policy)}
	if err := s.record(ctx, t, cofferdam.EventApprove, by, fields); err != nil {
		return none, fmt.Errorf("approve %s: %w", t.Short(), err)
	}
	return s.o.Store.AddApproval(ctx, t, a)
}

func orNothing(c cofferdam.Commit) cofferdam.Commit {
	if c == "" {
		return "nothing"
	}
	return c
}

// proven says whether t's commit may be approved or landed: a receipt that
// holds covers it, and the branch still is where it was proved.
func (s *Service) proven(ctx context.Context, op string, t cofferdam.Task) (proof.Receipt, error) {
	r, err := s.receipt(ctx, t, t.Head)
	if notFound(err) {
		return r, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "there is no proof for its commit", Hint: "cofferdam task retry " + t.Short(), Err: err}
	}
	if err != nil {
		return r, err
	}
	if !r.Report().Held {
		return r, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "its proof says that a check does not hold", Hint: "cofferdam merge view " + t.Short() + " shows which; cofferdam task retry " + t.Short() + " tries again"}
	}
	at, err := s.o.Repos.Resolve(ctx, t.Repo, t.Branch)
	if err != nil {
		return r, err
	}
	if at != t.Head {
		return r, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: fmt.Sprintf("its branch has moved on to %.12s, which is not proved", at), Hint: "cofferdam task retry " + t.Short()}
	}
	return r, nil
}

// receipt opens the signed receipt for commit and makes sure that it is about
// nothing else.
func (s *Service) receipt(ctx context.Context, t cofferdam.Task, commit cofferdam.Commit) (proof.Receipt, error) {
	note, err := s.o.Receipt(ctx, t.ID, commit)
	if err != nil {
		return proof.Receipt{}, err
	}
	r, err := proof.OpenReceipt(note, s.o.PublicKey)
	if err != nil {
		return r, err
	}
	if r.Task != t.ID || r.Commit != commit || r.Base != t.BaseAt || r.Repo != t.Repo {
		return r, &cofferdam.Error{Op: "merge.Receipt", Kind: cofferdam.Tampered, Subject: "proof of " + t.Short(), Reason: fmt.Sprintf("the receipt kept for %.12s is about %.12s of task %s", commit, r.Commit, r.Task), Hint: "do not merge; keep the state folder and look into the host log"}
	}
	return r, nil
}

// Landable says whether a person's word lets t's commit land now: package flow
// asks before it moves the base branch.
func (s *Service) Landable(ctx context.Context, t cofferdam.Task) error {
	const op = "merge.Landable"
	if _, err := s.proven(ctx, op, t); err != nil {
		return err
	}
	a, err := s.o.Store.Approval(ctx, t.ID, t.Head)
	if notFound(err) {
		return &cofferdam.Error{Op: op, Kind: cofferdam.AwaitsPerson, Subject: t.Short(), Reason: "no person has approved its commit", Hint: "cofferdam merge approve " + t.Short(), Err: err}
	}
	if err != nil {
		return err
	}
	if a.Commit != t.Head || !a.By.IsPerson() {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Tampered, Subject: t.Short(), Reason: "its approval is not a person's word for its commit", Hint: "do not land it; keep the state folder and look into the host log"}
	}
	return nil
}

// Void puts on record that the approval of commit counts no longer, because t
// has another head. An approval is for one commit only, so nothing has to be
// taken back; without an approval there is nothing to say.
func (s *Service) Void(ctx context.Context, t cofferdam.Task, commit cofferdam.Commit) error {
	if commit == "" || commit == t.Head {
		return nil
	}
	a, err := s.o.Store.Approval(ctx, t.ID, commit)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	platform := cofferdam.Principal{Kind: cofferdam.Platform, Name: "merge"}
	return s.record(ctx, t, cofferdam.EventVoid, platform, map[string]string{"commit": string(commit), "approved_by": a.By.String(), "head": string(t.Head)})
}

func (s *Service) record(ctx context.Context, t cofferdam.Task, kind string, by cofferdam.Principal, fields map[string]string) error {
	_, err := s.o.Record.Record(ctx, cofferdam.Event{
		Scope: t.Scope, Task: t.ID, Actor: by, Source: "merge", Kind: kind, Resource: t.Short(), Fields: fields, Durable: true,
	})
	return err
}

// refusals collects what the agent tried and was not allowed, in order, and counts
// in commands those that were started, by whom they were for. more says that there
// was more than is shown.
func (s *Service) refusals(ctx context.Context, t cofferdam.Task, commands map[string]int) (found []cofferdam.Event, more bool, err error) {
	for _, id := range t.Sessions {
		for from := uint64(0); ; {
			page, err := s.o.Trace.Events(ctx, id, from, pageSize)
			if notFound(err) {
				break // planned, never opened
			}
			if err != nil {
				return nil, false, err
			}
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				if e.Kind == cofferdam.EventExecStart && e.Of == nil && e.Verdict == cofferdam.Allowed {
					commands[e.Actor.String()]++
				}
				if e.Verdict != cofferdam.Refused {
					continue
				}
				if len(found) == MaxRefusals {
					return found, true, nil
				}
				found = append(found, e)
			}
			if from += uint64(len(page)); from >= maxScan {
				return found, true, nil
			}
		}
	}
	return found, false, nil
}

func notFound(err error) bool {
	var e *cofferdam.Error
	return errors.As(err, &e) && e.Kind == cofferdam.NotFound
}
