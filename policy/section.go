package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Section is the part of a document that one gateway asks about.
type Section string

// The sections. Each has its own grammar of entries and its own actions.
const (
	Egress Section = "egress" // hosts: HOST[:PORT], *.HOST[:PORT], splice: or credentials: before one of these, preset:NAME
	Git    Section = "git"    // fetch:REPO, push:REF
	Models Section = "model"  // names of models
	Tools  Section = "tool"   // SERVER:TOOL
	Secret Section = "secret" // names of secrets
	Exec   Section = "exec"   // who has a command started: agent, check, setup, platform, person
	Files  Section = "file"   // read:PATH, write:PATH
	Ports  Section = "port"   // numbers of ports that are shown to people
	Boxes  Section = "box"    // fork:NAME and restore:NAME of a checkpoint
	Merges Section = "merge"  // full names of refs, land: before it or not
)

// section is what the engine knows of one.
type section struct {
	actions []string // the first is meant where an entry names none and there is one
	kind    string   // the type of its resources in Cedar
	cut     byte     // what a * in a pattern stops at
}

// sections lists all of them. A gateway that is added adds a row here, its
// resource to Query and its types to schema.cedarschema; nothing else decides.
var sections = map[Section]section{
	Egress: {[]string{Resolve, Connect, HTTP}, "Host", '.'},
	Git:    {[]string{Fetch, Push}, "", '/'}, // Repo and Ref
	Models: {[]string{Call}, "Model", '/'},
	Tools:  {[]string{Invoke}, "Tool", ':'},
	Secret: {[]string{Use}, "Secret", '/'},
	Exec:   {[]string{Run}, "Program", '/'},
	Files:  {[]string{Read, Write}, "File", '/'},
	Ports:  {[]string{Expose}, "Port", '/'},
	Boxes:  {[]string{Fork, Restore}, "Box", '/'},
	Merges: {[]string{Land}, "Ref", '/'},
}

// byAction has the section of each action.
var byAction = func() map[string]Section {
	m := map[string]Section{}
	for name, s := range sections {
		for _, a := range s.actions {
			m[a] = name
		}
	}
	return m
}()

// sectionOf returns the section of an action; "" if there is no such action.
func sectionOf(action string) Section { return byAction[action] }

var starters = []string{ByAgent, ByCheck, BySetup, ByPlatform, ByPerson}

// maxPattern bounds a pattern and the text it is compared with, in bytes.
const maxPattern = 1024

// parseName reads an entry of a section other than Egress: [ACTION:]PATTERN. In
// a pattern * stands for any text within one part of a name, and ** at its end
// for all that follows.
func parseName(s Section, entry string) (Rule, error) {
	about := sections[s]
	r := Rule{Section: s, Pattern: entry}
	if len(about.actions) > 1 {
		action, rest, ok := strings.Cut(entry, ":")
		if !ok || !slices.Contains(about.actions, action) {
			return Rule{}, fmt.Errorf("it does not begin with %s:", strings.Join(about.actions, ": or "))
		}
		r.Action, r.Pattern = action, rest
	}
	if s == Merges {
		r.Pattern = strings.TrimPrefix(entry, Land+":")
	}
	p := r.Pattern
	switch {
	case p == "":
		return Rule{}, fmt.Errorf("it is empty, which could be read as everything or as nothing")
	case len(p) > maxPattern:
		return Rule{}, fmt.Errorf("it is longer than %d bytes", maxPattern)
	case strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\ufffd' }):
		return Rule{}, fmt.Errorf("it has a character that cannot be seen")
	case strings.ContainsAny(p, `?[]\`):
		return Rule{}, fmt.Errorf(`only * stands for other text; ? [ ] and \ have no meaning here`)
	case strings.Contains(strings.TrimSuffix(p, "**"), "**"):
		return Rule{}, fmt.Errorf("** may only stand at the end")
	case s == Merges && !strings.HasPrefix(p, "refs/") && !strings.HasPrefix(p, "*"): // it would match nothing, and deny nothing
		return Rule{}, fmt.Errorf("it is no full name of a ref, such as refs/heads/main")
	case s == Exec && !strings.Contains(p, "*") && !slices.Contains(starters, p): // so would this
		return Rule{}, fmt.Errorf("it is none of %s", strings.Join(starters, ", "))
	case s == Files && !strings.HasPrefix(p, "/"):
		return Rule{}, fmt.Errorf("it is no absolute path")
	case s == Files && path.Clean(strings.TrimSuffix(p, "**")) != strings.TrimSuffix(strings.TrimSuffix(p, "**"), "/") && p != "/**":
		return Rule{}, fmt.Errorf("it has dots or doubled slashes")
	}
	return r, nil
}

// Matches says whether r, an entry of a section other than Egress, stands for a
// name.
func (r Rule) Matches(name string) bool {
	return r.section() != Egress && matchName(r.section(), r.Pattern, name)
}

// matchName says whether pattern stands for name, which is compared as it is.
func matchName(s Section, pattern, name string) bool {
	if len(name) > maxPattern {
		return false
	}
	head, open := strings.CutSuffix(pattern, "**")
	return glob(head, name, sections[s].cut, open)
}

// glob matches with * for any text without cut; open takes anything after it. Its
// time is bounded by the product of the lengths: it goes back to the last * alone,
// for where that one stops at a cut, an earlier one would have to pass the same.
func glob(pattern, name string, cut byte, open bool) bool {
	p, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		switch {
		case open && p == len(pattern):
			return true
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0 && name[mark] != cut:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// coversName says whether every name that narrow matches is matched by wide. It
// may say no where the answer is yes, never the other way round.
func coversName(s Section, wide, narrow string) bool {
	if wide == narrow {
		return true
	}
	head, open := strings.CutSuffix(wide, "**")
	if open && !strings.Contains(head, "*") {
		return strings.HasPrefix(narrow, head) && !strings.Contains(narrow[:len(head)], "*")
	}
	if head, one := strings.CutSuffix(wide, "*"); one && !open && !strings.Contains(head, "*") {
		rest, below := strings.CutPrefix(narrow, head)
		return below && !strings.Contains(rest, "**") && strings.IndexByte(rest, sections[s].cut) < 0
	}
	return !strings.Contains(narrow, "*") && matchName(s, wide, narrow)
}
