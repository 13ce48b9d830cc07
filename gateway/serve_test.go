package gateway_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// pipe is a TCP connection to ServeHTTP.
func pipe(t *testing.T, c *gateway.Caller, h http.Handler) (net.Conn, <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { gateway.ServeHTTP(c, server, h); close(done) }()
	client.SetDeadline(time.Now().Add(30 * time.Second))
	return client, done
}

func finished(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("still served")
	}
}

func TestServeHTTP(t *testing.T) {
	c, _, end := gatewaytest.NewCaller(t, policy.Grant{})
	n := 0
	conn, done := pipe(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; fmt.Fprint(w, n) }))
	r := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != fmt.Sprint(i+1) {
			t.Errorf("answer %d: %q", i, body)
		}
	}
	end()
	if _, err := r.ReadByte(); err == nil {
		t.Error("open after the session's end")
	}
	finished(t, done)
}

// TestUnreadableRequestIsOnRecord: what net/http answers by itself never reaches
// a handler, and is refused on record all the same; an answer of a handler is not.
func TestUnreadableRequestIsOnRecord(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		refused int
	}{
		"two hosts":        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 1},
		"odd encoding":     {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: odd\r\n\r\n", 1},
		"huge header":      {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2*gateway.MaxHeaderBytes) + "\r\n\r\n", 1},
		"no HTTP":          {"hello\r\n\r\n", 1},
		"after a good one": {"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n", 1},
		"handler's own":    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			caller, record, end := gatewaytest.NewCaller(t, policy.Grant{})
			defer end()
			conn, done := pipe(t, caller, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
			go io.WriteString(conn, c.request) // a huge one is cut off
			io.Copy(io.Discard, conn)          // until the server closes
			finished(t, done)
			n := 0
			for _, e := range record.Events() {
				if e.Rule == gateway.RuleMalformed && e.Verdict == cofferdam.Refused {
					n++
				}
			}
			if n != c.refused {
				t.Errorf("%d refusals on record, want %d", n, c.refused)
			}
		})
	}
}

func TestServeHTTPEndsWithItsClient(t *testing.T) {
	c, _, _ := gatewaytest.NewCaller(t, policy.Grant{})
	conn, done := pipe(t, c, http.NotFoundHandler())
	conn.Close()
	finished(t, done)
}

func TestServeHTTPEndsAfterATakeOver(t *testing.T) {
	c, _, _ := gatewaytest.NewCaller(t, policy.Grant{})
	conn, done := pipe(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		taken, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(taken, "mine\n")
		io.Copy(io.Discard, taken)
		taken.Close()
	}))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "mine\n" {
		t.Errorf("%q, %v", line, err)
	}
	select {
	case <-done:
		t.Error("served to its end while the handler has it")
	default:
	}
	conn.Close()
	finished(t, done)
}

func refusalOf(t *testing.T, host cofferdam.Host) error {
	t.Helper()
	set, err := policy.New(policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	if err != nil {
		t.Fatal(err)
	}
	r := request(host)
	return gateway.Refuse(r, set.Decide(r.Query))
}

func TestWriteRefusal(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		rule   string
		want   string
	}{
		{refusalOf(t, "evil.test"), 403, "default-deny", "cofferdam: evil.test:80 is refused: it is not on this task's list of allowed hosts\nhint: allowed: good.test; a person can start the task with --allow evil.test\n"},
		{gateway.Refuse(gateway.Request{}, cofferdam.Decision{Rule: gateway.RuleActs, Reason: "used up", Hint: "start another"}), 429, gateway.RuleActs, "cofferdam: used up\nhint: start another\n"},
		{&cofferdam.Error{Kind: cofferdam.Unavailable, Reason: "it is down", Hint: "wait", Err: errors.New("dial 10.0.0.1: secret")}, 503, "", "cofferdam: it is down\nhint: wait\n"},
		{errors.New("open /var/lib/x: secret"), 500, "", "cofferdam: the request could not be served\n"},
	} {
		w := httptest.NewRecorder()
		gateway.WriteRefusal(w, c.err)
		body := w.Body.String()
		if w.Code != c.status || w.Header().Get(gateway.RuleHeader) != c.rule || !strings.HasPrefix(body, c.want) || strings.Contains(body, "secret") {
			t.Errorf("%d %v: %q", w.Code, w.Header(), body)
		}
		if ct := w.Header().Get("Content-Type"); ct != "text/plain; charset=utf-8" {
			t.Errorf("content type %q", ct)
		}
	}
}

func TestAnswerRefusalFitsItsClient(t *testing.T) {
	c, _, _ := gatewaytest.NewCaller(t, policy.Grant{})
	err := refusalOf(t, "evil.test")
	for _, tc := range []struct {
		name, head     string
		status         int
		kind, contains string
	}{
		{"curl", "GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n", 403, "text/plain", "hint: allowed: good.test"},
		{"browser", "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html,application/json\r\n", 403, "text/plain", "hint:"},
		{"npm", "GET / HTTP/1.1\r\nHost: x\r\nAccept: application/vnd.npm.install-v1+json; q=1.0, */*\r\n", 403, "application/json", `"error":"cofferdam: evil.test:80`},
		{"api", "POST / HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nContent-Length: 5\r\n\r\nhello", 403, "application/json", `"rule":"default-deny"`},
		{"pip", "GET /simple/six/ HTTP/1.1\r\nHost: x\r\nUser-Agent: pip/23.2.1 {}\r\nAccept: application/vnd.pypi.simple.v1+json, text/html; q=0.1\r\n", 300, "text/plain", "evil.test:80 is refused"},
		{"pip file", "GET /six.whl HTTP/1.1\r\nHost: x\r\nUser-Agent: pip/23.2.1 {}\r\nAccept: */*\r\n", 403, "text/plain", "hint:"},
		{"head", "HEAD / HTTP/1.1\r\nHost: x\r\n", 403, "text/plain", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, done := pipe(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gateway.AnswerRefusal(w, r, err) }))
			if !strings.Contains(tc.head, "\r\n\r\n") {
				tc.head += "\r\n"
			}
			io.WriteString(conn, tc.head)
			method, _, _ := strings.Cut(tc.head, " ")
			resp, rerr := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
			if rerr != nil {
				t.Fatal(rerr)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), tc.kind) || !strings.Contains(string(body), tc.contains) ||
				!strings.Contains(resp.Status, "evil.test:80 is refused") || resp.Header.Get(gateway.RuleHeader) != "default-deny" {
				t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
			}
			if tc.kind == "application/json" && !json.Valid(body) {
				t.Errorf("no JSON: %s", body)
			}
			conn.Close()
			finished(t, done)
		})
	}
}

// Text from a box cannot break out of the status line or a header.
func TestStatusLineHoldsOneLine(t *testing.T) {
	c, _, _ := gatewaytest.NewCaller(t, policy.Grant{})
	err := gateway.Refuse(gateway.Request{}, cofferdam.Decision{Rule: "x", Reason: "a\r\nX-Evil: 1\r\n\r\n" + strings.Repeat("ü", 500), Hint: "h"})
	for _, agent := range []string{"curl/8", "pip/23\r\nAccept: application/vnd.pypi.simple.v1+json"} {
		conn, _ := pipe(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gateway.AnswerRefusal(w, r, err) }))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: %s\r\n\r\n", agent)
		resp, rerr := http.ReadResponse(bufio.NewReader(conn), nil)
		if rerr != nil || resp.Header.Get("X-Evil") != "" || len(resp.Status) > 400 {
			t.Errorf("%v %+v", rerr, resp)
		}
	}
}

// TestLongMethodIsNotRecordedWhole: a method may have any letters and any length,
// and stands on record with every act.
func TestLongMethodIsNotRecordedWhole(t *testing.T) {
	c, record, _ := gatewaytest.NewCaller(t, policy.Grant{})
	reached := 0
	conn, done := pipe(t, c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("A", 60_000))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusForbidden || resp.Header.Get(gateway.RuleHeader) != gateway.RuleMalformed {
		t.Errorf("%v, %v", resp, err)
	}
	conn.Close()
	finished(t, done)
	if events := record.Events(); reached != 0 || len(events) != 1 || len(fmt.Sprint(events)) > 2000 {
		t.Errorf("%d requests reached the handler; %d events, %d bytes", reached, len(events), len(fmt.Sprint(events)))
	}
	conn, done = pipe(t, c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	fmt.Fprintf(conn, "VERSION-CONTROL / HTTP/1.1\r\nHost: x\r\n\r\n") // the longest that is registered but one
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 || reached != 1 {
		t.Errorf("%v, %v", resp, err)
	}
	conn.Close()
	finished(t, done)
}
