package model

import (
	"fmt"
	"strings"
	"testing"
)

// sse writes events as server-sent events.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "event: x\ndata: %s\n\n", e)
	}
	return b.String()
}

// Answers in the shapes in which the providers give them, and what they say.
var answers = []struct {
	name, text string
	stream     bool
	want       tokens
	model      string
	written    int // bytes of the model's own text
}{
	{"messages, streamed", sse(
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"usage":{"input_tokens":7,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, `{"type":"ping"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"usage\": \"ü\\\""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"input_tokens":7,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":8,"ephemeral_1h_input_tokens":12},"output_tokens":42}}`,
		`{"type":"message_stop"}`), true, tokens{7, 300, 20, 42, 12}, "claude-x", 2 + 15 + 5},
	{
		"messages, whole", `{"id":"msg_1","type":"message","model":"claude-x","content":[{"type":"text","text":"} {"}],"usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":4}}`,
		false,
		tokens{3, 2, 0, 4, 0},
		"claude-x", 0,
	},
	{
		"responses, streamed", sse(
			`{"type":"response.created","response":{"model":"gpt-x","usage":null}}`,
			`{"type":"response.output_text.delta","item_id":"i","delta":"hello"}`,
			`{"type":"response.function_call_arguments.delta","delta":"{}"}`,
			`{"type":"response.completed","response":{"model":"gpt-x","output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":40},"total_tokens":150}}}`),
		true,
		tokens{40, 60, 0, 50, 0},
		"gpt-x", 7,
	},
	{
		"responses, broken off by the provider", sse(
			`{"type":"response.incomplete","response":{"model":"gpt-x","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":0},"output_tokens":8}}}`),
		true,
		tokens{9, 0, 0, 8, 0},
		"gpt-x", 0,
	},
	{
		"responses, failed", sse(`{"type":"response.failed","response":{"model":"gpt-x","error":{"code":"x","message":"y"},"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":0},"output_tokens":1}}}`),
		true,
		tokens{9, 0, 0, 1, 0},
		"gpt-x", 0,
	},
	{"responses, whole", `{"object":"response","model":"gpt-x","usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":2}}`, false, tokens{6, 4, 0, 2, 0}, "gpt-x", 0},
	{
		"chat, streamed", sse(
			`{"object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hey"},"finish_reason":null}],"usage":null}`,
			`{"object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"ls","arguments":"{}"}}]},"finish_reason":null}]}`,
			`{"object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":80,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":16}}}`, `[DONE]`),
		true,
		tokens{64, 16, 0, 30, 0},
		"m", 3 + 4,
	},
	{
		"chat, whole", `{"object":"chat.completion","model":"m","choices":[{"message":{"content":"hi","reasoning_content":"abc"},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":3,"cache_read_input_tokens":5}}`,
		false,
		tokens{8, 0, 0, 3, 0},
		"m", 5,
	},
	{"chat, counts in every chunk", sse(
		`{"model":"m","choices":[{"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":8,"completion_tokens":1}}`,
		`{"model":"m","choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}`), true, tokens{8, 0, 0, 2, 0}, "m", 1},
	{"gemini, events", "data: " + strings.Join([]string{
		`{"candidates":[{"content":{"parts":[{"text":"one","thought":true}],"role":"model"}}],"usageMetadata":{"promptTokenCount":100,"totalTokenCount":103,"thoughtsTokenCount":3},"modelVersion":"gemini-x"}`,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":64,"toolUsePromptTokenCount":5,"candidatesTokenCount":20,"thoughtsTokenCount":30},"modelVersion":"gemini-x"}`,
	}, "\r\n\r\ndata: ") + "\r\n\r\n", true, tokens{41, 64, 0, 50, 0}, "gemini-x", 3 + 12},
	{"gemini, a list", `[{"candidates":[{"content":{"parts":[{"text":"o[}\"{"}]}}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":1},"modelVersion":"gemini-x"}` + "\n,\r\n" +
		`{"candidates":[{"content":{"parts":[{"text":"b\\"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":2},"modelVersion":"gemini-x"}` + "\n]", false, tokens{100, 0, 0, 2, 0}, "gemini-x", 5 + 2},
	{"events under another name", sse(`{"model":"m","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}`), false, tokens{8, 0, 0, 3, 0}, "m", 0},
}

// TestUsageIsFoundHoweverItIsCut: the counts of every protocol, in pieces cut
// at every byte.
func TestUsageIsFoundHoweverItIsCut(t *testing.T) {
	for _, a := range answers {
		for cut := range len(a.text) + 1 {
			u := usage{stream: a.stream}
			u.write([]byte(a.text[:cut]))
			u.write([]byte(a.text[cut:]))
			if got, guessed := u.final(tokens{Input: 1, Output: 1}, false); got != a.want || guessed || u.model() != a.model || u.text != a.written {
				t.Fatalf("%s, cut at %d: %+v of %q (guessed %v), %d bytes of text; want %+v, %d", a.name, cut, got, u.model(), guessed, u.text, a.want, a.written)
			}
		}
		for _, n := range []int{1, 3} {
			u := usage{stream: a.stream}
			for i := 0; i < len(a.text); i += n {
				u.write([]byte(a.text[i:min(i+n, len(a.text))]))
			}
			if got, _ := u.final(tokens{}, false); got != a.want {
				t.Errorf("%s, pieces of %d: %+v, want %+v", a.name, n, got, a.want)
			}
		}
	}
}

// TestUsageThatIsNotThereIsGuessed: an answer that ends without the provider's
// counts is never free, and never less than what was counted until then.
func TestUsageThatIsNotThereIsGuessed(t *testing.T) {
	guess := tokens{Input: 50, Output: 1000}
	written := `{"choices":[{"delta":{"content":"` + strings.Repeat("x", 299) + `"}}]}`
	start := `{"type":"message_start","message":{"usage":{"input_tokens":70,"output_tokens":1}}}`
	long := `{"type":"content_block_delta","delta":{"text":"` + strings.Repeat("y", 30) + `"}}`
	for _, c := range []struct {
		name, text     string
		stream, broken bool
		guess          tokens
		want           tokens
	}{
		{"chat without include_usage", sse(written, "[DONE]"), true, false, tokens{Input: 50}, tokens{Input: 50, Output: 100}},
		{"counts of nothing", sse(written, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`), true, false, tokens{Input: 50}, tokens{Input: 50, Output: 100}},
		{"broken off", sse(start, long), true, true, tokens{Input: 50}, tokens{Input: 70, Output: 10}},
		{"ended early", sse(start), true, false, tokens{Input: 50}, tokens{Input: 70, Output: 1}},
		{"empty", "", true, false, tokens{Input: 50}, tokens{Input: 50}},
		{"whole, and no JSON", "<html>" + strings.Repeat("x", 294), false, false, guess, tokens{Input: 50, Output: 100}},
		{"whole, and larger than what was asked for", strings.Repeat("x", 30_000), false, false, guess, guess},
		{"whole, and nobody waited for it", `{"content":[`, false, true, guess, guess},
	} {
		u := usage{stream: c.stream}
		u.write([]byte(c.text))
		if got, guessed := u.final(c.guess, c.broken); got != c.want || !guessed {
			t.Errorf("%s: %+v, guessed %v; want %+v", c.name, got, guessed, c.want)
		}
	}
}

// TestNonsenseIsNotCounted: what cannot be a count is not one, and hides
// nothing that can.
func TestNonsenseIsNotCounted(t *testing.T) {
	for _, text := range []string{
		`{"usage":{"input_tokens":-5,"output_tokens":-1}}`, `{"usage":{"input_tokens":2000000000,"output_tokens":1}}`,
		`{"usage":{"input_tokens":9e99}}`, `{"usage":[]}`, `{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":6}}}`,
		`{"usageMetadata":{"promptTokenCount":"many"}}`, `{`, `}}`, `null`, `"usage"`, `[[[`, "\x00\xff",
	} {
		for _, stream := range []bool{true, false} {
			u := usage{stream: stream}
			if stream {
				text = sse(text)
			}
			u.write([]byte(text))
			if u.total() != (tokens{}) {
				t.Errorf("%q counts as %+v", text, u.total())
			}
		}
	}
	u := usage{stream: true}
	u.write([]byte(sse(`{"message":"text, not an object","choices":[{"delta":{"content":"abc","reasoning":{}}}],"usage":{"prompt_tokens":5,"completion_tokens":6}}`)))
	if u.total() != (tokens{Input: 5, Output: 6}) || u.text != 3 {
		t.Errorf("beside fields of other types: %+v, %d bytes", u.total(), u.text)
	}
	u.write([]byte(sse(`{"usage":{"prompt_tokens":4,"completion_tokens":2}}`)))
	if u.total() != (tokens{Input: 5, Output: 6}) {
		t.Errorf("a count that shrinks: %+v", u.total())
	}
}

// TestLongPiecesAreBounded: memory does not follow an endless line, and what
// comes after it is read.
func TestLongPiecesAreBounded(t *testing.T) {
	for _, stream := range []bool{true, false} {
		u, want := usage{stream: stream}, 0
		end, begin := "\"}\n", `data: {"x":"`
		u.write([]byte(begin))
		for range 3 * maxPiece / 1024 {
			u.write([]byte(strings.Repeat("y", 1024)))
			want = max(want, cap(u.piece))
		}
		u.write([]byte(end + sse(`{"usage":{"prompt_tokens":5,"completion_tokens":6}}`)))
		if want > 2*maxPiece || u.total() != (tokens{Input: 5, Output: 6}) {
			t.Errorf("stream %v: %d bytes kept, %+v", stream, want, u.total())
		}
	}
}

// FuzzUsage: no answer makes the reader fail, keep more than its bound, or
// count below zero; and how an answer is cut changes nothing.
func FuzzUsage(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(a.text), a.stream, 7)
	}
	f.Fuzz(func(t *testing.T, text []byte, stream bool, cut int) {
		whole, parts := usage{stream: stream}, usage{stream: stream}
		whole.write(text)
		cut = min(max(cut, 0), len(text))
		parts.write(text[:cut])
		parts.write(text[cut:])
		if whole.total() != parts.total() || whole.text != parts.text || whole.total() != (tokens{}) && !whole.total().sane() || len(parts.piece) > maxPiece {
			t.Errorf("whole %+v, cut %+v", whole.total(), parts.total())
		}
	})
}

// TestOutputBound: what a request says about the length of its answer.
func TestOutputBound(t *testing.T) {
	for _, c := range []struct {
		op, body        string
		output, answers int64
	}{
		{opMessages, `{"max_tokens":4096}`, 4096, 1},
		{opMessages, `{"max_output_tokens":5}`, 0, 1}, // not Anthropic's, so not heeded there
		{opResponses, `{"max_output_tokens":7,"max_tokens":1}`, 7, 1},
		{opChat, `{"max_tokens":7,"max_completion_tokens":9,"n":3}`, 9, 3},
		{opGenerate, `{"generationConfig":{"maxOutputTokens":11,"candidateCount":2}}`, 11, 2},
		{opGenerate, `{"generation_config":{"max_output_tokens":11}}`, 11, 0},
		{opMessages, `{"max_tokens":"9"}`, 0, 1},
		{opMessages, `{"max_tokens":-9}`, 0, 1},
		{opMessages, `{"max_tokens":1e99}`, maxTokens, 1},
		{opMessages, `{"max_tokens":null}`, 0, 1},
		{opGenerate, `{"generationConfig":[]}`, 0, 1},
	} {
		o, err := readJSON([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if output, answers := outputBound(c.op, o); output != c.output || answers != c.answers {
			t.Errorf("%s %s: %d of %d, want %d of %d", c.op, c.body, output, answers, c.output, c.answers)
		}
	}
}
