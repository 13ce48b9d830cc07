package scripttest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// maxSeen bounds what a TLS lab writes down of one request.
const maxSeen = 64 << 10

// cmdLabTLS starts a TLS server on loopback that answers for every HOST, as the
// servers of a content network do, and writes every request it gets into
// NAME.log: "HOST METHOD PATH", then all of it. NAME_ADDR and NAME_PORT are set. All labs of a script
// have certificates of one authority; SSL_CERT_FILE, which the next serve gets,
// holds it beside the machine's own, and LAB_CA is it alone.
func cmdLabTLS(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "labtls NAME HOST...")
	b, name := of(ts), args[0]
	if b.authority == nil {
		var err error
		b.authority, err = newAuthority()
		ts.Check(err)
		ts.Check(b.authority.publish(ts))
	}
	cert, err := b.authority.issue(args[1:])
	ts.Check(err)
	seen, err := os.Create(filepath.Join(b.work, name+".log"))
	ts.Check(err)
	l := &lab{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	addr := listener.Addr().String()
	var mu sync.Mutex // one request after the other in the log
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}},
		ErrorLog:          log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxSeen)
			text, err := httputil.DumpRequest(r, true)
			mu.Lock()
			fmt.Fprintf(seen, "%s %s %s\n%s\n%v\n", r.Host, r.Method, r.URL.Path, bytes.TrimSpace(text), err)
			mu.Unlock()
			fmt.Fprintf(w, "lab %s here for %s: %s %s\n", name, r.Host, r.Method, r.URL.Path)
		}),
	}
	go func() { _ = server.ServeTLS(counting{listener, l}, "", "") }() // until it is closed
	l.stop = func() { server.Close(); seen.Close() }
	_, port, _ := net.SplitHostPort(addr)
	ts.Setenv(name+"_ADDR", addr)
	ts.Setenv(name+"_PORT", port)
	b.labs[name] = l
}

// authority signs the certificates of a script's TLS labs.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "authority of a lab"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// issue signs a certificate for hosts.
func (a *authority) issue(hosts []string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), DNSNames: hosts,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// publish writes the files that LAB_CA and SSL_CERT_FILE name.
func (a *authority) publish(ts *testscript.TestScript) error {
	ours := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	machine := ts.Getenv("SSL_CERT_FILE")
	if machine == "" {
		machine = "/etc/ssl/certs/ca-certificates.crt" // Debian's and Ubuntu's
	}
	all, err := os.ReadFile(machine)
	if err != nil {
		return err
	}
	for name, f := range map[string]struct {
		file string
		text []byte
	}{
		"LAB_CA":        {"lab-ca.pem", ours},
		"SSL_CERT_FILE": {"roots.pem", append(append(all, '\n'), ours...)},
	} {
		path := filepath.Join(of(ts).work, f.file)
		if err := os.WriteFile(path, f.text, 0o644); err != nil {
			return err
		}
		ts.Setenv(name, path)
	}
	return nil
}
