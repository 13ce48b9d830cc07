package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
)

// Caps of a policy. They bound what one task may ask for, far above any real
// list; a policy that does not fit is refused, never cut.
const (
	maxRules    = 10_000
	maxOperator = 64 << 10 // bytes of operator Cedar text
)

// Rule is one entry of a list. The zero Section is Egress, the zero Effect Allow.
type Rule struct {
	ID      string   `json:"id"`                // allow-1, acme.egress.deny-2, acme.issues: what a Decision names
	Section Section  `json:"section,omitempty"` // whose grammar Pattern has
	Action  string   `json:"action,omitempty"`  // the only one that is meant; "": all of the section
	Effect  Effect   `json:"effect,omitempty"`
	Pattern string   `json:"pattern"`           // good.test, or *.good.test for every name below it; elsewhere see parseName
	Port    uint16   `json:"port"`              // 0: 80 and 443; of a deny all of them
	Methods []string `json:"methods,omitempty"` // of requests, upper case; none: all
	Paths   []string `json:"paths,omitempty"`   // of requests, * for any text; none: all
	Origin  string   `json:"origin"`            // the entry as it was written: HOST, splice:HOST, credentials:HOST, or preset:NAME
	People  int      `json:"people,omitempty"`  // of an ask: who have to allow it; 0: one
	Splice  bool     `json:"splice,omitempty"`  // TLS passes unseen; see Set.Splices

	// Credentials lets requests carry what the box itself has to prove by: keys,
	// tokens, passwords. Without it they are refused there.
	Credentials bool `json:"credentials,omitempty"`

	Mode Mode   `json:"mode,omitempty"` // LogOnly: it refuses nothing, but says so
	Why  string `json:"why,omitempty"`  // for people
}

func (r Rule) section() Section { return cmp.Or(r.Section, Egress) }

func (r Rule) effect() Effect { return cmp.Or(r.Effect, Allow) }

// conditions says whether r is about some requests alone.
func (r Rule) conditions() bool { return len(r.Methods) > 0 || len(r.Paths) > 0 }

// splicePrefix marks an entry whose TLS passes unseen.
const splicePrefix = "splice:"

// CredentialsPrefix marks an entry whose requests may carry credentials of the box.
const CredentialsPrefix = "credentials:"

// String returns the rule as a person writes it.
func (r Rule) String() string {
	s := r.Pattern
	if r.Action != "" {
		s = r.Action + ":" + s
	}
	if r.Splice {
		s = splicePrefix + s
	}
	if r.Credentials {
		s = CredentialsPrefix + s
	}
	if r.Port != 0 {
		s += ":" + strconv.Itoa(int(r.Port))
	}
	return s
}

// same says whether r and o open the same, whatever they are called.
func (r Rule) same(o Rule) bool {
	return r.section() == o.section() && r.Action == o.Action && r.Pattern == o.Pattern && r.Port == o.Port && r.Splice == o.Splice && r.Credentials == o.Credentials &&
		slices.Equal(r.Methods, o.Methods) && slices.Equal(r.Paths, o.Paths)
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

// Ports that an entry without a port opens.
const (
	httpPort  = 80
	httpsPort = 443
)

// WebPort says whether port is one that an entry without a port opens.
func WebPort(port uint16) bool { return port == httpPort || port == httpsPort }

// allowsPort says whether port is one that the rule opens.
func (r Rule) allowsPort(port uint16) bool {
	if r.Port == 0 {
		return WebPort(port)
	}
	return r.Port == port
}

// ParseAllow reads an allow list. Each entry is HOST[:PORT], *.HOST[:PORT],
// splice: or credentials: in front of one of these, or preset:NAME; a preset stands for entries
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
				return nil, badEntry(i, entry, err.Error(), "write HOST[:PORT], *.HOST[:PORT], splice:HOST[:PORT], credentials:HOST[:PORT] or preset:NAME")
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
	item, own := strings.CutPrefix(item, CredentialsPrefix)
	item, splice := strings.CutPrefix(item, splicePrefix)
	switch {
	case own && splice:
		return Rule{}, fmt.Errorf("what passes unseen carries any credentials; splice: alone says it")
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
	r := Rule{Pattern: string(cofferdam.ParseHost(host)), Splice: splice, Credentials: own}
	if hasPort {
		n, err := parsePort(port)
		if err != nil {
			return Rule{}, err
		}
		r.Port = n
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

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("the port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

// ruleID is what a person may call a rule.
var ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

// methodText is a method as RFC 9110 has them, in upper case; longer ones than
// any that is registered are refused.
var methodText = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)

// CheckMethod says whether a rule may name the method.
func CheckMethod(m string) bool { return methodText.MatchString(m) }

// maxConditions bounds the methods and the paths of one rule.
const maxConditions = 64

// parseRequests reads which requests a rule is about.
func parseRequests(methods, paths []string) ([]string, []string, error) {
	if len(methods) > maxConditions || len(paths) > maxConditions {
		return nil, nil, fmt.Errorf("it has more than %d methods or paths", maxConditions)
	}
	for _, m := range methods {
		if !methodText.MatchString(m) {
			return nil, nil, fmt.Errorf("methods: %q is no method in upper case", shorten(m))
		}
	}
	for _, p := range paths {
		switch {
		case !strings.HasPrefix(p, "/") || len(p) > maxPattern:
			return nil, nil, fmt.Errorf("paths: %q does not begin with / or is longer than %d bytes", shorten(p), maxPattern)
		case hasDots(p) || strings.ContainsAny(p, "?#%;\\\x7f") || strings.Contains(p, "//") || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c > 0x7e }):
			return nil, nil, fmt.Errorf("paths: %q has what could be read in more than one way: dots, escapes, doubled slashes, a query", shorten(p))
		}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(methods)))
	return sorted, slices.Compact(slices.Sorted(slices.Values(paths))), nil
}
