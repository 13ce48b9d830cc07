package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
)

// request is what we read of the body of a call.
type request struct {
	Op     string
	Asked  string // the model's id as the box gave it; "" if it gave none
	Stream bool

	output, answers int64  // see ask
	spots           []spot // where in the body the model's id stands
	exit            string // what in it would make the provider reach out; "" for nothing
	dear            string // what in it has a price of its own, which is not the model's; "" for nothing
	uncounted       bool   // a stream that will not say what it used
}

// spot is a value in a body.
type spot struct{ at, end int }

// readRequest reads a call. The body is hostile: what two JSON readers could
// understand differently is refused, so that what is judged is what is meant.
func readRequest(p *protocol, c call, body []byte) (request, error) {
	q := request{Op: c.op, Asked: c.model, Stream: c.stream}
	if !c.hasBody() {
		if len(body) > 0 {
			return q, invalid("models are listed without a body", "send none")
		}
		return q, nil
	}
	o, err := readJSON(body)
	if err != nil {
		return q, err
	}
	if err := q.findModel(p, o); err != nil {
		return q, err
	}
	if p.name != gemini {
		q.Stream = o.get("stream").isTrue()
	}
	q.output, q.answers = outputBound(q.Op, o)
	q.dear = dearer(o)
	q.uncounted = q.Op == opChat && q.Stream && !o.get("streamoptions").get("includeusage").isTrue()
	for _, find := range []func(*node) string{func(*node) string { return searching(q.Asked) }, proxied, p.exits} {
		if q.exit = find(o); q.exit != "" {
			break
		}
	}
	return q, nil
}

// findModel finds the model's id. Gemini has it in the path, and may have it in
// the body once more; they must agree.
func (q *request) findModel(p *protocol, o *node) error {
	objects := []*node{o}
	if p.name == gemini {
		objects = append(objects, o.get("generatecontentrequest"))
	}
	for _, o := range objects {
		n := o.get("model")
		if n == nil || n.kind == 'n' {
			continue
		}
		id, ok := n.text()
		if !ok {
			return invalid("the model's id is not text", "give it as a string")
		}
		if p.name == gemini {
			if strings.TrimPrefix(id, "models/") != q.Asked {
				return invalid(fmt.Sprintf("the path asks for the model %.100q and the body for %.100q", q.Asked, id), "name one model")
			}
		}
		q.Asked = strings.TrimPrefix(id, "models/")
		if p.name != gemini {
			q.Asked = id
		}
		q.spots = append(q.spots, spot{n.at, n.at + len(n.raw)})
	}
	if len(q.Asked) > maxModelID {
		return invalid(fmt.Sprintf("the model's id is longer than %d bytes", maxModelID), "name a model")
	}
	return nil
}

// maxModelID bounds a model's id.
const maxModelID = 256

// RulePath is the rule by which a path is refused that no protocol of ours has.
const RulePath = "no-such-path"

// RuleModel is the rule by which a call for a model is refused that the
// operator's list does not have.
const RuleModel = "model-not-allowed"

// resolve returns the id that a provider is asked for instead of asked, and
// whether its list has it. The target of an alias is what is judged.
func resolve(m cofferdam.Model, asked string) (target string, allowed bool) {
	target = asked
	if to, ok := m.Alias[asked]; ok {
		target = to
	}
	return target, len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, func(p string) bool { return matches(p, target) })
}

// notAllowed says which models may be asked for, for the refusal.
func notAllowed(m cofferdam.Model, asked, target string) (reason, hint string) {
	reason = fmt.Sprintf("the model %.100q is not on the list of %s", target, m.Name)
	switch {
	case asked == "":
		reason = "the request names no model, and " + m.Name + " has a list of those that may be asked for"
	case target != asked:
		reason += fmt.Sprintf(" (asked for as %.100q)", asked)
	}
	hint = "allowed: " + short(m.Allow)
	if len(m.Alias) > 0 {
		var names []string
		for name := range m.Alias {
			names = append(names, name)
		}
		slices.Sort(names)
		hint += "; also as: " + short(names)
	}
	return reason, hint
}

// short lists some of many names.
func short(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// rename returns body with another model's id in the place of the one that was
// asked for. Nothing else changes.
func (q request) rename(p *protocol, body []byte, target string) []byte {
	if target == q.Asked || len(q.spots) == 0 {
		return body
	}
	var out []byte
	from := 0
	for _, s := range q.spots {
		out = append(out, body[from:s.at]...)
		id := target
		if p.name == gemini && strings.HasPrefix(unquote(body[s.at:s.end]), "models/") {
			id = "models/" + target
		}
		out = append(out, quoted(id)...)
		from = s.end
	}
	return append(out, body[from:]...)
}

// quoted is a text as JSON has it.
func quoted(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("encoding a string: " + err.Error()) // cannot happen: strings always encode
	}
	return text
}

// outputBound reads from a request how long its answer may be at most, and how
// many it asks for. A bound counts as it is written: in another spelling it is
// none to its provider. What makes a call larger counts in every spelling.
func outputBound(op string, o *node) (output, answers int64) {
	switch op {
	case opMessages:
		return o.most("max_tokens"), 1
	case opResponses:
		return o.most("max_output_tokens"), 1
	case opChat:
		return o.most("max_completion_tokens", "max_tokens"), o.loosest("n", "best_of")
	case opGenerate:
		for i, name := range o.names {
			if c := o.list[i]; (name == "generationConfig" || name == "generation_config") && c.kind == '{' {
				output = c.most("maxOutputTokens", "max_output_tokens")
			}
		}
		if c := o.get("generationconfig"); c != nil && c.kind == '{' {
			return output, c.loosest("candidate_count")
		}
	}
	return 0, 1
}
