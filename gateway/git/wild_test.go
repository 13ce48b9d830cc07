package git

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/repo"
)

// raw sends one request as it stands and returns status and body.
func (w *world) raw(request string, body []byte) (int, string) {
	w.t.Helper()
	return rawAt(w.port, request, body)
}

func rawAt(port, request string, body []byte) (int, string) {
	conn, err := net.Dial("tcp4", "127.0.0.1:"+port)
	if err != nil {
		return 0, err.Error()
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n\r\n", strings.ReplaceAll(request, "\n", "\r\n"))
	conn.Write(body)
	method, _, _ := strings.Cut(request, " ") // an answer to HEAD has no body
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func (w *world) post(body []byte, headers string) (int, string) {
	w.t.Helper()
	return w.raw(fmt.Sprintf("POST /demo.git/git-receive-pack HTTP/1.1\nHost: git.cofferdam.internal\nContent-Type: application/x-git-receive-pack-request\nContent-Length: %d%s", len(body), headers), body)
}

// TestSpellings is REP-07: only the exact requests of git are served.
func TestSpellings(t *testing.T) {
	w := newWorld(t, "")
	w.clone()
	before := w.refs()
	good := "GET /demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal"
	if code, _ := w.raw(good, nil); code != 200 {
		t.Fatalf("the twin: status %d", code)
	}
	for _, request := range []string{
		"GET //demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo.git//info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /x/../demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /other.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /Demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo.git/info/refs?service=git-upload-pack&x=y HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo.git/info/refs HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo.git/HEAD HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo.git/objects/info/packs HTTP/1.1\nHost: git.cofferdam.internal",
		"GET /demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: elsewhere.test",
		"GET http://elsewhere.test/demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"HEAD /demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal",
		"PUT /demo.git/refs/heads/main HTTP/1.1\nHost: git.cofferdam.internal\nContent-Length: 0",
		"MKCOL /demo.git/x HTTP/1.1\nHost: git.cofferdam.internal",
		"POST /demo.git/%67it-receive-pack HTTP/1.1\nHost: git.cofferdam.internal\nContent-Length: 0",
		"POST /demo.git/git-receive-pack/ HTTP/1.1\nHost: git.cofferdam.internal\nContent-Length: 0",
		"POST /demo.git/git-receive-pack?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal\nContent-Length: 0",
		"POST /demo.git/..;/git-receive-pack HTTP/1.1\nHost: git.cofferdam.internal\nContent-Length: 0",
		"POST /demo.git/GIT-RECEIVE-PACK HTTP/1.1\nHost: git.cofferdam.internal\nContent-Length: 0",
		"GET /demo.git/git-receive-pack HTTP/1.1\nHost: git.cofferdam.internal\nConnection: Upgrade\nUpgrade: websocket",
	} {
		if code, body := w.raw(request, nil); code < 400 || code >= 500 {
			t.Errorf("%s\nstatus %d: %s", request, code, body)
		}
	}
	if w.refs() != before {
		t.Error("refs changed")
	}
	refused := 0
	for _, e := range w.record.Events() {
		if e.Verdict == cofferdam.Refused {
			refused++
		}
	}
	if refused < 20 {
		t.Errorf("only %d refusals are on record", refused)
	}
}

// TestFraming is REP-08: however a push is framed, the verdict is that of the
// plain form.
func TestFraming(t *testing.T) {
	w := newWorld(t, "")
	w.clone()
	before := w.refs()
	line := func(ref string) string {
		return pkt(strings.Repeat("0", 40) + " " + id2 + " " + ref + "\x00 report-status\n")
	}
	zip := func(s string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		return b.Bytes()
	}
	for _, c := range []struct {
		name    string
		body    []byte
		headers string
		code    int
		want    string
	}{
		{"plain", []byte(line("refs/heads/main") + "0000PACK"), "", 200, "ng refs/heads/main writing refs/heads/main is refused"},
		{"gzip", zip(line("refs/heads/main") + "0000PACK"), "\nContent-Encoding: gzip", 200, "ng refs/heads/main writing refs/heads/main is refused"},
		{"gzip that is none", []byte("x" + line("refs/heads/main")), "\nContent-Encoding: gzip", 400, "compressed with gzip and is not"},
		{"unknown encoding", []byte(line("refs/heads/main")), "\nContent-Encoding: br", 400, "unknown encoding"},
		{"probe", []byte("0000"), "", 200, ""},
		{"bad length", []byte("0003"), "", 403, "cannot be read"},
		{"certificate", []byte(pkt("push-cert\x00 push-cert") + "0000"), "", 403, "signed pushes"},
		{"second NUL", []byte(pkt(id1+" "+id2+" "+string(own)+"\x00a\x00b") + "0000"), "", 403, "capabilities"},
		{"a ref with a newline", []byte(line("refs/heads/main\nok") + "0000PACK"), "", 200, "is refused"},
		{"an escaped ref", []byte(line(string(own)+"/../../main") + "0000PACK"), "", 200, "is refused"},
		{"a lock", []byte(line(string(own)+".lock") + "0000PACK"), "", 200, "is refused"},
		{"HEAD", []byte(line("HEAD") + "0000PACK"), "", 200, "is refused"},
		{"two slashes", []byte(line("refs/heads//main") + "0000PACK"), "", 200, "is refused"},
		{"space behind", []byte(line(string(own)+" ") + "0000PACK"), "", 200, "is refused"},
		{"no flush", []byte(line(string(own))), "", 403, "cannot be read"},
		{"twice, same", []byte(line(string(own)) + pkt(strings.Repeat("0", 40)+" "+id2+" "+string(own)) + "0000PACK"), "", 200, "named twice"},
		{"twice, other", []byte(line(string(own)) + pkt(strings.Repeat("0", 40)+" "+id1+" "+string(own)) + "0000PACK"), "", 200, "named twice"},
		{"second list", []byte(line(string(own)) + "0000" + line("refs/heads/main") + "0000PACK"), "", 200, "ng " + string(own)},
		{"no pack", []byte(line(string(own)) + "0000"), "", 200, "ng " + string(own)},
		{"broken pack", []byte(line(string(own)) + "0000PACK\x00\x00\x00\x02\x00\x00\x00\x01garbage"), "", 200, "ng " + string(own)},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := w.post(c.body, c.headers)
			if code != c.code || !strings.Contains(body, c.want) {
				t.Errorf("status %d, want %d, and %q in %q", code, c.code, c.want, body)
			}
			if w.refs() != before || w.mirrorAt(own) != "" {
				t.Error("refs changed")
			}
		})
	}
}

// TestHidden: a session sees no other task's branch, by name or as a want.
func TestHidden(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	secretCommit := write(t, dir, "canary.txt", "of the first task\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if out := w.must("/", "ls-remote", w.url()); !strings.Contains(out, string(own)) {
		t.Errorf("a session does not see its own branch:\n%s", out)
	}
	w.open("refs/heads/cofferdam/t-43-1")
	for _, v := range []string{"0", "2"} {
		if out := w.must("/", "-c", "protocol.version="+v, "ls-remote", w.url()); strings.Contains(out, "t-42-1") || strings.Contains(out, secretCommit) {
			t.Errorf("v%s: another task's branch shows:\n%s", v, out)
		}
	}
	second := w.clone()
	if out, err := w.git(second, "fetch", "origin", string(own)); err == nil {
		t.Errorf("another task's branch can be fetched by name:\n%s", out)
	}
	blob := must(t, dir, "rev-parse", "HEAD:canary.txt")
	for _, v := range []string{"0", "1", "2"} {
		for _, id := range []string{secretCommit, secretCommit + "^{tree}", blob} {
			id = strings.Fields(must(t, dir, "rev-parse", id))[0]
			if out, err := w.git(second, "-c", "protocol.version="+v, "fetch", "origin", id); err == nil {
				t.Errorf("v%s: another task's object %s can be fetched by id:\n%s", v, id, out)
			}
		}
	}
	if out, err := w.git(second, "push", "origin", "HEAD:"+string(own)); err == nil {
		t.Errorf("another task's branch can be written:\n%s", out)
	}
}

// TestNothingWithoutRecord: what cannot be recorded does not happen.
func TestNothingWithoutRecord(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	write(t, dir, "c.txt", "three\n")
	before := w.refs()
	w.record.FailWhen(func(cofferdam.Event) error { return errors.New("disk full") })
	if out, err := w.git(dir, "push", "origin", "HEAD:"+string(own)); err == nil || !strings.Contains(out, "record") {
		t.Errorf("push without a record: %v\n%s", err, out)
	}
	if out, err := w.git("/", "clone", w.url(), filepath.Join(t.TempDir(), "x")); err == nil {
		t.Errorf("clone without a record:\n%s", out)
	}
	if w.refs() != before || w.mirrorAt(own) != "" {
		t.Error("refs changed")
	}
}

// TestProofSession: a session that proves a commit reads the branch it is on,
// by its id, and writes nothing.
func TestProofSession(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	head := write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	before := w.refs()
	w.openAs(own, "")
	proving := t.TempDir()
	must(t, proving, "init", "--quiet")
	w.must(proving, "fetch", "--quiet", "--no-tags", w.url(), head)
	must(t, proving, "checkout", "--quiet", "--detach", head)
	write(t, proving, "d.txt", "four\n")
	if out, err := w.git(proving, "push", w.url(), "HEAD:"+string(own)); err == nil || !strings.Contains(out, "may not write") {
		t.Errorf("push: %v\n%s", err, out)
	}
	if w.refs() != before {
		t.Errorf("refs changed:\n%s", w.refs())
	}
}

// TestEnd: when the session ends, an open exchange dies and nothing more is served.
func TestEnd(t *testing.T) {
	w := newWorld(t, "")
	conn, err := net.Dial("tcp4", "127.0.0.1:"+w.port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /demo.git/git-receive-pack HTTP/1.1\r\nHost: git.cofferdam.internal\r\nContent-Length: 1000000\r\n\r\n%s0000PACK",
		pkt(strings.Repeat("0", 40)+" "+id2+" "+string(own)+"\x00 report-status"))
	w.end()
	// It may still hear why; then the connection is gone, and nothing was taken.
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer, err := io.ReadAll(conn)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		t.Errorf("the connection outlives the session: %q", answer)
	}
	if strings.Contains(string(answer), "unpack ok") {
		t.Errorf("taken after the session's end: %q", answer)
	}
}

// TestSeats: slow uploads of one session hold up that session alone, and their
// end lets the next in.
func TestSeats(t *testing.T) {
	w := newWorld(t, "")
	var slow []net.Conn
	for range maxExchanges {
		conn, err := net.Dial("tcp4", "127.0.0.1:"+w.port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /demo.git/git-receive-pack HTTP/1.1\r\nHost: git.cofferdam.internal\r\nContent-Length: 1000000\r\n\r\n0")
		slow = append(slow, conn)
	}
	for { // until all of them sit
		w.gateway.mu.Lock()
		s := w.gateway.seats[w.caller.Session]
		w.gateway.mu.Unlock()
		if s != nil && len(s.taken) == maxExchanges {
			break
		}
		runtime.Gosched()
	}
	done := make(chan int, 1)
	port := w.port
	go func() {
		code, _ := rawAt(port, "GET /demo.git/info/refs?service=git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal", nil)
		done <- code
	}()
	w.open("refs/heads/cofferdam/t-43-1") // another session is not held up
	w.must("/", "ls-remote", w.url())
	select {
	case code := <-done:
		t.Errorf("a fifth request was served beside four: status %d", code)
	default:
	}
	slow[0].Close()
	if code := <-done; code != 200 {
		t.Errorf("status %d after a seat was free", code)
	}
}

// TestOtherTarget: the gateway serves its own name only.
func TestOtherTarget(t *testing.T) {
	w := newWorld(t, "")
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.gateway.Serve(w.caller, a, gateway.Target{Host: "git.cofferdam.internal", Port: 80})
	}()
	fmt.Fprint(b, "GET /demo.git/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: example.com\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(b), nil)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another Host: %v, %v", resp, err)
	}
	b.Close()
	<-done
}

// TestSyncShared: many callers share few fetches, and each sees what was there
// when it asked.
func TestSyncShared(t *testing.T) {
	w := newWorld(t, "")
	work := filepath.Join(t.TempDir(), "work")
	must(t, "/", "clone", "--quiet", w.upstream, work)
	head := write(t, work, "n.txt", "new\n")
	must(t, work, "push", "--quiet", "origin", "HEAD:main")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := w.gateway.Sync(t.Context(), w.repo); err != nil {
				t.Error(err)
			}
			if got, err := w.gateway.Resolve(t.Context(), w.repo, "refs/heads/main"); err != nil || string(got) != head {
				t.Errorf("after Sync main is %s, %v; want %s", got, err, head)
			}
		})
	}
	// Those who give up do not spoil it for the others.
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if err := w.gateway.Sync(ctx, w.repo); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		cancel()
	}
	all.Wait()
}

// TestUpstreamGone: a local upstream that is not there is named as such.
func TestUpstreamGone(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	write(t, dir, "c.txt", "three\n")
	if err := os.Rename(w.upstream, w.upstream+".away"); err != nil {
		t.Fatal(err)
	}
	out, err := w.git(dir, "push", "origin", "HEAD:"+string(own))
	if err == nil || !strings.Contains(out, "there is nothing at") {
		t.Errorf("push: %v\n%s", err, out)
	}
	if w.mirrorAt(own) != "" {
		t.Error("the mirror moved without its upstream")
	}
	if err := os.Rename(w.upstream+".away", w.upstream); err != nil {
		t.Fatal(err)
	}
	w.must(dir, "push", "origin", "HEAD:"+string(own))
}

// TestCarrierChecks: a git process of ours that was taken over by what it read
// can say nothing to the upstream but the one update that was decided.
func TestCarrierChecks(t *testing.T) {
	w, base, head, _ := pushed(t)
	before := w.refs()
	only := repo.Update{Ref: own, Old: base, New: head}
	list := func(us ...repo.Update) string {
		var b bytes.Buffer
		for i, u := range us {
			line := string(u.Old) + " " + string(u.New) + " " + string(u.Ref)
			if i == 0 {
				line += "\x00 report-status"
			}
			packet(&b, line)
		}
		return b.String() + "0000PACK"
	}
	main := repo.Update{Ref: "refs/heads/main", Old: base, New: head}
	gone := repo.Update{Ref: own, Old: only.Old, New: cofferdam.Commit(strings.Repeat("0", 40))}
	for _, c := range []struct {
		name, method, path, body, encoding string
		only                               *repo.Update
		code                               int
	}{
		{"another ref", "POST", "/upstream.git/git-receive-pack", list(main), "", &only, 502},
		{"one more ref", "POST", "/upstream.git/git-receive-pack", list(only, main), "", &only, 502},
		{"the same twice", "POST", "/upstream.git/git-receive-pack", list(only, only), "", &only, 502},
		{"a delete", "POST", "/upstream.git/git-receive-pack", list(gone), "", &only, 502},
		{"compressed", "POST", "/upstream.git/git-receive-pack", list(only), "gzip", &only, 502},
		{"a push while fetching", "POST", "/upstream.git/git-receive-pack", list(main), "", nil, 404},
		{"a listing for push while fetching", "GET", "/upstream.git/info/refs?service=git-receive-pack", "", "", nil, 404},
		{"another path", "GET", "/other.git/info/refs?service=git-upload-pack", "", "", nil, 404},
		{"a longer path", "GET", "/upstream.git/../x/info/refs?service=git-upload-pack", "", "", nil, 404},
		{"a file", "GET", "/upstream.git/HEAD", "", "", nil, 404},
		{"the twin", "GET", "/upstream.git/info/refs?service=git-upload-pack", "", "", nil, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
			if c.encoding != "" {
				r.Header.Set("Content-Encoding", c.encoding)
			}
			answer := httptest.NewRecorder()
			(&carrier{g: w.gateway, repo: w.repo, only: c.only}).ServeHTTP(answer, r)
			if answer.Code != c.code {
				t.Errorf("status %d, want %d: %s", answer.Code, c.code, answer.Body)
			}
			if w.refs() != before {
				t.Errorf("refs changed:\n%s", w.refs())
			}
		})
	}
}
