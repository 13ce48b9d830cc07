package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
)

// Caps of a policy. They bound what one task may ask for, far above any real
// list; a policy that does not fit is refused, never cut.
const (
	maxRules    = 4096
	maxOperator = 64 << 10 // bytes of operator Cedar text
)

// Rule is one entry of an allow list.
type Rule struct {
	ID      string `json:"id"`               // allow-1, allow-2, …: what a Decision names
	Pattern string `json:"pattern"`          // good.test, or *.good.test for every name below it
	Port    uint16 `json:"port"`             // 0: 80 and 443
	Origin  string `json:"origin"`           // the entry as it was written: [splice:]HOST, or preset:NAME
	Splice  bool   `json:"splice,omitempty"` // TLS passes unseen; see Set.Splices
}

// splicePrefix marks an entry whose TLS passes unseen.
const splicePrefix = "splice:"

// String returns the rule as a person writes it.
func (r Rule) String() string {
	s := r.Pattern
	if r.Splice {
		s = splicePrefix + s
	}
	if r.Port != 0 {
		s += ":" + strconv.Itoa(int(r.Port))
	}
	return s
}

// same says whether r and o open the same, whatever they are called.
func (r Rule) same(o Rule) bool {
	return r.Pattern == o.Pattern && r.Port == o.Port && r.Splice == o.Splice
}

// moreSpecific orders rules that match the same host, the closest first: a name
// before a wildcard, a longer wildcard before a shorter one, and of two alike
// the one that is read before the one that is not. Ports do not count: if they
// did, narrowing could turn a host that is read into one that is not.
func moreSpecific(r, o Rule) int {
	return cmp.Or(
		compare(strings.HasPrefix(r.Pattern, "*"), strings.HasPrefix(o.Pattern, "*")),
		cmp.Compare(len(o.Pattern), len(r.Pattern)),
		compare(r.Splice, o.Splice),
	)
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// allowsPort says whether port is one that the rule opens; a rule without a
// port opens those of the web.
func (r Rule) allowsPort(port uint16) bool {
	if r.Port == 0 {
		return port == 80 || port == 443
	}
	return r.Port == port
}

// ParseAllow reads an allow list. Each entry is HOST[:PORT], *.HOST[:PORT],
// splice: in front of one of these, or preset:NAME; a preset stands for entries
// of the other forms. An empty list allows nothing. An entry that cannot be read is an Invalid error: a list
// that is not understood must never be taken for a shorter one, or for all.
func ParseAllow(list []string, presets map[string][]string) ([]Rule, error) {
	var rules []Rule
	for i, entry := range list {
		items, origin := []string{entry}, entry
		if name, ok := strings.CutPrefix(entry, "preset:"); ok {
			known, found := presets[name]
			if !found {
				return nil, badEntry(i, entry, "there is no such preset on this machine", presetHint(presets))
			}
			items = known
		}
		for _, item := range items {
			r, err := parseRule(item)
			if err != nil {
				return nil, badEntry(i, entry, err.Error(), "write HOST[:PORT], *.HOST[:PORT], splice:HOST[:PORT] or preset:NAME")
			}
			r.Origin = origin
			if !slices.ContainsFunc(rules, r.same) {
				rules = append(rules, r)
			}
		}
		if len(rules) > maxRules {
			return nil, badEntry(i, entry, fmt.Sprintf("the list has more than %d rules", maxRules), "allow a wildcard, such as *.example.com, in place of many names")
		}
	}
	return number(rules), nil
}

func badEntry(i int, entry, reason, hint string) error {
	return &cofferdam.Error{
		Op: "policy.ParseAllow", Kind: cofferdam.Invalid,
		Subject: fmt.Sprintf("allow list, entry %d (%q)", i+1, shorten(entry)), Reason: reason, Hint: hint,
	}
}

// shorten keeps hostile or huge values readable in an error.
func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

func presetHint(presets map[string][]string) string {
	if len(presets) == 0 {
		return "this machine has no presets; list the hosts themselves"
	}
	names := make([]string, 0, len(presets))
	for n := range presets {
		names = append(names, "preset:"+n)
	}
	slices.Sort(names)
	return "presets here: " + strings.Join(names, ", ")
}

// number gives rules their ids, in order.
func number(rules []Rule) []Rule {
	for i := range rules {
		rules[i].ID = "allow-" + strconv.Itoa(i+1)
	}
	return rules
}

func parseRule(item string) (Rule, error) {
	item, splice := strings.CutPrefix(item, splicePrefix)
	switch {
	case item == "":
		return Rule{}, fmt.Errorf("it is empty, which could be read as everything or as nothing")
	case strings.Contains(item, "://"):
		return Rule{}, fmt.Errorf("it has a scheme; only a host and a port are meant here")
	case strings.ContainsAny(item, "/?#@"):
		return Rule{}, fmt.Errorf("it has a path or a user; only a host and a port are meant here")
	case strings.ContainsAny(item, "[]") || strings.Count(item, ":") > 1:
		return Rule{}, fmt.Errorf("it is an address, and only names are allowed")
	}
	host, port, hasPort := strings.Cut(item, ":")
	r := Rule{Pattern: string(cofferdam.ParseHost(host)), Splice: splice}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return Rule{}, fmt.Errorf("the port is not a number from 1 to 65535")
		}
		r.Port = uint16(n)
	}
	name, wild := strings.CutPrefix(r.Pattern, "*.")
	if strings.Contains(name, "*") {
		return Rule{}, fmt.Errorf("a * may only stand for whole labels in front, as in *.example.com")
	}
	if wild && !strings.Contains(name, ".") {
		return Rule{}, fmt.Errorf("*.%s covers a whole top-level domain", name)
	}
	if err := CheckHost(cofferdam.Host(name)); err != nil {
		return Rule{}, err
	}
	if strings.HasSuffix("."+name, ownSuffix) {
		return Rule{}, fmt.Errorf("names below cofferdam.internal belong to the gateways")
	}
	return r, nil
}

// index finds the rules that could match a host by map look-ups alone: one for
// the name itself and one for each of its suffixes, however many rules there
// are.
type index struct {
	exact, below map[string][]int // positions in Set.rules
}

func newIndex(rules []Rule) index {
	x := index{exact: map[string][]int{}, below: map[string][]int{}}
	for i, r := range rules {
		if name, wild := strings.CutPrefix(r.Pattern, "*."); wild {
			x.below[name] = append(x.below[name], i)
		} else {
			x.exact[r.Pattern] = append(x.exact[r.Pattern], i)
		}
	}
	return x
}

// candidates returns the positions of the rules whose pattern matches host,
// whatever their port.
func (x index) candidates(host string) []int {
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
