package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"cofferdam/client"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
)

func newPolicyClass(a policies) *cobra.Command {
	return &cobra.Command{
		Use: "class [NAME]", Short: "List the classes of risk that ship, or show one", Args: cobra.MaximumNArgs(1),
		Long: "List the classes of risk that ship with this program, the narrowest first, or print the text of one. A class denies, asks and limits, and gives " +
			"nothing: a policy is put under one with class = \"NAME\" as its first line, or with cofferdam policy propose --class NAME." + exits(0, 2, 5),
		Example: "  cofferdam policy class\n  cofferdam policy class read-only",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return items(a.app, "cofferdam/policy-class-list/v1", policy.Classes(), func(c policy.Class) string { return c.Name },
					[]string{"CLASS", "WHAT IT IS"}, func(c policy.Class) []string { return []string{c.Name, c.Says} })
			}
			c, err := policy.ClassNamed(args[0])
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(c)
			}
			_, err = fmt.Fprint(a.Out, c.Text)
			return err
		},
	}
}

// proposed is the text that propose is given: a file's, or that of the policy that
// counts, with another class if one is named.
func (a policies) proposed(c *cobra.Command, cl *client.Client, args []string, organization bool, class string) (string, error) {
	var text string
	var err error
	switch {
	case len(args) > 0:
		text, err = a.readText(args[0], maxPolicyFile)
	case class == "":
		err = usage(c, "name a FILE, or with --class a class for the policy that counts")
	default:
		text, err = a.counting(c, cl, organization)
	}
	if err != nil || class == "" {
		return text, err
	}
	if class == "none" {
		class = ""
	}
	return policy.WithClass(text, class)
}

// counting is the text of the policy that counts; "" if there is none.
func (a policies) counting(c *cobra.Command, cl *client.Client, organization bool) (string, error) {
	all, err := cl.Policies(c.Context(), level(organization))
	if err != nil {
		return "", err
	}
	for _, v := range all { // the newest first
		if v.State == "taken" {
			p, err := cl.Policy(c.Context(), level(organization), v.Version)
			return p.Text, err
		}
	}
	return "", nil
}

func (a policies) promotion(p analysis.Promotion) error {
	if a.json {
		return a.object(p)
	}
	if p.Class == "" {
		a.say("the policy of this project is under no class, so that its own rules alone bound it; cofferdam policy class lists them")
		return nil
	}
	yes := "no"
	switch {
	case p.Next == "":
		yes = "no: there is no wider class"
	case p.Suggested:
		yes = "yes"
	}
	next := p.Next
	if next != "" {
		next += ": " + p.Says
	}
	lines := []label{
		{"class", fmt.Sprintf("%s, since %s (version %d)", p.Class, p.Since.Local().Format("2006-01-02"), p.Version)},
		{"next", next},
		{"suggested", yes},
	}
	for _, r := range p.Reasons {
		holds := "not yet"
		if r.Holds {
			holds = "holds"
		}
		lines = append(lines, label{holds, r.What})
	}
	for _, r := range p.Refused {
		lines = append(lines, label{"refused", fmt.Sprintf("%d by %s", r.Count, r.Rule)})
	}
	if p.Partly {
		lines = append(lines, label{"read", "the newest of it; there is more on record"})
	}
	if err := a.labels(lines); err != nil {
		return err
	}
	if p.Suggested {
		a.say("an owner decides about it: cofferdam policy propose --class %s", p.Next)
	}
	return nil
}
