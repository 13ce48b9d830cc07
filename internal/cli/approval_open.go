package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/policy"
)

// openFlags are the bounds of what a person opens.
type openFlags struct {
	span  time.Duration
	uses  int
	bytes string
}

func (f *openFlags) add(c *cobra.Command, when string) {
	c.Flags().DurationVar(&f.span, "for", time.Hour, when+"for how long, at most a day")
	c.Flags().IntVar(&f.uses, "uses", 0, when+"for at most so many requests")
	c.Flags().StringVar(&f.bytes, "bytes", "", when+"for at most so many bytes, sent and received, such as 10MB")
}

// fill puts what was given into b; with all also what was not.
func (f *openFlags) fill(c *cobra.Command, b *cofferdam.Bounds, all bool) error {
	if all || c.Flags().Changed("for") {
		if f.span < time.Second || f.span > 24*time.Hour {
			return usage(c, "--for is 1s to 24h")
		}
		b.Seconds = f.span.Seconds()
	}
	if all || c.Flags().Changed("uses") {
		if c.Flags().Changed("uses") && (f.uses < 1 || f.uses > 100_000) {
			return usage(c, "--uses is 1 to 100000; without it there is no bound")
		}
		b.Uses = f.uses
	}
	if all || c.Flags().Changed("bytes") {
		n, err := parseBytes(f.bytes)
		if err != nil {
			return usage(c, "--bytes: "+err.Error())
		}
		b.Bytes = n
	}
	return nil
}

// given says whether any of them was.
func (f *openFlags) given(c *cobra.Command) bool {
	return c.Flags().Changed("for") || c.Flags().Changed("uses") || c.Flags().Changed("bytes")
}

// bounds is what an answer to q opens: nil for its one act alone, or for exactly
// what an agent proposed.
func (f *openFlags) bounds(c *cobra.Command, q cofferdam.Question, entry string) (*cofferdam.Bounds, error) {
	switch {
	case q.Proposed != nil && entry == "" && !f.given(c):
		return nil, nil
	case q.Proposed != nil:
		b := *q.Proposed
		if entry != "" {
			b.Entry = entry
		}
		return &b, f.fill(c, &b, false)
	case entry == "" && f.given(c):
		return nil, usage(c, "--for, --uses and --bytes bound what --entry opens, and there is none")
	case entry == "":
		return nil, nil
	}
	b := cofferdam.Bounds{Entry: entry}
	return &b, f.fill(c, &b, true)
}

// parseBytes reads what parseSize does, and 10kB, 10MB, 10GB.
func parseBytes(s string) (int64, error) {
	for suffix, unit := range map[string]int64{"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9} {
		digits, ok := strings.CutSuffix(s, suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > 1e12/unit {
			return 0, fmt.Errorf("%.40q is no size such as 10MB or 512KiB", s)
		}
		return n * unit, nil
	}
	return parseSize(s)
}

// told says what bounds are, for people.
func told(b cofferdam.Bounds) string {
	s := b.Entry + " for " + time.Duration(b.Seconds*float64(time.Second)).String()
	if b.Uses > 0 {
		s += fmt.Sprintf(", %d requests", b.Uses)
	}
	if b.Bytes > 0 {
		s += fmt.Sprintf(", %d bytes sent and received", b.Bytes)
	}
	return s
}

// showWords prints what an agent says why it needs what it proposes, and how it is
// opened for all tasks.
func (a answers) showWords(q cofferdam.Question) error {
	_, err := fmt.Fprintf(a.Out, "\nthe agent's own words, which nobody has checked:\n%s\n\nfor all tasks instead: put this into a file of the policy, and give it to cofferdam policy propose\n\n[egress]\nallow = [%q]\n",
		exactBytes(q.Bytes), clean(q.Proposed.Entry))
	return err
}

// countsFrom says from when on an opening counts if no session of the task runs.
func countsFrom(t cofferdam.Task) string {
	switch {
	case t.State.Ended(), t.State == cofferdam.InReview:
		return fmt.Sprintf("; none of its sessions runs: it counts for cofferdam task retry %s, if that begins until then", t.Short())
	case t.State == cofferdam.Queued, t.State == cofferdam.Preparing:
		return "; it counts from when its session begins"
	}
	return ""
}

func newApprovalOpen(a *app) *cobra.Command {
	var r cofferdam.OpenRequest
	var f openFlags
	c := &cobra.Command{
		Use: "open TASK ENTRY", Short: "Open one host for the rest of a task", Args: exactly("TASK", "ENTRY"),
		Long: "Open one entry for the rest of a task, such as a host that it was refused, also for its next attempt: for a time and, with --uses and --bytes, for a number of " +
			"requests or of bytes. It counts at once. What a rule denies stays denied, and what is beyond a limit of the policy nobody opens. A person does this at a " +
			"terminal and proves with a password or a code that they are there." + calling(9),
		Example: "  cofferdam approval open t-42 api.example.com --for 30m --uses 10 --bytes 10MB",
		RunE: func(c *cobra.Command, args []string) error {
			r.Bounds.Entry = args[1]
			if err := f.fill(c, &r.Bounds, true); err != nil {
				return err
			}
			// A password is asked for only once it can help.
			if _, err := policy.ParseOpening(cmp.Or(r.Action, policy.HTTP), args[1]); err != nil {
				return err
			}
			cl, err := answers{a}.attend("opening "+args[1], "cofferdam approval open")
			if err != nil {
				return err
			}
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.labels([]label{{"task", t.Short() + "  " + cut(clean(t.Request.Text), 60)}, {"opens", told(r.Bounds)}}); err != nil {
				return err
			}
			if r.Proof, err = (answers{a}).prove(c, cl); err != nil {
				return err
			}
			q, err := cl.OpenTask(c.Context(), string(t.ID), r)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(q)
			}
			a.say("%s is open for %s until %s%s", args[1], t.Short(), stamp(q.Created.Add(f.span)), countsFrom(t))
			return nil
		},
	}
	f.add(c, "")
	c.Flags().StringVar(&r.Action, "action", "", "invoke, use and so on, if the entry is no host")
	c.Flags().StringVar(&r.Comment, "comment", "", "a sentence for the record")
	return c
}
