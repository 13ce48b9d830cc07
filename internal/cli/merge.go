package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newMerge(a *app) *cobra.Command {
	return newNoun("merge", "Review what a task made, and land it",
		newMergeList(a), newMergeView(a), newMergeDiff(a), newMergeApprove(a), newMergeReject(a), newMergeLand(a))
}

func newMergeList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tasks in review or merged", Args: none,
		Long: "List tasks in review or merged." + calling(), Example: "  cofferdam merge list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Merges(c.Context())
			if err != nil {
				return err
			}
			return a.tasks(all)
		}),
	}
}

func newMergeView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view TASK", Short: "Show what a task wants merged, with its proof", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Show what a task wants merged: commits, files, the platform's own checks, what was refused, who approved." + calling(), Example: "  cofferdam merge view t-1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			change, err := cl.Merge(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(change)
			}
			if err := (changes{a}).showChange(change); err != nil {
				return err
			}
			a.say("next: %s", nextStep(change))
			return nil
		}),
	}
}

func nextStep(c cofferdam.Change) string {
	name := c.Task.Short()
	switch {
	case c.Task.State == cofferdam.Done:
		return "nothing; it has landed"
	case c.Task.State != cofferdam.InReview:
		return "cofferdam task view " + name
	case c.Landing.Verdict == cofferdam.Refused:
		return "an owner can change the policy: cofferdam policy explain --action land " + string(c.Task.Base)
	case c.Approval != nil && c.Landing.Verdict == cofferdam.Asked && len(c.Approvals) < c.Landing.People:
		return "another person runs cofferdam merge approve " + name
	case c.Approval != nil:
		return "cofferdam merge land " + name
	}
	return "cofferdam merge diff " + name + ", then cofferdam merge approve " + name + " or cofferdam merge reject " + name
}

// maxShown bounds files and refusals on a page; --json has them all.
const maxShown = 30

// changes shows what a task wants merged, and asks a person about it.
type changes struct{ *app }

// showChange prints the page a person reviews.
func (a changes) showChange(c cofferdam.Change) error {
	t := c.Task
	if err := a.labels([]label{
		{"task", t.Short() + "  " + cut(strings.TrimSpace(t.Request.Text), 200)},
		{"state", string(t.State)},
		{"repository", t.Request.Repo},
		{"branch", string(t.Branch)},
		{"onto", string(t.Base) + " at " + string(t.BaseAt)},
		{"commit", string(t.Head)},
	}); err != nil {
		return err
	}
	for _, commit := range c.Commits {
		fmt.Fprintln(a.Out, "  "+clean(cut(commit, 100)))
	}
	a.showFiles(c.Files)
	if s := c.Task.Request.Contract; s != nil && len(s.Paths) > 0 {
		fmt.Fprintf(a.Out, "%-13s %d of these files are not in it\n", "scope:", len(c.Beyond))
		for _, p := range c.Beyond[:min(len(c.Beyond), maxShown)] {
			fmt.Fprintf(a.Out, "  beyond      %s\n", clean(p))
		}
	}
	a.showProof(c.Proof)
	a.showCommands(c.Commands)
	a.showRefusals(c.Refusals)
	return a.showLanding(c)
}

// showLanding prints who approved, and what policy says of landing it.
func (a changes) showLanding(c cofferdam.Change) error {
	var lines []label
	for _, w := range c.Approvals {
		lines = append(lines, label{"approved", fmt.Sprintf("%s by %s at %s", short(string(w.Commit)), w.By, stamp(w.Time))})
	}
	if len(lines) == 0 {
		lines = append(lines, label{"approved", "by nobody"})
	}
	switch l := c.Landing; {
	case l.Verdict == cofferdam.Refused:
		lines = append(lines, label{"policy", "refuses the landing by rule " + l.Rule + ": " + l.Reason})
	case l.Verdict == cofferdam.Asked:
		lines = append(lines, label{"policy", fmt.Sprintf("wants %d people to approve it, by rule %s; %d did", l.People, l.Rule, len(c.Approvals))})
	}
	return a.labels(lines)
}

func (a changes) showFiles(files []cofferdam.FileChange) {
	fmt.Fprintf(a.Out, "%-13s %d\n", "files:", len(files))
	for i, f := range files {
		if i == maxShown {
			fmt.Fprintf(a.Out, "  … and %d more\n", len(files)-i)
			return
		}
		lines := "binary"
		if f.Added >= 0 && f.Removed >= 0 {
			lines = fmt.Sprintf("+%d -%d", f.Added, f.Removed)
		}
		fmt.Fprintf(a.Out, "  %s %-11s %s\n", clean(f.Status), lines, clean(f.Path))
	}
}

func (a changes) showProof(p *cofferdam.CheckReport) {
	if p == nil {
		fmt.Fprintf(a.Out, "%-13s none\n", "proof:")
		return
	}
	word := "every check held"
	if !p.Held {
		word = "NOT every check held"
	}
	if p.RegressionOnly {
		word += "; regression only: no check failed first"
	}
	fmt.Fprintf(a.Out, "%-13s %s, run by the platform on %s\n", "proof:", word, clean(short(string(p.Commit))))
	for _, r := range p.Checks {
		held := "held"
		if !r.Held {
			held = "NOT held"
		}
		fmt.Fprintf(a.Out, "  %s: %s: exit %d on the base, %d on the commit: %s\n", held, flagOf(r.Check), r.BaseExit, r.Exit, clean(cut(r.Command, 100)))
	}
}

// showCommands says how many commands were started, and for whom.
func (a changes) showCommands(by map[string]int) {
	var parts []string
	for _, who := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d for %s", by[who], clean(who)))
	}
	if len(parts) > 0 {
		fmt.Fprintf(a.Out, "%-13s %s\n", "commands:", strings.Join(parts, ", "))
	}
}

func (a changes) showRefusals(events []cofferdam.Event) {
	fmt.Fprintf(a.Out, "%-13s %s\n", "refused:", strconv.Itoa(len(events)))
	for i, e := range events {
		if i == maxShown {
			fmt.Fprintf(a.Out, "  … and %d more\n", len(events)-i)
			return
		}
		fmt.Fprintf(a.Out, "  %s %s by %s\n", clean(e.Kind), clean(cut(e.Resource, 80)), clean(e.Rule))
	}
}

func newMergeDiff(a *app) *cobra.Command {
	var raw bool
	c := &cobra.Command{
		Use: "diff TASK", Short: "Show the change", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Show the change as a unified diff. Control and direction characters, which can deceive a reader, are made visible; --raw leaves them." + calling(), Example: "  cofferdam merge diff t-1",
		RunE: func(c *cobra.Command, args []string) error {
			if raw && a.Terminal(a.stdout) {
				return usage(c, "--raw text may not go to a terminal: it is an agent's")
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			change, err := cl.Merge(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(struct {
					Schema    string           `json:"schema"`
					Commit    cofferdam.Commit `json:"commit"`
					Diff      string           `json:"diff"`
					Truncated bool             `json:"truncated"`
				}{"cofferdam/diff/v1", change.Task.Head, change.Diff, change.Truncated})
			}
			diff := change.Diff
			if !raw {
				diff = cleanText(diff)
			}
			if _, err := fmt.Fprint(a.Out, diff); err != nil {
				return err
			}
			if change.Truncated {
				a.say("the diff is longer than the server shows; git fetch the branch %s to see all of it", change.Task.Branch)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&raw, "raw", false, "leave control characters as they are; not to a terminal")
	return c
}

func newMergeApprove(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "approve TASK", Short: "Approve exactly the commit that is shown", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Show the change and approve exactly its commit. A person does this at a terminal, types the first 8 digits of the commit, and proves with a password, a " +
			"code or a passkey that they are there; nothing else approves, --yes neither. A new push voids it." + calling(9), Example: "  cofferdam merge approve t-1",
		RunE: func(c *cobra.Command, args []string) error {
			const hint = "a person runs cofferdam merge approve at a terminal"
			conf, err := a.clientConfig()
			if err != nil {
				return err
			}
			if yes || conf.NoInput || !a.Terminal(a.In) || !a.Terminal(a.stdout) {
				reason := "a person has to answer, and there is no terminal"
				if yes {
					reason = "--yes never approves"
				} else if conf.NoInput {
					reason = "a person has to answer, and --no-input forbids to ask"
				}
				return &cofferdam.Error{Op: "cli.Approve", Kind: cofferdam.AwaitsPerson, Subject: "approving " + args[0], Reason: reason, Hint: hint}
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			change, err := cl.Merge(c.Context(), args[0])
			if err != nil {
				return err
			}
			if change.Task.State != cofferdam.InReview || len(change.Task.Head) < typed {
				return notInReview("cli.Approve", change.Task)
			}
			if err := (changes{a}).askForCommit(c, change); err != nil {
				return err
			}
			r := cofferdam.ApproveRequest{Commit: change.Task.Head, Policy: change.Landing.Policy}
			if r.Proof, err = (answers{a}).prove(c, cl); err != nil {
				return err
			}
			approval, err := cl.ApproveMerge(c.Context(), string(change.Task.ID), r)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(approval)
			}
			a.say("approved %s of %s; next: cofferdam merge land %s", short(string(approval.Commit)), change.Task.Short(), change.Task.Short())
			return nil
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "never approves; it is here to say so")
	return c
}

func notInReview(op string, t cofferdam.Task) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "is " + string(t.State) + ", not in review", Hint: "cofferdam task view " + t.Short()}
}

// typed is how many digits a person types: enough to have looked, and no guess.
const typed = 8

// askForCommit shows the change and takes the digits.
func (a changes) askForCommit(c *cobra.Command, change cofferdam.Change) error {
	if err := a.showChange(change); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "To approve exactly this commit, type the first %d digits of it: ", typed)
	answer, err := a.readLine(c.Context())
	if err != nil {
		return err
	}
	if answer != string(change.Task.Head[:typed]) {
		return &cofferdam.Error{
			Op: "cli.Approve", Kind: cofferdam.Invalid, Subject: "approving " + change.Task.Short(), Reason: "what was typed is not the beginning of its commit; nothing was approved",
			Hint: "look at cofferdam merge view " + change.Task.Short() + " and try again",
		}
	}
	return nil
}

func newMergeReject(a *app) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "reject TASK", Short: "Say that the change is not wanted", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "End a task in review without landing it. A person does this at a terminal, and proves with a password, a code or a passkey that they are there." + calling(9), Example: "  cofferdam merge reject t-1 --reason \"the old name must stay\"",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := answers{a}.attend("rejecting "+args[0], "cofferdam merge reject")
			if err != nil {
				return err
			}
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			if t.State != cofferdam.InReview || len(t.Head) < typed {
				return notInReview("cli.Reject", t)
			}
			fmt.Fprintf(a.Out, "Rejecting commit %s of %s.\n", short(string(t.Head)), t.Short())
			r := cofferdam.RejectRequest{Commit: t.Head, Reason: reason}
			id := string(t.ID)
			t, err = proved(answers{a}, c, cl, func(p cofferdam.Proof) (cofferdam.Task, error) {
				r.Proof = p
				return cl.RejectMerge(c.Context(), id, r)
			})
			if err != nil {
				return err
			}
			return a.changed(t, "rejected "+t.Short())
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "one sentence")
	return c
}

func newMergeLand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "land TASK", Short: "Put the approved commit onto the base branch", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Put the approved commit onto the base branch and wait for it. Landing twice lands once." + calling(9), Example: "  cofferdam merge land t-1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			t, err := cl.LandMerge(c.Context(), args[0], "")
			if err != nil {
				return err
			}
			return a.changed(t, fmt.Sprintf("landed %s on %s", short(string(t.Landed)), t.Base))
		}),
	}
}
