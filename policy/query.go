package policy

import (
	"strings"

	"github.com/cedar-policy/cedar-go"
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

		"credential": cedar.Boolean(q.Credential),
		"repo":       cedar.NewEntityUID("Repo", cedar.String(q.Repo)),
		"create":     cedar.Boolean(q.Create),
		"delete":     cedar.Boolean(q.Delete),
		"force":      cedar.Boolean(q.Force),
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
