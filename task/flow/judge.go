package flow

import (
	"fmt"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/session"
)

// holds says whether a check passed.
func holds(r session.CheckRun) bool { return r.Exit == 0 && !r.TimedOut }

// verdict is where a step's finding leads. The zero value means: go on.
type verdict struct {
	to      cofferdam.TaskState
	reason  string
	comment string
}

func blocked(reason, format string, a ...any) verdict {
	return verdict{cofferdam.Blocked, reason, fmt.Sprintf(format, a...)}
}

// ofSession judges that a session could not do its work.
func ofSession(r session.Result) verdict {
	if r.Failure == "" {
		return verdict{}
	}
	return blocked(r.Failure, "%s", r.Reason)
}

// ofBase judges the checks as they ran on the base: each --check has to fail
// there, each --keep has to pass.
func ofBase(checks []cofferdam.Check, r session.Result) verdict {
	if v := ofResults(checks, r); v.to != "" {
		return v
	}
	for i, c := range checks {
		run := r.Checks[i]
		switch {
		case run.TimedOut:
			return blocked(cofferdam.ReasonCheck, "check %s did not end on the base in time", brief(c.Command))
		case c.MustFailFirst && holds(run):
			return blocked(cofferdam.ReasonCheck, "check %s passes on the base already, so passing later would prove nothing; give it as --keep if it must go on passing", brief(c.Command))
		case !c.MustFailFirst && !holds(run):
			return blocked(cofferdam.ReasonCheck, "check %s must pass on the base to be kept, and ended there with %s; give it as --check if the task is to mend it", brief(c.Command), status(run.Exit, run.Exhausted))
		}
	}
	return verdict{}
}

// ofWork judges what the agent left. changed says whether it wrote a commit
// other than the base.
func ofWork(checks []cofferdam.Check, r session.Result, changed bool) verdict {
	if v := ofSession(r); v.to != "" {
		return v
	}
	switch {
	case r.TimedOut && r.Reason != "":
		return verdict{cofferdam.TimedOut, cofferdam.ReasonTime, r.Reason}
	case r.TimedOut:
		return verdict{cofferdam.TimedOut, cofferdam.ReasonTime, "the agent's time was up"}
	case r.Said == cofferdam.SaidQuestion:
		return blocked(cofferdam.ReasonAgent, "the agent asks, and the task does not say that a person answers (--ask): %s", words(r.Message))
	case r.Said == cofferdam.SaidBlocked:
		return blocked(cofferdam.ReasonAgent, "the agent says it is blocked: %s", words(r.Message))
	case changed:
		return verdict{}
	case r.Said == cofferdam.SaidNothingToDo:
		for _, c := range checks {
			if c.MustFailFirst { // it was seen failing on the base, which is what there is
				return blocked(cofferdam.ReasonAgent, "the agent says there is nothing to do, but check %s fails", brief(c.Command))
			}
		}
		return verdict{cofferdam.NothingToDo, "", "nothing was changed, and every check holds on the base"}
	}
	return blocked(cofferdam.ReasonAgent, "the agent ended with %s and left no commit", status(r.Exit, r.Met))
}

// status is how a command ended, with the limits that it met.
func status(exit int, met []string) string {
	if len(met) == 0 {
		return strconv.Itoa(exit)
	}
	return fmt.Sprintf("%d, having met its limit of %s,", exit, strings.Join(met, ", "))
}

// ofProof judges the checks as they ran on the agent's commit.
func ofProof(checks []cofferdam.Check, r session.Result) verdict {
	if v := ofResults(checks, r); v.to != "" {
		return v
	}
	for i, c := range checks {
		run := r.Checks[i]
		switch {
		case run.TimedOut:
			return blocked(cofferdam.ReasonCheck, "check %s did not end in time on the agent's commit", brief(c.Command))
		case !holds(run):
			return blocked(cofferdam.ReasonCheck, "check %s ended with %s on the agent's commit", brief(c.Command), status(run.Exit, run.Exhausted))
		}
	}
	return verdict{}
}

// ofResults judges whether the session has a result of each of these checks: a
// missing one is never a pass.
func ofResults(checks []cofferdam.Check, r session.Result) verdict {
	if v := ofSession(r); v.to != "" {
		return v
	}
	if len(r.Checks) != len(checks) {
		return blocked(cofferdam.ReasonBox, "%d of %d checks have a result", len(r.Checks), len(checks))
	}
	for i, c := range checks {
		if r.Checks[i].Command != c.Command {
			return blocked(cofferdam.ReasonBox, "result %d is of another check", i+1)
		}
	}
	return verdict{}
}

// Bounds of what a comment repeats.
const (
	maxCommand = 120
	maxWords   = 300
)

// brief quotes a command for a sentence.
func brief(command string) string { return fmt.Sprintf("%q", clip(command, maxCommand)) }

// words repeats an agent's words for a sentence: one line, quoted, bounded.
func words(message string) string {
	if strings.TrimSpace(message) == "" {
		return "it gives no reason"
	}
	return fmt.Sprintf("%q", clip(strings.Join(strings.Fields(message), " "), maxWords))
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
