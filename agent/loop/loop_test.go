package loop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
	"cofferdam/agent"
)

// repair is a small task: look, two calls at once, edit, check, done.
func repair(q seen) reply {
	switch q.Turn {
	case 1:
		return reply{say: "I look.", calls: []string{`read {"path":"calc.txt"}`, `search {"pattern":"1 \\+"}`}}
	case 2:
		return reply{calls: []string{
			`edit {"path":"calc.txt","old":"= 3","new":"= 2"}`, `write {"path":"new/notes.txt","text":"mended\n"}`,
			`shell {"command":"echo ran >> count; cat calc.txt; exit 4","timeout":"5"}`,
		}}
	}
	return reply{say: "The sum is right now."}
}

func TestRepair(t *testing.T) {
	p := newPlay(t, repair)
	p.machine.file("calc.txt", "1 + 1 = 3\n")
	end := p.end()
	if end.Said != cofferdam.SaidDone || end.Message != "The sum is right now." || end.Failed {
		t.Errorf("end %+v", end)
	}
	if p.machine.read("calc.txt") != "1 + 1 = 2\n" || p.machine.read("new/notes.txt") != "mended\n" {
		t.Error("the files are not as they should be")
	}
	want := `begin  "loop" false 0
message  "I look." false 0
tool read "{\"path\":\"calc.txt\"}" false 0
tool search "{\"pattern\":\"1 \\\\+\"}" false 0
cost  "" false 15
result read "from line 1 on; the file has 1 lines\n1 + 1 = 3\n" false 0
result search "1 lines were found\n./calc.txt:1:1 + 1 = 3" false 0
tool edit "{\"new\":\"= 2\",\"old\":\"= 3\",\"path\":\"calc.txt\"}" false 0
tool write "{\"path\":\"new/notes.txt\",\"text\":\"mended\\n\"}" false 0
tool shell "{\"command\":\"echo ran \\u003e\\u003e count; cat calc.txt; exit 4\",\"timeout\":\"5\"}" false 0
cost  "" false 30
result edit "changed" false 0
file  "calc.txt" false 0
result write "written, 7 bytes" false 0
file  "new/notes.txt" false 0
result shell "exit 4\n1 + 1 = 2\n" true 0
message  "The sum is right now." false 0
cost  "" false 45
`
	if got := shown(p.events); got != want {
		t.Errorf("events:\n%s\nwant:\n%s", got, want)
	}
	last := p.provider.asked[len(p.provider.asked)-1]
	if last.Model != DefaultModel["anthropic"] || len(last.Tools) != 5 {
		t.Errorf("asked for %s with %d tools", last.Model, len(last.Tools))
	}
}

// TestCrashAtEveryMessage cuts the run at each append: the next process ends
// the same, tells the same events, and nothing ran twice.
func TestCrashAtEveryMessage(t *testing.T) {
	whole := newPlay(t, repair)
	whole.machine.file("calc.txt", "1 + 1 = 3\n")
	want, all := whole.end(), shown(whole.events)
	for cut := 1; cut <= len(whole.memory.entries); cut++ {
		p := newPlay(t, repair)
		p.machine.file("calc.txt", "1 + 1 = 3\n")
		p.memory.until = cut
		if _, err := p.run(); !errors.Is(err, errDead) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		before := shown(p.events)
		p.memory.until = 0
		if got := p.end(); got != want {
			t.Errorf("cut at %d: end %+v", cut, got)
		}
		if got := shown(p.events); got != all || !strings.HasPrefix(got, before) {
			t.Errorf("cut at %d: events\n%s", cut, got)
		}
		if p.machine.read("count") != "ran\n" || len(p.machine.runs) != len(whole.machine.runs) {
			t.Errorf("cut at %d: ran %v", cut, p.machine.runs)
		}
		if again := p.end(); again != want {
			t.Errorf("cut at %d: asked once more: %+v", cut, again)
		}
	}
}

func TestPersonSpeaks(t *testing.T) {
	var box []cofferdam.TaskMessage
	said := func(_ context.Context, after int64) ([]cofferdam.TaskMessage, error) {
		return box[min(int(after), len(box)):], nil
	}
	speak := func(text string) {
		for _, m := range box {
			if m.Text == text {
				return
			}
		}
		box = append(box, cofferdam.TaskMessage{Number: int64(len(box) + 1), Text: text, By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}})
	}
	p := newPlay(t, func(q seen) reply {
		switch {
		case strings.Contains(q.latest(), "and stop then"):
			return reply{say: "I stop.\ncofferdam: nothing to do"}
		case q.Turn == 1:
			speak("use tabs")
			return reply{calls: []string{`shell {"command":"echo one"}`, `shell {"command":"echo two >> two"}`}}
		case strings.Contains(q.latest(), "A person says: use tabs"):
			if !strings.Contains(q.latest(), "one") || !strings.Contains(q.latest(), "this was not done, because a person") {
				t.Errorf("the model is told:\n%s", q.latest())
			}
			speak("and stop then")
			return reply{say: "Tabs it is."}
		}
		return reply{say: "lost"}
	})
	p.options.Said = said
	end := p.end()
	if end.Said != cofferdam.SaidNothingToDo || !strings.Contains(end.Message, "I stop.") {
		t.Errorf("end %+v", end)
	}
	if len(p.machine.runs) != 1 || fmt.Sprint(p.told) != "[1 2]" {
		t.Errorf("ran %v, told %v", p.machine.runs, p.told)
	}
	for cut := 1; cut <= len(p.memory.entries); cut++ { // and over crashes, once each
		again := &play{t: t, provider: p.provider, machine: newMachine(t), memory: &memory{entries: slices.Clone(p.memory.entries[:cut-1])}, options: p.options}
		e := again.end()
		if e.Said != end.Said || fmt.Sprint(again.told) != "[1 2]" {
			t.Errorf("cut at %d: %+v, told %v", cut, e, again.told)
		}
	}
}

func TestRepetition(t *testing.T) {
	p := newPlay(t, func(q seen) reply {
		if q.Turn > 20 {
			return reply{say: "never"}
		}
		return reply{calls: []string{`shell {"command":"echo same"}`}}
	})
	end := p.end()
	if end.Said != cofferdam.SaidBlocked || !strings.Contains(end.Message, "repeats itself") {
		t.Errorf("end %+v", end)
	}
	if n := len(p.machine.runs); n != stopAt {
		t.Errorf("it ran %d times", n)
	}
	notes := strings.Count(p.provider.asked[len(p.provider.asked)-1].text, "you have made this call 3 times")
	if notes != 1 {
		t.Errorf("told %d times", notes)
	}
	// The same command with other results in between is work.
	p = newPlay(t, func(q seen) reply {
		if q.Turn > 12 {
			return reply{say: "done"}
		}
		if q.Turn%2 == 0 {
			return reply{calls: []string{`shell {"command":"echo same"}`}}
		}
		return reply{calls: []string{fmt.Sprintf(`write {"path":"f","text":"%d"}`, q.Turn)}}
	})
	if end := p.end(); end.Said != cofferdam.SaidDone {
		t.Errorf("end %+v", end)
	}
}

func TestTurns(t *testing.T) {
	p := newPlay(t, func(q seen) reply {
		return reply{calls: []string{fmt.Sprintf(`shell {"command":"echo %d"}`, q.Turn)}}
	})
	p.options.Turns = 7
	end := p.end()
	if end.Said != cofferdam.SaidBlocked || !strings.Contains(end.Message, "7 turns") || len(p.provider.asked) != 7 {
		t.Errorf("end %+v after %d", end, len(p.provider.asked))
	}
	for _, o := range []Options{
		{Provider: "anthropic", Turns: MaxTurns + 1},
		{Provider: "anthropic", Turns: -1},
		{Provider: "anthropic", Window: minWindow - 1},
		{Provider: "smoke signals"},
	} {
		if _, err := Run(t.Context(), o); cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestModelFaults: what can pass is tried again, what cannot ends at once.
func TestModelFaults(t *testing.T) {
	gone := errors.New("nobody is there")
	for name, tt := range map[string]struct {
		fault reply
		times int // how often the fault is answered before the model works
		tries int
		end   End
	}{
		"overloaded, then well":  {reply{status: 529, say: "overloaded"}, 2, 3, End{End: agent.End{Said: "done", Message: "ok"}}},
		"limited, then well":     {reply{status: 429, say: "slow down", header: http.Header{"Retry-After": {"7"}}}, 1, 2, End{End: agent.End{Said: "done", Message: "ok"}}},
		"cut, then well":         {reply{raw: "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"}, 1, 2, End{End: agent.End{Said: "done", Message: "ok"}}},
		"broken, then well":      {reply{raw: "data: {nonsense\n\n"}, 1, 2, End{End: agent.End{Said: "done", Message: "ok"}}},
		"empty, then well":       {reply{raw: reply{}.stream()}, 1, 2, End{End: agent.End{Said: "done", Message: "ok"}}},
		"error in the stream":    {reply{raw: "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n"}, 1, 2, End{End: agent.End{Said: "done", Message: "ok"}}},
		"gone for good":          {reply{err: gone}, 99, maxTries, End{End: agent.End{Said: "blocked", Failed: true, Message: "the model gateway does not answer: nobody is there"}}},
		"broken for good":        {reply{status: 500, say: "sorry"}, 99, maxTries, End{End: agent.End{Said: "blocked", Failed: true, Message: "the model provider answered 500: sorry"}}},
		"empty for good":         {reply{raw: reply{}.stream()}, 99, maxTries, End{End: agent.End{Said: "blocked", Failed: true, Message: errEmpty.Error()}}},
		"wrong key":              {reply{status: 401, say: "invalid x-api-key"}, 99, 1, End{End: agent.End{Said: "blocked", Failed: true, Message: "the model provider answered 401: invalid x-api-key"}}},
		"refused by the gateway": {reply{status: 403, say: "cofferdam: no", header: http.Header{ruleHeader: {"model-not-allowed"}}}, 99, 1, End{End: agent.End{Said: "blocked", Failed: true, Message: "the model provider answered 403: cofferdam: no"}}},
		"budget":                 {reply{status: 400, say: "cofferdam: tokens: 5 of 4", header: http.Header{ruleHeader: {"budget"}}}, 99, 1, End{Exhausted: true, End: agent.End{Said: "blocked", Failed: true, Message: "cofferdam: tokens: 5 of 4"}}},
		"a web page":             {reply{raw: "<html></html>", header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}}, 99, 1, End{End: agent.End{Said: "blocked", Failed: true, Message: "the model provider answered 200: a web page; look at the address with: cofferdam model view"}}},
		"a redirect":             {reply{status: 302, say: "elsewhere"}, 99, 1, End{End: agent.End{Said: "blocked", Failed: true, Message: "the model provider answered 302: elsewhere"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				p := newPlay(t, func(seen) reply {
					if n++; n <= tt.times {
						return tt.fault
					}
					return reply{say: "ok"}
				})
				begun := time.Now()
				tt.end.Conversation = "loop"
				if end := p.end(); end != tt.end {
					t.Errorf("end %+v", end)
				}
				if n != tt.tries {
					t.Errorf("asked %d times", n)
				}
				if took := time.Since(begun); took > 2*time.Minute {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
