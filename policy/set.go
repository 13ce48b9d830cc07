package policy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

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
	BadArgs     = "bad-args"     // a tool's arguments are not what a rule could see whole
)

// Grant is what a session is given, and the documents over it.
type Grant struct {
	Allow    []Rule           // hosts; from ParseAllow
	Repo     cofferdam.RepoID // the one repository; "" for none
	Branch   cofferdam.Ref    // the one ref that may be written; "" for none
	Model    string           // the one model provider entry; "" for none
	Provider cofferdam.Host   `json:",omitempty"` // its provider's own name, which leads to the model gateway; "" for none
	Operator string           // Cedar text of the operator; it may forbid or permit
	Dropped  []Rule           // rules of a project file that this grant does not cover (see Narrow)
	Read     []Rule           `json:",omitempty"` // entries that were given, read, and taken away again
	Run      bool             `json:",omitempty"` // it is that of one command, by cofferdam run: no task is spoken of

	Organization *Document `json:",omitempty"` // locks: what it denies nobody opens, and its limit bounds all the rest
	Project      *Document `json:",omitempty"`
	Narrowing    []Document
	Openings     []Opening `json:"Given"` // as it is in digests
	At           time.Time `json:"-"`     // when it is compiled; the zero time lets nothing be log-only and no answer of a person count
}

// Set is a compiled policy. It is immutable and safe for concurrent use.
type Set struct {
	grant   Grant
	digest  cofferdam.Digest
	base    cofferdam.Digest // without Openings
	core    *layer           // built in, operator, project and what the session was given
	layers  []*layer         // the organisation's and those that narrow, the organisation's first
	opened  *layer           // nil for none
	self    cedar.Entity
	hints   hints
	read    index // of the grant's Read
	expires time.Time
}

// New compiles a grant. Its rules are numbered anew, so that lists may be put
// together. Cedar text that cannot be parsed, ids that are taken, rules that did
// not come from ParseAllow, and those beyond a limit are Invalid errors.
func New(g Grant) (*Set, error) {
	s := &Set{grant: g}
	s.grant.Allow, s.grant.Dropped = number(slices.Clone(g.Allow)), slices.Clone(g.Dropped)
	if len(g.Operator) > maxOperator {
		return nil, badPolicy(fmt.Errorf("the text is larger than %d bytes", maxOperator))
	}
	taken := map[cedar.PolicyID]bool{DefaultDeny: true, BadName: true, BadRule: true, BadArgs: true}
	for _, step := range []func(map[cedar.PolicyID]bool) error{s.compileCore, s.compileOver, s.compileNarrowing, s.compileOpenings} {
		if err := step(taken); err != nil {
			return nil, badPolicy(err)
		}
	}
	s.self, s.hints, s.read = g.entity(), s.grant.hints(), newIndex(s.grant.Read)
	s.digest = s.grant.digest()
	bare := s.grant
	bare.Openings = nil
	s.base = bare.digest()
	return s, nil
}

func badPolicy(err error) error {
	return &cofferdam.Error{
		Op: "policy.New", Kind: cofferdam.Invalid, Subject: "policy", Err: err,
		Hint: "correct the policy text; a policy that is not understood allows nothing",
	}
}

// compileCore puts together what permits: the built-in rules, the operator's,
// the project's and what the session was given.
func (s *Set) compileCore(taken map[cedar.PolicyID]bool) error {
	g := s.grant
	for _, r := range g.Allow {
		if _, err := parseRule(r.String()); err != nil {
			return fmt.Errorf("rule %q: %w", r.String(), err)
		}
		if name := g.beyond(r); name != "" {
			return fmt.Errorf("%s is beyond what the policy of %s lets a task have", r, name)
		}
	}
	rules := slices.Clone(g.Allow)
	if g.Organization != nil {
		rules = append(rules, g.Organization.with(Allow)...)
	}
	var text string
	if g.Project != nil {
		rules, text = append(rules, g.Project.with(Allow, Ask, Deny)...), g.Project.Cedar
	}
	core, err := newLayer(ProjectName, rules, text, taken)
	if err != nil {
		return err
	}
	fixed := core.fixed
	for _, t := range []struct{ name, body string }{{"operator", g.Operator}, {"builtin", string(builtin)}} {
		es, err := parseCedar(t.name, "", t.body, taken)
		if err != nil {
			return err
		}
		fixed = append(es, fixed...)
	}
	core.fixed, core.heads = nil, heads{}
	core.add(fixed)
	core.closed[""] = true // actions that nobody knows
	for name := range sections {
		core.closed[name] = true
	}
	core.observes = s.observes(g.Project)
	s.core = core
	return nil
}

// compileOver makes the layers of the organisation and of classes: they deny, ask,
// and refuse what is beyond their limit.
func (s *Set) compileOver(taken map[cedar.PolicyID]bool) error {
	g := s.grant
	var over []Document
	if g.Organization != nil {
		over = append(over, *g.Organization)
	}
	for _, d := range []*Document{g.Organization, g.Project} {
		if d.Class() != "" && !slices.ContainsFunc(over, func(o Document) bool { return o.Text == d.Base.Text }) {
			over = append(over, *d.Base)
		}
	}
	for i, d := range over {
		rules := d.with(Deny, Ask, Limit)
		for _, r := range d.with(Allow) { // what it gives is within its limit
			r.ID, r.Effect = r.ID+".given", Limit
			rules = append(rules, r)
		}
		if i > 0 || g.Organization == nil {
			taken = map[cedar.PolicyID]bool{} // two programs' versions of one class may have the same ids
		}
		l, err := newLayer(d.Name, rules, d.Cedar, taken)
		if err != nil {
			return err
		}
		l.locks = true
		for _, name := range d.Limits {
			l.closed[name] = true
		}
		s.layers = append(s.layers, l)
	}
	return nil
}

// compileNarrowing makes a layer of each document that only narrows: what its
// lists do not allow, in the sections where it has one, is refused.
func (s *Set) compileNarrowing(taken map[cedar.PolicyID]bool) error {
	for _, d := range s.grant.Narrowing {
		rules := d.with(Deny, Ask, Allow)
		for i := range rules { // it cannot ask for a splice or for credentials, and takes none away
			rules[i].Splice = rules[i].effect() == Allow && !rules[i].conditions()
			rules[i].Credentials = rules[i].effect() == Allow
		}
		l, err := newLayer(d.Name, rules, d.Cedar, taken)
		if err != nil {
			return err
		}
		for _, name := range d.Allows {
			l.closed[name] = true
		}
		s.layers = append(s.layers, l)
	}
	return nil
}

func (s *Set) compileOpenings(taken map[cedar.PolicyID]bool) error {
	var rules []Rule
	for _, g := range s.grant.Openings {
		if !g.Until.After(s.grant.At) || s.grant.beyond(g.Rule) != "" { // a limit that became narrower ends what it does not cover
			continue
		}
		s.ends(g.Until)
		g.Rule.Effect, g.Rule.Mode = Allow, Enforce
		rules = append(rules, g.Rule)
	}
	if len(rules) == 0 {
		return nil
	}
	var err error
	s.opened, err = newLayer("given", rules, "", taken)
	return err
}

func (s *Set) observes(d *Document) bool {
	if d == nil || d.Mode != LogOnly || !d.Until.After(s.grant.At) {
		return false
	}
	s.ends(d.Until)
	return true
}

func (s *Set) ends(at time.Time) {
	if s.expires.IsZero() || at.Before(s.expires) {
		s.expires = at
	}
}

// Expires returns when something in s is over, so that the same grant has to be
// compiled again; the zero time: never.
func (s *Set) Expires() time.Time { return s.expires }

// Digest identifies the whole policy: built-in text, documents and grant.
func (s *Set) Digest() cofferdam.Digest { return s.digest }

// Grant returns what s was compiled from.
func (s *Set) Grant() Grant { return s.grant }

// Splices says whether TLS to host:port passes unseen: the most specific rule
// that matches both says so, also one that was given and taken away again.
// What was read because of it must not pass unseen without it.
func (s *Set) Splices(host cofferdam.Host, port uint16) bool {
	var best *Rule
	closest := func(rules []Rule, at []int) {
		for _, i := range at {
			r := &rules[i]
			if r.section() == Egress && r.effect() == Allow && r.allowsPort(port) && (best == nil || moreSpecific(*r, *best) < 0) {
				best = r
			}
		}
	}
	closest(s.core.rules, s.core.index.hosts(string(host)))
	if best != nil && best.Splice {
		closest(s.grant.Read, s.read.hosts(string(host)))
	}
	return best != nil && best.Splice
}

// Below returns the name whose wildcard lets host be known, "" if an entry names the
// host itself. Where Cedar text alone lets it, that is the name above it.
func (s *Set) Below(host cofferdam.Host) cofferdam.Host {
	var best *Rule
	for _, l := range []*layer{s.core, s.opened} {
		if l == nil {
			continue
		}
		for _, i := range l.index.hosts(string(host)) {
			if r := &l.rules[i]; r.section() == Egress && r.effect() == Allow && (best == nil || moreSpecific(*r, *best) < 0) {
				best = r
			}
		}
	}
	if best == nil {
		_, above, _ := strings.Cut(string(host), ".")
		return cofferdam.Host(above)
	}
	zone, wild := strings.CutPrefix(best.Pattern, "*.")
	if !wild {
		return ""
	}
	return cofferdam.Host(zone)
}

// Rule returns the rule that a decision names and the layer that has it; false
// for Cedar text and rules that are built in.
func (s *Set) Rule(id string) (r Rule, in string, ok bool) {
	id = strings.TrimSuffix(id, knownNote)
	for _, l := range append([]*layer{s.core, s.opened}, s.layers...) {
		for ; l != nil; l = l.quiet {
			if i := slices.IndexFunc(l.rules, func(r Rule) bool { return r.ID == id }); i >= 0 {
				return l.rules[i], l.name, true
			}
		}
	}
	return Rule{}, "", false
}

// Rules returns the allow rules of the grant, in order.
func (s *Set) Rules() []Rule { return slices.Clone(s.grant.Allow) }

func (g Grant) digest() cofferdam.Digest {
	b, err := json.Marshal(struct {
		Builtin string
		Grant   Grant
	}{string(builtin), g})
	if err != nil {
		panic("policy: strings and numbers always marshal") // no other field types
	}
	return textDigest(string(b))
}

// Decide answers q. The answer names the rule that decided and, for a refusal,
// says what would be allowed.
func (s *Set) Decide(q Query) cofferdam.Decision {
	d := s.decide(q)
	if q.Action != HTTP || d.Verdict == cofferdam.Refused {
		return d
	}
	d = s.inEveryReading(q, d)
	if upper := strings.ToUpper(q.Method); upper != q.Method { // as some servers read it
		q.Method = upper
		if o := s.Decide(q); o.Verdict == cofferdam.Refused || o.Verdict == cofferdam.Asked && (d.Verdict == cofferdam.Allowed || o.People > d.People) {
			d = o
		}
	}
	return d
}

// decide answers q as it stands.
func (s *Set) decide(q Query) cofferdam.Decision {
	d := cofferdam.Decision{Verdict: cofferdam.Refused, Policy: s.digest, Base: s.base}
	if q.aboutHost() {
		if err := CheckHost(q.Host); err != nil {
			d.Rule, d.Reason, d.Hint = BadName, fmt.Sprintf("%q is refused: %s", shorten(string(q.Host)), err), s.hostHint(q, BadName)
			return d
		}
	}
	if q.Action == Invoke {
		if _, err := flatten(q.Args); err != nil {
			d.Rule, d.Reason, d.Hint = BadArgs, err.Error(), "send arguments that are one plain JSON object"
			return d
		}
	}
	j, would := s.judge(q)
	d.Verdict, d.Rule, d.Would = j.verdict, j.rule, would
	switch {
	case j.verdict == cofferdam.Refused && strings.HasPrefix(j.rule, BadRule):
		d.Rule, d.Reason = BadRule, fmt.Sprintf("rule %q could not be evaluated", strings.TrimPrefix(j.rule, BadRule+":"))
		d.Hint = "the operator has to correct that rule"
	case j.verdict == cofferdam.Refused:
		d.Reason, d.Hint = s.explain(q, j.rule)
	case j.verdict == cofferdam.Asked:
		d.People = j.people
		d.Reason, d.Hint = asked(j.rule)
	default:
		d.Reason = "permitted by rule " + j.rule
	}
	return d
}

func asked(rule string) (reason, hint string) {
	return "a person has to answer, by rule " + rule, "wait for the answer; cofferdam approval list shows the question"
}

// judge asks every layer and returns the most restrictive answer; would is the
// rule by which something that is log-only would have been more so. What a rule
// refuses is not told as what nothing permits, whichever layer says which: see
// inEveryReading.
func (s *Set) judge(q Query) (j judgement, would string) {
	var asks asking
	over := judgement{verdict: cofferdam.Allowed}
	for _, l := range s.layers {
		o := l.judge(q, s.self)
		if rank(o) > rank(over) && !(o.rule == DefaultDeny && s.ours(q)) {
			over = o
		}
		asks = asks.most(o)
		would = l.wouldRefuse(q, s.self, would)
	}
	j = s.core.judge(q, s.self)
	would = s.core.wouldRefuse(q, s.self, would)
	if s.core.observes && j.verdict == cofferdam.Refused && j.rule == DefaultDeny {
		j, would = judgement{verdict: cofferdam.Allowed, rule: "observed"}, DefaultDeny
	}
	asks = asks.most(j)
	if rank(over) > rank(j) || over.verdict == cofferdam.Refused && rank(over) == rank(j) {
		j = over
	}
	if j.verdict == cofferdam.Asked {
		j.people = asks.people
	}
	j.asks = asks
	if s.opened != nil && j.verdict != cofferdam.Allowed && !j.denied() && !s.Locked(q) {
		if g := s.opened.judge(q, s.self); g.verdict == cofferdam.Allowed && s.enough(g.rule, asks.people) {
			return g, would
		}
	}
	return j, would
}

// ours says whether q is about a name of our own gateways: lists of hosts are
// about others, so that one which does not name ours does not refuse them.
func (s *Set) ours(q Query) bool {
	return q.Action == Resolve && (strings.HasSuffix("."+string(q.Host), ownSuffix) || s.grant.Provider != "" && q.Host == s.grant.Provider)
}

// enough says whether as many people opened something as a rule wants for it.
func (s *Set) enough(rule string, people int) bool {
	g, _ := s.Opening(rule)
	return max(g.People, 1) >= people
}

// Locked says whether q is denied, or beyond a limit of the organisation's or of a
// class. Denied is what a rule refuses, beyond a limit what none of its entries
// covers; what is neither, and is refused because nothing permits it, or asked
// about, a person's answer opens.
func (s *Set) Locked(q Query) bool {
	if s.core.judge(q, s.self).denied() {
		return true
	}
	for _, l := range s.layers {
		j := l.judge(q, s.self)
		if j.denied() || j.verdict == cofferdam.Refused && l.locks {
			return true
		}
	}
	return false
}

// Bounds returns the name of the layer whose list leaves q out, so that no rule of
// a project can let it pass: the organisation's limit, the class of a document, a
// task's scope or the repository's file; "" if there is none.
func (s *Set) Bounds(q Query) string {
	for _, l := range s.layers {
		if j := l.judge(q, s.self); j.verdict == cofferdam.Refused && j.rule == DefaultDeny && !s.ours(q) {
			return l.name
		}
	}
	return ""
}

func (l *layer) wouldRefuse(q Query, self cedar.Entity, before string) string {
	if before != "" || l.quiet == nil {
		return before
	}
	if j := l.quiet.judge(q, self); j.verdict == cofferdam.Refused || j.verdict == cofferdam.Asked {
		return j.rule
	}
	return ""
}

// rank orders answers: the higher one counts.
func rank(j judgement) int {
	switch {
	case j.denied():
		return 3
	case j.verdict == cofferdam.Refused:
		return 2
	case j.verdict == cofferdam.Asked:
		return 1
	}
	return 0
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
