package rehearsal

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const everyPart = `serves m other
turn 1
asked fix it
reason Let me see.
| Two lines: ü € 𝄞.
say I look at it, and this is long enough for several pieces.
bash ls -l
| pwd
write notes.txt
| one
|
| two
usage 1200 345 1000
as another-model

after the list
asked fix it
say Done.
| cofferdam: nothing to do

otherwise
empty
`

// TestEveryProtocol: one script gives the same answer in every protocol, in one
// piece and streamed, with the tools and the argument names that were offered.
func TestEveryProtocol(t *testing.T) {
	server := httptest.NewServer(parseScript(t, everyPart).Handler())
	defer server.Close()
	shells := map[string]string{
		"anthropic": `Bash {"command":"ls -l\npwd","description":"a step of the rehearsal"}`,
		"responses": `exec_command {"cmd":"ls -l\npwd","description":"a step of the rehearsal"}`,
		"chat":      `shell {"command":"ls -l\npwd","description":"a step of the rehearsal"}`,
		"gemini":    `run_shell_command {"command":"ls -l\npwd","description":"a step of the rehearsal"}`,
	}
	writes := map[string]string{
		"anthropic": `Write {"content":"one\n\ntwo\n","file_path":"/work/notes.txt"}`,
		"responses": `write {"content":"one\n\ntwo\n","filePath":"/work/notes.txt"}`,
		"chat":      `write_file {"content":"one\n\ntwo\n","path":"/work/notes.txt"}`,
		"gemini":    `write_file {"content":"one\n\ntwo\n","file_path":"/work/notes.txt"}`,
	}
	for _, c := range protocols {
		kind, _, _ := strings.Cut(c.name, " ")
		for _, streamed := range []bool{false, true} {
			name := fmt.Sprintf("%s, streamed %v", c.name, streamed)
			first := takeFrom(t, server.URL, c, streamed, []round{{asked: "please fix it"}})
			want := "reason Let me see.\nTwo lines: ü € 𝄞.|say I look at it, and this is long enough for several pieces.|tool " + shells[kind] + "|tool " + writes[kind]
			if got := told(first); got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
			}
			if first.model != "another-model" || first.usage != (usage{1200, 345, 1000}) {
				t.Errorf("%s: model %q, usage %+v", name, first.model, first.usage)
			}
			second := takeFrom(t, server.URL, c, streamed, []round{{asked: "please fix it"}, {result: "the list"}})
			if got := told(second); got != "say Done.\ncofferdam: nothing to do" || second.model != ModelName || second.usage.in == 0 {
				t.Errorf("%s: second answer %q of %q, %+v", name, got, second.model, second.usage)
			}
			if third := takeFrom(t, server.URL, c, streamed, []round{{asked: "x"}, {result: "the list"}, {result: "y"}}); told(third) != "" {
				t.Errorf("%s: an empty answer says %q", name, told(third))
			}
		}
	}
}

func takeFrom(t *testing.T, url string, c spoken, streamed bool, rounds []round) taken {
	t.Helper()
	path := c.path
	if streamed {
		path = c.streams
	}
	resp, body, err := post(t, url+path, c.body(streamed, true, rounds))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get(Header) != "true" {
		t.Errorf("%s: the answer is not labelled", c.name)
	}
	if got := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"); got != (streamed && c.name != "gemini array") {
		t.Errorf("%s: streamed %v came as %s", c.name, streamed, resp.Header.Get("Content-Type"))
	}
	got, err := taking(c.p, resp, body)
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, body)
	}
	return got
}

func told(t taken) string {
	var all []string
	for _, s := range t.steps {
		if s.verb == "tool" {
			s.text = s.name + " " + string(s.input)
		}
		all = append(all, s.verb+" "+s.text)
	}
	return strings.Join(all, "|")
}

// TestTurnsOfResponses: parallel calls are one answer, also where their results
// stand between them; a reference to an earlier response counts.
func TestTurnsOfResponses(t *testing.T) {
	call := func(answer string, i int) string {
		return fmt.Sprintf(`{"type":"function_call","call_id":%q},`, partID("call", answer, i))
	}
	const out, user = `{"type":"custom_tool_call_output","output":[{"type":"input_text","text":"r"}]},`, `{"role":"user","content":"u"},`
	for input, want := range map[string]int{
		user: 1,
		user + call("1_a", 0) + call("1_a", 1) + out + out:                          2,
		user + call("1_a", 0) + out + call("1_a", 1) + out:                          2,
		user + call("1_a", 0) + out + call("2_b", 0) + out:                          3,
		user + `{"type":"item_reference","id":"msg_rehearsal_1_a_0"},` + out + user: 2,
	} {
		var q question
		q.turn = 1
		if err := (responses{}).read([]byte(`{"input":[`+strings.TrimSuffix(input, ",")+`]}`), &q); err != nil {
			t.Fatal(err)
		}
		if q.turn != want {
			t.Errorf("%s is turn %d, want %d", input, q.turn, want)
		}
		if strings.Contains(input, "custom") && q.result == "" {
			t.Errorf("%s: no result was read", input)
		}
	}
	q := question{turn: 1}
	if err := (responses{}).read([]byte(`{"input":"go on","previous_response_id":"resp_rehearsal_4_ab"}`), &q); err != nil || q.turn != 5 || q.asked != "go on\n" {
		t.Errorf("after response 4 comes %d, asked %q (%v)", q.turn, q.asked, err)
	}
}

// TestSignatures: Gemini's comes back unchanged or the request is refused.
func TestSignatures(t *testing.T) {
	server := httptest.NewServer(parseScript(t, "otherwise\nsay x").Handler())
	defer server.Close()
	good := seal("some answer")
	if !strings.ContainsAny(good, "+") || !strings.Contains(good, "/") || !strings.HasSuffix(good, "=") {
		t.Errorf("the signature %q has nothing that careless hands change", good)
	}
	ask := func(signature, after string) int {
		body := `{"contents":[{"role":"user","parts":[{"text":"u"}]},{"role":"model","parts":[{"functionCall":{"name":"f"},"thoughtSignature":` + encoded(signature) + `}]},
			{"role":"user","parts":[{"functionResponse":{"response":{"output":"r"}}}]}` + after + `]}`
		resp, _, err := post(t, server.URL+"/v1beta/models/m:generateContent", body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for signature, want := range map[string]int{
		good: 200, skipSignature: 200, "": 400, strings.ReplaceAll(good, "+", " "): 400, strings.ReplaceAll(good, "+", "-"): 400, strings.TrimRight(good, "="): 400, "++//AAAA": 400,
	} {
		if got := ask(signature, ""); got != want {
			t.Errorf("signature %q: %d, want %d", signature, got, want)
		}
	}
	if got := ask("", `,{"role":"user","parts":[{"text":"another question"}]}`); got != 200 {
		t.Errorf("a call before the user's last text needs no signature: %d", got)
	}
}

// TestMishaps: what goes wrong on demand goes wrong in every protocol.
func TestMishaps(t *testing.T) {
	const text = `asked fail
retry-after 7
fail 429 slow down

asked cut
cut 3
say some words that take more than one event, more than two, more than three, I think

asked bytes
cut 40 bytes
say some words that take more bytes than forty, for sure

asked malformed
malformed 2
say some words

asked break
say some words
break it broke

asked twice
try 1
fail 503 not yet

asked twice
try 2
say now
`
	server := httptest.NewServer(parseScript(t, text).Handler())
	defer server.Close()
	for i, c := range protocols {
		say := func(asked string) (*http.Response, []byte, error) {
			return post(t, server.URL+c.streams, c.body(true, true, []round{{asked: asked}}))
		}
		resp, body, err := say("fail")
		if err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" || errorText(body) != "slow down" {
			t.Errorf("%s: fail: %v %s %v", c.name, resp.Status, body, err)
		}
		if _, body, err = say("cut"); err == nil || strings.Count(string(body), "data: ")+strings.Count(string(body), `{"candidates"`) < 2 {
			t.Errorf("%s: a cut stream ended with %v: %s", c.name, err, body)
		}
		if _, body, err = say("bytes"); err == nil || len(body) != 40 {
			t.Errorf("%s: a stream cut after 40 bytes has %d and ended with %v", c.name, len(body), err)
		}
		if resp, body, err = say("malformed"); err != nil || !strings.Contains(string(body), `{"broken`) {
			t.Errorf("%s: malformed: %v %s", c.name, err, body)
		} else if _, err = taking(c.p, resp, body); err == nil {
			t.Errorf("%s: a malformed stream was read", c.name)
		}
		resp, body, err = say("break")
		if got, terr := taking(c.p, resp, body); err != nil || terr != nil || got.failure != "it broke" || told(got) != "say some words" {
			t.Errorf("%s: break: %+v %v %v", c.name, got, err, terr)
		}
		if i == len(protocols)-1 {
			continue // asks what the one before asked
		}
		twice := func() *http.Response {
			resp, _, err := post(t, server.URL+c.path, c.body(false, true, []round{{asked: "twice " + c.name}}))
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		if one, two := twice(), twice(); one.StatusCode != 503 || two.StatusCode != 200 {
			t.Errorf("%s: tries ended with %d, %d", c.name, one.StatusCode, two.StatusCode)
		}
	}
}

// TestTime: an answer waits, a stream pauses between parts and is slow.
func TestTime(t *testing.T) {
	server := httptest.NewServer(parseScript(t, "otherwise\nwait 30ms\nslow 2ms\nsay a\npause 60ms\nsay b").Handler())
	defer server.Close()
	begun := time.Now()
	_, body, err := post(t, server.URL+"/v1/chat/completions", chatBody(true, true, nil))
	if took := time.Since(begun); err != nil || took < 90*time.Millisecond || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("%v after %v\n%s", err, took, body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/messages", strings.NewReader(anthropicBody(true, true, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
	}
}

// TestHuge: large answers come whole, and their pieces grow with them.
func TestHuge(t *testing.T) {
	server := httptest.NewServer(parseScript(t, "turn 1\nhuge 300000\nbash : \nhuge 500000").Handler())
	defer server.Close()
	for _, c := range protocols {
		got := takeFrom(t, server.URL, c, true, []round{{asked: "x"}})
		if len(got.steps) != 2 || len(got.steps[0].text) != 300000 || len(got.steps[1].input) < 500000 {
			t.Errorf("%s: %d parts", c.name, len(got.steps))
		}
	}
}

// TestListsAndKeys: models and counts in the shape of each protocol; the key is
// found where each protocol puts it.
func TestListsAndKeys(t *testing.T) {
	server := httptest.NewServer(parseScript(t, "key k\nserves m n\notherwise\nsay x").Handler())
	defer server.Close()
	for _, c := range []struct {
		method, path, header, value, want string
		status                            int
	}{
		{"GET", "/v1/models", "X-Api-Key", "k", `"id":"n"`, 200},
		{"GET", "/v1/models", "Authorization", "Bearer k", `"object":"list"`, 200},
		{"GET", "/v1/models", "Authorization", "Bearer other", `"code":"invalid_api_key"`, 401},
		{"GET", "/v1/models/n", "Authorization", "Bearer k", `"id":"n"`, 200},
		{"GET", "/v1/models/o", "Authorization", "Bearer k", `"model_not_found"`, 404},
		{"GET", "/v1beta/models", "X-Goog-Api-Key", "k", `"name":"models/n"`, 200},
		{"GET", "/v1beta/models/m?key=k", "", "", `"name":"models/m"`, 200},
		{"GET", "/v1beta/models?key=no", "", "", `"UNAUTHENTICATED"`, 401},
		{"POST", "/v1/messages/count_tokens", "X-Api-Key", "k", `"input_tokens":`, 200},
		{"POST", "/v1/responses/input_tokens", "Authorization", "Bearer k", `"input_tokens":`, 200},
		{"POST", "/v1beta/models/m:countTokens?key=k", "", "", `"totalTokens":`, 200},
		{"POST", "/v1beta/models/m:dance?key=k", "", "", `"NOT_FOUND"`, 404},
		{"POST", "/v1beta/models/o:generateContent?key=k", "", "", `"NOT_FOUND"`, 404},
		{"POST", "/v1/chat/completions", "Authorization", "Bearer k", `"model_not_found"`, 404},
	} {
		r, err := http.NewRequest(c.method, server.URL+c.path, strings.NewReader(`{"model":"o"}`))
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, body)
		}
	}
}

// TestServe: it ends with its context.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, parseScript(t, "otherwise\nsay x")) }()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server goes on")
	}
}
