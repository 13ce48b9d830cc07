package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newSession(a *app) *cobra.Command {
	return newNoun("session", "See the attempts of tasks and what they ran in", newSessionList(a), newSessionView(a))
}

func newSessionList(a *app) *cobra.Command {
	var task string
	var limit int
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List sessions, newest first", Args: none, Long: "List sessions, newest first." + calling(), Example: "  cofferdam session list --task t-1",
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage(c, "--limit counts from 0")
			}
			return a.sessions(c, task, limit)
		},
	}
	c.Flags().StringVar(&task, "task", "", "only those of this task")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many")
	return c
}

func (a *app) sessions(c *cobra.Command, task string, limit int) error {
	cl, err := a.dial()
	if err != nil {
		return err
	}
	all, err := cl.Sessions(c.Context(), task, limit)
	if err != nil {
		return err
	}
	return items(a, "cofferdam/session-list/v1", all, func(s cofferdam.Session) string { return string(s.ID) },
		[]string{"SESSION", "PHASE", "STATE", "TIER", "EVENTS", "SEALED"}, func(s cofferdam.Session) []string {
			return []string{screen{a}.shortID(string(s.ID)), s.Phase, s.State, s.Tier, ifSealed(s, strconv.FormatUint(s.TraceSize, 10)), stamp(s.Sealed)}
		})
}

func newSessionView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view SESSION|TASK", Short: "Show a session and the box it really had", Args: exactly("SESSION or TASK"), ValidArgsFunction: a.completeTasks,
		Long:    "Show a session, by id or unique prefix: what it did and the box it really had. Of a task it is the last one in which an agent worked." + calling(),
		Example: "  cofferdam session view s-5f1c09ab\n  cofferdam session view t-1",
		RunE: viewed(a, findSession, func(s cofferdam.Session) []label {
			return append([]label{
				{"session", string(s.ID)},
				{"task", string(s.Task)},
				{"attempt", strconv.Itoa(s.Attempt)},
				{"phase", s.Phase},
				{"state", s.State},
				{"failure", s.Failure},
				{"reason", s.Reason},
				{"said", string(s.Said)},
				{"exit", ifSealed(s, strconv.Itoa(s.Exit))},
				{"limits met", strings.Join(s.Met, ", ")},
				{"from", string(s.Commit)},
				{"head", string(s.Head)},
				{"tier", s.Tier},
				{"kernel", s.Kernel},
				{"image", s.Image},
				{"environment", string(s.Environment)},
				{"found", s.Found},
				{"policy", string(s.Policy)},
				{"refused", strconv.FormatInt(s.Usage.Refused, 10)},
				{"model calls", spent(s.Usage)},
				{"trace", cmp.Or(ifSealed(s, fmt.Sprintf("%d events, root %s", s.TraceSize, s.TraceRoot)), "not sealed yet; cofferdam trace follow "+string(s.ID)+" has what there is")},
				{"sealed", stamp(s.Sealed)},
			}, lifeLabels(s.Life)...)
		}),
	}
}

// ifSealed is what is known of a session only once it is sealed; "" before.
func ifSealed(s cofferdam.Session, text string) string {
	if s.Sealed.IsZero() {
		return ""
	}
	return text
}

// findSession finds a session by its own name, or by its task's.
func findSession(cl *client.Client, ctx context.Context, name string) (cofferdam.Session, error) {
	if !isTask(name) {
		return cl.Session(ctx, name)
	}
	all, err := cl.Sessions(ctx, name, 0)
	if err != nil {
		return cofferdam.Session{}, err
	}
	for _, s := range all { // newest first
		if s.Phase == "work" {
			return cl.Session(ctx, string(s.ID))
		}
	}
	if len(all) > 0 {
		return cl.Session(ctx, string(all[0].ID))
	}
	return cofferdam.Session{}, &cofferdam.Error{
		Op: "cli.Session", Kind: cofferdam.NotFound, Subject: "session of " + name, Reason: "it has none yet", Hint: "cofferdam task view " + name + " says where it stands",
	}
}

// endLabels says how the agent of a session ended, if it did: by itself, or at a limit.
func endLabels(s cofferdam.Session) []label {
	if s.Sealed.IsZero() || s.Phase != "work" || s.Failure != "" && s.Exit == 0 && len(s.Met) == 0 {
		return nil
	}
	text := fmt.Sprintf("attempt %d: exit %d", s.Attempt, s.Exit)
	if len(s.Met) > 0 {
		text += ", having met its limit of " + strings.Join(s.Met, ", ")
	}
	return []label{{"agent ended", text}}
}

// lifeLabels says where the box of a running session stands.
func lifeLabels(l *cofferdam.BoxLife) []label {
	if l == nil {
		return nil
	}
	if l.State == cofferdam.BoxQueued {
		return []label{{"box", fmt.Sprintf("none since %s: %s", stamp(l.Since), l.Reason)}}
	}
	list := []label{{"box", fmt.Sprintf("%s since %s: %s (change %d, by %s)", l.State, stamp(l.Since), l.Reason, l.Sequence, l.Actor)}, {"lives until", stamp(l.Ends)}}
	for i, j := range l.Jobs {
		if i == shownJobs {
			return append(list, label{"running", fmt.Sprintf("and %d commands more; --json has all", len(l.Jobs)-i)})
		}
		list = append(list, label{"running", jobLine(j)})
	}
	return list
}

// shownJobs is how many commands of a box a view shows; an agent may have
// thousands that left something behind.
const shownJobs = 16

// jobLine says what one command has running.
func jobLine(j cofferdam.BoxJob) string {
	name := cmp.Or(string(j.Command), "no command that can be told")
	processes := "1 process"
	if j.Processes != 1 {
		processes = fmt.Sprintf("%d processes", j.Processes)
	}
	if j.Ended {
		return fmt.Sprintf("%s of %s, left behind when it ended", processes, name)
	}
	return fmt.Sprintf("%s of %s", processes, name)
}
