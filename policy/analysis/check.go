// Package analysis is for the people who write policies: it says what is wrong
// with a document, what a change makes possible, which rule decided and which
// would have, and how old events would be judged by new rules.
//
// It decides nothing itself: every answer comes from policy.Set, or from rules
// that cover one another. Where it cannot be sure it says so, and never calls a
// change harmless that might not be.
package analysis

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"cofferdam"
	"cofferdam/policy"
)

// Level is how bad a finding is.
type Level string

// The levels. A document with an Error is not taken.
const (
	Error   Level = "error"
	Warning Level = "warning"
)

// Finding is one thing about a document that its author should know.
type Finding struct {
	Level Level  `json:"level"`
	Rule  string `json:"rule,omitempty"` // id
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
}

// Check looks at a document: types of its Cedar text, rules that never decide, and
// its own tests. Of a project's it also finds rules that open what the
// organisation above it, which may be nil, or its own class has closed.
func Check(d policy.Document, organization *policy.Document) []Finding {
	var all []Finding
	if len(d.Rules)+len(d.Allows)+len(d.Limits) == 0 && strings.TrimSpace(d.Cedar) == "" && d.Base == nil && !d.Second && d.Mode != policy.LogOnly && d.Budget == (cofferdam.Budget{}) {
		all = append(all, Finding{Level: Warning, Text: "it says nothing: all is as without it", Hint: "docs/policy.md has examples"})
	}
	all = append(all, types(d)...)
	all = append(all, unreachable(d)...)
	if d.Base != nil {
		all = append(all, locked(d, *d.Base, "class "+d.Class())...)
	}
	if organization != nil {
		all = append(all, idleLimits(d, *organization)...)
		all = append(all, locked(d, *organization, organization.Name)...)
		if organization.Base != nil {
			all = append(all, locked(d, *organization.Base, "organisation's class "+organization.Class())...)
		}
	}
	return append(all, tests(d, organization)...)
}

// idleLimits finds limits of a project that the organisation's are below.
func idleLimits(d, organization policy.Document) (all []Finding) {
	for _, f := range cofferdam.BudgetFields() {
		if own, above := *f.Of(&d.Budget), *f.Of(&organization.Budget); above > 0 && own > above {
			all = append(all, Finding{
				Level: Warning, Text: fmt.Sprintf("budget.max_%s is %s, and the organisation lets a task ask for %s: it never counts", f.Key, f.Show(own), f.Show(above)),
				Hint: "leave it out, or write a lower one",
			})
		}
	}
	return all
}

// validator is made from the published schema, once.
var validator = sync.OnceValues(func() (*validate.Validator, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(policy.Schema)); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve()
	if err != nil {
		return nil, err
	}
	return validate.New(resolved), nil
})

// types checks Cedar text against the schema.
func types(d policy.Document) []Finding {
	if strings.TrimSpace(d.Cedar) == "" {
		return nil
	}
	list, err := cedar.NewPolicyListFromBytes(d.Name+".cedar", []byte(d.Cedar))
	if err != nil {
		return []Finding{{Level: Error, Text: "the Cedar text cannot be read: " + err.Error(), Hint: "docs/policy.md has examples of Cedar text"}}
	}
	v, err := validator()
	if err != nil {
		return []Finding{{Level: Error, Text: "the schema cannot be read: " + err.Error()}}
	}
	var all []Finding
	for i, p := range list {
		id := string(p.Annotations()["id"])
		if id == "" {
			id = fmt.Sprintf("%s-%d", d.Name, i+1)
		}
		if err := v.Policy(id, (*ast.Policy)(p.AST())); err != nil {
			all = append(all, Finding{Level: Error, Rule: id, Text: oneLine(err.Error()), Hint: "cofferdam policy schema shows what a rule may speak of"})
		}
	}
	return all
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// unreachable finds rules that another rule of the document always overrules.
func unreachable(d policy.Document) []Finding {
	var all []Finding
	for i, r := range d.Rules {
		for j := range d.Rules {
			if i == j || d.Rules[j].Mode == policy.LogOnly || !mayCover(&d.Rules[j], &r) || !d.Rules[j].Covers(r) {
				continue
			}
			o := d.Rules[j]
			same := o.Effect == r.Effect
			switch {
			case same && (j < i || !r.Covers(o)) && r.Mode == o.Mode && r.Splice == o.Splice && r.Credentials == o.Credentials && o.People >= r.People:
				all = append(all, Finding{Level: Warning, Rule: r.ID, Text: fmt.Sprintf("%s is part of %s (%s)", r, o, o.ID), Hint: "leave one of them out"})
			case o.Effect == policy.Deny && (r.Effect == policy.Allow || r.Effect == policy.Ask):
				all = append(all, Finding{Level: Warning, Rule: r.ID, Text: fmt.Sprintf("%s never counts: %s (%s) denies all of it", r, o, o.ID), Hint: "leave one of them out"})
			case o.Effect == policy.Ask && r.Effect == policy.Allow:
				all = append(all, Finding{Level: Warning, Rule: r.ID, Text: fmt.Sprintf("%s is asked about each time, by %s (%s)", r, o, o.ID), Hint: "leave one of them out"})
			default:
				continue
			}
			break // one reason is enough
		}
	}
	return all
}

// mayCover says no where o surely does not cover r, and is quick about it: documents
// have thousands of rules, each of which is compared with each.
func mayCover(o, r *policy.Rule) bool {
	head, tail, wild := strings.Cut(o.Pattern, "*")
	switch {
	case o.Pattern == r.Pattern:
		return true
	case !wild:
		return false
	case section(*o) == policy.Egress:
		return strings.HasSuffix(r.Pattern, tail)
	}
	return strings.HasPrefix(r.Pattern, head)
}

// locked finds rules that open what a layer above keeps closed. They open nothing:
// that layer is judged beside this one.
func locked(d, over policy.Document, name string) []Finding {
	var all []Finding
	for _, r := range d.Rules {
		if r.Effect == policy.Deny {
			continue
		}
		if !over.Grants(r) {
			all = append(all, Finding{Level: Error, Rule: r.ID, Text: fmt.Sprintf("%s is beyond the limit of the %s", r, name), Hint: "leave it out, or have an owner widen that limit"})
			continue
		}
		for _, o := range over.Rules {
			if o.Effect == policy.Deny && o.Mode != policy.LogOnly && o.Covers(r) {
				all = append(all, Finding{Level: Error, Rule: r.ID, Text: fmt.Sprintf("%s is denied by the %s (%s)", r, name, o.ID), Hint: "leave it out"})
				break
			}
		}
	}
	return all
}

// tests runs the examples of the document.
func tests(d policy.Document, organization *policy.Document) []Finding {
	g := policy.Grant{Project: &d, Organization: organization}
	if d.Name == policy.OrganizationName {
		g = policy.Grant{Organization: &d}
	}
	s, err := policy.New(g)
	if err != nil {
		return []Finding{{Level: Error, Text: err.Error(), Hint: cofferdam.HintOf(err)}}
	}
	want := map[policy.Effect]cofferdam.Verdict{policy.Allow: cofferdam.Allowed, policy.Ask: cofferdam.Asked, policy.Deny: cofferdam.Refused}
	var all []Finding
	for _, t := range d.Tests {
		if got := s.Decide(t.Query); got.Verdict != want[t.Expect] {
			all = append(all, Finding{Level: Error, Rule: got.Rule, Text: fmt.Sprintf("%s: expected %s, and it is %s", t.Name, t.Expect, got.Verdict), Hint: got.Reason})
		}
	}
	return all
}
