package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// scopes finds Cedar text by its head: (principal, action == …, resource == …).
// What cannot meet a query is not evaluated, and could say nothing of it: a policy
// whose head does not fit neither decides nor fails.
type scopes struct {
	any      []int                     // of every action
	actions  map[cedar.EntityUID][]int // of these actions
	resource map[cedar.EntityUID][]int // of one resource, whatever the action
}

// add puts policies after those that l has.
func (l *layer) add(list []entry) {
	for _, e := range list {
		l.scopes.add(len(l.fixed), (*ast.Policy)(e.policy.AST()))
		l.fixed = append(l.fixed, e)
	}
}

func (s *scopes) add(at int, p *ast.Policy) {
	if s.actions == nil {
		s.actions, s.resource = map[cedar.EntityUID][]int{}, map[cedar.EntityUID][]int{}
	}
	if r, ok := p.Resource.(ast.ScopeTypeEq); ok {
		s.resource[r.Entity] = append(s.resource[r.Entity], at)
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
		s.any = append(s.any, at)
		return
	}
	for i, uid := range list {
		if !slices.Contains(list[:i], uid) {
			s.actions[uid] = append(s.actions[uid], at)
		}
	}
}

// candidates returns the positions of what action on resource can meet, in order.
func (s *scopes) candidates(action string, resource cedar.EntityUID) []int {
	found := slices.Concat(s.any, s.actions[cedar.NewEntityUID("Action", cedar.String(action))], s.resource[resource])
	slices.Sort(found)
	return found
}
