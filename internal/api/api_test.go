package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
)

const (
	token     = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	testToken = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func world(t *testing.T) (*api.Server, *service.Memory) {
	t.Helper()
	m := service.NewMemory()
	s := service.New(m.Options(cofferdam.Scope{Organization: "o-1", Project: "p-1"}))
	return api.New(s, api.Options{
		Version: "test", Log: slog.New(slog.DiscardHandler),
		Auth: api.Auth{UID: os.Getuid(), Token: token, TestToken: testToken, TestPerson: "tess"},
	}), m
}

type problem struct {
	Status                                        int
	Kind, Detail, Hint, Reason, Subject, Op, Type string
	RequestID                                     string `json:"request_id"`
}

// do sends one request as the person of the token.
func do(t *testing.T, h http.Handler, method, path, body string, change ...func(*http.Request)) (*httptest.ResponseRecorder, problem) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, path, nil)
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Host = "127.0.0.1:7420"
	r.Header.Set("Authorization", "Bearer "+token)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var p problem
	if w.Header().Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s %s: problem is no JSON: %v", method, path, err)
		}
		if p.Status != w.Code || p.RequestID == "" || p.Hint == "" || p.RequestID != w.Header().Get("X-Request-Id") {
			t.Errorf("%s %s: incomplete problem: %+v", method, path, p)
		}
	}
	return w, p
}

const (
	shop = `{"name":"shop","upstream":"/srv/shop.git"}`
	work = `{"text":"fix","agent":"command","command":"true","checks":[{"command":"true","must_fail_first":false}]}`
)

func TestEverydayPath(t *testing.T) {
	h, m := world(t)
	step := func(method, path, body string, want int) []byte {
		t.Helper()
		w, p := do(t, h, method, path, body)
		if w.Code != want {
			t.Fatalf("%s %s: %d %+v, want %d", method, path, w.Code, p, want)
		}
		return w.Body.Bytes()
	}
	step("POST", "/v1/repos", shop, 201)
	step("POST", "/v1/models", `{"name":"anthropic","provider":"anthropic","key":"sk-test-12345678"}`, 201)
	var made cofferdam.Task
	if err := json.Unmarshal(step("POST", "/v1/tasks", work, 201), &made); err != nil || made.Number != 1 {
		t.Fatalf("%+v %v", made, err)
	}
	head := cofferdam.Commit(strings.Repeat("a", 40))
	m.Set(made.ID, func(t *cofferdam.Task) { t.State, t.Head, t.Receipt = cofferdam.InReview, head, "c-1" })
	m.AddSession(cofferdam.Session{ID: "s-00000001", Task: made.ID})
	m.Emit("s-00000001", cofferdam.Event{Kind: "exec.start"})
	m.Seal("s-00000001")
	for _, path := range []string{
		"/v1/status", "/v1/tasks", "/v1/tasks?state=in+review&limit=1&repo=shop&before=9", "/v1/tasks/t-1", "/v1/tasks/t-1/wait?timeout=1", "/v1/tasks/t-1/wait?state=in+review", "/v1/tasks/t-1/follow",
		"/v1/repos", "/v1/repos/shop", "/v1/models", "/v1/models/anthropic", "/v1/merges", "/v1/merges/t-1", "/v1/sessions?task=t-1", "/v1/sessions/s-00000001",
		"/v1/traces/s-00000001", "/v1/traces/s-00000001?from=0&limit=5", "/v1/traces/s-00000001/follow", "/v1/traces/t-1/export", "/v1/proofs/t-1", "/v1/proofs/t-1/export", "/v1/key", "/v1/openapi.json",
	} {
		if body := step("GET", path, "", 200); len(body) == 0 {
			t.Errorf("GET %s: empty answer", path)
		}
	}
	if body := step("GET", "/v1/models/anthropic", "", 200); bytes.Contains(body, []byte("sk-test")) {
		t.Error("the key came back")
	}
	step("POST", "/v1/merges/t-1/land", `{}`, 202)
	step("POST", "/v1/merges/t-1/approve", `{"commit":"`+string(head)+`"}`, 403)
	step("POST", "/v1/merges/t-1/approve", `{"commit":"`+string(head)+`",`+proofText+`}`, 200)
	var done cofferdam.Task
	if err := json.Unmarshal(step("POST", "/v1/merges/t-1/land", `{}`, 200), &done); err != nil || done.State != cofferdam.Done {
		t.Errorf("%s %v", done.State, err)
	}
	step("DELETE", "/v1/models/anthropic", "", 204)
	step("DELETE", "/v1/models/anthropic", "", 404)
}

func TestBadInput(t *testing.T) {
	h, _ := world(t)
	do(t, h, "POST", "/v1/repos", shop)
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for name, c := range map[string]struct{ method, path, body, reason string }{
		"unknown key":         {"POST", "/v1/tasks", `{"text":"x","sandbox":false}`, `unknown field`},
		"privileged key":      {"POST", "/v1/tasks", `{"text":"x","dangerouslyDisableSandbox":true}`, `unknown field`},
		"twice":               {"POST", "/v1/tasks", `{"text":"x","text":"y"}`, "twice"},
		"twice, other case":   {"POST", "/v1/tasks", `{"text":"x","TEXT":"y"}`, "twice"},
		"null":                {"POST", "/v1/tasks", `{"text":"x","allow":null}`, "null"},
		"null body":           {"POST", "/v1/tasks", `null`, "no JSON object"},
		"list":                {"POST", "/v1/tasks", `[]`, "no JSON object"},
		"text":                {"POST", "/v1/tasks", `"x"`, "no JSON object"},
		"not JSON":            {"POST", "/v1/tasks", `text=x`, "no JSON"},
		"broken off":          {"POST", "/v1/tasks", `{"text":"x"`, "breaks off"},
		"goes on":             {"POST", "/v1/tasks", `{"text":"x"}{}`, "goes on"},
		"binary":              {"POST", "/v1/tasks", "{\"text\":\"\xff\xfe\"}", "UTF-8"},
		"zero bytes":          {"POST", "/v1/tasks", "\x00\x00\x00\x00", "no JSON"},
		"huge":                {"POST", "/v1/tasks", `{"text":"` + strings.Repeat("x", 5<<20) + `"}`, "larger"},
		"large text":          {"POST", "/v1/tasks", `{"text":"` + strings.Repeat("x", 1<<20) + `","agent":"command","command":"x","checks":[{"command":"x","must_fail_first":true}]}`, "bytes long"},
		"deep":                {"POST", "/v1/tasks", deep, "deep"},
		"number for text":     {"POST", "/v1/tasks", `{"text":1}`, "number where text"},
		"text for list":       {"POST", "/v1/tasks", `{"text":"x","allow":"a.test"}`, "where a list"},
		"text for number":     {"POST", "/v1/tasks", `{"text":"x","timeout":"1"}`, "where a number"},
		"fraction for whole":  {"POST", "/v1/tasks", `{"text":"x","limits":{"pids":1.5}}`, "number"},
		"huge number":         {"POST", "/v1/tasks", `{"text":"x","limits":{"memory":99999999999999999999}}`, "number"},
		"negative timeout":    {"POST", "/v1/tasks", strings.Replace(work, `{`, `{"timeout":-1,`, 1), "timeout"},
		"infinite timeout":    {"POST", "/v1/tasks", strings.Replace(work, `{`, `{"timeout":1e400,`, 1), "number"},
		"empty":               {"POST", "/v1/tasks", `{}`, ""},
		"empty allow":         {"POST", "/v1/tasks", strings.Replace(work, `{`, `{"allow":[""],`, 1), "empty"},
		"body for get":        {"GET", "/v1/tasks", `{}`, "takes none"},
		"body for cancel":     {"POST", "/v1/tasks/t-1/cancel", `{}`, "takes none"},
		"unknown parameter":   {"GET", "/v1/tasks?limt=1", "", "unknown parameter"},
		"parameter twice":     {"GET", "/v1/tasks?limit=1&limit=2", "", "twice"},
		"parameter no number": {"GET", "/v1/tasks?limit=-1", "", "whole number"},
		"parameter huge":      {"GET", "/v1/tasks?limit=99999999999999999999", "", "whole number"},
		"unknown state":       {"GET", "/v1/tasks?state=finished", "", "none"},
		"wait for none":       {"GET", "/v1/tasks/t-1/wait?state=finished", "", "none"},
		"misspelt query":      {"GET", "/v1/tasks?limit=%zz", "", "misspelt"},
		"long name":           {"GET", "/v1/tasks/" + strings.Repeat("a", 400), "", "longer"},
		"short commit":        {"POST", "/v1/merges/t-1/approve", `{"commit":"abc"}`, "whole id"},
		"no commit":           {"POST", "/v1/merges/t-1/approve", `{}`, "whole id"},
		"message of a list":   {"POST", "/v1/tasks/t-1/messages", `{"text":["x"]}`, "where text"},
		"message with more":   {"POST", "/v1/tasks/t-1/messages", `{"text":"x","by":"eve"}`, "unknown field"},
		"other method":        {"DELETE", "/v1/tasks", "", "takes"},
	} {
		w, p := do(t, h, c.method, c.path, c.body)
		if w.Code != 400 || p.Kind != "invalid" || !strings.Contains(p.Detail, c.reason) {
			t.Errorf("%s: %d %+v, want 400 with %q", name, w.Code, p, c.reason)
		}
	}
	for _, path := range []string{"/", "/v1", "/v2/tasks", "/v1/tasks/t-99", "/v1/tasks/%00", "/v1/tasks/..%2f..%2fetc", "/v1/repos/nope", "/v1/models/nope", "/v1/merges/t-9", "/v1/sessions/s-9", "/v1/traces/s-9/follow", "/v1/traces/t-9/export", "/v1/proofs/t-9"} {
		if w, p := do(t, h, "GET", path, ""); w.Code != 404 || p.Kind != "not found" {
			t.Errorf("GET %s: %d %+v", path, w.Code, p)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"form":          func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
		"no type":       func(r *http.Request) { r.Header.Del("Content-Type") },
		"other charset": func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-16") },
		"gzip":          func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		"two keys":      func(r *http.Request) { r.Header.Add("Idempotency-Key", "a"); r.Header.Add("Idempotency-Key", "b") },
		"huge key":      func(r *http.Request) { r.Header.Set("Idempotency-Key", strings.Repeat("a", 256)) },
	} {
		if w, p := do(t, h, "POST", "/v1/tasks", work, change); w.Code != 400 {
			t.Errorf("%s: %d %+v", name, w.Code, p)
		}
	}
	var l struct{ Items []cofferdam.Task }
	w, _ := do(t, h, "GET", "/v1/tasks", "")
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || len(l.Items) != 0 {
		t.Errorf("bad input made %d tasks (%v)", len(l.Items), err)
	}
}

// Errors that have no words for people tell nothing; those that have do.
func TestProblemsTellNoCauses(t *testing.T) {
	h, m := world(t)
	m.Fail = fmt.Errorf("dial 10.9.8.7: secret-canary")
	w, p := do(t, h, "GET", "/v1/tasks/t-1", "")
	if w.Code != 500 || strings.Contains(w.Body.String(), "canary") || p.Kind != "internal" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for kind, info := range cofferdam.Kinds() {
		m.Fail = &cofferdam.Error{Op: "x.Y", Kind: kind, Subject: "thing", Reason: "why", Err: errors.New("canary")}
		w, p := do(t, h, "GET", "/v1/tasks/t-1", "")
		if w.Code != info.HTTP || p.Kind != info.Name || p.Detail != "thing: why" || p.Hint != info.Hint || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %d %s", info.Name, w.Code, w.Body)
		}
	}
}

func TestStreams(t *testing.T) {
	h, m := world(t)
	do(t, h, "POST", "/v1/repos", shop)
	w, _ := do(t, h, "POST", "/v1/tasks", work)
	var made cofferdam.Task
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	path, stop := serveUnix(t, h)
	resp, err := unixClient(path).Get("http://cofferdam/v1/tasks/t-1/follow")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (p struct {
		Task    *cofferdam.Task
		Problem *problem
	},
	) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("stream ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := next(); p.Task == nil || p.Task.State != cofferdam.Queued {
		t.Errorf("first line %+v", p)
	}
	m.Set(made.ID, func(t *cofferdam.Task) { t.State = cofferdam.Running })
	if p := next(); p.Task == nil || p.Task.State != cofferdam.Running {
		t.Errorf("second line %+v", p)
	}
	// A stream that held up the end would be cut, and have no last line.
	if err := stop(); err != nil {
		t.Error(err)
	}
	if p := next(); p.Problem == nil || p.Problem.Kind != "unavailable" {
		t.Errorf("last line %+v, want that the server is stopping", p)
	}
}

// TestReaderLeaves: who stops following does not make the server say that it stops,
// and is no news to its operator.
func TestReaderLeaves(t *testing.T) {
	var log lockedBuffer
	svc := service.New(service.NewMemory().Options(cofferdam.Scope{}))
	h := api.New(svc, api.Options{Auth: api.Auth{UID: os.Getuid(), Token: token}, Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	do(t, h, "POST", "/v1/repos", shop)
	do(t, h, "POST", "/v1/tasks", work)
	path, stop := serveUnix(t, h)
	resp, err := unixClient(path).Get("http://cofferdam/v1/tasks/t-1/follow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil { // it is under way
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := log.wait(t, "stream ended early"); err != nil {
		t.Fatal(err)
	}
	if said := log.String(); strings.Contains(said, "is stopping") || !strings.Contains(said, "its reader has gone") || strings.Contains(said, `"INFO","msg":"stream`) {
		t.Errorf("the log says:\n%s", said)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wait returns when the log has text.
func (b *lockedBuffer) wait(t *testing.T, text string) error {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(b.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the log does not say %q:\n%s", text, b.String())
		}
	}
	return nil
}

func TestIdempotency(t *testing.T) {
	h, _ := world(t)
	do(t, h, "POST", "/v1/repos", shop)
	key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "k1") }
	var ids []string
	for range 2 {
		w, _ := do(t, h, "POST", "/v1/tasks", work, key)
		var made cofferdam.Task
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(made.ID))
	}
	if ids[0] != ids[1] {
		t.Errorf("two tasks from one key: %v", ids)
	}
	if w, _ := do(t, h, "POST", "/v1/tasks", strings.Replace(work, "{", `{"idempotency_key":"k2",`, 1), key); w.Code != 400 {
		t.Errorf("two different keys: %d", w.Code)
	}
}

// Every route is in the document with its method and id, and nothing else is.
func TestOpenAPI(t *testing.T) {
	h, _ := world(t)
	w, _ := do(t, h, "GET", "/v1/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string                     `json:"operationId"`
			Responses   map[string]json.RawMessage `json:"responses"`
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("%v %q", err, doc.OpenAPI)
	}
	ids, n := map[string]bool{}, 0
	for _, r := range api.Routes() {
		op, ok := doc.Paths[r.Path][strings.ToLower(r.Method)]
		if !ok || op.OperationID != r.ID || len(op.Responses) != 2 {
			t.Errorf("%s %s is not described right: %+v", r.Method, r.Path, op)
		}
		if ids[r.ID] || r.Doc == "" {
			t.Errorf("%s %s: id %q is taken, or no description", r.Method, r.Path, r.ID)
		}
		ids[r.ID] = true
	}
	for _, methods := range doc.Paths {
		n += len(methods)
	}
	if n != len(api.Routes()) {
		t.Errorf("%d operations described, %d served", n, len(api.Routes()))
	}
	for _, ref := range strings.Split(w.Body.String(), "#/components/schemas/")[1:] {
		name, _, _ := strings.Cut(ref, `"`)
		if s := doc.Components.Schemas[name]; len(s) == 0 || string(s) == "null" {
			t.Errorf("schema %s is named, but not there", name)
		}
	}
}

// A reader that leaves does not end the server, and 1,000 refused requests
// leave it well.
func TestManyBadRequests(t *testing.T) {
	h, _ := world(t)
	path, stop := serveUnix(t, h)
	c := unixClient(path)
	for i := range 1000 {
		resp, err := c.Post("http://cofferdam/v1/tasks", "application/json", strings.NewReader(`{"x":`+fmt.Sprint(i)+`}`))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	resp, err := c.Get("http://cofferdam/v1/status")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
	resp.Body.Close()
	c.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{work, shop, `{}`, `{"text":"x","text":"y"}`, "\xff", `[[[[`} {
		f.Add([]byte(s))
	}
	m := service.NewMemory()
	h := api.New(service.New(m.Options(cofferdam.Scope{})), api.Options{Log: slog.New(slog.DiscardHandler), Auth: api.Auth{Token: token}})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/tasks", "/v1/repos", "/v1/models"} {
			r := httptest.NewRequest("POST", path, bytes.NewReader(body))
			r.Host = "localhost"
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code >= 500 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	})
}
