package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// heads finds Cedar text by its head: (principal, action == …, resource == …).
// What cannot meet a query is not evaluated, and could say nothing of it: a policy
// whose head does not fit neither decides nor fails.
type heads struct {
	any      []int                     // of every action
	actions  map[cedar.EntityUID][]int // of these actions
	resource map[cedar.EntityUID][]int // of one resource, whatever the action
}

// add puts policies after those that l has.
func (l *layer) add(list []entry) {
	for _, e := range list {
		l.heads.add(len(l.fixed), (*ast.Policy)(e.policy.AST()))
		l.fixed = append(l.fixed, e)
	}
}

func (h *heads) add(at int, p *ast.Policy) {
	if h.actions == nil {
		h.actions, h.resource = map[cedar.EntityUID][]int{}, map[cedar.EntityUID][]int{}
	}
	if r, ok := p.Resource.(ast.ScopeTypeEq); ok {
		h.resource[r.Entity] = append(h.resource[r.Entity], at)
		return
	}
	var list []cedar.EntityUID
	switch a := p.Action.(type) {
	case ast.ScopeTypeEq:
		list = []cedar.EntityUID{a.Entity}
	case ast.ScopeTypeIn: // no action is in another one
		list = []cedar.EntityUID{a.Entity}
	case ast.ScopeTypeInSet:
		list = a.Entities
	default:
		h.any = append(h.any, at)
		return
	}
	for i, uid := range list {
		if !slices.Contains(list[:i], uid) {
			h.actions[uid] = append(h.actions[uid], at)
		}
	}
}

// candidates returns the positions of what action on resource can meet, in order.
func (h *heads) candidates(action string, resource cedar.EntityUID) []int {
	found := slices.Concat(h.any, h.actions[cedar.NewEntityUID("Action", cedar.String(action))], h.resource[resource])
	slices.Sort(found)
	return found
}
