package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"cofferdam/policy"
)

// A policy that is taken ends what was begun under the one before and is refused by
// it: an answer that streams, a WebSocket, and TLS that passes unseen. Each is alive
// before, and one that is allowed still goes on.
func TestAPolicyCutsWhatIsOpen(t *testing.T) {
	l := newLab(t, "good.test", "splice:other.test", "below.good.test")
	// An answer that streams.
	stream := l.secure("good.test")
	l.pieceSoon("first\n")
	resp, _ := ask(t, stream, "GET", "/pieces")
	body := bufio.NewReader(resp.Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	// A WebSocket to the same host, and one to another.
	socket := func(name string) (net.Conn, *bufio.Reader) {
		conn, err := l.box.DialName(name, 80)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", name)
		r := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %+v, %v", name, resp, err)
		}
		return conn, r
	}
	gone, goneLines := socket("good.test")
	kept, keptLines := socket("below.good.test")
	// TLS that nobody reads, with a request that waits for more pieces.
	raw, err := l.box.DialName("other.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(time.Minute))
	spliced := tls.Client(raw, &tls.Config{ServerName: "other.test", RootCAs: l.trusted})
	if err := spliced.Handshake(); err != nil { // with the host's own certificate
		t.Fatal(err)
	}
	for name, pair := range map[string]struct {
		w io.Writer
		r *bufio.Reader
	}{"the WebSocket": {gone, goneLines}, "the other": {kept, keptLines}} {
		fmt.Fprintln(pair.w, "ping")
		if line, err := pair.r.ReadString('\n'); err != nil || line != "ping\n" {
			t.Fatalf("%s: %q, %v", name, line, err)
		}
	}
	d, err := policy.ParseDocument("project", []byte("[egress]\nallow = [\"below.good.test\"]\ndeny = [\"good.test\", \"other.test\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.caller.Policy.Replace(policy.Grant{Project: &d}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(body); err == nil {
		t.Error("the answer that streamed has an end")
	}
	select {
	case <-l.gone:
	case <-time.After(time.Minute):
		t.Error("its connection outside is open still")
	}
	if line, err := goneLines.ReadString('\n'); err == nil {
		t.Errorf("the WebSocket goes on: %q", line)
	}
	if n, err := spliced.Read(make([]byte, 1)); err == nil {
		t.Errorf("what passes unseen goes on: %d bytes", n)
	}
	fmt.Fprintln(kept, "still")
	if line, err := keptLines.ReadString('\n'); err != nil || line != "still\n" {
		t.Errorf("what is allowed was cut: %q, %v", line, err)
	}
}
