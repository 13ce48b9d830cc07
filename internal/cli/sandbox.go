package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newSandbox(a *app) *cobra.Command {
	c := newNoun("sandbox", "See the boxes of sessions, and put a workspace back to a checkpoint",
		newSandboxList(a), newSandboxView(a), newCheckpoint(a), newSandboxRestore(a))
	text, codes, _ := strings.Cut(c.Long, "\n\n")
	c.Long = text + " A box ends with its session: cofferdam task cancel ends both. Commands, shells, files and ports of a box, and copies of one, are not here yet." + "\n\n" + codes
	return c
}

func newSandboxList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the boxes of sessions that run", Args: none,
		Long: "List the boxes of sessions that run, those of the latest tasks first. SIZE is that of their checkpoints." + calling(), Example: "  cofferdam sandbox list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Sandboxes(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/sandbox-list/v1", all, func(v cofferdam.Sandbox) string { return string(v.ID) },
				[]string{"TASK", "ATTEMPT", "PHASE", "TIER", "STATE", "SINCE", "ENVIRONMENT", "CHECKPOINTS", "SIZE", "SESSION"}, func(v cofferdam.Sandbox) []string {
					return []string{
						v.Short(), strconv.Itoa(v.Attempt), v.Phase, v.Tier, v.Life.State, age(v.Life.Since), shortDigest(v.Environment), strconv.Itoa(v.Checkpoints), mebibytes(v.Size),
						string(v.Session[:min(14, len(v.Session))]),
					}
				})
		}),
	}
}

func newSandboxView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view TASK|SESSION", Short: "Show the box of a session that runs", Args: exactly("TASK|SESSION"), ValidArgsFunction: a.completeTasks,
		Long: "Show the box that a task's session has now: where it stands, what is its wall, and what runs in it." + calling(), Example: "  cofferdam sandbox view t-1",
		RunE: viewed(a, (*client.Client).Sandbox, func(v cofferdam.Sandbox) []label {
			return append([]label{
				{"sandbox", string(v.ID)},
				{"task", fmt.Sprintf("%s, attempt %d, %s", v.Short(), v.Attempt, v.Phase)},
				{"session", string(v.Session)},
				{"tier", v.Tier},
				{"kernel", v.Kernel},
				{"flags", strings.Join(v.Flags, " ")},
				{"image", v.Image},
				{"environment", string(v.Environment)},
				{"workspace", v.Workspace},
				{"limits", fmt.Sprintf("memory %s, disk %s, %g processors, %d processes", mebibytes(v.Limits.Memory), mebibytes(v.Limits.Disk), v.Limits.CPU, v.Limits.PIDs)},
				{"created", stamp(v.Created)},
				{"checkpoints", fmt.Sprintf("%d, %s", v.Checkpoints, mebibytes(v.Size))},
			}, lifeLabels(&v.Life)...)
		}),
	}
}

func newCheckpoint(a *app) *cobra.Command {
	return newNoun("checkpoint", "Keep what is in a workspace, to compare it and to go back to it",
		newCheckpointCreate(a), newCheckpointList(a), newCheckpointView(a), newCheckpointDiff(a), newCheckpointRemove(a))
}

func newCheckpointCreate(a *app) *cobra.Command {
	var comment string
	c := &cobra.Command{
		Use: "create TASK|SESSION", Short: "Keep the workspace of a running session as it is now", Args: exactly("TASK|SESSION"), ValidArgsFunction: a.completeTasks,
		Long: "Keep the workspace of a session whose agent is at work, as it is now; the agent goes on. What is only in memory is not in it." + calling(12), Example: "  cofferdam sandbox checkpoint create t-1 --comment 'before the migration'",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			v, err := cl.CreateCheckpoint(c.Context(), args[0], comment)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(v)
			}
			a.say("checkpoint %s of %s: %s; the box stood still for %.0f ms", v.Name, args[0], mebibytes(v.Size), v.Paused*1000)
			_, err = fmt.Fprintln(a.Out, clean(v.Name))
			return err
		}),
	}
	c.Flags().StringVar(&comment, "comment", "", "one line, at most 200 bytes")
	return c
}

func newCheckpointList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list [TASK|SESSION]", Aliases: []string{"ls"}, Short: "List checkpoints, newest first", Args: optional("TASK|SESSION"), ValidArgsFunction: a.completeTasks,
		Long: "List the checkpoints of a task's workspace, or of all; the newest first." + calling(), Example: "  cofferdam sandbox checkpoint list t-1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			all, err := cl.Checkpoints(c.Context(), name)
			if err != nil {
				return err
			}
			return items(a, "cofferdam/checkpoint-list/v1", all, func(v cofferdam.Checkpoint) string { return v.Name },
				[]string{"TASK", "NAME", "TIER", "SIZE", "AGE", "BY", "SIGNATURE", "COMMENT"}, func(v cofferdam.Checkpoint) []string {
					signature, _, _ := strings.Cut(v.Signature, ":")
					return []string{taskName(v.Number), v.Name, v.Tier, mebibytes(v.Size), age(v.Created), v.By, signature, v.Comment}
				})
		}),
	}
}

// taskName is a task's short name; "" if it is not known.
func taskName(number int64) string {
	if number == 0 {
		return ""
	}
	return cofferdam.Task{Number: number}.Short()
}

func newCheckpointView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view TASK|SESSION NAME", Short: "Show a checkpoint and whether its signature holds", Args: exactly("TASK|SESSION", "NAME"), ValidArgsFunction: a.completeTasks,
		Long: "Show a checkpoint, and whether the signature of its manifest holds, which is checked there and then." + calling(), Example: "  cofferdam sandbox checkpoint view t-1 v2",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			v, err := cl.Checkpoint(c.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(v)
			}
			how := "asked for"
			if v.Automatic {
				how = "taken before a restore"
			}
			return a.labels([]label{
				{"checkpoint", v.Name},
				{"id", v.ID},
				{"task", taskName(v.Number)},
				{"session", string(v.Session)},
				{"sandbox", string(v.Box)},
				{"workspace", v.Workspace},
				{"tier", v.Tier},
				{"environment", string(v.Environment)},
				{"created", stamp(v.Created)},
				{"by", v.By + ", " + how},
				{"comment", v.Comment},
				{"parent", v.Parent},
				{"size", mebibytes(v.Size)},
				{"stood still", fmt.Sprintf("%.0f ms", v.Paused*1000)},
				{"digest", string(v.Digest)},
				{"manifest", v.Manifest},
				{"signature", v.Signature},
			})
		}),
	}
}

// shownChanges is how many paths of a difference a terminal is shown; --json has all
// that the server names.
const shownChanges = 200

func newCheckpointDiff(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "diff TASK|SESSION NAME [NAME]", Short: "Show which files differ between a checkpoint and another, or now", Args: between(2, "TASK|SESSION", "NAME", "NAME"), ValidArgsFunction: a.completeTasks,
		Long: "Show which paths of a workspace differ between a checkpoint and a later one, or the workspace as it is now. " +
			fmt.Sprintf("A is added, M changed, D removed; the first %d are shown, and --json has up to 10,000.", shownChanges) + calling(11),
		Example: "  cofferdam sandbox checkpoint diff t-1 v0 v1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			d, err := cl.DiffCheckpoint(c.Context(), args[0], args[1], strings.Join(args[2:], ""))
			if err != nil {
				return err
			}
			if a.json {
				return a.object(d)
			}
			for _, p := range d.Paths[:min(shownChanges, len(d.Paths))] {
				if _, err := fmt.Fprintln(a.Out, clean(changeLine(p))); err != nil {
					return err
				}
			}
			if more := d.More + int64(max(0, len(d.Paths)-shownChanges)); more > 0 {
				a.say("and %s more", count(more, "path"))
			}
			a.say("%d added, %d changed, %d removed between %s and %s", d.Added, d.Changed, d.Removed, d.From, d.To)
			return nil
		}),
	}
}

// changeLine is one path that differs, as git has it: what happened, then the path.
func changeLine(p cofferdam.PathChange) string {
	switch {
	case p.Was == nil && p.Is == nil:
		return "? " + p.Path
	case p.Was == nil:
		return fmt.Sprintf("A %s (%s)", p.Path, stateText(*p.Is))
	case p.Is == nil:
		return fmt.Sprintf("D %s (%s)", p.Path, stateText(*p.Was))
	}
	text := stateText(*p.Is)
	if was := stateText(*p.Was); was != text {
		text = was + " -> " + text
	}
	return fmt.Sprintf("M %s (%s)", p.Path, text)
}

func stateText(f cofferdam.FileState) string {
	if f.Kind == "file" {
		return fmt.Sprintf("%s, %s", count(f.Size, "byte"), f.Mode)
	}
	return f.Kind + ", " + f.Mode
}

func newCheckpointRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove TASK|SESSION NAME", Aliases: []string{"rm"}, Short: "Remove a checkpoint", Args: exactly("TASK|SESSION", "NAME"), ValidArgsFunction: a.completeTasks,
		Long: "Remove a checkpoint. The workspace stays as it is." + calling(), Example: "  cofferdam sandbox checkpoint remove t-1 v0",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			if err := cl.RemoveCheckpoint(c.Context(), args[0], args[1]); err != nil {
				return err
			}
			return a.removed("checkpoint", args[1])
		}),
	}
}

func newSandboxRestore(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "restore TASK|SESSION NAME", Short: "Put the workspace of a running session back to a checkpoint", Args: exactly("TASK|SESSION", "NAME"), ValidArgsFunction: a.completeTasks,
		Long: "Put the workspace of a session whose agent is at work back to a checkpoint. What runs in its box is ended, and a checkpoint is taken before, so that " +
			"a restore of that one undoes it. The session goes on in a new box, and its agent is told. A checkpoint that is not what was signed is refused." + calling(11, 12),
		Example: "  cofferdam sandbox restore t-1 v0",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			v, err := cl.RestoreSandbox(c.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(v)
			}
			a.say("the workspace of %s is that of %s; cofferdam sandbox restore %s %s undoes it; commands ended: %d", args[0], v.Checkpoint, args[0], v.Undo, len(v.Ended))
			_, err = fmt.Fprintln(a.Out, clean(v.Undo))
			return err
		}),
	}
}

// between wants one argument for each name; only the first so many have to be there.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		n := max(least, min(len(args), len(names)))
		return exactly(names[:n]...)(c, args)
	}
}

func optional(names ...string) cobra.PositionalArgs { return between(0, names...) }
