package rehearsal

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const script = `# a scenario
key sk-test

turn 1
asked fix the test
say I look at it.
bash ls
| pwd

after made.txt
say Done.
| cofferdam: nothing to do

turn 9
wait 1ms
fail 529 busy

otherwise
tool Read {"file_path":"a"}
`

func parseScript(t *testing.T, text string) Script {
	t.Helper()
	s, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends one request and returns status, headers and body.
func ask(t *testing.T, s Script, path, key, body string) (*http.Response, string) {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	r, err := http.NewRequest("POST", server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", key)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get(Header) != "true" {
		t.Errorf("%s: the answer is not labelled", path)
	}
	return resp, string(text)
}

const tools = `"tools":[{"name":"Bash"},{"name":"Read"}]`

func TestAnswersFollowTheScript(t *testing.T) {
	s := parseScript(t, script)
	first := `{` + tools + `,"messages":[{"role":"user","content":"please fix the test"}]}`
	again := `{` + tools + `,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[]},` +
		`{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"made.txt"}]}]}]}`
	for _, c := range []struct{ name, body, want string }{
		{"turn and asked", first, `"ls\npwd"`},
		{"after", again, `Done.\ncofferdam: nothing to do`},
		{"otherwise", `{` + tools + `,"messages":[]}`, `"name":"Read"`},
		{"no tools", `{"messages":[{"role":"user","content":"fix the test"}]}`, `"text":"rehearsal"`},
	} {
		resp, body := ask(t, s, "/v1/messages", "sk-test", c.body)
		if resp.StatusCode != 200 || !strings.Contains(strings.ReplaceAll(body, `\\n`, `\n`), c.want) || !strings.Contains(body, ModelName) {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, body)
		}
		if _, same := ask(t, s, "/v1/messages", "sk-test", c.body); same != body {
			t.Errorf("%s: the same question was answered differently", c.name)
		}
	}
}

func TestStreamCarriesTheWholeAnswer(t *testing.T) {
	s := parseScript(t, script)
	_, body := ask(t, s, "/v1/messages", "sk-test", `{"stream":true,`+tools+`,"messages":[{"role":"user","content":"fix the test"}]}`)
	var text, input, stop string
	for _, line := range strings.Split(body, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Delta struct {
				Text  string `json:"text"`
				Input string `json:"partial_json"`
				Stop  string `json:"stop_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		text, input, stop = text+e.Delta.Text, input+e.Delta.Input, stop+e.Delta.Stop
	}
	var in struct{ Command string }
	if err := json.Unmarshal([]byte(input), &in); err != nil {
		t.Fatal(err)
	}
	if text != "I look at it." || in.Command != "ls\npwd" || stop != "tool_use" || !strings.HasSuffix(body, "\n\n") {
		t.Fatalf("text %q, command %q, stop %q", text, in.Command, stop)
	}
}

func TestKeysErrorsAndLoops(t *testing.T) {
	s := parseScript(t, script)
	if resp, body := ask(t, s, "/v1/messages", "sk-other", `{}`); resp.StatusCode != 401 || !strings.Contains(body, "authentication_error") {
		t.Errorf("wrong key: %d %s", resp.StatusCode, body)
	}
	turns := func(n int) string {
		return `{` + tools + `,"messages":[` + strings.Repeat(`{"role":"assistant","content":[]},{"role":"user","content":""},`, n-1) + `{"role":"user","content":""}]}`
	}
	if resp, body := ask(t, s, "/v1/messages", "sk-test", turns(9)); resp.StatusCode != 529 || !strings.Contains(body, "busy") {
		t.Errorf("fail: %d %s", resp.StatusCode, body)
	}
	if _, body := ask(t, s, "/v1/messages", "sk-test", turns(maxTurns+1)); !strings.Contains(body, "no more answers") {
		t.Errorf("a loop goes on: %s", body)
	}
	if resp, _ := ask(t, s, "/v1/messages", "sk-test", `{`); resp.StatusCode != 400 {
		t.Errorf("broken JSON: %d", resp.StatusCode)
	}
	if resp, body := ask(t, s, "/v1/messages/count_tokens", "sk-test", `{"messages":[]}`); resp.StatusCode != 200 || !strings.Contains(body, "input_tokens") {
		t.Errorf("count_tokens: %d %s", resp.StatusCode, body)
	}
	if resp, _ := ask(t, s, "/v1/complete", "sk-test", `{}`); resp.StatusCode != 404 {
		t.Errorf("unknown path: %d", resp.StatusCode)
	}
}

func TestBadScripts(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "no answers",
		"say hello":                    "line 1",
		"turn 1\nsing la":              "line 2",
		"turn 0\nsay x":                "line 1",
		"turn one":                     "line 1",
		"otherwise yes":                "line 1",
		"asked":                        "line 1",
		"turn 1\n| x":                  "line 2",
		"turn 1\ntool Read {":          "line 2",
		"turn 1\nwait -1s":             "line 2",
		"turn 1\nwait 100h":            "line 2",
		"turn 1\nfail 200 x":           "line 2",
		"turn 1\nkey x":                "line 2",
		strings.Repeat("# x\n", 1<<19): "larger",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: got %v, want %q", text, err, want)
		}
	}
	if s := parseScript(t, "otherwise\nwait 10m\nsay x"); s.answers[0].wait != 10*time.Minute {
		t.Error("a wait of ten minutes is allowed")
	}
}
