package seatbelt_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cofferdam/sandbox/seatbelt"
)

// expr is an expression of a profile: a list, or a word. Texts in quotes begin
// with a quote, regular expressions with a hash and a quote.
type expr struct {
	word string
	list []expr
}

// read reads a whole profile. It is strict: what it does not know ends the test.
func read(t *testing.T, text string) (all []expr) {
	t.Helper()
	var open []expr
	add := func(e expr) {
		if len(open) == 0 {
			all = append(all, e)
			return
		}
		open[len(open)-1].list = append(open[len(open)-1].list, e)
	}
	token := regexp.MustCompile(`^(?:\(|\)|#"[^"]*"|"(?:[^"\\]|\\.)*"|[a-z][a-z0-9*-]*|[0-9]+)`)
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimLeft(text, " \n") {
		w := token.FindString(text)
		if w == "" {
			t.Fatalf("not read: %.60q", text)
		}
		text = text[len(w):]
		switch w {
		case "(":
			open = append(open, expr{})
		case ")":
			if len(open) == 0 {
				t.Fatal("a parenthesis too many")
			}
			last := open[len(open)-1]
			open = open[:len(open)-1]
			add(last)
		default:
			add(expr{word: w})
		}
	}
	if len(open) != 0 {
		t.Fatal("a parenthesis is not closed")
	}
	return all
}

// rule is one rule of a profile.
type rule struct {
	allow      bool
	operations []string
	filters    []expr
}

// rules reads the rules of a profile, whose first expression is its version.
func rules(t *testing.T, text string) (all []rule) {
	t.Helper()
	for i, e := range read(t, text) {
		if i == 0 {
			if fmt.Sprint(e) != "{ [{version []} {1 []}]}" {
				t.Fatalf("version: %v", e)
			}
			continue
		}
		r := rule{allow: e.list[0].word == "allow"}
		if !r.allow && e.list[0].word != "deny" {
			t.Fatalf("neither allow nor deny: %v", e)
		}
		for _, part := range e.list[1:] {
			switch {
			case part.list != nil:
				r.filters = append(r.filters, part)
			case len(r.filters) == 0:
				r.operations = append(r.operations, part.word)
			default:
				t.Fatalf("an operation behind filters: %v", e)
			}
		}
		if len(r.operations) == 0 {
			t.Fatalf("no operation: %v", e)
		}
		all = append(all, r)
	}
	return all
}

// judge says what a list of rules makes of an operation on an object: the last
// rule that matches counts.
func judge(t *testing.T, all []rule, params map[string]string, operation, object string) bool {
	t.Helper()
	allowed := false
	for _, r := range all {
		if slices.ContainsFunc(r.operations, func(o string) bool {
			prefix, wild := strings.CutSuffix(o, "*")
			return o == "default" || o == operation || wild && strings.HasPrefix(operation, prefix)
		}) && (r.filters == nil || slices.ContainsFunc(r.filters, func(f expr) bool { return matches(t, f, params, object) })) {
			allowed = r.allow
		}
	}
	return allowed
}

// compiled are the regular expressions that were met.
var compiled = map[string]*regexp.Regexp{}

func matches(t *testing.T, f expr, params map[string]string, object string) bool {
	t.Helper()
	text := func(e expr) string {
		if len(e.list) == 2 && e.list[0].word == "param" {
			v, ok := params[strings.Trim(e.list[1].word, `"`)]
			if !ok {
				t.Fatalf("no parameter %v", e)
			}
			return v
		}
		return strings.Trim(strings.TrimPrefix(e.word, "#"), `"`)
	}
	switch name, last := f.list[0].word, text(f.list[len(f.list)-1]); name {
	case "literal", "global-name", "sysctl-name", "ipc-posix-name", "target":
		return object == last || name == "target" && object == f.list[1].word
	case "subpath":
		return object == last || strings.HasPrefix(object, last+"/")
	case "sysctl-name-prefix":
		return strings.HasPrefix(object, last)
	case "regex", "ipc-posix-name-regex":
		if compiled[last] == nil {
			compiled[last] = regexp.MustCompile(last)
		}
		return compiled[last].MatchString(object)
	case "remote":
		return f.list[1].word == "tcp" && object == last
	default:
		t.Fatalf("an unknown filter %v", f)
		return false
	}
}

// params are those of a profile by their names.
func params(p seatbelt.Profile) map[string]string {
	all := map[string]string{}
	for _, v := range p.Params {
		name, path, _ := strings.Cut(v, "=")
		all[name] = path
	}
	return all
}
