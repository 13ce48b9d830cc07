package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

// codexStream is what codex 0.171.0 wrote, less paths.
const codexStream = `{"type":"thread.started","thread_id":"01a22a4f-9395-74e0-a932-4c51f17041da"}
{"type":"item.completed","item":{"id":"item_9","type":"error","message":"Model metadata not found."}}
{"type":"turn.started"}
{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"/bin/bash -lc 'ls; false'","aggregated_output":"","exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"/bin/bash -lc 'ls; false'","aggregated_output":"made.txt\n","exit_code":1,"status":"failed"}}
{"type":"item.started","item":{"id":"item_1","type":"file_change","changes":[{"path":"/work/n.txt","kind":"add"}],"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"file_change","changes":[{"path":"/work/n.txt","kind":"add"}],"status":"completed"}}
{"type":"item.completed","item":{"id":"item_3","type":"mcp_tool_call","server":"docs","tool":"find","arguments":{"q":1},"result":{"ok":true},"status":"completed"}}
{"type":"error","message":"Reconnecting... 1/3"}
{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"ok\ncofferdam: nothing to do"}}
{"type":"turn.completed","usage":{"input_tokens":300,"cached_input_tokens":30,"output_tokens":15}}
`

func TestCodexIsReadHoweverItIsCut(t *testing.T) {
	want := []Event{
		{Kind: Begin, Text: "01a22a4f-9395-74e0-a932-4c51f17041da"},
		{Kind: Tool, Tool: "shell", Text: "/bin/bash -lc 'ls; false'"},
		{Kind: Answer, Text: "made.txt\n", Error: true},
		{Kind: Change, Text: "/work/n.txt"},
		{Kind: Tool, Tool: "docs.find", Text: `{"q":1}`},
		{Kind: Answer, Text: `{"ok":true}`},
		{Kind: Message, Text: "ok\ncofferdam: nothing to do"},
		{Kind: Cost, Tokens: 315},
	}
	for _, n := range []int{1, 7, 4096} {
		events, end := read(t, "codex", codexStream, n)
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("pieces of %d: %s", n, diff)
		}
		if end.Said != cofferdam.SaidNothingToDo || end.Failed || end.Skipped != 0 || end.Conversation != want[0].Text {
			t.Errorf("pieces of %d: %+v", n, end)
		}
	}
}

func TestCodexFailsAndIsNotBelieved(t *testing.T) {
	output := `{"type":"thread.started","thread_id":"--dangerous"}
{"type":"thread.started","thread_id":"a b"}
{"type":"item.completed","item":7}
{"type":"item.completed","item":{"id":"1","type":"file_change","changes":[{"path":"x"}],"status":"failed"}}
{"type":"turn.completed","usage":{"input_tokens":-5,"output_tokens":1e300}}
{"type":"turn.failed","error":{"message":"unexpected status 502 Bad Gateway: no provider"}}
`
	events, end := read(t, "codex", output, 9)
	want := []Event{{Kind: Answer, Text: "a change of 1 files was not made", Error: true}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
	if !end.Failed || end.Skipped != 1 || end.Conversation != "" || !strings.Contains(end.Message, "502") {
		t.Errorf("%+v", end)
	}
}
