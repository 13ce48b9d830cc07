package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/internal/config"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
)

// policies reads policies and shows what they say.
type policies struct{ *app }

func newPolicy(a *app) *cobra.Command {
	p := policies{a}
	return newNoun("policy", "Write policies, agree to them, and ask why something is refused",
		newPolicyView(p), newPolicyList(p), newPolicyPropose(p), newPolicyDecide(p, true), newPolicyDecide(p, false),
		newPolicyClass(p), newPolicyCheck(p), newPolicyExplain(p), newPolicyDiff(p), newPolicySuggest(p), newPolicyReplay(p), newPolicySchema(a))
}

// maxPolicyFile bounds a file of policy; policy.ParseDocument has the same bound.
const maxPolicyFile = 1<<20 + 1

// documentName is that of the organisation's document or of the project's.
func documentName(organization bool) string {
	if organization {
		return policy.OrganizationName
	}
	return policy.ProjectName
}

// document reads a file as the policy of somebody. Presets are those of this
// machine.
func (a policies) document(c *cobra.Command, name, path string) (policy.Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return policy.Document{}, &cofferdam.Error{Op: "cli.Policy", Kind: cofferdam.NotFound, Subject: "file " + path, Reason: plain(err), Hint: "name a file with a policy; docs/policy.md has examples", Err: err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPolicyFile))
	if err != nil {
		return policy.Document{}, &cofferdam.Error{Op: "cli.Policy", Kind: cofferdam.Invalid, Subject: "file " + path, Reason: plain(err), Hint: "name a file with a policy", Err: err}
	}
	conf, err := (&serverFlags{}).load(a.app, c)
	if err != nil {
		return policy.Document{}, err
	}
	presets := conf.Presets
	if bytes.Contains(text, []byte("preset:")) { // asking the machine's tools takes long
		presets = config.Presets(c.Context(), conf, config.ThisMachine())
	}
	return policy.ParseDocument(name, text, presets)
}

func newPolicyCheck(a policies) *cobra.Command {
	var over string
	var organization bool
	c := &cobra.Command{
		Use: "check FILE", Short: "Say what is wrong with a policy, and run its tests", Args: exactly("FILE"),
		Long: "Check a policy: its keys, the types of its Cedar text, rules that never count, rules that open what the organisation or its own class keeps " +
			"closed, and the tests in it. Exits with 1 if there is an error." + exits(0, 1, 2, 5),
		Example: "  cofferdam policy check project.toml\n  cofferdam policy check project.toml --above acme.toml\n  cofferdam policy check acme.toml --organization",
		RunE: func(c *cobra.Command, args []string) error {
			name := documentName(organization)
			if organization && over != "" {
				return usage(c, "nothing is above the organisation's policy: leave --above out")
			}
			d, err := a.document(c, name, args[0])
			if err != nil {
				return err
			}
			var above *policy.Document
			if over != "" {
				o, err := a.document(c, policy.OrganizationName, over)
				if err != nil {
					return err
				}
				above = &o
			}
			found := analysis.Check(d, above)
			if err := a.findings(found); err != nil {
				return err
			}
			for _, f := range found {
				if f.Level == analysis.Error {
					return &cofferdam.Error{Op: "cli.PolicyCheck", Kind: cofferdam.Conflict, Subject: "policy " + args[0], Reason: "has errors", Hint: "mend what is listed above"}
				}
			}
			a.say("%s: %s and %s, all as they should be", args[0], count(len(d.Rules), "rule"), count(len(d.Tests), "test"))
			return nil
		},
	}
	c.Flags().StringVar(&over, "above", "", "file with the policy of the organisation above it")
	ofOrganization(c, &organization)
	return c
}

func (a policies) findings(found []analysis.Finding) error {
	if a.json {
		return a.object(struct {
			Schema string             `json:"schema"`
			Items  []analysis.Finding `json:"items"`
		}{"cofferdam/policy-finding-list/v1", found})
	}
	for _, f := range found {
		line := string(f.Level) + ": " + f.Text
		if f.Rule != "" {
			line += " (" + f.Rule + ")"
		}
		if f.Hint != "" {
			line += "\n  " + f.Hint
		}
		if _, err := fmt.Fprintln(a.Out, cleanText(line)); err != nil {
			return err
		}
	}
	return nil
}

func newPolicyExplain(a policies) *cobra.Command {
	var file, over, of string
	var q cofferdam.PolicyQuestion
	c := &cobra.Command{
		Use: "explain URL|NAME", Short: "Say which rule decides, and the smallest that would allow", Args: exactly("URL or NAME"),
		Long: "Ask about a request, or with --action about something else, such as a tool: which rule decides, and what the smallest rule is that would " +
			"allow it. Without --file the server is asked by the policy that counts, and with --of by what one task or session was given." + calling(),
		Example: "  cofferdam policy explain https://api.example.com/v1/x\n  cofferdam policy explain --of t-42 https://api.example.com/v1/x\n" +
			"  cofferdam policy explain --file project.toml --action invoke github:list_issues",
		RunE: func(c *cobra.Command, args []string) error {
			q.Of = of
			if q.Action == "" {
				q.URL = args[0]
			} else {
				q.On = args[0]
			}
			if file == "" && over == "" {
				return a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
					e, err := cl.ExplainPolicy(c.Context(), q)
					if err != nil {
						return err
					}
					return a.explanation(e)
				})(c, args)
			}
			if of != "" {
				return usage(c, "--of asks the server, and --file and --above do not")
			}
			return a.explainFiles(c, q, file, over)
		},
	}
	c.Flags().StringVar(&of, "of", "", "task or session whose grant counts")
	c.Flags().StringVar(&file, "file", "", "file with the policy of the project, instead of the one that counts")
	c.Flags().StringVar(&over, "above", "", "file with the policy of the organisation above it")
	c.Flags().StringVar(&q.Method, "method", "", "of the request; GET without it")
	c.Flags().StringVar(&q.Action, "action", "", "invoke, use, run, read, write, expose, fork, land, fetch, push or call, instead of a request")
	return c
}

// explainFiles asks policies in files, without a server.
func (a policies) explainFiles(c *cobra.Command, r cofferdam.PolicyQuestion, file, over string) error {
	var g policy.Grant
	for _, f := range []struct {
		name, path string
		to         **policy.Document
	}{{policy.ProjectName, file, &g.Project}, {policy.OrganizationName, over, &g.Organization}} {
		if f.path == "" {
			continue
		}
		d, err := a.document(c, f.name, f.path)
		if err != nil {
			return err
		}
		*f.to = &d
	}
	q, err := policy.ParseURL(r.URL, r.Method)
	if r.Action != "" {
		q, err = policy.ParseAct(r.Action, r.On)
	}
	if err != nil {
		return usage(c, err.Error())
	}
	s, err := policy.New(g)
	if err != nil {
		return err
	}
	return a.explanation(analysis.Explain(s, q))
}

func (a policies) explanation(e analysis.Explanation) error {
	if a.json {
		return a.object(e)
	}
	lines := []label{
		{"answer", string(e.Decision.Verdict)},
		{"rule", e.Decision.Rule},
		{"layer", e.Layer},
		{"entry", e.Entry},
		{"why", e.Why},
		{"reason", e.Decision.Reason},
		{"next", e.Next},
	}
	if err := a.labels(lines); err != nil {
		return err
	}
	for _, text := range []string{e.Smallest, e.Rule} {
		if text == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "\n%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

func newPolicyDiff(a policies) *cobra.Command {
	var organization bool
	c := &cobra.Command{
		Use: "diff OLD NEW", Short: "Show what a change makes possible", Args: exactly("OLD", "NEW"),
		Long:    "Compare two policies: what newly becomes possible, what no longer is, and what is asked. What is only written differently is no change." + exits(0, 2, 5),
		Example: "  cofferdam policy diff before.toml after.toml",
		RunE: func(c *cobra.Command, args []string) error {
			name := documentName(organization)
			before, err := a.document(c, name, args[0])
			if err != nil {
				return err
			}
			after, err := a.document(c, name, args[1])
			if err != nil {
				return err
			}
			d := analysis.Diff(before, after)
			if a.json {
				return a.object(d)
			}
			if err := a.showChange(d.Opens, d.Unbounded, d.Asks, d.Closes); err != nil {
				return err
			}
			if !d.Widens() {
				a.say("nothing newly becomes possible")
			}
			return nil
		},
	}
	ofOrganization(c, &organization)
	return c
}

func newPolicySchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the Cedar schema that rules are checked against", Args: none,
		Long: "Print the Cedar schema: what Cedar text of a policy may speak of." + exits(0, 2), Example: "  cofferdam policy schema",
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.Out, policy.Schema)
			return err
		},
	}
}
