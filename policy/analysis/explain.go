package analysis

import (
	"fmt"
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
	case d.Verdict == cofferdam.Asked:
		e.Next = "a person answers each time; cofferdam approval list shows what waits"
	case d.Rule != policy.DefaultDeny:
		e.Next = fmt.Sprintf("no rule can allow it while %s denies it", d.Rule)
	case s.Locked(q):
		e.Layer, e.Next = policy.OrganizationName, "the organisation's limit leaves it out; an owner of it can widen that with cofferdam policy propose --organization"
	default:
		e.Smallest, e.Rule = smallest(q)
		e.Next = next(q, e.Smallest)
	}
	return e
}

// smallest returns the entry that would allow q, and the rule of the long form
// that would allow nothing else.
func smallest(q policy.Query) (entry, rule string) {
	switch q.Action {
	case policy.Resolve, policy.Connect, policy.HTTP:
		entry = string(q.Host)
		if q.Port != 0 && q.Port != 80 && q.Port != 443 {
			entry += ":" + strconv.Itoa(int(q.Port))
		}
		if q.Splice {
			entry = "splice:" + entry
		}
		if q.Action != policy.HTTP {
			return fmt.Sprintf("[egress]\nallow = [%q]", entry), ""
		}
		path, _, _ := strings.Cut(q.Path, "%")
		if path != q.Path {
			path += "*"
		}
		return fmt.Sprintf("[egress]\nallow = [%q]", entry),
			fmt.Sprintf("[[egress.rule]]\nid = \"new\"\neffect = \"allow\"\nhosts = [%q]\nmethods = [%q]\npaths = [%q]", entry, q.Method, path)
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
		if q.Port != 0 && q.Port != 80 && q.Port != 443 {
			host += ":" + strconv.Itoa(int(q.Port))
		}
		return "for one task: cofferdam task run --allow " + host + " …, or, while it runs, cofferdam approval open TASK " + host + "; for all: add the entry to a file of the policy and give it to cofferdam policy propose"
	}
	return "add the entry to a file of the policy and give it to cofferdam policy propose"
}
