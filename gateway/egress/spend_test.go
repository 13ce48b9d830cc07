package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/policy"
)

// post sends a body, in pieces if it does not say how long it is, and returns the
// status; 0 if the connection ended instead.
func (l *lab) post(t *testing.T, body string, chunked bool) int {
	t.Helper()
	conn := l.secure("good.test")
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		if !chunked {
			fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: good.test\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			return
		}
		fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n")
		for len(body) > 0 {
			n := min(len(body), 1000)
			fmt.Fprintf(conn, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		fmt.Fprintf(conn, "0\r\n\r\n")
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestBytesSentHaveALimit: what would pass it is not sent, whether the request
// says how long it is or not, and what is spent is what was sent. The twin below
// it is sent whole.
func TestBytesSentHaveALimit(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		l := newLab(t, "good.test")
		l.caller.Budget = budget.New(cofferdam.Budget{Egress: 10_000}, budget.Amount{})
		if code := l.post(t, strings.Repeat("x", 4000), chunked); code != 200 {
			t.Fatalf("chunked %v: within the limit: %d", chunked, code)
		}
		l.settled()
		first := l.caller.Budget.Taken().Egress
		if first < 4000 || first > 4200 {
			t.Errorf("chunked %v: %d bytes are spent for a body of 4000 and its head", chunked, first)
		}
		if code := l.post(t, strings.Repeat("x", 8000), chunked); code == 200 {
			t.Errorf("chunked %v: beyond the limit: %d", chunked, code)
		}
		l.settled()
		if now := l.caller.Budget.Taken().Egress; now > 10_000 || now < first {
			t.Errorf("chunked %v: %d bytes are spent of 10000", chunked, now)
		}
		outside := int64(0)
		for _, r := range l.reached() {
			outside += int64(strings.Count(r, "x"))
		}
		if outside < 4000 || outside > 10_000 {
			t.Errorf("chunked %v: %d bytes of bodies arrived outside, the limit is 10000", chunked, outside)
		}
		var sent int64
		said := false
		for _, e := range l.record.Find(cofferdam.EventRequest) {
			var n int64
			if e.Of != nil {
				fmt.Sscan(e.Fields[cofferdam.FieldEgress], &n)
			}
			sent += n
			said = said || e.Rule == cofferdam.RuleBudget || e.Fields[cofferdam.FieldCutBy] == cofferdam.RuleBudget
		}
		if sent != l.caller.Budget.Taken().Egress || !said {
			t.Errorf("chunked %v: the record has %d bytes, the budget %d; the reason is on record: %v", chunked, sent, l.caller.Budget.Taken().Egress, said)
		}
	}
}

// TestRefusedRequestSpendsNothing: what policy refuses gives back what was reserved.
func TestRefusedRequestSpendsNothing(t *testing.T) {
	doc, err := policy.ParseDocument("project", []byte("[egress]\nallow = [\"good.test\"]\n[[egress.rule]]\nid = \"no-post\"\neffect = \"deny\"\nhosts = [\"good.test\"]\nmethods = [\"POST\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLabFor(t, policy.Grant{Project: &doc})
	l.caller.Budget = budget.New(cofferdam.Budget{Egress: 10_000}, budget.Amount{})
	if code := l.post(t, "x", false); code != 403 {
		t.Fatalf("the control: a POST is not refused: %d", code)
	}
	l.settled()
	if n := l.caller.Budget.Taken().Egress; n != 0 {
		t.Errorf("%d bytes are spent", n)
	}
}

// TestBytesInPieces: a body in pieces of a byte is sent in frames that are larger
// than what is in them, and they count; what arrives outside, heads included, is
// never more than what is spent.
func TestBytesInPieces(t *testing.T) {
	l := newLab(t, "good.test")
	l.caller.Budget = budget.New(cofferdam.Budget{Egress: 1_000_000}, budget.Amount{})
	conn := l.secure("good.test")
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	const pieces = 300
	fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range pieces { // each in a record of TLS of its own
		fmt.Fprintf(conn, "1\r\nx\r\n")
	}
	fmt.Fprintf(conn, "0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	l.settled()
	least := int64(len("POST /echo HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") + pieces + len("12c\r\n\r\n")) // all of it in one piece
	if got := l.caller.Budget.Taken().Egress; got < least {
		t.Errorf("%d bytes are spent, and no fewer than %d were sent", got, least)
	}
}

// TestNameThatPassesUnseen: a connection that is passed on unseen spends the name
// that a resolver is asked for, and one for which nothing is left is refused, on
// record, before anybody outside hears the name.
func TestNameThatPassesUnseen(t *testing.T) {
	l := newLab(t, "splice:good.test", "splice:good.test.other.test")
	l.caller.Budget = budget.New(cofferdam.Budget{Egress: 12}, budget.Amount{})
	for _, host := range []string{"good.test.other.test", "good.test"} {
		conn, err := l.box.DialName(host, 443)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		_ = tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true}).Handshake() // it fails: the limit is smaller than a hello
		conn.Close()
		l.settled()
	}
	var said []string
	for _, e := range l.record.Find(cofferdam.EventConnect) {
		if e.Of == nil {
			said = append(said, e.Resource+" "+string(e.Verdict)+" "+e.Rule)
		}
	}
	if len(said) != 2 || said[0] != "good.test.other.test:443 refused budget" || !strings.HasPrefix(said[1], "good.test:443 allowed") {
		t.Errorf("on record: %q", said)
	}
	for _, name := range l.asked() {
		if strings.Contains(name, "other.test") {
			t.Errorf("a resolver outside was asked for %q", name)
		}
	}
	if got := l.caller.Budget.Taken().Egress; got != int64(len("good.test")) {
		t.Errorf("%d bytes are spent, want those of the name", got)
	}
}
