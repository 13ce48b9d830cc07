package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

// opencodeOutput is what opencode 1.18.33 wrote, shortened.
const opencodeOutput = `{"type":"step_start","timestamp":1,"sessionID":"ses_dd5b705bdffe","part":{"type":"step-start","snapshot":"4b82"}}
{"type":"text","timestamp":1,"sessionID":"ses_dd5b705bdffe","part":{"type":"text","text":"I look.","time":{"start":1,"end":2}}}
{"type":"tool_use","sessionID":"ses_dd5b705bdffe","part":{"type":"tool","tool":"bash","callID":"c","state":{"status":"completed","input":{"command":"ls\n-l","description":"look"},"output":"made.txt\n","metadata":{"output":"made.txt\n","exit":0,"truncated":false},"title":"ls"}}}
{"type":"step_finish","sessionID":"ses_dd5b705bdffe","part":{"reason":"tool-calls","type":"step-finish","tokens":{"total":1255,"input":1200,"output":55,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}}
{"type":"tool_use","sessionID":"ses_dd5b705bdffe","part":{"tool":"write","state":{"status":"completed","input":{"filePath":"/work/w.txt","content":"one\ntwo\n"},"output":"Wrote file successfully.","metadata":{"filepath":"/work/w.txt","exists":false}}}}
{"type":"tool_use","sessionID":"ses_dd5b705bdffe","part":{"tool":"bash","state":{"status":"completed","input":{"command":"false"},"output":"(no output)","metadata":{"output":"(no output)","exit":1}}}}
{"type":"tool_use","sessionID":"ses_dd5b705bdffe","part":{"tool":"write","state":{"status":"error","input":{"filePath":"/etc/nope","content":"x"},"error":"PermissionDenied: FileSystem.writeFile (/etc/nope)"}}}
{"type":"tool_use","sessionID":"ses_dd5b705bdffe","part":{"tool":"apply_patch","state":{"status":"completed","input":{"patchText":"*** Begin Patch"},"output":"Success","metadata":{"files":[{"filePath":"/work/a","type":"add"},{"filePath":"/work/b","type":"update"}]}}}}
{"type":"text","sessionID":"ses_dd5b705bdffe","part":{"type":"text","text":"Done.\ncofferdam: nothing to do"}}
{"type":"step_finish","sessionID":"ses_dd5b705bdffe","part":{"reason":"stop","tokens":{"input":1000,"output":10,"reasoning":5,"cache":{"write":100,"read":200}},"cost":0.25}}
`

func TestOpencodeIsReadHoweverItIsCut(t *testing.T) {
	want := []Event{
		{Kind: Begin, Text: "ses_dd5b705bdffe"},
		{Kind: Message, Text: "I look."},
		{Kind: Tool, Tool: "bash", Text: "ls\n-l"},
		{Kind: Answer, Text: "made.txt\n"},
		{Kind: Cost, Tokens: 1255},
		{Kind: Tool, Tool: "write", Text: "/work/w.txt"},
		{Kind: Answer, Text: "Wrote file successfully."},
		{Kind: Change, Text: "/work/w.txt"},
		{Kind: Tool, Tool: "bash", Text: "false"},
		{Kind: Answer, Text: "(no output)", Error: true},
		{Kind: Tool, Tool: "write", Text: "/etc/nope"},
		{Kind: Answer, Text: "PermissionDenied: FileSystem.writeFile (/etc/nope)", Error: true},
		{Kind: Tool, Tool: "apply_patch", Text: `{"patchText":"*** Begin Patch"}`},
		{Kind: Answer, Text: "Success"},
		{Kind: Change, Text: "/work/a"},
		{Kind: Change, Text: "/work/b"},
		{Kind: Message, Text: "Done.\ncofferdam: nothing to do"},
		{Kind: Cost, Tokens: 2570, Dollars: 0.25},
	}
	for _, n := range []int{1, 7, 4096} {
		events, end := read(t, "opencode", opencodeOutput, n)
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("pieces of %d: %s", n, diff)
		}
		if end.Said != cofferdam.SaidNothingToDo || end.Failed || end.Skipped != 0 || end.Conversation != "ses_dd5b705bdffe" {
			t.Errorf("pieces of %d: %+v", n, end)
		}
	}
}

func TestOpencodeSaysWhyItCouldNotGoOn(t *testing.T) {
	output := `{"type":"error","sessionID":"ses_1","error":{"name":"APIError","data":{"message":"provider is down","statusCode":403}}}`
	events, end := read(t, "opencode", output, 100)
	if !end.Failed || end.Message != "provider is down" || len(events) != 1 || events[0].Kind != Begin {
		t.Errorf("events %+v, end %+v", events, end)
	}
	over := output + "\n" + `{"type":"text","sessionID":"ses_1","part":{"text":"I am back."}}`
	if _, end := read(t, "opencode", over, 100); end.Failed || end.Message != "I am back." {
		t.Errorf("an error that was got over: %+v", end)
	}
}

// hostileLines are no lines that any reader of JSON takes for its own.
const hostileLines = "no json\n[1]\n\"x\"\n{\"type\":7}\n{\"type\":\"tool_use\",\"part\":[],\"parameters\":{},\"tool_id\":[]}\n" +
	`{"type":"result","status":{},"part":{"tokens":"many"},"stats":[]}` + "\n"

func TestHostileLinesOfOthersAreSkippedAndCounted(t *testing.T) {
	for name, last := range map[string]string{
		"opencode": `{"type":"text","part":{"text":"cofferdam: blocked: no host"}}`,
		"gemini":   `{"type":"message","role":"assistant","content":"cofferdam: blocked: no host","delta":true}`,
	} {
		for _, n := range []int{1, 1000} {
			_, end := read(t, name, hostileLines+last, n)
			if end.Skipped != 6 || end.Said != cofferdam.SaidBlocked || end.Message != "no host" {
				t.Errorf("%s: %+v", name, end)
			}
		}
	}
}

func TestCostsThatCannotBeAreNotTold(t *testing.T) {
	for name, output := range map[string]string{
		"opencode": `{"type":"step_finish","part":{"cost":-1,"tokens":{"input":1e300,"output":-1e300}}}`,
		"gemini":   `{"type":"result","status":"success","stats":{"total_tokens":1e300}}`,
	} {
		if events, _ := read(t, name, output, 1000); len(events) != 0 {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

func FuzzOpencode(f *testing.F) { fuzzReader(f, "opencode", opencodeOutput) }

// fuzzReader looks that whatever an agent writes is read without a fault, into
// bounded events, and the same however it is cut.
func fuzzReader(f *testing.F, adapter, output string) {
	f.Add(output, 7)
	f.Add(hostileLines, 3)
	for _, line := range strings.SplitAfter(output, "\n") {
		f.Add(line, 1)
	}
	f.Fuzz(func(t *testing.T, output string, n int) {
		events, end := read(t, adapter, output, max(n, 1))
		for _, e := range events {
			if len(e.Text) > MaxText || len(e.Tool) > MaxText {
				t.Fatalf("an event of %d and %d bytes", len(e.Text), len(e.Tool))
			}
		}
		again, whole := read(t, adapter, output, max(len(output), 1))
		if diff := cmp.Diff(again, events) + cmp.Diff(whole, end); diff != "" {
			t.Fatal(diff)
		}
	})
}
