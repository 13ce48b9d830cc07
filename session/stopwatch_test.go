package session

import (
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// log is a session's log as a test writes it: events at seconds after its begin.
type log struct {
	ledger
	start time.Time
}

func newLog() *log {
	l := &log{start: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)}
	l.seen.calls, l.seen.execs, l.seen.checks = map[uint64]cofferdam.Usage{}, map[cofferdam.ExecID]*execution{}, map[int]CheckRun{}
	return l
}

func (l *log) at(second int, e cofferdam.Event) {
	e.Time = l.start.Add(time.Duration(second) * time.Second)
	if e.Fields == nil {
		e.Fields = map[string]string{}
	}
	l.seen.note(e)
}

func (l *log) spentSeconds() float64 {
	u := l.seen.spent()
	return float64(u.Time) / 1000
}

// TestTimeOfALostAgent: a turn that nobody saw end counts up to what was seen of it
// last, however long the host was away after; one that ended counts as it was measured.
func TestTimeOfALostAgent(t *testing.T) {
	l := newLog()
	turn := func(second int, number, kind string) {
		l.at(second, cofferdam.Event{Kind: cofferdam.EventAgentTurn, Fields: map[string]string{fieldNumber: number, fieldKind: kind}})
	}
	turn(10, "1", "")
	turn(12, "", "begin") // its reader tells of its conversation
	l.at(40, cofferdam.Event{Kind: cofferdam.EventSessionState, Fields: map[string]string{fieldStep: stepTurn, fieldData: encode(turnEnd{Seconds: 29.5})}})
	l.at(45, cofferdam.Event{Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed})
	if got := l.spentSeconds(); got != 29.5 {
		t.Errorf("a turn of 29.5 s counts %v s", got)
	}
	turn(50, "2", "")
	l.at(65, cofferdam.Event{Kind: cofferdam.EventRequest, Verdict: cofferdam.Refused})
	l.at(70, cofferdam.Event{Kind: cofferdam.EventExecOutput})
	l.at(9000, cofferdam.Event{Kind: cofferdam.EventSessionState, Fields: map[string]string{fieldStep: stepResult, fieldData: "{}"}}) // the box was lost meanwhile
	if got := l.spentSeconds(); got != 49.5 {
		t.Errorf("with a turn of which 20 s were seen it is %v s, want 49.5", got)
	}
}

// TestTimeOfABrain: our own agent has no turns that end; its time is that from its
// first message to its end, less what it waited for people.
func TestTimeOfABrain(t *testing.T) {
	l := newLog()
	l.at(5, cofferdam.Event{Kind: cofferdam.EventAgentTurn, Fields: map[string]string{fieldKind: "begin", fieldConversation: "loop"}})
	l.at(20, cofferdam.Event{Kind: cofferdam.EventModelCall, Verdict: cofferdam.Allowed})
	if got := l.spentSeconds(); got != 15 {
		t.Errorf("while it runs: %v s, want 15", got)
	}
	l.at(25, cofferdam.Event{Kind: cofferdam.EventSessionAsk})
	l.at(125, cofferdam.Event{Kind: cofferdam.EventSessionState, Fields: map[string]string{fieldStep: stepAnswered}})
	l.at(130, cofferdam.Event{Kind: cofferdam.EventAgentTurn, Fields: map[string]string{fieldKind: whyMessage}})
	l.at(140, cofferdam.Event{Kind: cofferdam.EventAgentEnd})
	l.at(500, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Allowed}) // what it left is taken
	if got := l.spentSeconds(); got != 35 {
		t.Errorf("135 s less 100 that it waited: %v s, want 35", got)
	}
	if got := l.seen.stopwatch.now(l.seen.waited, false); got != 35*time.Second {
		t.Errorf("after its end it has run %v", got)
	}
}

// TestStuck: what is refused again and again while nothing else passes counts, calls
// of the model between do not change that; what passes, another act and a new turn do.
func TestStuck(t *testing.T) {
	l := newLog()
	refuse := func(resource string, times int) {
		for range times {
			l.at(1, cofferdam.Event{Kind: cofferdam.EventDNS, Verdict: cofferdam.Allowed, Resource: resource})
			l.at(1, cofferdam.Event{Kind: cofferdam.EventConnect, Verdict: cofferdam.Refused, Rule: "default-deny", Resource: resource})
			l.at(1, cofferdam.Event{Kind: cofferdam.EventModelCall, Verdict: cofferdam.Allowed})
		}
	}
	is := func(when string, want int) {
		t.Helper()
		if got := l.seen.rut.most; got != want {
			t.Errorf("%s: %d times, want %d", when, got, want)
		}
	}
	refuse("a.test:443", warnStuck)
	is("the same again and again", warnStuck)
	if s := l.seen.rut.sentence(); !strings.Contains(s, "a.test:443 by the rule default-deny") || !strings.Contains(s, "20 times") {
		t.Errorf("it says %q", s)
	}
	refuse("b.test:443", 3)
	is("two acts by turns", warnStuck)
	l.at(1, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Allowed})
	is("something passed", 0)
	refuse("a.test:443", 4)
	is("again", 4)
	l.at(1, cofferdam.Event{Kind: cofferdam.EventAgentTurn, Fields: map[string]string{fieldNumber: "2"}})
	is("a new turn", 0)
	for i := range 3 * maxStuck { // one that tries many things
		refuse(strings.Repeat("x", i+1)+".test:443", 1)
	}
	is("many acts", 1)
	if n := len(l.seen.rut.tries); n > maxStuck {
		t.Errorf("%d acts are kept", n)
	}
	for range 2 * stopStuck {
		l.at(1, cofferdam.Event{Kind: cofferdam.EventRequest, Verdict: cofferdam.Refused, Rule: cofferdam.RuleBudget, Resource: "a.test"})
	}
	is("a budget that is used up, which says so itself", 1)
	l.at(1, cofferdam.Event{Kind: cofferdam.EventSessionStuck})
	l.at(1, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Allowed})
	if !l.seen.rut.warned {
		t.Error("it is warned of a second time")
	}
}

// TestWhatALogSaysOfPolicy: by what a session was judged, which answers let acts pass
// and what went beyond the scope, bounded whatever happens in the box.
func TestWhatALogSaysOfPolicy(t *testing.T) {
	l := newLog()
	judged := func(seq uint64, base string) {
		l.at(1, cofferdam.Event{Seq: seq, Session: "s-1", Kind: cofferdam.EventSessionState, Resource: stepPolicy, Fields: map[string]string{
			fieldStep: stepPolicy, cofferdam.FieldPolicy: base, cofferdam.FieldProjectText: "sha256:doc",
		}})
	}
	judged(3, "sha256:first")
	l.at(2, cofferdam.Event{Session: "s-1", Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed, Rule: "ask-1", Resource: "GET a.test", Fields: map[string]string{cofferdam.FieldAnswer: "a-1", cofferdam.FieldAnswers: "person:ann"}})
	for range 3 {
		l.at(2, cofferdam.Event{Session: "s-1", Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed, Rule: cofferdam.RuleGiven + "a-2", Resource: "GET b.test"})
	}
	l.at(2, cofferdam.Event{Session: "s-1", Kind: cofferdam.EventRequest, Verdict: cofferdam.Refused, Rule: cofferdam.RuleGiven + "a-9"}) // was not let pass
	l.at(3, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Refused, Rule: cofferdam.RuleScope})
	v := &l.seen.verdicts
	want := []cofferdam.Passed{{Session: "s-1", Question: "a-1", By: "person:ann", Acts: 1, First: "egress.request GET a.test"}, {Session: "s-1", Question: "a-2", Opened: true, Acts: 3, First: "egress.request GET b.test"}}
	if len(v.passed) != 2 || v.passed[0] != want[0] || v.passed[1] != want[1] || v.strays.Refused != 1 {
		t.Errorf("passed %+v, strays %+v", v.passed, v.strays)
	}
	if want := (cofferdam.Judged{Session: "s-1", From: 3, Policy: "sha256:first", Project: "sha256:doc"}); len(v.judged) != 1 || v.judged[0] != want {
		t.Errorf("judged by %+v", v.judged)
	}
	for i := range 3 * maxJudged {
		judged(uint64(10+i), "sha256:later")
		l.at(4, cofferdam.Event{Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed, Rule: cofferdam.RuleGiven + strings.Repeat("q", i+1), Resource: strings.Repeat("r", 2*maxStray)})
		l.at(4, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Allowed, Fields: map[string]string{cofferdam.FieldBeyond: strings.Repeat("é", i+1) + strings.Repeat("p", 2*maxStray)}})
	}
	if len(v.judged) != maxJudged || v.judged[0].From != 3 || v.judged[maxJudged-1].From != uint64(9+3*maxJudged) || len(v.passed) != maxJudged || len(v.strays.Marked) != maxMarked {
		t.Errorf("%d policies from %d on, %d answers, %d files", len(v.judged), v.judged[0].From, len(v.passed), len(v.strays.Marked))
	}
	for _, m := range v.strays.Marked {
		if len(m) > maxStray+8 {
			t.Fatalf("%d bytes of files", len(m))
		}
	}
}
