package cli

import (
	"fmt"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/proof"
)

// showTerms prints what bound the work of a receipt and what it took. Of documents
// whose signed versions are known it says which they are.
func (a *app) showTerms(r proof.Receipt, known []proof.PolicyChange) {
	t := r.Terms
	if t == nil { // a receipt of a version before says none of it
		return
	}
	for _, j := range t.Judged {
		fmt.Fprintf(a.Out, "  judged by %s from event %d of session %s on%s\n", clean(short(string(j.Policy))), j.From, clean(screen{a}.shortID(string(j.Session))), clean(documentsOf(j, known)))
	}
	for _, p := range t.Passed {
		by := "people, see approval.answer in the trace"
		if p.By != "" {
			by = p.By
		}
		what := "let pass"
		if p.Opened {
			what = "opened"
		}
		fmt.Fprintf(a.Out, "  %s by %s for question %s: %s, first %s\n", what, clean(by), clean(string(p.Question)), count(p.Acts, "act"), clean(cut(p.First, 100)))
	}
	if c := t.Contract; c != nil {
		fmt.Fprintf(a.Out, "  scope: %s\n", clean(cut(strings.Join(slices.Concat(c.Paths, c.Hosts, c.Tools), ", "), 300)))
	}
	if t.Strays.Refused > 0 {
		fmt.Fprintf(a.Out, "  beyond the scope: %s refused\n", count(t.Strays.Refused, "act"))
	}
	for _, m := range t.Strays.Marked {
		fmt.Fprintf(a.Out, "  beyond the scope: %s\n", clean(cut(m, 300)))
	}
	if limits := limits(t.Budget); limits != "" {
		fmt.Fprintf(a.Out, "  budget: %s\n", limits)
	}
	fmt.Fprintf(a.Out, "  used: model calls %s", spent(t.Used))
	if took := took(t.Used); took != "" {
		fmt.Fprintf(a.Out, ", %s", took)
	}
	fmt.Fprintln(a.Out)
}

// documentsOf names the documents of a policy, by their versions where those are
// known.
func documentsOf(j cofferdam.Judged, known []proof.PolicyChange) string {
	var parts []string
	for _, d := range []struct {
		of     string
		digest cofferdam.Digest
	}{{"organisation", j.Organization}, {"project", j.Project}} {
		if d.digest == "" {
			continue
		}
		name := fmt.Sprintf("the %s's document %s", d.of, short(string(d.digest)))
		for _, k := range known {
			if k.Digest == d.digest && (k.Project == "") == (d.of == "organisation") {
				name = fmt.Sprintf("version %d of the %s's document", k.Version, d.of)
			}
		}
		parts = append(parts, name)
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
