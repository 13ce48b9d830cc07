package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
	"cofferdam/proof"
)

// Policies keeps the versions of documents: of a project, and in a scope without
// one of the organisation. Errors are *cofferdam.Error.
type Policies interface {
	Policy(ctx context.Context, scope cofferdam.Scope) (cofferdam.PolicyVersion, error) // the one that counts
	PolicyVersion(ctx context.Context, scope cofferdam.Scope, version int64) (cofferdam.PolicyVersion, error)
	PolicyVersions(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.PolicyVersion, error) // newest first
	// PoliciesOf returns the versions of both documents of a project that were taken
	// and have this text.
	PoliciesOf(ctx context.Context, scope cofferdam.Scope, text cofferdam.Digest) ([]cofferdam.PolicyVersion, error)
	ProposePolicy(ctx context.Context, v cofferdam.PolicyVersion) (cofferdam.PolicyVersion, error)
	// DecidePolicy takes or rejects a proposal, once.
	DecidePolicy(ctx context.Context, v cofferdam.PolicyVersion) error
}

// maxWhy bounds what is said of a proposal, in bytes.
const maxWhy = 4096

// nameAt is the name of a document in ids of rules.
func nameAt(scope cofferdam.Scope) string {
	if scope.Project == "" {
		return policy.OrganizationName
	}
	return policy.ProjectName
}

// ListPolicies returns the versions of a document, the newest first, without
// their texts.
func (s *Service) ListPolicies(ctx context.Context, level cofferdam.PolicyLevel) ([]cofferdam.PolicyVersion, error) {
	const op = "service.ListPolicies"
	a, err := s.enter(ctx, op)
	if err != nil {
		return nil, err
	}
	scope, err := reach(a, op, level)
	if err != nil {
		return nil, err
	}
	all, err := s.Policies.PolicyVersions(ctx, scope)
	for i := range all {
		all[i].Text = ""
		if err == nil {
			all[i].Left, err = s.left(ctx, all[i]) // asks for those alone that wait, which have a bound
		}
	}
	return all, err
}

// Policy returns a version of a document with what it changes; version 0 is the
// one that counts.
func (s *Service) Policy(ctx context.Context, level cofferdam.PolicyLevel, version int64) (cofferdam.PolicyProposal, error) {
	const op = "service.Policy"
	a, err := s.enter(ctx, op)
	if err != nil {
		return cofferdam.PolicyProposal{}, err
	}
	scope, err := reach(a, op, level)
	if err != nil {
		return cofferdam.PolicyProposal{}, err
	}
	v, err := s.version(ctx, scope, version)
	if err != nil {
		return cofferdam.PolicyProposal{}, err
	}
	return s.proposal(ctx, v)
}

func (s *Service) version(ctx context.Context, scope cofferdam.Scope, version int64) (v cofferdam.PolicyVersion, err error) {
	if version == 0 {
		v, err = s.Policies.Policy(ctx, scope)
	} else {
		v, err = s.Policies.PolicyVersion(ctx, scope, version)
	}
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return v, &cofferdam.Error{
			Op: "service.Policy", Kind: cofferdam.NotFound, Subject: "policy of the " + nameAt(scope), Reason: "there is no such version", Err: err,
			Hint: "cofferdam policy list shows them; propose one with cofferdam policy propose FILE",
		}
	}
	return v, err
}

// proposal is a version as a person has to see it: beside the one that it takes
// the place of.
func (s *Service) proposal(ctx context.Context, v cofferdam.PolicyVersion) (cofferdam.PolicyProposal, error) {
	p := cofferdam.PolicyProposal{PolicyVersion: v, Level: cofferdam.OfProject}
	if v.Project == "" {
		p.Level = cofferdam.OfOrganization
	}
	before, err := s.before(ctx, v)
	if err != nil {
		return p, err
	}
	p.Before, p.Counts = before.Version, v.State == cofferdam.PolicyTaken
	if now, err := s.Policies.Policy(ctx, v.Scope); err == nil {
		p.Counts = now.Version == v.Version
	} else if cofferdam.KindOf(err) != cofferdam.NotFound {
		return p, err
	}
	d, err := policy.ParseDocument(nameAt(v.Scope), []byte(v.Text), s.Presets)
	if err != nil {
		p.Findings = []string{"error: " + err.Error()} // a preset that is gone
		return p, nil
	}
	old, err := policy.ParseDocument(nameAt(v.Scope), []byte(before.Text), s.Presets)
	if err != nil { // it judges nobody, and must not stand in the way of what takes its place
		old = policy.Document{}
		p.Findings = append(p.Findings, fmt.Sprintf("warning: version %d cannot be read any more, so that everything is shown as new: %v", before.Version, err))
	}
	above, err := s.over(ctx, v.Scope)
	if err != nil {
		return p, err
	}
	change := analysis.Diff(old, d)
	p.Opens, p.Closes, p.Asks, p.Unbounded = change.Opens, change.Closes, change.Asks, change.Unbounded
	for _, f := range analysis.Check(d, above) {
		p.Findings = append(p.Findings, string(f.Level)+": "+f.Text)
	}
	if p.Second, err = s.second(ctx, v.Scope); err != nil {
		return p, err
	}
	p.Second = p.Second || d.Second
	if p.Left, err = s.left(ctx, v); err != nil {
		return p, err
	}
	p.Hash = digestOf("policy", p.Level, v.Scope, v.Version, v.Digest, before.Version, before.Digest)
	return p, nil
}

// before returns the version that v takes the place of, or took.
func (s *Service) before(ctx context.Context, v cofferdam.PolicyVersion) (cofferdam.PolicyVersion, error) {
	all, err := s.Policies.PolicyVersions(ctx, v.Scope)
	if err != nil {
		return cofferdam.PolicyVersion{}, err
	}
	for _, o := range all {
		if o.State == cofferdam.PolicyTaken && o.Version != v.Version && (v.State == cofferdam.PolicyProposed || o.Version < v.Version) {
			return o, nil
		}
	}
	return cofferdam.PolicyVersion{}, nil
}

// second says whether the organisation wants a second person: what its document
// says counts for that also if the document judges nobody any more, so that it
// can be put right.
func (s *Service) second(ctx context.Context, scope cofferdam.Scope) (bool, error) {
	v, err := s.Policies.Policy(ctx, cofferdam.Scope{Organization: scope.Organization})
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return policy.WantsSecond([]byte(v.Text)), nil
}

// left says whether the account of who proposed a version is closed, or has no role
// there any more. What they proposed is nobody's word then.
func (s *Service) left(ctx context.Context, v cofferdam.PolicyVersion) (bool, error) {
	kind, name, _ := strings.Cut(v.ProposedBy, ":")
	if v.State != cofferdam.PolicyProposed || kind != string(cofferdam.Person) && kind != string(cofferdam.Service) {
		return false, nil
	}
	m, err := s.Accounts.Member(ctx, v.Scope, name)
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
		return false, err
	}
	return err != nil || !m.Disabled.IsZero() || len(m.Roles) == 0, nil
}

// over returns the document above one: nil for that of the organisation.
func (s *Service) over(ctx context.Context, scope cofferdam.Scope) (*policy.Document, error) {
	if scope.Project == "" {
		return nil, nil
	}
	return s.organization(ctx, scope)
}

func (s *Service) organization(ctx context.Context, scope cofferdam.Scope) (*policy.Document, error) {
	return Document(ctx, s.Policies, cofferdam.Scope{Organization: scope.Organization}, s.Presets, s.PublicKey)
}

// Document returns the document that counts for a scope, nil if there is none.
// One whose signature does not fit what is kept is an Invalid error: nothing is
// judged by what nobody has taken.
func Document(ctx context.Context, p Policies, scope cofferdam.Scope, presets map[string][]string, public string) (*policy.Document, error) {
	v, err := p.Policy(ctx, scope)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := policy.ParseDocument(nameAt(scope), []byte(v.Text), presets)
	if err != nil {
		return nil, err
	}
	c, err := proof.OpenPolicy([]byte(v.Signature), public)
	if err == nil && (c.Scope != scope || c.Version != v.Version || c.Digest != d.Digest() || c.DecidedBy != v.DecidedBy) {
		err = fmt.Errorf("it is about another text")
	}
	if err != nil {
		return nil, &cofferdam.Error{
			Op: "service.Document", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("version %d of the policy of the %s", v.Version, nameAt(scope)),
			Reason: "its signature does not fit: " + err.Error(), Hint: "somebody changed the database; propose the policy anew", Err: err,
		}
	}
	return &d, nil
}

// Documents returns those that count for a project.
func Documents(ctx context.Context, p Policies, scope cofferdam.Scope, presets map[string][]string, public string) (d policy.Documents, err error) {
	if d.Organization, err = Document(ctx, p, cofferdam.Scope{Organization: scope.Organization}, presets, public); err != nil {
		return d, err
	}
	d.Project, err = Document(ctx, p, scope, presets, public)
	return d, err
}

func digestOf(parts ...any) cofferdam.Digest {
	text, err := json.Marshal(parts)
	if err != nil {
		panic("service: numbers and texts always marshal")
	}
	h := sha256.Sum256(text)
	return cofferdam.Digest("sha256:" + hex.EncodeToString(h[:]))
}

// ProposePolicy keeps a document for a person to decide about. It changes nothing
// by itself. One that could not count is refused with what is wrong.
func (s *Service) ProposePolicy(ctx context.Context, r cofferdam.PolicyRequest) (cofferdam.PolicyProposal, error) {
	const op = "service.ProposePolicy"
	none := cofferdam.PolicyProposal{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	scope, err := reachWithRole(a, op, r.Level, "policy")
	if err != nil {
		return none, err
	}
	if len(r.Why) > maxWhy {
		return none, invalid(op, "why", fmt.Sprintf("is longer than %d bytes", maxWhy), "say it shorter")
	}
	now, err := s.Policies.Policy(ctx, scope)
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
		return none, err
	}
	d, err := s.wholePolicy(ctx, op, scope, r.Text, now.Text)
	switch {
	case err != nil:
		return none, err
	case now.Version > 0 && now.Text == d.Text:
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "policy of the " + nameAt(scope), Reason: fmt.Sprintf("this is version %d, which counts already", now.Version), Hint: "change it first"}
	}
	by := a.Caller.Principal.String()
	v, err := s.Policies.ProposePolicy(ctx, cofferdam.PolicyVersion{
		Schema: "cofferdam/policy/v1", Scope: scope, Text: d.Text, Digest: d.Digest(), Why: r.Why, ProposedBy: by, Proposed: s.Now().UTC(),
	})
	if err != nil {
		return none, err
	}
	if err := s.recordPolicy(ctx, a, cofferdam.EventPolicyPropose, v, nil); err != nil {
		return none, err
	}
	return s.proposal(ctx, v)
}

// wholePolicy reads a document as it is to be kept, with the text of its class in it.
// That is one of this program, or the one that counts already: nobody makes a
// class of their own that only has the name of one.
func (s *Service) wholePolicy(ctx context.Context, op string, scope cofferdam.Scope, text, now string) (policy.Document, error) {
	d, err := s.sound(ctx, op, scope, text)
	if err != nil || d.Base == nil {
		return d, err
	}
	old, err := policy.ParseDocument(nameAt(scope), []byte(now), s.Presets)
	if kept := err == nil && old.Base != nil && old.Class() == d.Class() && old.Base.Text == d.Base.Text; !kept && !d.Ships() {
		return d, invalid(op, "base", fmt.Sprintf("it is not the class %s of this program, nor the one that counts", d.Class()), "leave [base] out; it is written when the policy is proposed")
	}
	if d.Sealed {
		return d, nil
	}
	return s.sound(ctx, op, scope, d.Seal())
}

// maxLogOnly is how long a document may refuse nothing of what only nothing allows.
// Source: docs/SPECIFICATION.md, "Policy".
const maxLogOnly = 90 * 24 * time.Hour

// sound reads a document and refuses one with an error in it.
func (s *Service) sound(ctx context.Context, op string, scope cofferdam.Scope, text string) (policy.Document, error) {
	d, err := policy.ParseDocument(nameAt(scope), []byte(text), s.Presets)
	if err != nil {
		return d, err
	}
	if last := s.Now().Add(maxLogOnly); d.Until.After(last) {
		return d, invalid(op, "until of the policy of the "+nameAt(scope), fmt.Sprintf("log-only lasts %d days at most", maxLogOnly/(24*time.Hour)), "write a time up to "+last.UTC().Format(time.RFC3339)+", and propose it anew when it ends")
	}
	above, err := s.over(ctx, scope)
	if err != nil {
		return d, err
	}
	var wrong []string
	hint := ""
	for _, f := range analysis.Check(d, above) {
		if f.Level == analysis.Error {
			wrong, hint = append(wrong, f.Text), f.Hint
		}
	}
	if len(wrong) > 0 {
		return d, invalid(op, "policy of the "+nameAt(scope), strings.Join(wrong[:min(len(wrong), 5)], "; "), hint)
	}
	return d, nil
}

func (s *Service) recordPolicy(ctx context.Context, a Acting, kind string, v cofferdam.PolicyVersion, more map[string]string) error {
	fields := map[string]string{"version": fmt.Sprint(v.Version), "digest": string(v.Digest), "of": nameAt(v.Scope), "proposed_by": v.ProposedBy}
	for k, t := range more {
		fields[k] = t
	}
	_, err := s.Record.Record(ctx, cofferdam.Event{
		Scope: v.Scope, Actor: a.Caller.Principal, Source: "policy", Kind: kind, Resource: fmt.Sprintf("policy of the %s, version %d", nameAt(v.Scope), v.Version),
		Fields: fields, Durable: true,
	})
	return err
}
