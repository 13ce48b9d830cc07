package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"cofferdam"
)

// Effect is what a rule does to what it matches.
type Effect string

// The effects. Within one layer a deny beats an ask, and an ask beats an allow;
// what nothing allows is refused.
const (
	Deny  Effect = "deny"
	Ask   Effect = "ask"   // a person answers, each time
	Allow Effect = "allow" // every task of the project has it
	Limit Effect = "limit" // the most that layers below and authors of tasks may be given; without one there is no bound
)

// Mode says whether a rule holds.
type Mode string

// The modes. What LogOnly would refuse passes, and its decision says so.
const (
	Enforce Mode = "enforce"
	LogOnly Mode = "log-only"
)

// Bounds of a document. They are far above any real one; what does not fit is
// refused, never cut. Source: docs/SPECIFICATION.md, "Policy".
const (
	maxDocument = 1 << 20 // bytes
	maxTests    = 1000
)

// Document is a policy as a person wrote it. The format is TOML:
//
//	class = "read-only"            # of those that ship; see Class
//	second_person = true           # of an organisation: who proposes a change does not decide about it
//
//	[egress]                       # and git, model, tool, secret, exec, file, port, box, merge
//	deny  = ["*.paste.example"]    # never, whoever allows it
//	ask   = ["api.example.com"]    # a person answers each time
//	allow = ["preset:npm"]         # every task has it
//	limit = ["*.example.com"]      # the most that a task may be given on top
//
//	[[egress.rule]]                # the long form
//	id = "issues"
//	effect = "allow"
//	hosts = ["api.example.com"]
//	methods = ["GET"]
//	paths = ["/repos/acme/*"]      # * stands for any text
//	people = 2                     # of an ask alone: who have to allow it; 1 if not given
//	mode = "log-only"              # of a deny or ask alone
//	why = "the agent reads issues"
//
//	[[merge.rule]]                 # and of every section but egress: names in the place of hosts
//	id = "main"
//	effect = "ask"
//	names = ["refs/heads/main"]
//	people = 2
//
//	[budget]                       # of the organisation or a project
//	max_cost = 5.00                # US dollars that a task may ask for; docs/models.md has all limits
//
//	[cedar]
//	text = '''forbid (…);'''
//
//	[[test]]                       # checked before the document can be used
//	expect = "allow"               # or deny, ask
//	url = "https://api.example.com/repos/acme/1"
//	method = "GET"                 # or action = "invoke", name = "github:list_issues"
//
// Every key may be left out; an unknown one is an error.
type Document struct {
	Name   string // whose it is: organisation, project, task, repository
	Text   string // as it was written
	Rules  []Rule // in the order of the text; ids are unique in it
	Cedar  string
	Mode   Mode      // LogOnly: what nothing allows passes
	Until  time.Time // LogOnly ends then
	Second bool      // of an organisation: a change needs somebody else than who proposed it
	Tests  []Test
	Allows []Section        // in which it has an allow list, maybe an empty one
	Limits []Section        // in which it has a limit, maybe an empty one
	Budget cofferdam.Budget `json:",omitzero"`  // the most that a task may ask for; zero fields say nothing
	Base   *Document        `json:",omitempty"` // its class; nil for none
	Sealed bool             `json:",omitempty"` // the text of its class is in it
	known  *known           // while it is read
}

// Test is an example beside the rules, with the answer that is expected.
type Test struct {
	Name   string
	Expect Effect // Allow, Ask or Deny
	Query  Query
}

// documentFile is a document as TOML has it.
type documentFile struct {
	Mode   Mode       `toml:"mode"`
	Class  string     `toml:"class"`
	Base   *baseFile  `toml:"base"`
	Second bool       `toml:"second_person"`
	Until  *time.Time `toml:"until"`
	Egress *struct {
		sectionFile
		Rule []ruleFile `toml:"rule"`
	} `toml:"egress"`
	Git    *namesFile         `toml:"git"`
	Model  *namesFile         `toml:"model"`
	Tool   *namesFile         `toml:"tool"`
	Secret *namesFile         `toml:"secret"`
	Exec   *namesFile         `toml:"exec"`
	File   *namesFile         `toml:"file"`
	Port   *namesFile         `toml:"port"`
	Box    *namesFile         `toml:"box"`
	Merge  *namesFile         `toml:"merge"`
	Budget map[string]float64 `toml:"budget"`
	Cedar  struct {
		Text string `toml:"text"`
	} `toml:"cedar"`
	Test []testFile `toml:"test"`
}

type sectionFile struct {
	Deny  []string  `toml:"deny"`
	Ask   []string  `toml:"ask"`
	Allow *[]string `toml:"allow"`
	Limit *[]string `toml:"limit"`
}

// namesFile is a section whose entries are names; its rules are those of egress,
// with names in the place of hosts and requests.
type namesFile struct {
	sectionFile
	Rule []namesRule `toml:"rule"`
}

type namesRule struct {
	ID     string   `toml:"id"`
	Effect Effect   `toml:"effect"`
	Names  []string `toml:"names"`
	People int      `toml:"people"`
	Mode   Mode     `toml:"mode"`
	Why    string   `toml:"why"`
}

type ruleFile struct {
	ID      string   `toml:"id"`
	Effect  Effect   `toml:"effect"`
	Hosts   []string `toml:"hosts"`
	Methods []string `toml:"methods"`
	Paths   []string `toml:"paths"`
	People  int      `toml:"people"`
	Mode    Mode     `toml:"mode"`
	Why     string   `toml:"why"`
}

type testFile struct {
	Name   string `toml:"name"`
	Expect Effect `toml:"expect"`
	Action string `toml:"action"`
	URL    string `toml:"url"`
	Method string `toml:"method"`
	On     string `toml:"on"` // what an action about no host is asked of
}

// ParseDocument reads a document. name says whose it is and stands in ids and
// answers. An error names the key and its line.
func ParseDocument(name string, text []byte, presets map[string][]string) (Document, error) {
	d := Document{Name: name, Text: string(text)}
	if len(text) > maxDocument {
		return d, badDocument(name, fmt.Sprintf("it is larger than %d bytes", maxDocument), nil)
	}
	var f documentFile
	dec := toml.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return d, badDocument(name, tomlReason(err), err)
	}
	d.Cedar, d.Mode, d.Second = f.Cedar.Text, f.Mode, f.Second
	if f.Until != nil {
		d.Until = f.Until.UTC()
	}
	for _, step := range []func() error{
		func() error { return checkKeys(text) },
		func() error { return checkCedar(d.Cedar) },
		func() error { return d.checkMode() },
		func() error { return d.addBase(f.Class, f.Base) },
		func() error { return d.addBudget(f.Budget) },
		func() error { return d.addSections(f, presets) },
		func() error { return d.addTests(f.Test) },
	} {
		if err := step(); err != nil {
			return d, badDocument(name, err.Error(), err)
		}
	}
	d.known = nil
	return d, nil
}

func badDocument(name, reason string, err error) error {
	return &cofferdam.Error{
		Op: "policy.ParseDocument", Kind: cofferdam.Invalid, Subject: "policy of " + name, Reason: reason, Err: err,
		Hint: "cofferdam policy check FILE says what is wrong; docs/policy.md has examples",
	}
}

func (d *Document) checkMode() error {
	switch {
	case d.Second && d.Name != OrganizationName:
		return fmt.Errorf("second_person: only the organisation's document says this")
	case d.Mode == "":
		d.Mode = Enforce
	case d.Mode != Enforce && d.Mode != LogOnly:
		return fmt.Errorf("mode: %q is neither enforce nor log-only", shorten(string(d.Mode)))
	}
	if d.Mode == LogOnly && d.Until.IsZero() {
		return fmt.Errorf("mode: log-only needs until, the time at which it ends")
	}
	if d.Mode == Enforce && !d.Until.IsZero() {
		return fmt.Errorf("until: it says when log-only ends, and the mode is enforce")
	}
	return nil
}

func (d *Document) addSections(f documentFile, presets map[string][]string) error {
	if f.Egress != nil {
		if err := d.addLists(Egress, f.Egress.sectionFile, presets); err != nil {
			return err
		}
		for i, r := range f.Egress.Rule {
			if err := d.addRule(Egress, i, r, presets); err != nil {
				return err
			}
		}
	}
	for _, s := range []struct {
		name Section
		file *namesFile
	}{
		{Git, f.Git},
		{Models, f.Model},
		{Tools, f.Tool},
		{Secret, f.Secret},
		{Exec, f.Exec},
		{Files, f.File},
		{Ports, f.Port},
		{Boxes, f.Box},
		{Merges, f.Merge},
	} {
		if s.file == nil {
			continue
		}
		if err := d.addLists(s.name, s.file.sectionFile, nil); err != nil {
			return err
		}
		for i, r := range s.file.Rule {
			long := ruleFile{ID: r.ID, Effect: r.Effect, Hosts: r.Names, People: r.People, Mode: r.Mode, Why: r.Why}
			if err := d.addRule(s.name, i, long, nil); err != nil {
				return err
			}
		}
	}
	if len(d.Rules) > maxRules {
		return fmt.Errorf("it has more than %d rules", maxRules)
	}
	return nil
}

// addLists adds the four lists of a section.
func (d *Document) addLists(s Section, f sectionFile, presets map[string][]string) error {
	d.note(&d.Allows, s, f.Allow != nil)
	d.note(&d.Limits, s, f.Limit != nil)
	for _, list := range []struct {
		effect  Effect
		entries []string
	}{{Deny, f.Deny}, {Ask, f.Ask}, {Allow, deref(f.Allow)}, {Limit, deref(f.Limit)}} {
		for i, entry := range list.entries {
			rules, err := parseEntry(s, entry, presets)
			if err != nil {
				return fmt.Errorf("%s.%s, entry %d (%q): %w", s, list.effect, i+1, shorten(entry), err)
			}
			for _, r := range rules {
				r.Effect, r.Origin = list.effect, entry
				if err := r.checkEffect(); err != nil {
					return fmt.Errorf("%s.%s, entry %d (%q): %w", s, list.effect, i+1, shorten(entry), err)
				}
				d.add(r)
			}
		}
	}
	return nil
}

func deref(list *[]string) []string {
	if list == nil {
		return nil
	}
	return *list
}

// note adds s to list if there is such a list in the section.
func (d *Document) note(list *[]Section, s Section, there bool) {
	if there && !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// with returns the rules of d that have one of these effects.
func (d *Document) with(effects ...Effect) []Rule {
	var out []Rule
	for _, r := range d.Rules {
		if slices.Contains(effects, r.effect()) {
			out = append(out, r)
		}
	}
	return out
}

// Grants says whether d and its class let a task be given r: the limit covers r,
// or there is none for that section. What d denies is refused later, when it is asked for.
func (d *Document) Grants(r Rule) bool {
	if d.Base != nil && !d.Base.Grants(r) {
		return false
	}
	if !slices.Contains(d.Limits, r.section()) {
		return true
	}
	return slices.ContainsFunc(d.Rules, func(o Rule) bool {
		return (o.effect() == Limit || o.effect() == Allow) && o.covers(r) && o.opens(r)
	})
}

// parseEntry reads one entry of a list; a preset stands for several.
func parseEntry(s Section, entry string, presets map[string][]string) ([]Rule, error) {
	if s != Egress {
		r, err := parseName(s, entry)
		return []Rule{r}, err
	}
	items := []string{entry}
	if name, ok := strings.CutPrefix(entry, "preset:"); ok {
		known, found := presets[name]
		if !found {
			return nil, fmt.Errorf("there is no such preset; %s", presetHint(presets))
		}
		items = known
	}
	var rules []Rule
	for _, item := range items {
		r, err := parseRule(item)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// checkEffect refuses what has no meaning together.
func (r Rule) checkEffect() error {
	if r.Splice && (r.Effect == Deny || r.Effect == Ask) {
		return fmt.Errorf("splice: asks that what is allowed passes unseen; leave it out of a %s", r.Effect)
	}
	if r.Credentials && (r.Effect == Deny || r.Effect == Ask) {
		return fmt.Errorf("credentials: lets what is allowed carry the box's own; leave it out of a %s, which is about all requests", r.Effect)
	}
	return nil
}

// addRule adds a rule of the long form, one for each of its hosts or names.
func (d *Document) addRule(s Section, i int, f ruleFile, presets map[string][]string) error {
	where, key := fmt.Sprintf("%s.rule %d (%q)", s, i+1, shorten(f.ID)), "names"
	if s == Egress {
		key = "hosts"
	}
	switch {
	case f.ID == "" || !ruleID.MatchString(f.ID):
		return fmt.Errorf("%s: it needs an id of 1 to 64 letters, digits and hyphens", where)
	case f.Effect != Deny && f.Effect != Ask && f.Effect != Allow && f.Effect != Limit:
		return fmt.Errorf("%s: effect is deny, ask, allow or limit, not %q", where, shorten(string(f.Effect)))
	case f.Mode != "" && f.Mode != Enforce && f.Mode != LogOnly:
		return fmt.Errorf("%s: mode %q is neither enforce nor log-only", where, shorten(string(f.Mode)))
	case f.Mode == LogOnly && f.Effect != Deny && f.Effect != Ask:
		return fmt.Errorf("%s: only a deny or an ask can be log-only", where)
	case f.People < 0 || f.People > 2 || f.People > 0 && f.Effect != Ask:
		return fmt.Errorf("%s: people is 1 or 2, of an ask alone", where)
	case len(f.Hosts) == 0:
		return fmt.Errorf("%s: %s is missing, which could be read as all or as none", where, key)
	case len(f.Why) > maxPattern:
		return fmt.Errorf("%s: why is longer than %d bytes", where, maxPattern)
	}
	methods, paths, err := parseRequests(f.Methods, f.Paths)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	d.note(&d.Allows, s, f.Effect == Allow)
	d.note(&d.Limits, s, f.Effect == Limit)
	n := 0
	for _, host := range f.Hosts {
		rules, err := parseEntry(s, host, presets)
		if err != nil {
			return fmt.Errorf("%s: %s: %q: %w", where, key, shorten(host), err)
		}
		for _, r := range rules {
			n++
			r.Effect, r.Mode, r.Methods, r.Paths, r.People, r.Why, r.Origin = f.Effect, f.Mode, methods, paths, f.People, f.Why, host
			if r.Splice && (len(methods) > 0 || len(paths) > 0) {
				return fmt.Errorf("%s: %q: methods and paths of what passes unseen cannot be judged", where, shorten(host))
			}
			if err := r.checkEffect(); err != nil {
				return fmt.Errorf("%s: %q: %w", where, shorten(host), err)
			}
			r.ID = idName(d.Name) + "." + f.ID
			if n > 1 {
				r.ID += "-" + fmt.Sprint(n)
			}
			if d.has(r.ID) {
				return fmt.Errorf("%s: another rule has this id", where)
			}
			d.add(r)
		}
	}
	return nil
}
