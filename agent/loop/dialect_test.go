package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

// streams are one answer in each protocol: it says something, then calls two
// tools, the first with a key that occurs twice.
var streams = map[string]string{
	"anthropic": `event: message_start
data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":7,"cache_read_input_tokens":3,"output_tokens":1}}}

: a comment

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I ☕ "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look."}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"x\",\"pa"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"th\":\"a\"}"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_2","name":"shell","input":{"command":"ls"}}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":20}}

event: message_stop
data: {"type":"message_stop"}

`,
	"openai": `data: {"choices":[{"delta":{"role":"assistant","content":"I ☕ "}}]}

data: {"choices":[{"delta":{"content":"look."}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"toolu_1","type":"function","function":{"name":"read","arguments":""}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":\"x\",\"pa"}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"th\":\"a\"}"}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"toolu_2","type":"function","function":{"name":"shell","arguments":"{\"command\":\"ls\"}"}}]}}]}

data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20}}

data: [DONE]

`,
	"gemini": "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hm\",\"thought\":true}]}}],\"usageMetadata\":{\"promptTokenCount\":10}}\r\n\r\n" +
		`data: {"candidates":[{"content":{"parts":[{"text":"I ☕ "}]}}]}` + "\r\n\r\n" +
		`data: {"candidates":[{"content":{"parts":[{"text":"look."},{"functionCall":{"name":"read","args":{"path":"x","path":"a"}},"thoughtSignature":"a+/="}]}}]}` + "\r\n\r\n" +
		`data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"shell","args":{"command":"ls"}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":15,"thoughtsTokenCount":5}}` + "\r\n\r\n",
}

func TestStreams(t *testing.T) {
	for name, text := range streams {
		e, err := readStream(strings.NewReader(text), dialects[name].stream())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		first, second := call{ID: "toolu_1", Name: "read", Input: `{"path":"a"}`}, call{ID: "toolu_2", Name: "shell", Input: `{"command":"ls"}`}
		want := entry{Kind: kindAnswer, Stop: stopDone, In: 10, Out: 20, Parts: []part{{Text: "I ☕ look."}, {Call: &first}, {Call: &second}}}
		if name == "gemini" { // it names no calls, and signs some
			first.ID, second.ID, want.Parts[1].Signature = "", "", "a+/="
		}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// Cut anywhere, it is no answer, and nothing breaks.
		for n := range len(strings.TrimRight(text, "\r\n")) {
			e, err := readStream(strings.NewReader(text[:n]), dialects[name].stream())
			if err == nil && !ends(name, text[:n]) {
				t.Fatalf("%s: cut at %d: %+v", name, n, e)
			}
		}
	}
}

// ends says whether a stream has said why the model stopped. The counts that
// follow in Chat Completions are not worth another call.
func ends(name, text string) bool {
	return name == "openai" && strings.Contains(text, `"finish_reason":"tool_calls"}]}`)
}

func TestHostileStreams(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	many := func(one string, n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("data: " + strings.ReplaceAll(one, "#", fmt.Sprint(i)) + "\n\n")
		}
		return b.String()
	}
	for name, tt := range map[string]struct{ protocol, text string }{
		"no end":              {"anthropic", "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"},
		"nothing":             {"openai", ""},
		"no JSON":             {"openai", "data: hello\n\n"},
		"a list":              {"gemini", "data: []\n\n"},
		"out of order":        {"anthropic", "data: {\"type\":\"content_block_start\",\"index\":7,\"content_block\":{\"type\":\"text\"}}\n\n"},
		"before its begin":    {"anthropic", "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"x\"}}\n\n"},
		"negative":            {"openai", "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1}]}}]}\n\n"},
		"far index":           {"openai", "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":900000000}]}}]}\n\n"},
		"endless text":        {"anthropic", "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\"}}\n\n" + many(`{"type":"content_block_delta","index":0,"delta":{"text":"`+long+`"}}`, 3)},
		"endless calls":       {"openai", many(`{"choices":[{"delta":{"tool_calls":[{"index":#,"id":"c#","function":{"name":"shell","arguments":"{}"}}]}}]}`, 40)},
		"endless parts":       {"gemini", many(`{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":"s"}]}}]}`, 200)},
		"endless line":        {"openai", "data: " + strings.Repeat("x", maxEvent+1)},
		"endless event":       {"openai", strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 1200)},
		"an error":            {"openai", "data: {\"error\":{\"message\":\"boom\"}}\n\n"},
		"an error of Gemini":  {"gemini", "data: {\"error\":{\"code\":500,\"message\":\"boom\"}}\n\n"},
		"malformed by itself": {"gemini", "data: {\"candidates\":[{\"finishReason\":\"MALFORMED_FUNCTION_CALL\"}]}\n\n"},
	} {
		if e, err := readStream(strings.NewReader(tt.text), dialects[tt.protocol].stream()); err == nil {
			t.Errorf("%s: %+v", name, e)
		} else if strings.HasPrefix(name, "endless ") && !strings.HasSuffix(name, "s") && err != errTooLong {
			t.Errorf("%s: %v, want that it is too long", name, err)
		}
	}
}

func TestCallInputs(t *testing.T) {
	deep := strings.Repeat(`{"a":`, maxNesting+1) + "1" + strings.Repeat("}", maxNesting+1)
	for text, want := range map[string]string{
		``: `{}`, `  `: `{}`, `{"a":1,"a":2}`: `{"a":2}`, `{"n":12345678901234567890}`: `{"n":12345678901234567890}`,
		`{"a":"\ud800"}`: "{\"a\":\"\uFFFD\"}", `{"a":[{"file_path":1,"filePath":2}]}`: "", `[1]`: "", `"x"`: "", `null`: "", `{"a":`: "", `{} {}`: "", "\xff": "", deep: "",
	} {
		c := newCall("i", "n", text)
		if c.Input != want || (c.Broken == "") != (want != "") {
			t.Errorf("%.40q: %+v", text, c)
		}
		if !json.Valid(c.object()) {
			t.Errorf("%.40q goes out as %s", text, c.object())
		}
	}
}

func TestNamesAreTakenBack(t *testing.T) {
	a, b, c := call{ID: "same", Name: "read"}, call{ID: "same", Name: "no such\ntool"}, call{ID: "", Name: strings.Repeat("x", 65)}
	e := named(entry{Parts: []part{{Call: &a}, {Text: "x"}, {Call: &b}, {Call: &c}}}, 9)
	got := fmt.Sprint(e.calls())
	if got != "[{same read  } {call-9-2 unknown  } {call-9-3 unknown  }]" {
		t.Error(got)
	}
}

// TestRequests are the bodies of one conversation in each protocol.
func TestRequests(t *testing.T) {
	read := call{ID: "c1", Name: "read", Input: `{"path":"a"}`}
	broken := call{ID: "c2", Name: "shell", Broken: "no"}
	q := question{Model: "m/1", System: "sys", Max: 99, Tools: tools[1:2], Turns: []turn{
		{Texts: []string{"task"}},
		{Assistant: true, Parts: []part{{Text: "I look."}, {Text: " \n"}, {Call: &read, Signature: "a+/="}, {Call: &broken}}},
		{Results: []result{{ID: "c1", Name: "read", Text: "found"}, {ID: "c2", Name: "shell", Text: "bad", Failed: true}}, Texts: []string{"A person says: hi", "more"}},
	}}
	schema := `{"properties":{"line":{"description":"the first line, from 1","type":"number"},"lines":{"description":"how many; 500 if not given","type":"number"},"path":{"description":"the file; relative paths begin at the working folder","type":"string"}},"required":["path"],"type":"object"}`
	for name, want := range map[string]string{
		"anthropic": `{"max_tokens":99,"messages":[{"content":[{"text":"task","type":"text"}],"role":"user"},` +
			`{"content":[{"text":"I look.","type":"text"},{"id":"c1","input":{"path":"a"},"name":"read","type":"tool_use"},{"id":"c2","input":{},"name":"shell","type":"tool_use"}],"role":"assistant"},` +
			`{"content":[{"content":"found","is_error":false,"tool_use_id":"c1","type":"tool_result"},{"content":"bad","is_error":true,"tool_use_id":"c2","type":"tool_result"},{"text":"A person says: hi","type":"text"},{"cache_control":{"type":"ephemeral"},"text":"more","type":"text"}],"role":"user"}],` +
			`"model":"m/1","stream":true,"system":[{"cache_control":{"type":"ephemeral"},"text":"sys","type":"text"}],"tools":[{"description":"Read lines of a text file.","input_schema":` + schema + `,"name":"read"}]}`,
		"openai": `{"max_completion_tokens":99,"messages":[{"content":"sys","role":"system"},{"content":"task","role":"user"},` +
			`{"content":"I look. \n","role":"assistant","tool_calls":[{"function":{"arguments":"{\"path\":\"a\"}","name":"read"},"id":"c1","type":"function"},{"function":{"arguments":"{}","name":"shell"},"id":"c2","type":"function"}]},` +
			`{"content":"found","role":"tool","tool_call_id":"c1"},{"content":"bad","role":"tool","tool_call_id":"c2"},{"content":"A person says: hi\n\nmore","role":"user"}],` +
			`"model":"m/1","stream":true,"stream_options":{"include_usage":true},"tools":[{"function":{"description":"Read lines of a text file.","name":"read","parameters":` + schema + `},"type":"function"}]}`,
		"gemini": `{"contents":[{"parts":[{"text":"task"}],"role":"user"},` +
			`{"parts":[{"text":"I look."},{"text":" \n"},{"functionCall":{"args":{"path":"a"},"name":"read"},"thoughtSignature":"a+/="},{"functionCall":{"args":{},"name":"shell"}}],"role":"model"},` +
			`{"parts":[{"functionResponse":{"name":"read","response":{"output":"found"}}},{"functionResponse":{"name":"shell","response":{"error":"bad"}}},{"text":"A person says: hi"},{"text":"more"}],"role":"user"}],` +
			`"generationConfig":{"maxOutputTokens":99},"systemInstruction":{"parts":[{"text":"sys"}]},"tools":[{"functionDeclarations":[{"description":"Read lines of a text file.","name":"read","parameters":` + schema + `}]}]}`,
	} {
		body, err := json.Marshal(dialects[name].body(q))
		if err != nil || string(body) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, body, want)
		}
	}
	if path := geminiPath(q); path != "/v1beta/models/m%2F1:streamGenerateContent?alt=sse" {
		t.Error(path)
	}
}

func TestFaults(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"error","error":{"type":"x","message":"one\n two"}}`: "one two",
		`{"error":{"message":"cofferdam: no\nhint: a way"}}`:          "cofferdam: no",
		`{"error":{"message":"m","type":"t","code":null}}`:            "m",
		`[{"error":{"code":400,"message":"g","status":"S"}}]`:         "g",
		`<html>`: "", ``: "", `[]`: "", `{"error":"text"}`: "",
	} {
		if got := faultMessage([]byte(body)); got != want {
			t.Errorf("%s: %q", body, got)
		}
	}
	for text, want := range map[string]bool{
		"prompt is too long: 210000 tokens > 200000 maximum":                 true,
		"This model's maximum context length is 8192 tokens":                 true,
		"the request exceeds the available context size":                     true,
		"The input token count exceeds the maximum number of tokens allowed": true,
		"messages: text content blocks must be non-empty":                    false,
	} {
		if (&fault{status: 400, message: text}).tooMuch() != want || (&fault{status: 401, message: text}).tooMuch() {
			t.Error(text)
		}
	}
	var f *fault
	if err := error(&fault{status: http.StatusTeapot, message: "tea"}); !errors.As(err, &f) || err.Error() != "the model provider answered 418: tea" {
		t.Error(err)
	}
	if err := unknownProvider("x"); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Error(err)
	}
}

// FuzzStreams: whatever comes, an answer is within its bounds and can be sent
// back, and nothing breaks.
func FuzzStreams(f *testing.F) {
	for name, text := range streams {
		f.Add(name, text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		d, ok := dialects[name]
		if !ok {
			return
		}
		e, err := readStream(strings.NewReader(text), d.stream())
		if err != nil {
			return
		}
		if e = named(e, 2); len(e.calls()) > MaxCalls {
			t.Errorf("%d calls", len(e.calls()))
		}
		stored, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back entry
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		h := history{entries: []entry{{Kind: kindStart, Text: "task", Mark: newMark()}, back}}
		for _, c := range back.calls() {
			h.entries = append(h.entries, entry{Kind: kindResult, Call: c.ID, Name: c.Name, Head: "done"})
		}
		for other, d := range dialects {
			if _, err := json.Marshal(d.body(question{Model: "m", Turns: h.turns()})); err != nil {
				t.Errorf("%s: %v", other, err)
			}
		}
	})
}
