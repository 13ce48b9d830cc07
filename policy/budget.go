package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cofferdam"
)

// addBudget reads how much a task may ask for at all, in people's units: dollars,
// seconds, bytes. The keys are those of the operator's file.
func (d *Document) addBudget(f map[string]float64) error {
	if len(f) > 0 && d.Name != OrganizationName && d.Name != ProjectName {
		return fmt.Errorf("budget: only the organisation's and the project's documents say this")
	}
	for _, v := range cofferdam.BudgetFields() {
		key := "max_" + v.Key
		n, has := f[key]
		if !has {
			continue
		}
		delete(f, key)
		limit, err := v.Read(n)
		if err != nil {
			return fmt.Errorf("budget.%s: %w; leave it out for no limit", key, err)
		}
		*v.Of(&d.Budget) = limit
	}
	if rest := slices.Sorted(maps.Keys(f)); len(rest) > 0 {
		var known []string
		for _, v := range cofferdam.BudgetFields() {
			known = append(known, "max_"+v.Key)
		}
		return fmt.Errorf("budget.%s: there is no such limit; there are %s", shorten(rest[0]), strings.Join(known, ", "))
	}
	return nil
}

// Most is how much a task may ask for, as d has it: the lowest of all documents that
// say so. whose names the one that the limit of a field comes from.
func (d Documents) Most(f cofferdam.BudgetField) (limit int64, whose string) {
	for _, doc := range []*Document{d.Organization, d.Project} {
		if doc == nil {
			continue
		}
		if n := *f.Of(&doc.Budget); n > 0 && (limit == 0 || n < limit) {
			limit, whose = n, doc.Name
		}
	}
	return limit, whose
}
