package rehearsal

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordAndReplay: what a provider answered is recorded as a script, which
// answers the same; the key is attached on the way and is nowhere in the script.
func TestRecordAndReplay(t *testing.T) {
	const canary = "sk-canary-of-the-provider"
	const provider = "key " + canary + "\nserves m\n" + `
bare
say a title

turn 1
asked fail
try 1
retry-after 3
fail 529 busy, your key is ` + canary + `

turn 1
asked fail
say then it works

turn 1
asked first
reason I think.
say   Spaces, and a key: ` + canary + `
|
| after an empty line  
tool apply {"a": "<b>\nc"}
usage 10 20 3
as real-model

after done
empty

turn 1
asked second
say of the second
break a text
`
	stub := httptest.NewServer(parseScript(t, provider).Handler())
	defer stub.Close()
	for _, c := range protocols {
		file := filepath.Join(t.TempDir(), "recording.txt")
		u, err := url.Parse(stub.URL)
		if err != nil {
			t.Fatal(err)
		}
		recorder := &Recorder{Provider: u, Key: canary, File: file, Problem: func(text string) { t.Error(c.name, text) }}
		record := httptest.NewServer(recorder)
		ask := func(url string) string {
			var all []string
			for _, rounds := range [][]round{
				{{asked: "first question"}}, {{asked: "fail please"}}, {{asked: "fail please"}}, {{asked: "second question"}}, {{asked: "first question"}, {result: "done"}},
			} {
				resp, body, err := post(t, url+c.streams, c.body(true, true, rounds))
				if err != nil {
					t.Fatal(err)
				}
				got, err := taking(c.p, resp, body)
				if err != nil {
					t.Fatalf("%s: %v\n%s", c.name, err, body)
				}
				all = append(all, fmt.Sprint(got.status, got.retryAfter, got.failure, got.model, got.usage, told(got)))
			}
			_, body, err := post(t, url+c.path, c.body(false, false, []round{{asked: "name this"}}))
			if err != nil || !strings.Contains(string(body), "a title") {
				t.Errorf("%s: a request without tools: %v %s", c.name, err, body)
			}
			return strings.Join(all, "\n")
		}
		live := ask(record.URL)
		record.Close()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), canary) || !strings.Contains(string(text), "[key]") {
			t.Errorf("%s: the key is in the recording, or never was in an answer:\n%s", c.name, text)
		}
		replay := httptest.NewServer(parseScript(t, string(text)).Handler())
		if again := ask(replay.URL); again != strings.ReplaceAll(live, canary, "[key]") {
			t.Errorf("%s: replayed\n%s\nrecorded\n%s\nscript\n%s", c.name, again, live, text)
		}
		replay.Close()
	}
}

// TestRecorderBounds: a provider that is gone, an answer that is cut, and a
// redirect are told, and nothing of them is recorded; the client's own
// credentials go nowhere.
func TestRecorderBounds(t *testing.T) {
	var got http.Header
	var query string
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, query = r.Header, r.URL.RawQuery
		if strings.Contains(r.URL.Path, "moved") {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"type\":")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer stub.Close()
	u, err := url.Parse(stub.URL + "/v1beta")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	r := &Recorder{Provider: u, Key: "real", File: filepath.Join(t.TempDir(), "x"), Problem: func(text string) { told = append(told, text) }}
	record := httptest.NewServer(r)
	defer record.Close()
	if _, _, err := post(t, record.URL+"/v1beta/models/m:generateContent?key=box&alt=sse", `{}`); err == nil {
		t.Error("a cut answer came whole")
	}
	if got.Get("X-Goog-Api-Key") != "real" || query != "alt=sse" || len(got["Authorization"]) != 0 {
		t.Errorf("the provider saw %v %q", got, query)
	}
	if resp, _, err := post(t, record.URL+"/v1beta/models/moved:generateContent", `{}`); err != nil || resp.StatusCode != 307 {
		t.Errorf("a redirect was followed: %v %v", resp, err)
	}
	stub.Close()
	if resp, _, err := post(t, record.URL+"/v1/messages", `{}`); err != nil || resp.StatusCode != 502 {
		t.Errorf("a provider that is gone: %v %v", resp, err)
	}
	if _, err := os.Stat(r.File); err == nil || len(told) != 3 {
		t.Errorf("told %q, recording %v", told, err)
	}
}
