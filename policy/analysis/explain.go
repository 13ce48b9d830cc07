package analysis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/policy"
)

// Explanation is why a question was answered as it was, and what would change it.
type Explanation struct {
	Schema   string             `json:"schema"` // cofferdam/policy-explanation/v1
	Query    policy.Query       `json:"query"`
	Decision cofferdam.Decision `json:"decision"`
	Layer    string             `json:"layer,omitempty"` // organisation, project, given, task, repository; "": built in or Cedar text
	Entry    string             `json:"entry,omitempty"` // the rule as it was written
	Why      string             `json:"why,omitempty"`   // what its author says
	// Smallest is the least that would have to be written to allow it: an entry
	// of a list, and a rule for this request alone. "" where no rule can.
	Smallest string `json:"smallest,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Next     string `json:"next"` // what to do, for people
}

// Explain asks s and says why.
func Explain(s *policy.Set, q policy.Query) Explanation {
	d := s.Decide(q)
	e := Explanation{Schema: "cofferdam/policy-explanation/v1", Query: q, Decision: d}
	if r, layer, ok := s.Rule(d.Rule); ok {
		e.Layer, e.Entry, e.Why = layer, r.String(), r.Why
	}
	switch {
	case d.Verdict == cofferdam.Allowed:
		e.Next = "nothing: it is allowed"
	case d.Verdict == cofferdam.Asked && q.Action == policy.Land:
		e.Next = fmt.Sprintf("people who have to approve the commit, with cofferdam merge approve TASK: %d", max(1, d.People))
	case d.Verdict == cofferdam.Asked:
		e.Next = "a person answers each time; cofferdam approval list shows what waits"
	case classOf(s, d.Rule) != "":
		e.Layer = classOf(s, d.Rule)
		e.Next = fmt.Sprintf("the class %s leaves it out; an owner can let a wider one count: cofferdam policy class shows them", e.Layer)
	case d.Rule != policy.DefaultDeny:
		e.Next = fmt.Sprintf("no rule can allow it while %s denies it", d.Rule)
	case s.Bounds(q) != "":
		e.Layer = s.Bounds(q)
		e.Next = widen(e.Layer)
	default:
		entry, rule := smallest(q)
		if why := opens(s, q, entry); why != "" {
			e.Next = "no rule for it alone can allow it: " + why
			break
		}
		if opens(s, q, rule) == "" {
			e.Rule = rule
		}
		e.Smallest, e.Next = entry, next(q, entry)
	}
	return e
}

// widen says who can change the list that leaves something out.
func widen(layer string) string {
	switch layer {
	case policy.OrganizationName:
		return "the organisation's limit leaves it out; an owner of it can widen that with cofferdam policy propose --organization"
	case "scope":
		return "the scope of the task leaves it out; give the work to a task with a wider one"
	case "repository":
		return "the list in " + policy.ProjectPath + " of the repository leaves it out; change it there, on the branch that tasks begin from"
	}
	return "the list of the " + layer + " leaves it out"
}

// classOf returns the class that has a rule; "" if none has.
func classOf(s *policy.Set, rule string) string {
	g := s.Grant()
	for _, d := range []*policy.Document{g.Organization, g.Project} {
		if c := d.Class(); c != "" && strings.HasPrefix(rule, c+".") {
			return c
		}
	}
	return ""
}

// opens says why the rules of text, added to the project's, would not allow q; ""
// if they would.
func opens(s *policy.Set, q policy.Query, text string) string {
	if text == "" {
		return ""
	}
	d, err := policy.ParseDocument("smallest", []byte(text), nil)
	if err != nil {
		return "its name cannot be written in a policy"
	}
	g := s.Grant()
	if g.Project != nil {
		whole := *g.Project
		whole.Rules = append(slices.Clone(whole.Rules), d.Rules...)
		d = whole
	}
	g.Project = &d
	trial, err := policy.New(g)
	if err != nil {
		return "there would be too many"
	}
	if v := trial.Decide(q); v.Verdict != cofferdam.Allowed {
		return v.Reason
	}
	return ""
}

// ruleFor returns the rule of the long form that would allow a request and, as far
// as a path can be written in one, nothing else; "" if there is none.
func ruleFor(q policy.Query, entry string) string {
	path := plainPath(q.Path)
	if path == "" || !policy.CheckMethod(q.Method) {
		return ""
	}
	return fmt.Sprintf("[[egress.rule]]\nid = \"new\"\neffect = \"allow\"\nhosts = [%q]\nmethods = [%q]\npaths = [%q]", entry, q.Method, path)
}

// maxPlain bounds the path of a rule, in bytes; policy takes a few more.
const maxPlain = 1000

// plainPath is a path up to what can be read in more than one way, which no rule
// may have in it; a * then stands for the rest.
func plainPath(p string) string {
	end := min(len(p), maxPlain)
	for _, stop := range []int{
		strings.IndexFunc(p, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`?#%;\`, c) }),
		strings.Index(p, "//") + 1, strings.Index(p+"/", "/./") + 1, strings.Index(p+"/", "/../") + 1,
	} {
		if stop > 0 {
			end = min(end, stop)
		}
	}
	switch {
	case !strings.HasPrefix(p, "/"):
		return ""
	case end < len(p):
		return p[:end] + "*"
	}
	return p
}

// smallest returns the entry that would allow q, and the rule of the long form
// that would allow nothing else.
func smallest(q policy.Query) (entry, rule string) {
	switch q.Action {
	case policy.Resolve, policy.Connect, policy.HTTP:
		entry = string(q.Host)
		if q.Port != 0 && !policy.WebPort(q.Port) {
			entry += ":" + strconv.Itoa(int(q.Port))
		}
		if q.Splice {
			entry = "splice:" + entry
		} else if q.Credential {
			entry = policy.CredentialsPrefix + entry
		}
		if q.Action != policy.HTTP {
			return fmt.Sprintf("[egress]\nallow = [%q]", entry), ""
		}
		return fmt.Sprintf("[egress]\nallow = [%q]", entry), ruleFor(q, entry)
	case policy.Fetch, policy.Push:
		return "", "" // one repository and one branch, by what the task is
	case policy.Call:
		return fmt.Sprintf("[model]\nallow = [%q]", q.Model), ""
	case policy.Land:
		return fmt.Sprintf("[merge]\nallow = [%q]", string(q.Ref)), ""
	case policy.Invoke:
		return fmt.Sprintf("[tool]\nallow = [%q]", q.Name), ""
	case policy.Use:
		return fmt.Sprintf("[secret]\nallow = [%q]", q.Name), ""
	case policy.Run:
		return fmt.Sprintf("[exec]\nallow = [%q]", q.Name), ""
	case policy.Read, policy.Write:
		return fmt.Sprintf("[file]\nallow = [%q]", q.Action+":"+q.Name), ""
	case policy.Expose:
		return fmt.Sprintf("[port]\nallow = [%q]", q.Name), ""
	case policy.Fork, policy.Restore:
		return fmt.Sprintf("[box]\nallow = [%q]", q.Action+":"+q.Name), ""
	}
	return "", ""
}

func next(q policy.Query, entry string) string {
	switch {
	case entry == "":
		return "no rule can allow it: it is not part of the task"
	case q.Action == policy.Resolve || q.Action == policy.Connect || q.Action == policy.HTTP:
		host := string(q.Host)
		if q.Port != 0 && !policy.WebPort(q.Port) {
			host += ":" + strconv.Itoa(int(q.Port))
		}
		if q.Credential {
			host = policy.CredentialsPrefix + host
		}
		return "for one task: cofferdam task run --allow " + host + " …, or, while it runs, cofferdam approval open TASK " + host + "; for all: add the entry to a file of the policy and give it to cofferdam policy propose"
	}
	return "add the entry to a file of the policy and give it to cofferdam policy propose"
}
