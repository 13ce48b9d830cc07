package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// clientHello returns the first bytes of a real client.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go tls.Client(client, c).Handshake()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// split puts the message of one record into records of n bytes.
func split(record []byte, n int) []byte {
	var out []byte
	for body := record[recordHeader:]; len(body) > 0; {
		k := min(n, len(body))
		out = append(out, recordHandshake, 3, 1, byte(k>>8), byte(k))
		out, body = append(out, body[:k]...), body[k:]
	}
	return out
}

func peek(b []byte) (hello, error) {
	return peekHello(bufio.NewReaderSize(bytes.NewReader(b), maxHello))
}

func TestPeekHello(t *testing.T) {
	good := clientHello(t, &tls.Config{ServerName: "good.test"})
	noName := clientHello(t, &tls.Config{InsecureSkipVerify: true})
	for name, c := range map[string]struct {
		in   []byte
		want cofferdam.Host
		err  bool
	}{
		"whole":               {good, "good.test", false},
		"records of 1 KiB":    {split(good, 1024), "good.test", false},
		"records of 16 bytes": {split(good, 16), "good.test", false},
		"with data behind":    {append(bytes.Clone(good), "\x17\x03\x03\x00\x01x"...), "good.test", false},
		"long name":           {clientHello(t, &tls.Config{ServerName: strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".test"}), cofferdam.Host(strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".test"), false},
		"no name":             {noName, "", false},
		"cut":                 {good[:len(good)-1], "", true},
		"records of 1 byte":   {split(good, 1), "", true}, // more records than any client makes
		"empty record":        {append([]byte{recordHandshake, 3, 1, 0, 0}, good...), "", true},
		"http":                {[]byte("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"), "", true},
		"another message":     {append([]byte{recordHandshake, 3, 1, 0, 4}, 2, 0, 0, 0), "", true},
		"endless":             {append([]byte{recordHandshake, 3, 1, 0, 4}, 1, 0xff, 0xff, 0xff), "", true},
		"alert":               {[]byte{21, 3, 1, 0, 2, 2, 49}, "", true},
		"single label":        {clientHello(t, &tls.Config{ServerName: "localhost"}), "", true},
		"underscore":          {clientHello(t, &tls.Config{ServerName: "a_b.test"}), "", true},
		"two messages":        {twice(good), "", true},
	} {
		h, err := peek(c.in)
		if (err != nil) != c.err || h.name != c.want || h.ech {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// twice puts a hello two times into one record.
func twice(record []byte) []byte {
	body := append(bytes.Clone(record[recordHeader:]), record[recordHeader:]...)
	return append([]byte{recordHandshake, 3, 1, byte(len(body) >> 8), byte(len(body))}, body...)
}

func TestPeekHelloSeesAnEncryptedHello(t *testing.T) {
	// A real client hello with an encrypted one put at its end: an outer hello
	// with a cipher, a key and a payload.
	in := clientHello(t, &tls.Config{ServerName: "good.test"})
	outer := append([]byte{0, 0, 1, 0, 1, 7, 0, 32}, make([]byte, 32)...)
	outer = append(append(outer, 0, 16), make([]byte, 16)...)
	h, err := peek(withExtension(t, in, extensionECH, outer))
	if err != nil || !h.ech || h.name != "good.test" {
		t.Errorf("%+v, %v", h, err)
	}
}

// withExtension appends an extension to a client hello in one record.
func withExtension(t *testing.T, record []byte, kind uint16, data []byte) []byte {
	t.Helper()
	body := record[recordHeader+messageHeader:]
	at := 2 + 32
	at += 1 + int(body[at])
	at += 2 + int(body[at])<<8 + int(body[at+1])
	at += 1 + int(body[at])
	size := int(body[at])<<8 + int(body[at+1])
	if at+2+size != len(body) {
		t.Fatal("the test cannot read its own hello")
	}
	body = append(bytes.Clone(body), byte(kind>>8), byte(kind), byte(len(data)>>8), byte(len(data)))
	body = append(body, data...)
	size += 4 + len(data)
	body[at], body[at+1] = byte(size>>8), byte(size)
	message := append([]byte{messageClientHello, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	return reframe(message)
}

// However the records are cut, the name is the same, and it is one that may
// be judged.
func FuzzPeekHello(f *testing.F) {
	good := clientHello(f, &tls.Config{ServerName: "good.test"})
	f.Add(good, 7)
	f.Add(split(good, 100), 50)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 1)
	f.Add([]byte{recordHandshake, 3, 1, 0, 4, 1, 0, 0, 0}, 3)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		h, err := peek(in)
		if err != nil {
			return
		}
		if h.name != "" && policy.CheckHost(h.name) != nil {
			t.Errorf("a name that cannot be judged: %q", h.name)
		}
		message, err := helloMessage(bufio.NewReaderSize(bytes.NewReader(in), maxHello))
		if err != nil {
			t.Fatalf("a hello without its message: %v", err)
		}
		n = max(n%2048, len(message)/maxRecordsOfOneHello+1)
		again, err := peek(split(append(make([]byte, recordHeader), message...), n))
		if err != nil || again != h {
			t.Errorf("%+v, cut into records of %d bytes: %+v, %v", h, n, again, err)
		}
	})
}

// A connection that says nothing, or a hello that comes in drops, is given up.
func TestSilenceIsGivenUp(t *testing.T) {
	for name, drops := range map[string]string{"nothing": "", "half a hello": "\x16\x03\x01\x02\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, _, end := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
				defer end()
				client, server := net.Pipe()
				defer client.Close()
				go io.Copy(io.Discard, client)
				go io.WriteString(client, drops)
				start := time.Now()
				New(Options{Dialer: new(gateway.Dialer)}).Serve(caller, server, gateway.Target{Host: "good.test", Port: 443})
				if d := time.Since(start); d > time.Minute {
					t.Errorf("given up only after %v", d)
				}
			})
		})
	}
}

var errNever = errors.New("never")

// The far side of a splice that fails ends both directions.
func TestPumpEndsWhenOneSideFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, _, end := gatewaytest.NewCaller(t, policy.Grant{})
		defer end()
		box, boxEnd := net.Pipe()
		up, upEnd := net.Pipe()
		done := make(chan gateway.Outcome)
		go func() {
			spends, err := spend(caller, 0, 0)
			if err != nil {
				t.Error(err)
			}
			o, err := pump(caller.Live, newPeekConn(boxEnd, maxHello), failing{upEnd}, netip.AddrPort{}, spends)
			if err != nil {
				t.Error(err)
			}
			done <- o
		}()
		go io.Copy(io.Discard, box)
		up.Close()
		if o := <-done; o.Status != gateway.Cut {
			t.Errorf("%+v", o)
		}
		box.Close()
	})
}

// failing is a connection whose reads fail once its other end is gone.
type failing struct{ net.Conn }

// Read fails in place of an orderly end.
func (f failing) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if err != nil {
		err = errNever
	}
	return n, err
}
