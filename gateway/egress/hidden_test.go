package egress_test

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway/egress"
)

// echConfigs returns a list with one configuration whose outer name is public.
func echConfigs(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	body := []byte{1, 0, 0x20}                                   // id, DHKEM(X25519)
	body = binary.BigEndian.AppendUint16(body, uint16(len(pub))) // key
	body = append(body, pub...)
	body = append(body, 0, 4, 0, 1, 0, 1) // one suite: HKDF-SHA256, AES-128-GCM
	body = append(body, 64, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// An encrypted hello says one name outside and another inside. Where TLS is
// spliced it is refused unread; where it is terminated the outer hello is
// answered, as for a browser that only seems to send one, and a client that
// means the inner one gives up. Neither reaches the outside.
func TestEncryptedHello(t *testing.T) {
	for _, entry := range []string{"good.test", "splice:good.test"} {
		t.Run(entry, func(t *testing.T) {
			l := newLab(t, entry)
			conn, err := l.box.DialName("good.test", 443)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			c := tls.Client(conn, &tls.Config{
				ServerName: "evil.test", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfigs(t, "good.test"),
				RootCAs: l.ours, // has to vouch for the outer name
			})
			var rejected *tls.ECHRejectionError
			if err := c.Handshake(); !errors.As(err, &rejected) {
				t.Errorf("the handshake ended with %v", err)
			}
			conn.Close()
			for deadline := time.Now().Add(time.Minute); len(l.refusals()) == 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if r := l.refusals(); !slices.Contains(r, egress.RuleHidden+" good.test:443") {
				t.Errorf("refusals: %q", r)
			}
			l.outsideIsUntouched()
		})
	}
}

// A WebSocket passes and says on record that it is unseen; an upgrade to
// HTTP/2, which would carry requests nobody judges, is taken out.
func TestUpgrades(t *testing.T) {
	l := newLab(t, "good.test")
	t.Run("plain", func(t *testing.T) {
		conn, err := l.box.DialName("good.test", 80)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		l.upgrades(t, conn)
	})
	t.Run("tls", func(t *testing.T) { l.upgrades(t, l.secure("good.test")) })
	// HTTP/2 without an upgrade: no request of it is let through.
	for _, send := range []func(string, string) string{l.send, l.sendTLS} {
		out := send("good.test", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		if strings.Contains(out, "200 OK") || strings.Contains(strings.Join(l.reached(), " "), "PRI") {
			t.Errorf("HTTP/2: %q", out)
		}
	}
}

// upgrades asks on conn for HTTP/2, which is not upgraded to, then for a
// WebSocket.
func (l *lab) upgrades(t *testing.T, conn net.Conn) {
	l.record.Clear()
	r := bufio.NewReader(conn)
	ask := func(head string) *http.Response {
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: good.test\r\n%s\r\n", head)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := ask("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !strings.Contains(string(body), "upgrade to \"\"") {
		t.Errorf("h2c: %s %s", resp.Status, body)
	}
	resp = ask("Connection: Upgrade\r\nUpgrade: websocket\r\n")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("websocket: %s", resp.Status)
	}
	io.WriteString(conn, "ping\n")
	if line, err := r.ReadString('\n'); err != nil || line != "ping\n" {
		t.Errorf("websocket: %q, %v", line, err)
	}
	seen := false
	for _, e := range l.record.Events() {
		seen = seen || e.Fields["upgrade"] == "websocket" && e.Fields["content"] == "unseen"
	}
	if !seen {
		t.Error("the record does not say that a WebSocket's content was unseen")
	}
}

// What a WebSocket carries is unseen, and its sizes are on record like those of
// any other request, when it has ended.
func TestUpgradeIsMeasured(t *testing.T) {
	l := newLab(t, "good.test")
	conn := l.secure("good.test")
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	const size = 1 << 20
	text := strings.Repeat("x", size-1) + "\n"
	fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	go io.WriteString(conn, text)
	if line, err := r.ReadString('\n'); err != nil || line != text {
		t.Fatalf("%d bytes back, %v", len(line), err)
	}
	conn.Close()
	l.settled()
	for _, e := range l.record.Find(cofferdam.EventRequest) {
		if e.Of == nil {
			continue
		}
		for _, name := range []string{"sent", "received"} {
			if n, _ := strconv.Atoi(e.Fields[name]); n < size || n > size+1<<10 {
				t.Errorf("%s: %q of %d bytes", name, e.Fields[name], size)
			}
		}
	}
}
