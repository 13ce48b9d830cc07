package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"cofferdam"
)

//go:embed builtin.cedar
var builtin []byte

// Rules that decide without Cedar.
const (
	DefaultDeny = "default-deny" // nothing permitted it
	BadName     = "bad-name"     // the host is not a name that can be judged
	BadRule     = "bad-rule"     // a rule could not be evaluated, so nothing is let through
)

// Grant is what a session is given.
type Grant struct {
	Allow    []Rule           // hosts; from ParseAllow
	Repo     cofferdam.RepoID // the one repository; "" for none
	Branch   cofferdam.Ref    // the one ref that may be written; "" for none
	Model    string           // the one model provider entry; "" for none
	Provider cofferdam.Host   `json:",omitempty"` // its provider's own name, which leads to the model gateway; "" for none
	Operator string           // Cedar text of the operator; it may forbid or permit
	Dropped  []Rule           // rules of a project file that this grant does not cover (see Narrow)
	Run      bool             `json:",omitempty"` // it is that of one command, by cofferdam run: no task is spoken of
}

// Set is a compiled policy. It is immutable and safe for concurrent use.
type Set struct {
	grant  Grant
	digest cofferdam.Digest
	hosts  index
	fixed  []entry // built in and of the operator; asked about every query
	allow  []entry // one permit per rule of grant.Allow; only candidates are asked
	self   cedar.Entity
}

// entry is one Cedar policy under the id that decisions name.
type entry struct {
	id     cedar.PolicyID
	policy *cedar.Policy
}

// New compiles a grant. Its rules are numbered anew, so that lists may be put
// together. Cedar text that cannot be parsed, ids that are taken
// and rules that did not come from ParseAllow are Invalid errors.
func New(g Grant) (*Set, error) {
	s := &Set{grant: g}
	s.grant.Allow, s.grant.Dropped = number(slices.Clone(g.Allow)), slices.Clone(g.Dropped)
	if len(g.Operator) > maxOperator {
		return nil, badPolicy(fmt.Errorf("the text is larger than %d bytes", maxOperator))
	}
	taken := map[cedar.PolicyID]bool{DefaultDeny: true, BadName: true, BadRule: true}
	for _, text := range []struct{ name, body string }{{"builtin", string(builtin)}, {"operator", g.Operator}} {
		es, err := parseCedar(text.name, text.body, taken)
		if err != nil {
			return nil, badPolicy(err)
		}
		s.fixed = append(s.fixed, es...)
	}
	for _, r := range s.grant.Allow {
		if _, err := parseRule(r.String()); err != nil {
			return nil, badPolicy(fmt.Errorf("rule %q: %w", r.String(), err))
		}
		es, err := parseCedar(r.ID, r.cedar(), taken)
		if err != nil {
			return nil, badPolicy(err)
		}
		s.allow = append(s.allow, es...)
	}
	s.hosts = newIndex(s.grant.Allow)
	s.self = g.entity()
	s.digest = s.grant.digest()
	return s, nil
}

func badPolicy(err error) error {
	return &cofferdam.Error{
		Op: "policy.New", Kind: cofferdam.Invalid, Subject: "policy", Err: err,
		Hint: "correct the policy text; a policy that is not understood allows nothing",
	}
}

// cedar returns the permit that an allow rule stands for. Its host entity is a
// child of Rule::"ID" when the index says that the pattern matches.
func (r Rule) cedar() string {
	ports := "[80, 443]"
	if r.Port != 0 {
		ports = "[" + strconv.Itoa(int(r.Port)) + "]"
	}
	return fmt.Sprintf(`@id(%q) permit (principal, action in [Action::"resolve", Action::"connect", Action::"request"], resource in Rule::%q)
when { action == Action::"resolve" || %s.contains(context.port) };`, r.ID, r.ID, ports)
}

// parseCedar parses text and gives every policy its id: that of its @id
// annotation, or name and its number.
func parseCedar(name, text string, taken map[cedar.PolicyID]bool) ([]entry, error) {
	list, err := cedar.NewPolicyListFromBytes(name+".cedar", []byte(text))
	if err != nil {
		return nil, err
	}
	var out []entry
	for i, p := range list {
		id := cedar.PolicyID(p.Annotations()["id"])
		if id == "" {
			id = cedar.PolicyID(name + "-" + strconv.Itoa(i+1))
		}
		if taken[id] {
			return nil, fmt.Errorf("%s: the id %q is used twice", name, id)
		}
		taken[id] = true
		out = append(out, entry{id, p})
	}
	return out, nil
}

// Digest identifies the whole policy: built-in text, operator text and grant.
func (s *Set) Digest() cofferdam.Digest { return s.digest }

// Splices says whether TLS to host:port passes unseen: the most specific rule
// that matches both says so.
func (s *Set) Splices(host cofferdam.Host, port uint16) bool {
	var best *Rule
	for _, i := range s.hosts.candidates(string(host)) {
		r := &s.grant.Allow[i]
		if r.allowsPort(port) && (best == nil || moreSpecific(*r, *best) < 0) {
			best = r
		}
	}
	return best != nil && best.Splice
}

// Rules returns the allow rules, in order.
func (s *Set) Rules() []Rule { return slices.Clone(s.grant.Allow) }

func (g Grant) digest() cofferdam.Digest {
	b, err := json.Marshal(struct {
		Builtin string
		Grant   Grant
	}{string(builtin), g})
	if err != nil {
		panic("policy: strings and numbers always marshal") // no other field types
	}
	h := sha256.Sum256(b)
	return cofferdam.Digest("sha256:" + hex.EncodeToString(h[:]))
}

// Decide answers q. The answer names the rule that decided and, for a refusal,
// says what would be allowed.
func (s *Set) Decide(q Query) cofferdam.Decision {
	d := s.decide(q)
	if q.Action == HTTP && d.Verdict == cofferdam.Allowed {
		d = s.inEveryReading(q, d)
	}
	return d
}

// decide answers q as it stands.
func (s *Set) decide(q Query) cofferdam.Decision {
	d := cofferdam.Decision{Verdict: cofferdam.Refused, Policy: s.digest}
	if q.aboutHost() {
		if err := CheckHost(q.Host); err != nil {
			d.Rule, d.Reason, d.Hint = BadName, fmt.Sprintf("%q is refused: %s", shorten(string(q.Host)), err), s.hostHint(q)
			return d
		}
	}
	asked := s.ask(q)
	verdict, diag := cedar.Authorize(asked, asked, asked.request())
	switch {
	case len(diag.Errors) > 0:
		// Cedar skips a policy that cannot be evaluated. A forbid that is
		// skipped would let through, so nothing is.
		d.Rule, d.Reason = BadRule, fmt.Sprintf("rule %q could not be evaluated", diag.Errors[0].PolicyID)
		d.Hint = "the operator has to correct that rule"
	case len(diag.Reasons) == 0:
		d.Rule = DefaultDeny
		d.Reason, d.Hint = s.explain(q, DefaultDeny)
	case verdict == cedar.Allow:
		d.Verdict, d.Rule = cofferdam.Allowed, string(diag.Reasons[0].PolicyID)
		d.Reason = "permitted by rule " + d.Rule
	default:
		d.Rule = string(diag.Reasons[0].PolicyID)
		d.Reason, d.Hint = s.explain(q, d.Rule)
	}
	return d
}

func (q Query) aboutHost() bool {
	return q.Action == Resolve || q.Action == Connect || q.Action == HTTP
}

// question is one query as Cedar sees it: the policies that could matter and
// the two entities it is about.
type question struct {
	set        *Set
	query      Query
	candidates []int // positions of allow rules whose pattern matches
	resource   cedar.Entity
}

func (s *Set) ask(q Query) question {
	a := question{set: s, query: q}
	if !q.aboutHost() {
		a.resource = cedar.Entity{UID: q.resource()}
		return a
	}
	a.candidates = s.hosts.candidates(string(q.Host))
	var parents []cedar.EntityUID
	for _, i := range a.candidates {
		parents = append(parents, cedar.NewEntityUID("Rule", cedar.String(s.grant.Allow[i].ID)))
	}
	a.resource = cedar.Entity{
		UID: q.resource(), Parents: cedar.NewEntityUIDSet(parents...),
		Attributes: cedar.NewRecord(cedar.RecordMap{
			"name":     cedar.String(q.Host),
			"internal": cedar.Boolean(strings.HasSuffix("."+string(q.Host), ownSuffix)),
		}),
	}
	return a
}

// All yields the policies that could matter for the question.
func (a question) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, e := range a.set.fixed {
			if !yield(e.id, e.policy) {
				return
			}
		}
		for _, i := range a.candidates {
			if !yield(a.set.allow[i].id, a.set.allow[i].policy) {
				return
			}
		}
	}
}

// Get returns the entities of the question: the session and what it acts on.
func (a question) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch uid {
	case a.set.self.UID:
		return a.set.self, true
	case a.resource.UID:
		return a.resource, true
	}
	return cedar.Entity{}, false
}

func (a question) request() cedar.Request {
	q := a.query
	return cedar.Request{
		Principal: a.set.self.UID,
		Action:    cedar.NewEntityUID("Action", cedar.String(q.Action)),
		Resource:  a.resource.UID,
		Context: cedar.NewRecord(cedar.RecordMap{
			"port":   cedar.Long(q.Port),
			"method": cedar.String(q.Method),
			"path":   cedar.String(q.Path),
			"splice": cedar.Boolean(q.Splice),
			"repo":   cedar.NewEntityUID("Repo", cedar.String(q.Repo)),
			"create": cedar.Boolean(q.Create),
			"delete": cedar.Boolean(q.Delete),
			"force":  cedar.Boolean(q.Force),
		}),
	}
}

func (q Query) resource() cedar.EntityUID {
	switch q.Action {
	case Fetch:
		return cedar.NewEntityUID("Repo", cedar.String(q.Repo))
	case Push:
		return cedar.NewEntityUID("Ref", cedar.String(q.Ref))
	case Call:
		return cedar.NewEntityUID("Model", cedar.String(q.Model))
	}
	return cedar.NewEntityUID("Host", cedar.String(q.Host))
}

// entity returns the session as Cedar sees it; an attribute that is missing
// means that there is none.
func (g Grant) entity() cedar.Entity {
	attrs := cedar.RecordMap{}
	if g.Repo != "" {
		attrs["repo"] = cedar.NewEntityUID("Repo", cedar.String(g.Repo))
	}
	if g.Branch != "" {
		attrs["branch"] = cedar.NewEntityUID("Ref", cedar.String(g.Branch))
	}
	if g.Model != "" {
		attrs["model"] = cedar.NewEntityUID("Model", cedar.String(g.Model))
	}
	if g.Provider != "" {
		attrs["provider"] = cedar.NewEntityUID("Host", cedar.String(g.Provider))
	}
	return cedar.Entity{UID: cedar.NewEntityUID("Session", "self"), Attributes: cedar.NewRecord(attrs)}
}
