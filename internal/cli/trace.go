package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newTrace(a *app) *cobra.Command {
	return newNoun("trace", "Read the record of what happened", newTraceList(a), newTraceView(a), newTraceFollow(a), newTraceExport(a))
}

func newTraceList(a *app) *cobra.Command {
	var task string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the traces there are, one per session", Args: none, Long: "List the traces there are, one per session." + calling(), Example: "  cofferdam trace list --task t-1",
		RunE: func(c *cobra.Command, _ []string) error { return a.sessions(c, task, 0) },
	}
	c.Flags().StringVar(&task, "task", "", "only those of this task")
	return c
}

func newTraceView(a *app) *cobra.Command {
	var from uint64
	var limit int
	c := &cobra.Command{
		Use: "view SESSION|TASK", Short: "Show the events of a session or task", Args: exactly("SESSION or TASK"), ValidArgsFunction: a.completeTasks,
		Long:    "Show the events of a session, or of all sessions of a task, one after the other as they began." + calling(),
		Example: "  cofferdam trace view t-1\n  cofferdam trace view s-5f1c09ab --from 100 --limit 50",
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(c, "--limit counts from 0")
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			if isTask(args[0]) {
				if from > 0 {
					return usage(c, "--from needs a session, not a task")
				}
				return eventsOfTask(c.Context(), a, cl, args[0], limit)
			}
			all, err := cl.Events(c.Context(), args[0], from, limit)
			if err != nil {
				return err
			}
			return items(a, eventList, all, eventID, eventHead(), eventRow)
		},
	}
	c.Flags().Uint64Var(&from, "from", 0, "first sequence number")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many")
	return c
}

// How lists of events are printed.
const eventList = "cofferdam/event-list/v1"

func eventHead() []string { return []string{"SEQ", "TIME", "KIND", "VERDICT", "RULE", "RESOURCE"} }

func eventID(e cofferdam.Event) string { return strconv.FormatUint(e.Seq, 10) }

func eventRow(e cofferdam.Event) []string {
	return []string{eventID(e), e.Time.UTC().Format("15:04:05.000"), e.Kind, cameOf(e), e.Rule, cut(resourceOf(e), 80)}
}

// resourceOf is what an event is about; of a command also who it is for.
func resourceOf(e cofferdam.Event) string {
	if e.Kind == cofferdam.EventExecStart && e.Of == nil && e.Actor.Kind != "" {
		return e.Resource + " for " + e.Actor.String()
	}
	return e.Resource
}

// isTask says whether a name is that of a task, where a session is named as well.
func isTask(name string) bool { return strings.HasPrefix(name, "t-") }

// eventsOfTask prints the events of a task's sessions, at most so many (0: all that
// a session's list has). A sequence number counts in its session, which is named.
func eventsOfTask(ctx context.Context, a *app, cl *client.Client, task string, limit int) error {
	sessions, err := cl.Sessions(ctx, task, 0)
	if err != nil {
		return err
	}
	var all []cofferdam.Event
	for _, s := range slices.Backward(sessions) { // the newest comes first
		left := 0
		if limit > 0 {
			if left = limit - len(all); left == 0 {
				break
			}
		}
		events, err := cl.Events(ctx, string(s.ID), 0, left)
		if err != nil {
			return err
		}
		all = append(all, events...)
	}
	id := func(e cofferdam.Event) string { return string(e.Session) + " " + eventID(e) }
	return items(a, eventList, all, id, append([]string{"SESSION"}, eventHead()...), func(e cofferdam.Event) []string {
		return append([]string{screen{a}.shortID(string(e.Session))}, eventRow(e)...)
	})
}

func newTraceFollow(a *app) *cobra.Command {
	var from uint64
	c := &cobra.Command{
		Use: "follow SESSION|TASK", Short: "Print events as they happen", Args: exactly("SESSION or TASK"), ValidArgsFunction: a.completeTasks,
		Long:    "Print the events of a session until it is sealed, or of all sessions of a task until it is at rest. It ends with the last sequence number, so that it can be resumed with --from." + calling(),
		Example: "  cofferdam trace follow t-1\n  cofferdam trace follow s-5f1c09ab --from 200 --json",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			next := from
			see := func(e cofferdam.Event) error {
				next = e.Seq + 1
				return a.event(e)
			}
			if strings.HasPrefix(args[0], "s-") {
				err := cl.FollowTrace(c.Context(), args[0], from, see)
				a.say("resume with --from %d", next)
				return err
			}
			if from > 0 {
				return usage(c, "--from needs a session, not a task")
			}
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = (&progress{a: a, task: t, each: func(p cofferdam.Progress) error {
				if p.Event == nil {
					return nil
				}
				return see(*p.Event)
			}}).follow(c.Context(), cl)
			return err
		}),
	}
	c.Flags().Uint64Var(&from, "from", 0, "first sequence number, for a session")
	return c
}

// cameOf is what was decided of an event, or what came of it.
func cameOf(e cofferdam.Event) string {
	return cmp.Or(string(e.Verdict), e.Outcome)
}

// event prints one event as a line.
func (a *app) event(e cofferdam.Event) error {
	if a.json {
		return a.line(e)
	}
	parts := []string{strconv.FormatUint(e.Seq, 10), e.Time.UTC().Format("15:04:05.000"), short(strings.TrimPrefix(string(e.Session), "s-")), e.Kind, cameOf(e), resourceOf(e)}
	if e.Rule != "" {
		parts = append(parts, "by "+e.Rule)
	}
	if e.Reason != "" {
		parts = append(parts, e.Reason)
	}
	if text := e.Fields["text"]; text != "" {
		parts = append(parts, cut(text, 200))
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	_, err := fmt.Fprintln(a.Out, clean(strings.Join(parts, " ")))
	return err
}

func newTraceExport(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "export TASK|SESSION", Short: "Write the evidence of a task into a file", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long:    "Write the sealed traces, host events and receipts of a task as JSON lines, for cofferdam proof verify anywhere." + calling(),
		Example: "  cofferdam trace export t-1 -o t-1.jsonl",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			return a.write(c, file, func(ctx context.Context, w io.Writer) error { return cl.Export(ctx, args[0], w) })
		}),
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write into this file (default: stdout)")
	return c
}

// write gives a writer to do: stdout, or a file that appears only when it is whole.
func (a *app) write(c *cobra.Command, path string, do func(context.Context, io.Writer) error) error {
	if path == "" || path == "-" {
		return do(c.Context(), a.Out)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".cofferdam-*")
	if err != nil {
		return cofferdamError("file "+path, plain(err), "choose another with -o")
	}
	defer os.Remove(f.Name()) // gone already if it was renamed
	err = do(c.Context(), f)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = cofferdamError("file "+path, plain(cerr), "free some space")
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return cofferdamError("file "+path, plain(err), "choose another with -o")
	}
	a.say("wrote %s", path)
	return nil
}
