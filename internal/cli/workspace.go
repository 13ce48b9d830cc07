package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newWorkspace(a *app) *cobra.Command {
	return newNoun("workspace", "See, export and remove what agents worked in",
		newWorkspaceList(a), newWorkspaceView(a), newWorkspaceExport(a), newWorkspaceRemove(a))
}

func newWorkspaceList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List workspaces, newest first", Args: none,
		Long: "List workspaces that are kept, and those whose export is; the newest first." + calling(), Example: "  cofferdam workspace list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Workspaces(c.Context())
			if err != nil {
				return err
			}
			err = items(a, "cofferdam/workspace-list/v1", all, func(w cofferdam.Workspace) string { return w.ID },
				[]string{"TASK", "ATTEMPT", "STATE", "TIER", "USED", "SIZE", "UNTIL", "BUNDLE", "ID"}, workspaceRow)
			for _, w := range all {
				if w.Stuck {
					a.say("%s: %s; %s", w.Short(), w.Note, stuckHint(w))
				}
			}
			return err
		}),
	}
}

func workspaceRow(w cofferdam.Workspace) []string {
	bundle, end := "none", until(w.Until)
	if w.Bundle != nil {
		bundle = count(w.Bundle.Commits, "commit")
	}
	if w.Stuck {
		end = "stuck"
	}
	return []string{w.Short(), fmt.Sprint(w.Attempt), w.State, w.Tier, mebibytes(w.Used), mebibytes(w.Size), end, bundle, w.ID[:min(14, len(w.ID))]}
}

// stuckHint says what a person can do about a workspace that cannot be exported.
func stuckHint(w cofferdam.Workspace) string {
	name := w.ID[:min(14, len(w.ID))]
	return fmt.Sprintf("cofferdam workspace remove %s --discard removes it, cofferdam task retry %s --resume goes on in it", name, w.Short())
}

// until says how long something is kept from now on.
func until(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		return "now"
	case left < 48*time.Hour:
		return fmt.Sprintf("%dh", int(left.Hours()))
	}
	return fmt.Sprintf("%dd", int(left.Hours()/24))
}

func workspaceLabels(w cofferdam.Workspace) []label {
	lines := []label{
		{"workspace", w.ID},
		{"task", fmt.Sprintf("%s, attempt %d", w.Short(), w.Attempt)},
		{"state", w.State},
		{"tier", w.Tier},
		{"size", mebibytes(w.Used) + " of " + mebibytes(w.Size)},
		{"made", stamp(w.Made)},
		{"left", stamp(w.Left)},
		{"kept until", keptUntil(w)},
		{"noticed", stamp(w.Noticed)},
		{"removed", stamp(w.Removed)},
		{"note", w.Note},
	}
	if b := w.Bundle; b != nil {
		lines = append(lines, label{"bundle", fmt.Sprintf("%s, %s, kept until %s", count(b.Commits, "commit"), mebibytes(b.Size), stamp(b.Until))}, label{"digest", string(b.Digest)})
		for _, ref := range b.Refs {
			lines = append(lines, label{"ref", string(ref)})
		}
	}
	for _, b := range w.Earlier {
		lines = append(lines, label{"earlier bundle", fmt.Sprintf("%s, kept until %s: cofferdam workspace export %s", count(b.Commits, "commit"), stamp(b.Until), bundleName(w.ID[:min(14, len(w.ID))], b))})
	}
	return lines
}

// keptUntil is when a workspace is removed.
func keptUntil(w cofferdam.Workspace) string {
	if w.Stuck {
		return stuckHint(w)
	}
	return stamp(w.Until)
}

// bundleName names one bundle of a workspace.
func bundleName(workspace string, b cofferdam.Bundle) string {
	return fmt.Sprintf("%s@%.12s", workspace, strings.TrimPrefix(string(b.Digest), "sha256:"))
}

func newWorkspaceView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view TASK|ID", Short: "Show a workspace", Args: exactly("TASK|ID"), ValidArgsFunction: a.completeTasks,
		Long: "Show the workspace of a task's latest attempt, or one by its id: until when it is kept, and what was exported." + calling(), Example: "  cofferdam workspace view t-1",
		RunE: viewed(a, (*client.Client).Workspace, workspaceLabels),
	}
}

func newWorkspaceExport(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "export TASK|ID", Short: "Write what is in a workspace and nowhere else into a git bundle", Args: exactly("TASK|ID"), ValidArgsFunction: a.completeTasks,
		Long: "Write what is in a workspace and in no branch of the repository into a git bundle: commits, and one commit of what was not committed. " +
			"In a clone of the repository, git fetch FILE 'refs/heads/*:refs/heads/from-t-1/*' takes it up. TASK@DIGEST writes an earlier export that workspace view names." + calling(),
		Example: "  cofferdam workspace export t-1 -o t-1.bundle",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			w, err := cl.ExportWorkspace(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json && (file == "" || file == "-") {
				return a.object(w)
			}
			if err := a.write(c, file, func(ctx context.Context, out io.Writer) error {
				return cl.WorkspaceBundle(ctx, bundleName(w.ID, *w.Bundle), out)
			}); err != nil {
				return err
			}
			a.say("%s in %s", count(w.Bundle.Commits, "commit"), count(len(w.Bundle.Refs), "ref"))
			return nil
		}),
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write into this file (default: stdout)")
	return c
}

func newWorkspaceRemove(a *app) *cobra.Command {
	var discard bool
	c := &cobra.Command{
		Use: "remove TASK|ID", Aliases: []string{"rm"}, Short: "Remove a workspace; what is in it and nowhere else is exported before", Args: exactly("TASK|ID"), ValidArgsFunction: a.completeTasks,
		Long: "Remove a workspace now. What is in it and in no branch of the repository is exported before, and cofferdam workspace export still writes it. " +
			"With --discard nothing is exported, and of a workspace that is removed already the export goes." + calling(),
		Example: "  cofferdam workspace remove t-1",
		RunE: a.removing("workspace", func(cl *client.Client, ctx context.Context, name string) error {
			return cl.RemoveWorkspace(ctx, name, discard)
		}),
	}
	c.Flags().BoolVar(&discard, "discard", false, "export nothing: what is in it and nowhere else is lost")
	return c
}

// keptLabel says in the view of a task what its workspace is, and how it goes on.
func keptLabel(t cofferdam.Task, w cofferdam.Workspace) label {
	text := w.State
	switch {
	case w.Stuck:
		text = "kept whatever its time; " + stuckHint(w)
	case !w.Noticed.IsZero() && !w.Until.IsZero():
		text = fmt.Sprintf("will be removed at %s; cofferdam workspace export %s writes what is in it and nowhere else", stamp(w.Until), w.Short())
	case !w.Until.IsZero():
		text = "kept until " + stamp(w.Until) + "; " + cmp.Or(moreOf(t), "cofferdam task retry "+w.Short()+" --resume") + " goes on in it"
	case w.Bundle != nil && w.State != cofferdam.WorkspaceInUse:
		text = w.State + "; what was in it and nowhere else: cofferdam workspace export " + w.Short()
	}
	if w.Note != "" {
		text += " (" + w.Note + ")"
	}
	return label{"workspace", text}
}
