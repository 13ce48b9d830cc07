package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExportAppearsWhole(t *testing.T) {
	b := newBench(t)
	b.shop()
	dir := t.TempDir()
	path := filepath.Join(dir, "t-1.jsonl")
	b.good("trace", "export", "t-1", "-o", path)
	if data, err := os.ReadFile(path); err != nil || len(data) == 0 {
		t.Errorf("%q %v", data, err)
	}
	if out := b.good("trace", "export", "t-1"); !strings.HasPrefix(out, `{"schema"`) {
		t.Errorf("to stdout: %q", out)
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "{}\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	b.env["COFFERDAM_SERVER"] = cut.URL
	if code, _, errs := b.run("trace", "export", "t-1", "-o", filepath.Join(dir, "cut.jsonl")); code == 0 || !twoLines(errs) {
		t.Errorf("a cut export: exit %d %s", code, errs)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("the folder holds %d files, want the whole one only (%v)", len(list), err)
	}
}

func TestInterrupted(t *testing.T) {
	b := newBench(t)
	b.good("repo", "add", "shop", "/srv/shop.git")
	ctx, cancel := context.WithCancel(t.Context())
	var o, e bytes.Buffer
	sys := b.system(writerFunc(func(p []byte) (int, error) { // the task's name is printed once it is made
		cancel()
		return o.Write(p)
	}), &e)
	code := Main(ctx, sys, []string{"task", "run", "fix", "--command", "true", "--keep", "true"})
	if code != 130 || o.String() != "t-1\n" || !strings.Contains(e.String(), "hint: t-1 goes on; cofferdam task follow t-1") {
		t.Errorf("exit %d\n%s%s", code, o.String(), e.String())
	}
	if out := b.good("task", "view", "t-1"); !strings.Contains(out, "queued") {
		t.Errorf("the task did not go on: %s", out)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A server that goes away while a task is followed is waited for; nothing is
// shown twice.
func TestFollowOutlivesTheServer(t *testing.T) {
	const head = `{"schema":"cofferdam/progress/v1",`
	task := func(state string) string {
		return head + `"task":{"id":"t-a","number":1,"attempt":1,"state":"` + state + `"}}` + "\n"
	}
	event := func(seq int) string {
		return head + fmt.Sprintf(`"event":{"seq":%d,"session":"s-1","kind":"git.push","verdict":"refused","resource":"ref-%d"}}`, seq, seq) + "\n"
	}
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/follow") {
			io.WriteString(w, `{"id":"t-a","number":1,"state":"queued"}`)
			return
		}
		calls++
		switch calls {
		case 1: // killed in the middle of a line
			io.WriteString(w, task("running")+event(0)+`{"schema":`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2: // stopped in good order
			io.WriteString(w, task("running")+event(0)+event(1)+`{"problem":{"kind":"unavailable","detail":"stopping"}}`+"\n")
		case 3: // an end that is none
			io.WriteString(w, task("verifying"))
		default:
			io.WriteString(w, event(0)+event(1)+event(2)+task("in review"))
		}
	}))
	defer s.Close()
	b := &bench{t: t, env: map[string]string{"COFFERDAM_SERVER": s.URL}, in: strings.NewReader("")}
	code, _, errs := b.run("task", "follow", "t-1")
	if code != 0 || calls != 4 || strings.Count(errs, "t-1 running\n") != 1 || strings.Count(errs, "ref-0") != 1 || strings.Count(errs, "ref-1") != 1 || strings.Count(errs, "ref-2") != 1 || !strings.Contains(errs, "t-1 is in review") {
		t.Errorf("exit %d after %d calls\n%s", code, calls, errs)
	}
}

// An answer that could not be written whole is a failure.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v", err)
	}
	defer full.Close()
	b := newBench(t)
	b.shop()
	for _, args := range [][]string{{"task", "list"}, {"task", "list", "--json"}, {"task", "view", "t-1"}, {"trace", "export", "t-1"}, {"status"}, {"version"}, {"--help"}, {"completion", "bash"}, {"task", "list", "-q"}} {
		var errs bytes.Buffer
		if code := Main(t.Context(), b.system(full, &errs), args); code != 1 || !strings.Contains(errs.String(), "writing the answer: no space left on device") {
			t.Errorf("%v: exit %d\n%s", args, code, errs.String())
		}
	}
}
