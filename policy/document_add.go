package policy

import "fmt"

// known finds what a document has already, however many rules there are.
type known struct {
	ids    map[string]bool
	rules  map[string]bool
	counts map[string]int // by section and effect
}

func (d *Document) has(id string) bool { return d.known != nil && d.known.ids[id] }

// add numbers r if it has no id, and takes it unless the same is there already.
func (d *Document) add(r Rule) {
	if d.known == nil {
		d.known = &known{map[string]bool{}, map[string]bool{}, map[string]int{}}
	}
	same := fmt.Sprintf("%s %s %q %q %q %d %v %v %q %q", r.Effect, r.Mode, r.section(), r.Action, r.Pattern, r.Port, r.Splice, r.Credentials, r.Methods, r.Paths)
	if r.ID == "" && d.known.rules[same] {
		return
	}
	kind := fmt.Sprintf("%s.%s", r.section(), r.Effect)
	d.known.counts[kind]++
	if r.ID == "" {
		r.ID = fmt.Sprintf("%s.%s-%d", idName(d.Name), kind, d.known.counts[kind])
	}
	if r.Mode == "" {
		r.Mode = Enforce
	}
	d.known.ids[r.ID], d.known.rules[same] = true, true
	d.Rules = append(d.Rules, r)
}
