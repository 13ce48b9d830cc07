package egress

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"software.sslmate.com/src/go-pkcs12"

	"cofferdam"
)

// TestStrictClients is the offline part of BR-21: OpenSSL in its strict mode,
// which is what Python 3.13 asks for, takes leafs of every kind of name.
func TestStrictClients(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("needs openssl: " + err.Error())
	}
	ca, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root.pem")
	if err := os.WriteFile(root, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []cofferdam.Host{"good.test", "a.b.wild.good.test", cofferdam.Host(strings.Repeat("long-label.", 8) + "good.test")} {
		l, err := ca.leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		leaf := filepath.Join(dir, "leaf.pem")
		if err := os.WriteFile(leaf, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Leaf.Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		verify := func(host string) error {
			out, err := exec.Command(openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", host, "-CAfile", root, leaf).CombinedOutput()
			if err != nil {
				t.Logf("%s", out)
			}
			return err
		}
		if err := verify(string(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if verify("evil.test") == nil {
			t.Errorf("the certificate of %s is taken for another host's", name)
		}
	}
	out, err := exec.Command(openssl, "x509", "-in", root, "-noout", "-subject_hash").Output()
	if err != nil {
		t.Fatal(err)
	}
	if hash, err := subjectHash(ca.cert); err != nil || hash != strings.TrimSpace(string(out)) {
		t.Errorf("subject hash %q, openssl says %q (%v)", hash, out, err)
	}
}

// TestNoAddresses: the authority cannot vouch for an address.
func TestNoAddresses(t *testing.T) {
	ca, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"127.0.0.1", "169.254.169.254", "2001:db8::1"} {
		leaf := x509.Certificate{SerialNumber: serial(), IPAddresses: []net.IP{net.ParseIP(ip)}, NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter}
		der, err := x509.CreateCertificate(nil, &leaf, ca.cert, ca.leafKey.Public(), ca.key)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca.cert)
		if _, err := made.Verify(x509.VerifyOptions{DNSName: ip, Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
			t.Errorf("%s is vouched for", ip)
		}
	}
}

// TestTrust: every file holds the roots of the machine beside the authority, or
// leads to one that does.
func TestTrust(t *testing.T) {
	other, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Trust(other.PEM())
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]TrustFile{}
	for _, f := range files {
		if byPath[f.Path].Path != "" || (f.Link == "") == (len(f.Data) == 0) {
			t.Errorf("%s: twice, or neither bytes nor link", f.Path)
		}
		byPath[f.Path] = f
	}
	for _, path := range append(trustLinks, TrustPath) {
		f := byPath[path]
		if f.Link != "" {
			f = byPath[f.Link]
		}
		if !bytes.Contains(f.Data, ca.PEM()) || !bytes.Contains(f.Data, other.PEM()) {
			t.Errorf("%s lacks a root", path)
		}
	}
	list, err := pkcs12.DecodeTrustStore(byPath[javaPath].Data, "")
	if err != nil || len(list) != 2 || !list[1].Equal(ca.cert) {
		t.Errorf("Java's store holds %d certificates: %v", len(list), err)
	}
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Log("not run here: keytool is not installed")
		return
	}
	store := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(store, byPath[javaPath].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-list", "-keystore", store, "-storepass", "").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "2 entries") {
		t.Errorf("keytool: %v\n%s", err, out)
	}
}
