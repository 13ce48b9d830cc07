package flow

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/session"
)

var (
	mend = cofferdam.Check{Command: "make test", MustFailFirst: true}
	keep = cofferdam.Check{Command: "make lint"}
)

func runs(exits ...int) session.Result {
	r := session.Result{Session: "s-1"}
	for i, c := range []cofferdam.Check{mend, keep}[:len(exits)] {
		r.Checks = append(r.Checks, session.CheckRun{Command: c.Command, Exit: exits[i]})
	}
	return r
}

func late(r session.Result, i int) session.Result {
	r.Checks[i].Exit, r.Checks[i].TimedOut = 0, true
	return r
}

func full(r session.Result) session.Result {
	r.Checks[0].Exhausted = []string{"disk"}
	return r
}

func TestJudge(t *testing.T) {
	both := []cofferdam.Check{mend, keep}
	only := []cofferdam.Check{keep}
	lost := session.Result{Failure: "environment", Reason: "npm install ended with 1"}
	swapped := runs(1, 0)
	swapped.Checks[0], swapped.Checks[1] = swapped.Checks[1], swapped.Checks[0]
	said := func(s cofferdam.Said, message string) session.Result {
		return session.Result{Said: s, Message: message, Exit: 3}
	}
	for _, c := range []struct {
		name   string
		got    verdict
		to     cofferdam.TaskState // "" means: go on
		reason string
		says   string
	}{
		{"base: one fails, one passes", ofBase(both, runs(1, 0)), "", "", ""},
		{"base: command not found is a failure", ofBase(both, runs(127, 0)), "", "", ""},
		{"base: passes already", ofBase(both, runs(0, 0)), cofferdam.Blocked, cofferdam.ReasonCheck, "--keep"},
		{"base: nothing to keep", ofBase(both, runs(1, 1)), cofferdam.Blocked, cofferdam.ReasonCheck, "--check"},
		{"base: no end", ofBase(both, late(runs(1, 0), 0)), cofferdam.Blocked, cofferdam.ReasonCheck, "in time"},
		{"base: no end of a kept one", ofBase(both, late(runs(1, 0), 1)), cofferdam.Blocked, cofferdam.ReasonCheck, "in time"},
		{"base: a result is missing", ofBase(both, runs(1)), cofferdam.Blocked, cofferdam.ReasonBox, "1 of 2"},
		{"base: no result at all", ofBase(both, session.Result{}), cofferdam.Blocked, cofferdam.ReasonBox, "0 of 2"},
		{"base: results of others", ofBase(both, swapped), cofferdam.Blocked, cofferdam.ReasonBox, "another"},
		{"base: no environment", ofBase(both, lost), cofferdam.Blocked, "environment", "npm install"},

		{"work: a commit", ofWork(both, said(cofferdam.SaidDone, ""), true), "", "", ""},
		{"work: a commit, and claims of nothing to do", ofWork(both, said(cofferdam.SaidNothingToDo, ""), true), "", "", ""},
		{"work: no commit", ofWork(both, said(cofferdam.SaidDone, "all done!"), false), cofferdam.Blocked, cofferdam.ReasonAgent, "left no commit"},
		{"work: nothing to do while a check fails", ofWork(both, said(cofferdam.SaidNothingToDo, ""), false), cofferdam.Blocked, cofferdam.ReasonAgent, "make test"},
		{"work: nothing to do", ofWork(only, said(cofferdam.SaidNothingToDo, ""), false), cofferdam.NothingToDo, "", "every check holds"},
		{"work: killed at a limit", ofWork(only, session.Result{Exit: 137, Met: []string{"memory", "output"}}, false), cofferdam.Blocked, cofferdam.ReasonAgent, "ended with 137, having met its limit of memory, output, and left no commit"},
		{"work: nothing changed, nothing said", ofWork(only, said("", ""), false), cofferdam.Blocked, cofferdam.ReasonAgent, "left no commit"},
		{"work: blocked", ofWork(only, said(cofferdam.SaidBlocked, "need\n\ta  key"), true), cofferdam.Blocked, cofferdam.ReasonAgent, `"need a key"`},
		{"work: blocked without a word", ofWork(only, said(cofferdam.SaidBlocked, " "), false), cofferdam.Blocked, cofferdam.ReasonAgent, "no reason"},
		{"work: time is up", ofWork(both, session.Result{TimedOut: true, Said: cofferdam.SaidDone}, true), cofferdam.TimedOut, cofferdam.ReasonTime, ""},
		{"work: provider", ofWork(both, session.Result{Failure: "provider", Reason: "no answer"}, false), cofferdam.Blocked, cofferdam.ReasonProvider, "no answer"},

		{"proof: all pass", ofProof(both, runs(0, 0)), "", "", ""},
		{"proof: one fails", ofProof(both, runs(1, 0)), cofferdam.Blocked, cofferdam.ReasonCheck, "make test"},
		{"proof: killed at a limit", ofProof(both, full(runs(1, 0))), cofferdam.Blocked, cofferdam.ReasonCheck, "ended with 1, having met its limit of disk, on the agent's commit"},
		{"proof: a kept one fails", ofProof(both, runs(0, 2)), cofferdam.Blocked, cofferdam.ReasonCheck, "ended with 2"},
		{"proof: exit 0 by the clock is no pass", ofProof(both, late(runs(0, 0), 1)), cofferdam.Blocked, cofferdam.ReasonCheck, "in time"},
		{"proof: missing", ofProof(both, runs(0)), cofferdam.Blocked, cofferdam.ReasonBox, "1 of 2"},
		{"proof: box lost", ofProof(both, session.Result{Failure: "box", Reason: "gone"}), cofferdam.Blocked, cofferdam.ReasonBox, "gone"},
	} {
		if c.got.to != c.to || c.got.reason != c.reason || !strings.Contains(c.got.comment, c.says) {
			t.Errorf("%s: %+v, want %q %q saying %q", c.name, c.got, c.to, c.reason, c.says)
		}
	}
}

func TestWordsAreBounded(t *testing.T) {
	if got := words(strings.Repeat("é\x1b", 5000)); len([]rune(got)) > maxWords*5 || strings.ContainsRune(got, 0x1b) {
		t.Errorf("an agent's words are %d characters long, or carry control characters", len([]rune(got)))
	}
	if got := brief("a\nb"); got != `"a\nb"` {
		t.Errorf("brief: %s", got)
	}
}
