package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
)

// shownRules is how many allow rules a hint lists before it counts the rest.
const shownRules = 6

// explain says in two sentences why q was refused by rule and what would be
// allowed instead.
func (s *Set) explain(q Query, rule string) (reason, hint string) {
	switch q.Action {
	case Resolve, Connect, HTTP:
		return s.hostReason(q, rule), s.hostHint(q, rule)
	case Fetch:
		return "this session may read one repository, and this is another", "only the task's own repository can be read"
	case Push:
		return s.pushReason(q, rule), s.pushHint()
	case Call:
		if s.grant.Model == "" {
			return "this session may not call a model", "start the task with --model NAME"
		}
		return fmt.Sprintf("this session may not call %q", shorten(q.Model)), fmt.Sprintf("the model of this task is %q", s.grant.Model)
	}
	if sectionOf(q.Action) != "" {
		return fmt.Sprintf("%s %q is refused by rule %q", q.Action, shorten(q.name()), rule), "a person can allow it in the policy of the project"
	}
	return fmt.Sprintf("the action %q is unknown", shorten(q.Action)), "nothing of that kind is allowed"
}

func (s *Set) hostReason(q Query, rule string) string {
	to := string(q.Host)
	if q.Port != 0 {
		to += ":" + strconv.Itoa(int(q.Port))
	}
	if rule != DefaultDeny {
		return fmt.Sprintf("%s is refused by rule %q", to, rule)
	}
	ports := s.ports(q.Host)
	if bare := q; q.Credential {
		bare.Credential = false
		if j, _ := s.judge(bare); j.verdict != cofferdam.Refused {
			return fmt.Sprintf("%s of %s%s is refused: it carries a key, token or password of the box's own, and this %s may send none there", shorten(q.Method), to, shorten(q.Path), s.subject())
		}
	}
	if q.Action == HTTP && slices.Contains(ports, strconv.Itoa(int(q.Port))) {
		return fmt.Sprintf("%s of %s%s is refused: this %s may send only some requests there", shorten(q.Method), to, shorten(q.Path), s.subject())
	}
	if q.Port != 0 && len(ports) > 0 {
		return fmt.Sprintf("%s is refused: this %s may reach %s only on port %s", to, s.subject(), q.Host, strings.Join(ports, ", "))
	}
	return fmt.Sprintf("%s is refused: it is not on this %s's list of allowed hosts", to, s.subject())
}

// subject is what the policy is of, as the person who asked for it says.
func (s *Set) subject() string {
	if s.grant.Run {
		return "run"
	}
	return "task"
}

// ports lists the ports on which rules open host.
func (s *Set) ports(host cofferdam.Host) []string {
	var out []string
	for _, i := range s.core.index.hosts(string(host)) {
		if s.core.rules[i].effect() != Allow {
			continue
		}
		if p := s.core.rules[i].Port; p != 0 {
			out = append(out, strconv.Itoa(int(p)))
		} else {
			out = append(out, strconv.Itoa(httpPort), strconv.Itoa(httpsPort))
		}
	}
	return out
}

// hints are what refusals say of all hosts, made once: a policy may have thousands.
type hints struct {
	allowed string
	limits  []limits
}

// limits are the hosts that a document lets a task be given.
type limits struct {
	name  string
	rules []Rule
	index index
}

func (g Grant) hints() hints {
	h := hints{allowed: g.allowed()}
	for _, d := range []*Document{g.Organization, g.Project} {
		if d == nil {
			continue
		}
		for _, over := range []*Document{d, d.Base} {
			if over != nil && slices.Contains(over.Limits, Egress) {
				rules := over.with(Limit, Allow)
				h.limits = append(h.limits, limits{d.Name, rules, newIndex(rules)})
			}
		}
	}
	return h
}

func (g Grant) allowed() string {
	hosts := g.Hosts()
	if len(hosts) == 0 {
		return "no host is allowed"
	}
	var names []string
	for _, r := range hosts[:min(len(hosts), shownRules)] {
		names = append(names, r.String())
	}
	text := "allowed: " + strings.Join(names, ", ")
	if more := len(hosts) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// beyond names the document that does not let a task have the host of r; "" if
// there is none.
func (h hints) beyond(r Rule) string {
	for _, l := range h.limits {
		if !slices.ContainsFunc(l.index.hosts(r.Pattern), func(i int) bool { return l.rules[i].Covers(r) }) {
			return l.name
		}
	}
	return ""
}

// hostHint says what may be reached, and who can change the answer about q.
func (s *Set) hostHint(q Query, rule string) string {
	if CheckHost(q.Host) != nil || strings.HasSuffix("."+string(q.Host), ownSuffix) {
		return s.hints.allowed
	}
	r := Rule{Pattern: string(q.Host), Credentials: q.Credential}
	if !WebPort(q.Port) {
		r.Port = q.Port
	}
	if name := s.hints.beyond(r); name != "" {
		return s.hints.allowed + "; the policy of the " + name + " does not let a task have " + r.String() + ": an owner can change it with cofferdam policy propose"
	}
	if rule != DefaultDeny && !s.grant.Run {
		return s.hints.allowed + "; what a rule denies no --allow opens: an owner can change it with cofferdam policy propose"
	}
	if s.grant.Run {
		return s.hints.allowed + "; a person can type: cofferdam run --allow " + r.String() + " -- COMMAND"
	}
	return s.hints.allowed + "; a person can start the task with --allow " + r.String()
}

func (s *Set) pushReason(q Query, rule string) string {
	ref := shorten(string(q.Ref))
	switch rule {
	case "no-delete":
		return fmt.Sprintf("deleting %s is refused", ref)
	case "no-force":
		return fmt.Sprintf("rewriting %s is refused: the push is not a fast-forward", ref)
	}
	return fmt.Sprintf("writing %s is refused", ref)
}

func (s *Set) pushHint() string {
	if s.grant.Branch == "" {
		return "this session may not write to the repository"
	}
	return fmt.Sprintf("push to %s; a person merges it from there", s.grant.Branch)
}
