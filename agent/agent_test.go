package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

func TestEveryAdapterLoads(t *testing.T) {
	if diff := cmp.Diff([]string{"claude", "codex", "command", "gemini", "loop", "opencode"}, (Set{}).Names()); diff != "" {
		t.Fatal(diff)
	}
	for _, name := range (Set{}).Names() {
		a, err := Set{}.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if a.Name != name {
			t.Errorf("the file %s.toml holds the adapter %q", name, a.Name)
		}
	}
}

func TestUnknownAdapterSaysWhatThereIs(t *testing.T) {
	_, err := Set{}.Load("../adapters/claude")
	if cofferdam.KindOf(err) != cofferdam.NotFound || !strings.Contains(cofferdam.HintOf(err), "claude, codex, command") {
		t.Fatalf("got %v, hint %q", err, cofferdam.HintOf(err))
	}
}

// read feeds output in pieces of n bytes.
func read(t *testing.T, adapter, output string, n int) ([]Event, End) {
	t.Helper()
	a, err := Set{}.Load(adapter)
	if err != nil {
		t.Fatal(err)
	}
	return readAs(t, a, output, n)
}

func readAs(t *testing.T, a Adapter, output string, n int) ([]Event, End) {
	t.Helper()
	var events []Event
	r := a.NewReader(func(e Event) error { events = append(events, e); return nil })
	for len(output) > 0 {
		m := min(n, len(output))
		if _, err := r.Write([]byte(output[:m])); err != nil {
			t.Fatal(err)
		}
		output = output[m:]
	}
	end, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	return events, end
}

const stream = `{"type":"system","subtype":"init","session_id":"2c086f7c-1871","tools":["Bash"]}
{"type":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"1","name":"Bash","input":{"command":"ls\n-l","description":"d"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"made.txt","is_error":false}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"no"}],"is_error":true}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Odd","input":{"x":1}}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"3","name":"Write","input":{"file_path":"/work/a","content":"x"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"3","content":"written"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"4","content":""}]},"tool_use_result":{"bashEditDiff":{"changedFiles":["/work/b"]}}}
{"type":"result","subtype":"success","total_cost_usd":0.25,"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":2},"is_error":false,"result":"All well.\ncofferdam: nothing to do"}
`

func TestClaudeStreamIsReadHoweverItIsCut(t *testing.T) {
	want := []Event{
		{Kind: Begin, Text: "2c086f7c-1871"},
		{Kind: Message, Text: "I look."},
		{Kind: Tool, Tool: "Bash", Text: "ls\n-l"},
		{Kind: Answer, Text: "made.txt"},
		{Kind: Answer, Text: "no", Error: true},
		{Kind: Tool, Tool: "Odd", Text: `{"x":1}`},
		{Kind: Tool, Tool: "Write", Text: "/work/a"},
		{Kind: Answer, Text: "written"},
		{Kind: Change, Text: "/work/a"},
		{Kind: Answer},
		{Kind: Change, Text: "/work/b"},
		{Kind: Cost, Tokens: 17, Dollars: 0.25},
	}
	for _, n := range []int{1, 7, 4096} {
		events, end := read(t, "claude", stream, n)
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("pieces of %d: %s", n, diff)
		}
		if end.Said != cofferdam.SaidNothingToDo || end.Failed || end.Skipped != 0 || end.Conversation != "2c086f7c-1871" {
			t.Errorf("pieces of %d: %+v", n, end)
		}
	}
}

func TestHostileLinesAreSkippedAndCounted(t *testing.T) {
	huge := `{"type":"result","result":[` + strings.Repeat("1,", MaxLine/2) + `1]}` // not made of a long string
	output := "not json\n[1]\n{\"type\":7}\n\n" + huge + "\n" + `{"type":"result","is_error":true,"result":"cofferdam: blocked: no host"}`
	events, end := read(t, "claude", output, 1000)
	if len(events) != 0 || end.Skipped != 4 || end.Said != cofferdam.SaidBlocked || end.Message != "no host" || !end.Failed {
		t.Fatalf("events %v, end %+v", events, end)
	}
}

func TestEventsAreBounded(t *testing.T) {
	says := func(text string) string {
		return `{"type":"assistant","message":{"content":[{"type":"text","text":"` + text + `"}]}}` + "\n"
	}
	events, end := read(t, "claude", strings.Repeat(says("a line"), MaxEvents+3), 1<<16)
	if len(events) != MaxEvents || end.Dropped != 3 {
		t.Fatalf("%d events, %d dropped", len(events), end.Dropped)
	}
	events, _ = read(t, "claude", says(strings.Repeat("ä", MaxText)+"\xff end"), 1<<16)
	if text := events[0].Text; len(text) > MaxText || !strings.HasSuffix(text, "\uFFFD end") {
		t.Fatalf("%d bytes, ends %q", len(text), text[len(text)-10:])
	}
}

// What a plain program prints is on record as its output, and only there.
func TestPlainLinesAreNoEvents(t *testing.T) {
	events, end := read(t, "command", "one\n"+strings.Repeat("ä", MaxText)+"\xff end", 100)
	if len(events) != 0 || end.Dropped != 0 || len(end.Message) > MaxText || !strings.HasSuffix(end.Message, "\uFFFD end") {
		t.Fatalf("%d events, %d dropped, ends with %d bytes", len(events), end.Dropped, len(end.Message))
	}
}

func TestWhatAnAgentSays(t *testing.T) {
	for output, want := range map[string]End{
		"":                                   {Said: cofferdam.SaidDone},
		"all done":                           {Said: cofferdam.SaidDone, Message: "all done"},
		"x\ncofferdam: nothing to do\n\n":    {Said: cofferdam.SaidNothingToDo, Message: "cofferdam: nothing to do"},
		"Cofferdam: Nothing to do.\r\n":      {Said: cofferdam.SaidNothingToDo, Message: "Cofferdam: Nothing to do."},
		"cofferdam: nothing to do\nbut wait": {Said: cofferdam.SaidDone, Message: "but wait"},
		"cofferdam: blocked: the API is unknown ": {Said: cofferdam.SaidBlocked, Message: "the API is unknown"},
	} {
		_, end := read(t, "command", output, 100)
		if diff := cmp.Diff(want, end); diff != "" {
			t.Errorf("%q: %s", output, diff)
		}
	}
}

func TestEmitErrorStopsTheReader(t *testing.T) {
	a, err := Set{}.Load("claude")
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	r := a.NewReader(func(Event) error { return full })
	if _, err := r.Write([]byte(stream)); !errors.Is(err, full) {
		t.Fatalf("got %v", err)
	}
}

func FuzzClaude(f *testing.F) { fuzzReader(f, "claude", stream) }

func FuzzCodex(f *testing.F) { fuzzReader(f, "codex", codexStream) }
