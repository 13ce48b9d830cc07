package scripttest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/dns/dnsmessage"
)

// lab is a server of the test's own on loopback that counts who comes.
type lab struct {
	contacts atomic.Int64
	bytes    atomic.Int64 // that arrived, on all connections
	stop     func()
	hook     *hook // what it is, if it receives notices
}

// cmdLab starts one: NAME_ADDR and NAME_PORT are set. With an address of
// loopback it listens there, with dns it counts questions.
func cmdLab(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) == 2, "lab NAME [dns|ADDRESS]")
	name, l := args[0], &lab{}
	addr := ""
	var err error
	switch {
	case len(args) == 1:
		addr, err = l.web(name, "127.0.0.1")
	case args[1] == "dns":
		addr, err = l.dns()
	default:
		addr, err = l.web(name, args[1])
	}
	ts.Check(err)
	_, port, _ := net.SplitHostPort(addr)
	ts.Setenv(name+"_ADDR", addr)
	ts.Setenv(name+"_PORT", port)
	of(ts).labs[name] = l
}

func (l *lab) web(name, address string) (string, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", err
	}
	addr := listener.Addr().String()
	listener = counting{listener, l}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a body that breaks off is counted as far as it came
		fmt.Fprintf(w, "lab %s here: %s %s\n", name, r.Method, r.URL.Path)
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	l.stop = func() { server.Close() }
	return addr, nil
}

// dns answers every question with 127.0.0.1 and counts it.
func (l *lab) dns() (string, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	l.stop = func() { c.Close() }
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			l.contacts.Add(1)
			var p dnsmessage.Parser
			h, err := p.Start(buf[:n])
			if err != nil {
				continue
			}
			q, err := p.Question()
			if err != nil {
				continue
			}
			m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if b, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(b, from) // a lost answer is asked again
			}
		}
	}()
	return c.LocalAddr().String(), nil
}

// counting counts accepted connections, whatever they then say, and the bytes that
// arrive on them.
type counting struct {
	net.Listener
	l *lab
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.l.contacts.Add(1)
	return counted{conn, c.l}, nil
}

type counted struct {
	net.Conn
	l *lab
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.l.bytes.Add(int64(n))
	return n, err
}

// cmdReceived compares how many bytes some labs got together.
func cmdReceived(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 3, "received LEAST MOST NAME...")
	least, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	most, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	got := int64(0)
	for _, name := range args[2:] {
		usage(ts, neg, of(ts).labs[name] != nil, "received LEAST MOST NAME...")
		got += of(ts).labs[name].bytes.Load()
	}
	ts.Logf("received: %d bytes", got)
	if got < least || got > most {
		ts.Fatalf("%d bytes arrived, not %d to %d", got, least, most)
	}
}

// cmdContacts compares what a lab counted; with + it is "at least".
func cmdContacts(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 && of(ts).labs[args[0]] != nil, "contacts NAME N|N+")
	least := strings.HasSuffix(args[1], "+")
	want, err := strconv.ParseInt(strings.TrimSuffix(args[1], "+"), 10, 64)
	ts.Check(err)
	if got := of(ts).labs[args[0]].contacts.Load(); got != want && !(least && got > want) {
		ts.Fatalf("lab %s counted %d contacts, not %s", args[0], got, args[1])
	}
}
