package policy

import (
	"fmt"
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
		return s.hostReason(q, rule), s.hostHint(q)
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
	if ports := s.ports(q.Host); q.Port != 0 && len(ports) > 0 {
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
	for _, i := range s.hosts.candidates(string(host)) {
		if p := s.grant.Allow[i].Port; p != 0 {
			out = append(out, strconv.Itoa(int(p)))
		} else {
			out = append(out, "80", "443")
		}
	}
	return out
}

func (s *Set) hostHint(q Query) string {
	var b strings.Builder
	if len(s.grant.Allow) == 0 {
		b.WriteString("no host is allowed")
	} else {
		b.WriteString("allowed: ")
		for i, r := range s.grant.Allow {
			if i == shownRules {
				fmt.Fprintf(&b, " and %d more", len(s.grant.Allow)-i)
				break
			}
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(r.String())
		}
	}
	if CheckHost(q.Host) == nil && !strings.HasSuffix("."+string(q.Host), ownSuffix) {
		entry := string(q.Host)
		if q.Port != 0 && q.Port != 80 && q.Port != 443 {
			entry += ":" + strconv.Itoa(int(q.Port))
		}
		if s.grant.Run {
			b.WriteString("; a person can type: cofferdam run --allow " + entry + " -- COMMAND")
		} else {
			b.WriteString("; a person can start the task with --allow " + entry)
		}
	}
	return b.String()
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
