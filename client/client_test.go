package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
)

// serve returns a client of a server that h answers for, and counts requests.
func serve(t *testing.T, h http.HandlerFunc) (*Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	c, err := New(Options{Server: s.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	c.pause = func(context.Context, time.Duration) error { return nil }
	return c, &n
}

func problemOf(kind cofferdam.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(cofferdam.Kinds()[kind].HTTP)
		fmt.Fprintf(w, `{"kind":%q,"op":"x.Y","subject":"thing","reason":"why","detail":"thing: why","hint":"do that","request_id":"q-1"}`, kind)
	}
}

func TestEveryKindComesBack(t *testing.T) {
	for kind := range cofferdam.Kinds() {
		c, _ := serve(t, problemOf(kind))
		_, err := c.Task(t.Context(), "t-1")
		var r *RequestError
		if cofferdam.KindOf(err) != kind || err == nil || err.Error() != "thing: why" || cofferdam.HintOf(err) != "do that" || !errors.As(err, &r) || r.RequestID != "q-1" {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestOnlySafeCallsAreRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		call func(*Client) error
		want int64
	}{
		"read": {func(c *Client) error { _, err := c.Task(context.Background(), "t-1"); return err }, attempts},
		"create with key": {func(c *Client) error {
			_, err := c.CreateTask(context.Background(), cofferdam.TaskRequest{})
			return err
		}, attempts},
		"follow": {func(c *Client) error {
			return c.FollowTask(context.Background(), "t-1", func(cofferdam.Progress) error { return nil })
		}, attempts},
		"approve": {func(c *Client) error {
			_, err := c.ApproveMerge(context.Background(), "t-1", cofferdam.ApproveRequest{Commit: "a"})
			return err
		}, 1},
		"land":        {func(c *Client) error { _, err := c.LandMerge(context.Background(), "t-1", "a"); return err }, 1},
		"cancel":      {func(c *Client) error { _, err := c.CancelTask(context.Background(), "t-1"); return err }, 1},
		"add repo":    {func(c *Client) error { _, err := c.AddRepo(context.Background(), cofferdam.RepoRequest{}); return err }, 1},
		"remove repo": {func(c *Client) error { return c.RemoveRepo(context.Background(), "x") }, 1},
	} {
		cl, n := serve(t, problemOf(cofferdam.Unavailable))
		if err := c.call(cl); cofferdam.KindOf(err) != cofferdam.Unavailable || n.Load() != c.want {
			t.Errorf("%s: sent %d times, want %d (%v)", name, n.Load(), c.want, err)
		}
		cl, n = serve(t, problemOf(cofferdam.Conflict))
		if err := c.call(cl); cofferdam.KindOf(err) != cofferdam.Conflict || n.Load() != 1 {
			t.Errorf("%s after a conflict: sent %d times (%v)", name, n.Load(), err)
		}
	}
}

func TestRepeatedCreationKeepsItsKey(t *testing.T) {
	keys := map[string]bool{}
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		problemOf(cofferdam.Unavailable)(w, r)
	})
	_, _ = c.CreateTask(t.Context(), cofferdam.TaskRequest{}) // refused, that is the point
	if len(keys) != 1 || keys[""] {
		t.Errorf("keys sent: %v", keys)
	}
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, server := range []string{"unix:" + filepath.Join(t.TempDir(), "no.sock"), "http://" + l.Addr().String()} {
		c, err := New(Options{Server: server})
		if err != nil {
			t.Fatal(err)
		}
		c.pause = func(context.Context, time.Duration) error { return nil }
		_, err = c.Status(t.Context())
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "no server at "+server) || !strings.Contains(cofferdam.HintOf(err), "cofferdam serve") {
			t.Errorf("%s: %v", server, err)
		}
	}
	for _, server := range []string{"", "unix:", "ftp://x", "127.0.0.1:80"} {
		if _, err := New(Options{Server: server}); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%q: %v", server, err)
		}
	}
}

// Whatever stands at the address, the error says so and nothing is believed.
func TestForeignServers(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"page":        func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>hello</html>") },
		"empty":       func(http.ResponseWriter, *http.Request) {},
		"binary":      func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte{0, 255, 1}) },
		"wrong types": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"number":"one"}`) },
		"plain 500":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", 500) },
		"plain 404":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", 404) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"empty problem": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(400)
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"number"`)
		},
	} {
		c, _ := serve(t, h)
		_, err := c.Task(t.Context(), "t-1")
		if err == nil || cofferdam.HintOf(err) == "" || !strings.Contains(err.Error(), "server at http://") {
			t.Errorf("%s: %v", name, err)
		}
		if k := cofferdam.KindOf(err); k == cofferdam.NotFound || k == cofferdam.Forbidden {
			t.Errorf("%s: a stranger's word about a task is believed: %s", name, k)
		}
	}
}

// A token never leaves the machine in the clear.
func TestPlainHTTPStaysHere(t *testing.T) {
	for server, ok := range map[string]bool{
		"http://127.0.0.1:7420": true, "http://[::1]:7420": true, "http://localhost:7420": true, "https://cofferdam.example:7420": true,
		"http://192.0.2.1:7420": false, "http://cofferdam.example": false, "http://127.0.0.1.example:1": false, "http://0.0.0.0:7420": false,
		"http://127.0.0.1@cofferdam.example": false, "http://localhost.example:1": false, "http://[": false,
	} {
		_, err := New(Options{Server: server, Token: "x"})
		if (err == nil) != ok || !ok && (cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "") {
			t.Errorf("%s: %v", server, err)
		}
	}
}

func TestStreams(t *testing.T) {
	read := func(h http.HandlerFunc) (n int, err error) {
		c, _ := serve(t, h)
		err = c.FollowTask(t.Context(), "t-1", func(cofferdam.Progress) error { n++; return nil })
		return n, err
	}
	line := `{"schema":"cofferdam/progress/v1","task":{"number":1}}` + "\n"
	if n, err := read(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, line+line) }); n != 2 || err != nil {
		t.Errorf("whole: %d %v", n, err)
	}
	if n, err := read(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, line+`{"problem":{"kind":"unavailable","detail":"stopping","reason":"stopping","hint":"again"}}`+"\n")
	}); n != 1 || cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) != "again" {
		t.Errorf("with a problem: %d %v", n, err)
	}
	if n, err := read(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, line)
	}); n != 1 || cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("cut: %d %v", n, err)
	}
	if _, err := read(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "not json\n") }); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("no JSON: %v", err)
	}
	if _, err := read(func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("x"), maxLine+1)) }); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("long line: %v", err)
	}
}

// An export that breaks off is an error, never a shorter export.
func TestCutExport(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first line\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	var b bytes.Buffer
	if err := c.Export(t.Context(), "t-1", &b); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("got %v with %q", err, b.String())
	}
}

func TestNamesAreEscaped(t *testing.T) {
	var path string
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { path = r.RequestURI; io.WriteString(w, "{}") })
	if _, err := c.Task(t.Context(), "../repos/x?y=1#z"); err != nil || path != "/v1/tasks/..%2Frepos%2Fx%3Fy=1%23z" {
		t.Errorf("%q %v", path, err)
	}
}

func TestCancel(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	c, n := serve(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := c.Task(ctx, "t-1"); !errors.Is(err, context.Canceled) || n.Load() != 1 {
		t.Errorf("%v after %d calls", err, n.Load())
	}
}
