package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

// geminiOutput is what Gemini CLI 0.61.0 wrote, shortened.
const geminiOutput = `{"type":"init","timestamp":"2026-11-30T02:34:08.938Z","session_id":"47249bbf-47c5-455f-9f53-035493048c36","model":"auto"}
{"type":"message","role":"user","content":"please do the work\n"}
{"type":"message","role":"assistant","content":"I ","delta":true}
{"type":"message","role":"assistant","content":"look.","delta":true}
{"type":"tool_use","tool_name":"run_shell_command","tool_id":"a","parameters":{"command":"ls\n-l","description":"look"}}
{"type":"tool_result","tool_id":"a","status":"success","output":"made.txt"}
{"type":"tool_use","tool_name":"write_file","tool_id":"b","parameters":{"file_path":"/work/w.txt","content":"one\ntwo\n"}}
{"type":"tool_use","tool_name":"replace","tool_id":"c","parameters":{"file_path":"/work/x.txt","old_string":"a","new_string":"b"}}
{"type":"tool_result","tool_id":"b","status":"success"}
{"type":"tool_result","tool_id":"c","status":"error","error":{"type":"edit_no_occurrence_found","message":"0 occurrences found"}}
{"type":"message","role":"assistant","content":"Done.\ncofferdam: nothing to do","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":600,"input_tokens":500,"output_tokens":100,"cached":0,"input":500,"duration_ms":518,"tool_calls":4,"models":{"m":{"total_tokens":600}}}}
`

func TestGeminiIsReadHoweverItIsCut(t *testing.T) {
	want := []Event{
		{Kind: Begin, Text: "47249bbf-47c5-455f-9f53-035493048c36"},
		{Kind: Message, Text: "I look."},
		{Kind: Tool, Tool: "run_shell_command", Text: "ls\n-l"},
		{Kind: Answer, Text: "made.txt"},
		{Kind: Tool, Tool: "write_file", Text: "/work/w.txt"},
		{Kind: Tool, Tool: "replace", Text: "/work/x.txt"},
		{Kind: Answer},
		{Kind: Change, Text: "/work/w.txt"},
		{Kind: Answer, Text: "0 occurrences found", Error: true},
		{Kind: Message, Text: "Done.\ncofferdam: nothing to do"},
		{Kind: Cost, Tokens: 600},
	}
	for _, n := range []int{1, 7, 4096} {
		events, end := read(t, "gemini", geminiOutput, n)
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("pieces of %d: %s", n, diff)
		}
		if end.Said != cofferdam.SaidNothingToDo || end.Failed || end.Skipped != 0 || end.Conversation != "47249bbf-47c5-455f-9f53-035493048c36" {
			t.Errorf("pieces of %d: %+v", n, end)
		}
	}
}

func TestGeminiSaysWhyItCouldNotGoOn(t *testing.T) {
	output := `{"type":"message","role":"assistant","content":"I try.","delta":true}
{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: provider is down]"},"stats":{"total_tokens":0}}`
	events, end := read(t, "gemini", output, 100)
	if !end.Failed || end.Message != "[API Error: provider is down]" || len(events) != 1 || events[0].Text != "I try." {
		t.Errorf("events %+v, end %+v", events, end)
	}
}

func TestGeminiPiecesAreOneBoundedMessage(t *testing.T) {
	var b strings.Builder
	for range 2000 {
		fmt.Fprintf(&b, `{"type":"message","role":"assistant","content":%q,"delta":true}`+"\n", strings.Repeat("x", 1000))
	}
	b.WriteString(`{"type":"message","role":"assistant","content":"\ncofferdam: blocked: no host","delta":true}` + "\n")
	killed := b.String()
	if events, end := read(t, "gemini", killed, 4096); len(events) != 0 || end.Said != cofferdam.SaidBlocked || end.Message != "no host" {
		t.Errorf("a run that was ended in its words: %d events, %+v", len(events), end)
	}
	events, end := read(t, "gemini", killed+`{"type":"result","status":"success"}`, 4096)
	if len(events) != 1 || !strings.HasPrefix(events[0].Text, "[the end of 2000028 bytes]") || len(events[0].Text) > MaxText || end.Message != "no host" {
		t.Errorf("%.200v, %+v", events, end)
	}
}

func FuzzGemini(f *testing.F) { fuzzReader(f, "gemini", geminiOutput) }
