package policy

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"cofferdam"
)

// entry is one Cedar policy under the id that decisions name.
type entry struct {
	id     cedar.PolicyID
	policy *cedar.Policy
	asks   int // people who have to allow what it permits; 0: it asks nobody
}

// layer is one part of a Set that is judged by itself.
type layer struct {
	name   string
	closed map[Section]bool // what it does not permit there it refuses; elsewhere it says nothing
	fixed  []entry          // Cedar text that people wrote, and what is built in
	heads  heads            // which of fixed a query can meet
	rules  []Rule
	of     [][]entry // of each rule; only candidates are asked
	index  index
	quiet  *layer // its rules that are log-only; nil for none
	locks  bool   // what it leaves out no answer of a person opens
	// observes: what nothing permits passes, and is said.
	observes bool
}

// newLayer compiles rules and Cedar text. taken has the ids that are used.
func newLayer(name string, rules []Rule, text string, taken map[cedar.PolicyID]bool) (*layer, error) {
	l := &layer{name: name, closed: map[Section]bool{}}
	var quiet []Rule
	for _, r := range rules {
		if r.Mode == LogOnly {
			quiet = append(quiet, r)
			continue
		}
		es, err := parseCedar(r.ID, "", r.cedar(), taken)
		if err != nil {
			return nil, err
		}
		l.rules, l.of = append(l.rules, r), append(l.of, es)
	}
	fixed, err := parseCedar(idName(name), idName(name)+".", text, taken) // as its rules: no document takes another's ids
	if err != nil {
		return nil, err
	}
	l.index = newIndex(l.rules)
	l.add(fixed)
	if len(quiet) > 0 {
		enforced := slices.Clone(quiet)
		for i := range enforced {
			enforced[i].Mode = Enforce
		}
		l.quiet, err = newLayer(name, enforced, "", taken)
	}
	return l, err
}

// judgement is what one layer says of a query.
type judgement struct {
	verdict cofferdam.Verdict // "": nothing
	rule    string
	people  int // who have to allow it, of Asked
	asks    asking
}

// denied says whether a rule refuses it, other than because nothing permits it.
func (j judgement) denied() bool {
	return j.verdict == cofferdam.Refused && j.rule != DefaultDeny
}

// asking is a rule that asks and as many people as it wants, whether it decided or
// not: of several the one that wants most.
type asking struct {
	rule   string
	people int
}

func (a asking) most(j judgement) asking {
	if j.people > a.people {
		return asking{j.rule, j.people}
	}
	return a
}

// judge answers q for the session self.
func (l *layer) judge(q Query, self cedar.Entity) judgement {
	found, on := l.index.candidates(q), q.entity()
	fixed := l.heads.candidates(q.Action, on.UID)
	if len(fixed) == 0 && len(found) == 0 {
		return l.silent(q)
	}
	on.Parents = l.parents(found)
	a := question{layer: l, fixed: fixed, candidates: found, self: self, resource: on}
	verdict, diag := cedar.Authorize(a, a, q.request(self.UID, a.resource.UID))
	switch {
	case len(diag.Errors) > 0:
		// Cedar skips a policy that cannot be evaluated. A forbid that is
		// skipped would let through, so nothing is.
		return judgement{verdict: cofferdam.Refused, rule: BadRule + ":" + string(diag.Errors[0].PolicyID)}
	case len(diag.Reasons) == 0:
		return l.silent(q)
	case verdict != cedar.Allow:
		return judgement{verdict: cofferdam.Refused, rule: string(diag.Reasons[0].PolicyID)}
	}
	j := judgement{verdict: cofferdam.Allowed, rule: string(diag.Reasons[0].PolicyID)}
	for _, r := range diag.Reasons {
		if n := l.asks(r.PolicyID, found); n > j.people { // whoever asks for more counts
			j = judgement{verdict: cofferdam.Asked, rule: string(r.PolicyID), people: n}
		}
	}
	return j
}

func (l *layer) silent(q Query) judgement {
	if l.closed[sectionOf(q.Action)] {
		return judgement{verdict: cofferdam.Refused, rule: DefaultDeny}
	}
	return judgement{}
}

// asks returns how many people have to allow what a policy permits; 0 for none.
func (l *layer) asks(id cedar.PolicyID, candidates []int) int {
	is := func(e entry) bool { return e.id == id }
	for _, i := range candidates {
		if n := slices.IndexFunc(l.of[i], is); n >= 0 {
			return l.of[i][n].asks
		}
	}
	if n := slices.IndexFunc(l.fixed, is); n >= 0 {
		return l.fixed[n].asks
	}
	return 0
}

// parents are the rules whose pattern matches: what a query acts on is a child of
// each.
func (l *layer) parents(candidates []int) cedar.EntityUIDSet {
	var all []cedar.EntityUID
	for _, i := range candidates {
		all = append(all, cedar.NewEntityUID("Rule", cedar.String(l.rules[i].ID)))
	}
	return cedar.NewEntityUIDSet(all...)
}

// question is one query as Cedar sees it: the policies that could matter and
// the two entities it is about.
type question struct {
	layer          *layer
	fixed          []int // positions of Cedar text whose scope it is in
	candidates     []int // positions of rules whose pattern matches
	self, resource cedar.Entity
}

// All yields the policies that could matter for the question.
func (a question) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, i := range a.fixed {
			if e := a.layer.fixed[i]; !yield(e.id, e.policy) {
				return
			}
		}
		for _, i := range a.candidates {
			for _, e := range a.layer.of[i] {
				if !yield(e.id, e.policy) {
					return
				}
			}
		}
	}
}

// Get returns the entities of the question: the session and what it acts on.
func (a question) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch uid {
	case a.self.UID:
		return a.self, true
	case a.resource.UID:
		return a.resource, true
	}
	return cedar.Entity{}, false
}

// index finds the rules that could match by look-ups: for a host one for the
// name itself and one for each of its suffixes, for another name one for it and
// one for each pattern of its section, however many rules there are elsewhere.
type index struct {
	exact, below map[string][]int      // hosts
	names        map[nameKey][]int     // patterns without a *
	patterns     map[Section][]pattern // the others
}

type nameKey struct {
	section Section
	name    string
}

type pattern struct {
	head string // what every match begins with
	rule int
	text string
}

func newIndex(rules []Rule) index {
	x := index{exact: map[string][]int{}, below: map[string][]int{}, names: map[nameKey][]int{}, patterns: map[Section][]pattern{}}
	for i, r := range rules {
		if s := r.section(); s != Egress {
			head, _, open := strings.Cut(r.Pattern, "*")
			if !open {
				x.names[nameKey{s, r.Pattern}] = append(x.names[nameKey{s, r.Pattern}], i)
			} else {
				x.patterns[s] = append(x.patterns[s], pattern{head, i, r.Pattern})
			}
			continue
		}
		if name, wild := strings.CutPrefix(r.Pattern, "*."); wild {
			x.below[name] = append(x.below[name], i)
		} else {
			x.exact[r.Pattern] = append(x.exact[r.Pattern], i)
		}
	}
	return x
}

// candidates returns the positions of the rules whose pattern matches what q is
// about, whatever their port.
func (x index) candidates(q Query) []int {
	s := sectionOf(q.Action)
	if s == Egress {
		return x.hosts(string(q.Host))
	}
	name := q.name()
	found := slices.Clone(x.names[nameKey{s, name}])
	for _, p := range x.patterns[s] {
		if strings.HasPrefix(name, p.head) && matchName(s, p.text, name) {
			found = append(found, p.rule)
		}
	}
	slices.Sort(found)
	return found
}

func (x index) hosts(host string) []int {
	found := slices.Clone(x.exact[host])
	for rest := host; ; {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			break
		}
		found = append(found, x.below[after]...)
		rest = after
	}
	slices.Sort(found)
	return found
}
