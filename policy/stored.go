package policy

import (
	"slices"

	"cofferdam"
)

// Names of the documents that are kept, for people. In ids of rules, which programs
// read, the first is spelled as everywhere in the API: see idName.
const (
	OrganizationName = "organisation"
	ProjectName      = "project"
)

// idName is how the name of a document begins the ids of its rules.
func idName(name string) string {
	if name == OrganizationName {
		return "organization"
	}
	return name
}

// Digest identifies the text.
func (d *Document) Digest() cofferdam.Digest {
	return textDigest(d.Text)
}

// Documents are those that count for a project: nil where nobody wrote one.
type Documents struct {
	Organization, Project *Document
}

// Under returns g with the documents over it. Entries of its allow list that the
// organisation or the project does not let a task have are taken out and listed
// in Dropped: a document that became narrower ends what it does not cover.
func (g Grant) Under(d Documents) Grant {
	g.Organization, g.Project = d.Organization, d.Project
	var kept []Rule
	g.Dropped, g.Read = slices.Clone(g.Dropped), slices.Clone(g.Read)
	for _, r := range g.Allow {
		if g.beyond(r) == "" {
			kept = append(kept, r)
		} else {
			g.Dropped = append(g.Dropped, r)
			g.Read = read(g.Read, r)
		}
	}
	g.Allow = number(kept)
	return g
}

// read adds r to list unless it splices.
func read(list []Rule, r Rule) []Rule {
	if r.Splice {
		return list
	}
	return append(list, r)
}

// Beyond returns the first entry of list that a document of d does not let a task
// have, with the name of that document; "" if it may have all.
func (d Documents) Beyond(list []Rule) (Rule, string) {
	g := Grant{Organization: d.Organization, Project: d.Project}
	for _, r := range list {
		if name := g.beyond(r); name != "" {
			return r, name
		}
	}
	return Rule{}, ""
}

// beyond names the document that does not let a task have r; "" for none.
func (g Grant) beyond(r Rule) string {
	for _, d := range []*Document{g.Organization, g.Project} {
		if d != nil && !d.Grants(r) {
			return d.Name
		}
	}
	return ""
}

// written are the hosts that documents give to every task.
func (g Grant) written() []Rule {
	var all []Rule
	for _, d := range []*Document{g.Organization, g.Project} {
		if d == nil {
			continue
		}
		for _, r := range d.with(Allow) {
			if r.section() == Egress {
				all = append(all, r)
			}
		}
	}
	return all
}

// Hosts are all that a grant lets a session reach: what it was given itself and
// what documents give to every task.
func (g Grant) Hosts() []Rule {
	var all []Rule
	for _, r := range append(slices.Clone(g.Allow), g.written()...) {
		r.ID, r.Section, r.Effect = "", "", ""
		all = append(all, r)
	}
	return number(all)
}

// Bounding returns the documents without what they give: what they deny, ask and
// limit holds, and their allow lists are only what may be given by others. It is
// for a setup, which may reach less than the work after it.
func (d Documents) Bounding() Documents {
	return Documents{d.Organization.bounding(), d.Project.bounding()}
}

func (d *Document) bounding() *Document {
	if d == nil {
		return nil
	}
	out := *d
	out.Rules = slices.Clone(d.Rules)
	for i := range out.Rules {
		if out.Rules[i].effect() == Allow {
			out.Rules[i].Effect = Limit
		}
	}
	return &out
}
