package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/policy/analysis"
)

// ofOrganization adds the flag that names the organisation's document.
func ofOrganization(c *cobra.Command, is *bool) {
	c.Flags().BoolVar(is, "organization", false, "the policy of the organisation, not of the project")
}

func level(organization bool) cofferdam.PolicyLevel {
	if organization {
		return cofferdam.OfOrganization
	}
	return cofferdam.OfProject
}

// versionArg reads the number of a version.
func versionArg(c *cobra.Command, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, usage(c, quoted(text)+" is no number of a version; cofferdam policy list shows them")
	}
	return n, nil
}

func newPolicyList(a policies) *cobra.Command {
	var organization bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List versions of a policy, newest first", Args: none,
		Long: "List the versions of the project's policy, or of the organisation's: who proposed each, and who decided." + calling(), Example: "  cofferdam policy list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Policies(c.Context(), level(organization))
			if err != nil {
				return err
			}
			return items(a.app, "cofferdam/policy-list/v1", all, func(v cofferdam.PolicyVersion) string { return strconv.FormatInt(v.Version, 10) },
				[]string{"VERSION", "STATE", "PROPOSED BY", "DECIDED BY", "PROPOSED", "WHY"}, func(v cofferdam.PolicyVersion) []string {
					return []string{strconv.FormatInt(v.Version, 10), stateOfPolicy(v), v.ProposedBy, orDash(v.DecidedBy), stamp(v.Proposed), cut(clean(v.Why), 40)}
				})
		}),
	}
	ofOrganization(c, &organization)
	return c
}

// stateOfPolicy is what became of a version, or that nothing can: nobody agrees to
// what somebody has proposed who has left.
func stateOfPolicy(v cofferdam.PolicyVersion) string {
	if v.Left {
		return "author left"
	}
	return string(v.State)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newPolicyView(a policies) *cobra.Command {
	var organization, text bool
	c := &cobra.Command{
		Use: "view [VERSION]", Short: "Show a policy and what it makes possible", Args: cobra.MaximumNArgs(1),
		Long: "Show the policy that counts, or one version of it: who proposed it and who agreed, what it makes possible beside the one before, and its " +
			"text. --text prints the text alone, to be changed and proposed again." + calling(),
		Example: "  cofferdam policy view\n  cofferdam policy view 3\n  cofferdam policy view --text > project.toml",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			var n int64
			if len(args) > 0 {
				var err error
				if n, err = versionArg(c, args[0]); err != nil {
					return err
				}
			}
			p, err := cl.Policy(c.Context(), level(organization), n)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(p)
			case text && a.Terminal(a.stdout): // whoever proposed it must not steer the terminal
				_, err = fmt.Fprint(a.Out, cleanText(p.Text))
				return err
			case text:
				_, err = fmt.Fprint(a.Out, p.Text) // as it is, for a file
				return err
			}
			if err := a.showProposal(p); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "\n%s\n", cleanText(p.Text))
			return err
		}),
	}
	ofOrganization(c, &organization)
	c.Flags().BoolVar(&text, "text", false, "print the text alone")
	return c
}

// showProposal prints what a person has to see before they decide.
func (a policies) showProposal(p cofferdam.PolicyProposal) error {
	state := string(p.State)
	if p.Counts {
		state += ", it counts"
	}
	people := "one owner decides"
	by := p.ProposedBy
	if p.Left {
		by += ", who has left: somebody else has to propose it"
	}
	if p.Second {
		people = "somebody else than who proposed it decides"
	}
	beside := fmt.Sprintf("version %d", p.Before)
	if p.Before == 0 {
		beside = "no policy before it"
	}
	if err := a.labels([]label{
		{"version", fmt.Sprintf("%d of the %s: %s", p.Version, p.Level, state)},
		{"proposed by", by},
		{"why", p.Why},
		{"decided by", p.DecidedBy},
		{"people", people},
		{"digest", string(p.Digest)},
		{"beside", beside},
	}); err != nil {
		return err
	}
	if err := a.showChange(p.Opens, p.Unbounded, p.Asks, p.Closes); err != nil {
		return err
	}
	for _, f := range p.Findings {
		if _, err := fmt.Fprintln(a.Out, clean(f)); err != nil {
			return err
		}
	}
	return nil
}

// showChange prints what one policy makes of another.
func (a policies) showChange(opens, unbounded, asks, closes []string) error {
	for _, part := range []struct {
		title string
		lines []string
	}{{"becomes possible", opens}, {"is to be read whole", unbounded}, {"is asked from now on", asks}, {"is no longer possible", closes}} {
		for _, line := range part.lines {
			// Text of several lines is marked, so that none of it passes for a line of ours.
			if _, err := fmt.Fprintf(a.Out, "%s: %s\n", part.title, strings.ReplaceAll(strings.TrimSpace(cleanText(line)), "\n", "\n  | ")); err != nil {
				return err
			}
		}
	}
	return nil
}

func newPolicyPropose(a policies) *cobra.Command {
	var organization bool
	var why, class string
	c := &cobra.Command{
		Use: "propose [FILE]", Short: "Propose a policy; nothing changes yet", Args: cobra.MaximumNArgs(1),
		Long: "Propose a policy for the project, or for the organisation. It counts once an owner has agreed with cofferdam policy approve; where the " +
			"organisation asks for it, somebody else than who proposed it. One with errors is not taken. With --class and without a file it is the policy that " +
			"counts, under another class; --class none takes it from under its class." + calling(),
		Example: "  cofferdam policy propose project.toml --why \"the agent reads issues\"\n  cofferdam policy propose --class read-only",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			text, err := a.proposed(c, cl, args, organization, class)
			if err != nil {
				return err
			}
			p, err := cl.ProposePolicy(c.Context(), cofferdam.PolicyRequest{Level: level(organization), Text: text, Why: why})
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(p)
			case a.quiet:
				_, err = fmt.Fprintln(a.Out, p.Version)
				return err
			}
			if err := a.showProposal(p); err != nil {
				return err
			}
			a.say("proposed; an owner agrees with cofferdam policy approve %d%s", p.Version, levelFlag(organization))
			return nil
		}),
	}
	ofOrganization(c, &organization)
	c.Flags().StringVar(&why, "why", "", "a sentence for who decides")
	c.Flags().StringVar(&class, "class", "", "class of risk that it is under; cofferdam policy class lists them")
	return c
}

func levelFlag(organization bool) string {
	if organization {
		return " --organization"
	}
	return ""
}

func newPolicyDecide(a policies, take bool) *cobra.Command {
	verb, does := "reject", "Say no to a proposal"
	if take {
		verb, does = "approve", "Let a proposal count"
	}
	var organization bool
	c := &cobra.Command{
		Use: verb + " VERSION", Short: does, Args: exactly("VERSION"),
		Long: does + ". An owner does this at a terminal, after what it makes possible is shown, and proves with a password or a code that they are there. What is " +
			"taken counts at once, also for sessions that run." + calling(9),
		Example: "  cofferdam policy " + verb + " 3",
		RunE: func(c *cobra.Command, args []string) error {
			n, err := versionArg(c, args[0])
			if err != nil {
				return err
			}
			cl, err := answers{a.app}.attend("deciding about version "+args[0], "cofferdam policy "+verb)
			if err != nil {
				return err
			}
			p, err := cl.Policy(c.Context(), level(organization), n)
			if err != nil {
				return err
			}
			if err := a.showProposal(p); err != nil {
				return err
			}
			r := cofferdam.PolicyDecision{Level: level(organization), Hash: p.Hash, Take: take}
			if r.Proof, err = (answers{a.app}).prove(c, cl); err != nil {
				return err
			}
			if p, err = cl.DecidePolicy(c.Context(), n, r); err != nil {
				return err
			}
			if a.json {
				return a.object(p)
			}
			a.say("version %d is %s", p.Version, p.State)
			return nil
		},
	}
	ofOrganization(c, &organization)
	return c
}

func newPolicySuggest(a policies) *cobra.Command {
	var promotion bool
	c := &cobra.Command{
		Use: "suggest TASK|SESSION", Short: "Write the smallest policy that allows what was done", Args: cobra.MaximumNArgs(1),
		Long: "Write the smallest policy that allows what a task or a session did, whether it was let through or not. It says what was done, not what " +
			"should be: read each rule before you propose it. With --promotion and no task it says in numbers whether the record of the project's tasks, " +
			"their proofs and their refusals, suggests the next wider class. It changes nothing." + calling(),
		Example: "  cofferdam policy suggest t-42 > project.toml\n  cofferdam policy suggest --promotion",
		RunE: func(c *cobra.Command, args []string) error {
			if promotion == (len(args) == 1) {
				return usage(c, "name a task or a session, or --promotion and neither")
			}
			return a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
				if promotion {
					p, err := cl.PromotePolicy(c.Context())
					if err != nil {
						return err
					}
					return a.promotion(p)
				}
				s, err := cl.SuggestPolicy(c.Context(), args[0])
				switch {
				case err != nil:
					return err
				case a.json:
					return a.object(s)
				}
				_, err = fmt.Fprint(a.Out, cleanText(s.Text))
				return err
			})(c, args)
		},
	}
	c.Flags().BoolVar(&promotion, "promotion", false, "whether the project's record suggests a wider class")
	return c
}

func newPolicyReplay(a policies) *cobra.Command {
	var organization bool
	c := &cobra.Command{
		Use: "replay FILE TASK|SESSION", Short: "Judge what was done by a policy that nobody has taken yet", Args: exactly("FILE", "TASK or SESSION"),
		Long: "Judge everything that a task or a session did by another policy, with all else as it is now, and list what would have another answer. What " +
			"people answered is no part of it." + calling(),
		Example: "  cofferdam policy replay project.toml t-42",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			text, err := a.readText(args[0], maxPolicyFile)
			if err != nil {
				return err
			}
			r, err := cl.ReplayPolicy(c.Context(), cofferdam.PolicyTrial{Level: level(organization), Text: text, Of: args[1]})
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(r)
			}
			return a.replayed(r)
		}),
	}
	ofOrganization(c, &organization)
	return c
}

func (a policies) replayed(r analysis.Replay) error {
	rows := make([][]string, 0, len(r.Changes))
	for _, d := range r.Changes {
		rows = append(rows, []string{strconv.FormatUint(d.Seq, 10), string(d.Was), d.WasRule, string(d.Now), d.NowRule, cut(clean(d.Resource), 60)})
	}
	if len(rows) > 0 {
		if err := a.table([]string{"EVENT", "WAS", "BY", "NOW", "BY", "RESOURCE"}, rows); err != nil {
			return err
		}
	}
	a.say("%s the same, %d would have another answer, %d that policy did not answer or that are not on record whole", count(r.Same, "decision"), len(r.Changes)+r.More, r.Unknown)
	return nil
}
