package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"cofferdam/internal/config"
	"cofferdam/internal/doctor"
	"cofferdam/sandbox"
)

// slowDoctor is after how long doctor says what it waits for.
const slowDoctor = 3 * time.Second

func newDoctor(a *app) *cobra.Command {
	s := &serverFlags{}
	c := &cobra.Command{
		Use: "doctor", Short: "Check this host, with a fix for each fault", Args: none,
		Long: "Check this host: what boxes, gateways and server need, each with its fix, and which tiers of box it has. Any user may ask, and no " +
			"server is needed. The server refuses to start on the same checks." + exits(0, 1, 2), Example: "  sudo cofferdam doctor",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := s.load(a, c)
			if err != nil {
				return err
			}
			slow := time.AfterFunc(slowDoctor, func() {
				a.say("still looking: to see whether KVM runs a machine here takes up to 15 s, once for each start of the host")
			})
			r := doctor.Run(c.Context(), doctor.Options{Config: conf, Presets: config.Presets(c.Context(), conf, config.ThisMachine())})
			slow.Stop()
			if a.json {
				if err := a.object(r); err != nil {
					return err
				}
			} else {
				screen{a}.findings(r.Items)
				screen{a}.tiers(r)
			}
			var failed []string
			for _, f := range r.Failed() {
				failed = append(failed, f.Name)
			}
			if len(failed) > 0 {
				a.say("%d of %d checks failed: %s", len(failed), len(r.Items), strings.Join(failed, ", "))
				return outcome(1)
			}
			return nil
		},
	}
	s.add(c)
	return c
}

func (s screen) findings(list []sandbox.Finding) {
	for _, f := range list {
		s.finding("", f)
	}
}

// finding prints one finding behind an indent.
func (s screen) finding(indent string, f sandbox.Finding) {
	level, name := fmt.Sprintf("%-4s", clean(f.Level)), fmt.Sprintf("  %-22s ", clean(f.Name)) // so long are nearly all
	width := len(indent) + utf8.RuneCountInString(level+name)
	s.hanging(indent+s.painted(level)+name, width, f.Detail)
	if f.Fix != "" {
		const fix = "fix: "
		s.hanging(strings.Repeat(" ", width)+fix, width+len(fix), f.Fix)
	}
}

// tiers says which tiers of box this host has, and what each of the others
// lacks. The findings of the server's own tier were printed before, and what was
// said of one tier is not said again of the next: it is named.
func (s screen) tiers(r doctor.Report) {
	told := map[[2]string]bool{}
	for _, f := range r.Items {
		told[[2]string{f.Name, f.Detail}] = true
	}
	for i, t := range r.Tiers {
		if i == 0 {
			fmt.Fprintln(s.Out, "\ntiers of box (docs/tiers.md says which protects against what):")
		}
		word, more := "usable", ""
		if !t.Usable {
			word = "no"
		}
		if t.Tier == r.Tier {
			more = strings.Repeat(" ", 8-len(word)) + "the one of this server's boxes"
		}
		fmt.Fprintf(s.Out, "%-18s %s%s\n", clean(string(t.Tier)), s.painted(word), more)
		if t.Tier == r.Tier {
			continue
		}
		again := map[string][]string{} // names by level
		for _, f := range t.Findings {
			key := [2]string{f.Name, f.Detail}
			switch {
			case f.Level == sandbox.OK:
			case told[key]:
				again[f.Level] = append(again[f.Level], f.Name)
			default:
				told[key] = true
				s.finding("  ", f)
			}
		}
		for _, level := range []string{sandbox.Fail, sandbox.Warn} {
			if names := again[level]; len(names) > 0 {
				s.finding("  ", sandbox.Finding{Level: level, Name: "as above", Detail: strings.Join(names, ", ")})
			}
		}
	}
}
