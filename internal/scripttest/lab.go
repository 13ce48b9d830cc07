package scripttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	stop     func()
}

// cmdLab starts one: NAME_ADDR, NAME_PORT are set; with tls its root is
// NAME_ROOT, a PEM file, valid for NAME.test; with dns it counts questions.
func cmdLab(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) == 2 && (args[1] == "tls" || args[1] == "dns"), "lab NAME [tls|dns]")
	name, l := args[0], &lab{}
	addr := ""
	var err error
	if len(args) == 2 && args[1] == "dns" {
		addr, err = l.dns()
	} else {
		addr, err = l.web(name, len(args) == 2, filepath.Join(ts.Getenv("WORK"), name+".pem"))
	}
	ts.Check(err)
	_, port, _ := net.SplitHostPort(addr)
	ts.Setenv(name+"_ADDR", addr)
	ts.Setenv(name+"_PORT", port)
	ts.Setenv(name+"_ROOT", filepath.Join(ts.Getenv("WORK"), name+".pem"))
	of(ts).labs[name] = l
}

func (l *lab) web(name string, secure bool, root string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := listener.Addr().String()
	listener = counting{listener, &l.contacts}
	if secure {
		cert, err := certificate(name+".test", root)
		if err != nil {
			return "", err
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "lab %s here: %s %s\n", name, r.Method, r.URL.Path)
	})}
	go server.Serve(listener)
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

// counting counts accepted connections, whatever they then say.
type counting struct {
	net.Listener
	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// certificate makes a self-signed one and writes it to file as its own root.
func certificate(host, file string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "lab"}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	err = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
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
