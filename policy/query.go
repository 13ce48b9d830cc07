package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// Bounds of a tool's arguments as policy sees them. What is beyond is refused,
// since a rule about a part that was left out would not hold.
const (
	maxArgs  = 256 << 10 // bytes of JSON
	maxTags  = 4096      // values in it
	maxDepth = 64
)

func (q Query) aboutHost() bool { return sectionOf(q.Action) == Egress }

// request is what Cedar is asked; schema.cedarschema has its types.
func (q Query) request(principal, resource cedar.EntityUID) cedar.Request {
	return cedar.Request{
		Principal: principal,
		Action:    cedar.NewEntityUID("Action", cedar.String(q.Action)),
		Resource:  resource,
		Context:   cedar.NewRecord(q.context()),
	}
}

// context is the same for every action, so that a rule of an operator's about
// one of its fields can be asked about all: what is not there has its zero value.
func (q Query) context() cedar.RecordMap {
	return cedar.RecordMap{
		"port":   cedar.Long(q.Port),
		"method": cedar.String(q.Method),
		"path":   cedar.String(q.Path),
		"splice": cedar.Boolean(q.Splice),
		"repo":   cedar.NewEntityUID("Repo", cedar.String(q.Repo)),
		"create": cedar.Boolean(q.Create),
		"delete": cedar.Boolean(q.Delete),
		"force":  cedar.Boolean(q.Force),
	}
}

// entity returns what q acts on as Cedar sees it, without its parents.
func (q Query) entity() cedar.Entity {
	name := q.name()
	switch s := sectionOf(q.Action); s {
	case Egress:
		return cedar.Entity{
			UID: cedar.NewEntityUID("Host", cedar.String(q.Host)),
			Attributes: cedar.NewRecord(cedar.RecordMap{
				"name":     cedar.String(q.Host),
				"internal": cedar.Boolean(strings.HasSuffix("."+string(q.Host), ownSuffix)),
			}),
		}
	case Git:
		if q.Action == Fetch {
			return cedar.Entity{UID: cedar.NewEntityUID("Repo", cedar.String(name))}
		}
		return named("Ref", name)
	case Tools:
		e := named("Tool", name)
		server, tool, _ := strings.Cut(name, ":")
		e.Attributes = cedar.NewRecord(cedar.RecordMap{"name": cedar.String(name), "server": cedar.String(server), "tool": cedar.String(tool)})
		if tags, err := flatten(q.Args); err == nil { // judge has looked
			e.Tags = cedar.NewRecord(tags)
		}
		return e
	case "":
		return cedar.Entity{UID: cedar.NewEntityUID("Unknown", cedar.String(name))}
	default:
		return named(sections[s].kind, name)
	}
}

func named(kind, name string) cedar.Entity {
	return cedar.Entity{
		UID:        cedar.NewEntityUID(cedar.EntityType(kind), cedar.String(name)),
		Attributes: cedar.NewRecord(cedar.RecordMap{"name": cedar.String(name)}),
	}
}

// flatten returns the arguments of a tool as tags: a.b for the value of b in a,
// a.0 for the first of a list, each as text. Two that would have one name are an
// error, as is what a rule could not see whole.
func flatten(args json.RawMessage) (cedar.RecordMap, error) {
	out := cedar.RecordMap{}
	if len(args) == 0 {
		return out, nil
	}
	if len(args) > maxArgs {
		return nil, fmt.Errorf("the arguments are larger than %d bytes", maxArgs)
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return nil, fmt.Errorf("the arguments are not one JSON value")
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, fmt.Errorf("the arguments are no JSON object")
	}
	return out, flattenInto(out, "", v, 0)
}

func flattenInto(out cedar.RecordMap, at string, v any, depth int) error {
	if depth > maxDepth || len(out) > maxTags {
		return fmt.Errorf("the arguments have more than %d values, or more than %d levels", maxTags, maxDepth)
	}
	below := func(key string) string {
		if at == "" {
			return key
		}
		return at + "." + key
	}
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if err := flattenInto(out, below(key), inner, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		for i, inner := range v {
			if err := flattenInto(out, below(strconv.Itoa(i)), inner, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if _, twice := out[cedar.String(at)]; twice {
		return fmt.Errorf("two arguments are called %q", shorten(at))
	}
	switch v := v.(type) {
	case string:
		out[cedar.String(at)] = cedar.String(v)
	case nil:
		out[cedar.String(at)] = cedar.String("null")
	default:
		out[cedar.String(at)] = cedar.String(fmt.Sprint(v))
	}
	return nil
}
