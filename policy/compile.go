package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// Annotations of permits that a person has to answer, and of how many have to.
const (
	effectNote = "effect"
	peopleNote = "people"
)

// cedar returns the Cedar text that r stands for: one policy, or two for an ask,
// whose host may be known and connected to before anybody is asked about a
// request. The resource is a child of Rule::"ID" where the index says that the
// pattern matches.
func (r Rule) cedar() string {
	if r.section() != Egress {
		return r.cedarOfName()
	}
	note, scope := r.note(), fmt.Sprintf(`resource in Rule::%q`, r.ID)
	at, which := r.port(), r.requests()
	switch r.effect() {
	case Deny:
		if !r.conditions() && r.Port == 0 {
			return fmt.Sprintf("%s forbid (principal, action in %s, %s);", note, actionList(Egress, ""), scope)
		}
		if !r.conditions() {
			return fmt.Sprintf("%s forbid (principal, action in [%s, %s], %s) when { %s };", note, action(Connect), action(HTTP), scope, at)
		}
		return fmt.Sprintf("%s forbid (principal, action in [%s, %s], %s) when { %s && (action == %s && context.splice || action == %s && %s) };",
			note, action(Connect), action(HTTP), scope, at, action(Connect), action(HTTP), which)
	case Ask:
		return fmt.Sprintf("@id(%q) permit (principal, action in [%s, %s], %s) when { action == %s || %s && !context.splice };\n"+
			"%s permit (principal, action in [%s, %s], %s) when { %s && (action == %s && context.splice || action == %s && %s) };",
			r.ID+knownNote, action(Resolve), action(Connect), scope, action(Resolve), at,
			note, action(Connect), action(HTTP), scope, at, action(Connect), action(HTTP), which)
	}
	if !r.Credentials {
		which += " && !context.credential"
	}
	bytes := action(Connect)
	if r.conditions() || !r.Splice { // what does not say so lets nothing pass unseen
		bytes = action(Connect) + " && !context.splice"
	}
	return fmt.Sprintf("%s permit (principal, action in %s, %s) when { action == %s || %s && (action == %s || action == %s && %s) };",
		note, actionList(Egress, ""), scope, action(Resolve), at, bytes, action(HTTP), which)
}

// knownNote ends the id of the permit by which a host that is asked about may be
// known.
const knownNote = ".known"

func (r Rule) cedarOfName() string {
	verb := "permit"
	if r.effect() == Deny {
		verb = "forbid"
	}
	return fmt.Sprintf("%s %s (principal, action in %s, resource in Rule::%q);", r.note(), verb, actionList(r.section(), r.Action), r.ID)
}

func (r Rule) note() string {
	n := fmt.Sprintf("@id(%q)", r.ID)
	if r.effect() == Ask {
		n += fmt.Sprintf(" @%s(%q)", effectNote, Ask)
		if r.People > 1 {
			n += fmt.Sprintf(" @%s(%q)", peopleNote, strconv.Itoa(r.People))
		}
	}
	return n
}

// port is the condition of the ports that r is about.
func (r Rule) port() string {
	switch {
	case r.Port != 0:
		return "context.port == " + strconv.Itoa(int(r.Port))
	case r.effect() == Deny:
		return "true"
	}
	return fmt.Sprintf("[%d, %d].contains(context.port)", httpPort, httpsPort)
}

// requests is the condition of the requests that r is about.
func (r Rule) requests() string {
	var all []string
	if len(r.Methods) > 0 {
		var list []string
		for _, m := range r.Methods {
			list = append(list, strconv.Quote(m))
		}
		all = append(all, "["+strings.Join(list, ", ")+"].contains(context.method)")
	}
	if len(r.Paths) > 0 {
		var list []string
		for _, p := range r.Paths {
			list = append(list, "context.path like "+strconv.Quote(p))
		}
		all = append(all, "("+strings.Join(list, " || ")+")")
	}
	if len(all) == 0 {
		return "true"
	}
	return strings.Join(all, " && ")
}

func action(name string) string { return `Action::"` + name + `"` }

// actionList is that of one action of a section, or of all.
func actionList(s Section, only string) string {
	if only != "" {
		return "[" + action(only) + "]"
	}
	var list []string
	for _, a := range sections[s].actions {
		list = append(list, action(a))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// parseCedar parses text and gives every policy its id: that of its @id
// annotation behind a prefix, or name and its number.
func parseCedar(name, prefix, text string, taken map[cedar.PolicyID]bool) ([]entry, error) {
	list, err := cedar.NewPolicyListFromBytes(name+".cedar", []byte(text))
	if err != nil {
		return nil, err
	}
	var out []entry
	for i, p := range list {
		notes := p.Annotations()
		id := cedar.PolicyID(prefix) + cedar.PolicyID(notes["id"])
		if notes["id"] == "" {
			id = cedar.PolicyID(name + "-" + strconv.Itoa(i+1))
		}
		if taken[id] {
			return nil, fmt.Errorf("%s: the id %q is used twice", name, id)
		}
		if e := Effect(notes[effectNote]); e != "" && (e != Ask || p.Effect() != cedar.Permit) {
			return nil, fmt.Errorf("%s: @%s of %q: only a permit can be one, and only \"ask\"", name, effectNote, id)
		}
		e := entry{id: id, policy: p}
		if Effect(notes[effectNote]) == Ask {
			e.asks = 1
		}
		switch n := notes[peopleNote]; {
		case n == "2" && e.asks > 0:
			e.asks = 2
		case n != "" && (n != "1" || e.asks == 0):
			return nil, fmt.Errorf("%s: @%s of %q: 1 or 2, of a permit that is asked about", name, peopleNote, id)
		}
		taken[id] = true
		out = append(out, e)
	}
	return out, nil
}
