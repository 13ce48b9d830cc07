package egress

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

func TestCAIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	const makers = 8
	pems := make(chan string, makers)
	for range makers {
		go func() {
			ca, err := OpenCA(dir)
			if err != nil {
				t.Error(err)
				pems <- ""
				return
			}
			pems <- string(ca.PEM())
		}()
	}
	first := <-pems
	for range makers - 1 {
		if p := <-pems; p != first {
			t.Error("two makers, two authorities")
		}
	}
	info, err := os.Stat(filepath.Join(dir, CAFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	block, _ := pem.Decode([]byte(first))
	cert, err := x509.ParseCertificate(block.Bytes)
	// A person may meet it in an error message; X.509 bounds a common name.
	if err != nil || !strings.Contains(cert.Subject.CommonName, "reads the TLS of its boxes") || len(cert.Subject.CommonName) > 64 {
		t.Errorf("subject %q, %v", cert.Subject, err)
	}
	if strings.Contains(first, "PRIVATE") {
		t.Error("the key is in what boxes get")
	}
}

func TestCAThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenCA(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, CAFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text []byte
		mode os.FileMode
		want string
	}{
		"readable": {good, 0o644, "chmod 600"},
		"empty":    {nil, 0o600, ""},
		"cut":      {good[:len(good)/2], 0o600, ""},
		"no key":   {good[:strings.Index(string(good), "-----BEGIN PRIVATE")], 0o600, ""},
	} {
		if err := os.WriteFile(path, c.text, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenCA(dir); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), c.want) || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenCA(filepath.Join(dir, "missing")); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("no folder: %v", err)
	}
}

func TestLeafs(t *testing.T) {
	ca, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	long := cofferdam.Host(strings.Repeat("a.", 120) + "test")
	for _, name := range []cofferdam.Host{"evil.test", "a.b.c.evil.test", long} {
		l, err := ca.leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: string(name), Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if l.Leaf.NotAfter.After(time.Now().Add(2*leafLife)) || len(l.Leaf.AuthorityKeyId) == 0 || l.Leaf.IsCA {
			t.Errorf("%s: %+v", name, l.Leaf)
		}
		if again, _ := ca.leaf(name); again != l {
			t.Errorf("%s: made twice", name)
		}
	}
	for range 2 * maxLeafs {
		if _, err := ca.leaf(cofferdam.Host(cofferdam.NewID("x") + ".test")); err != nil {
			t.Fatal(err)
		}
	}
	if len(ca.leafs) > maxLeafs {
		t.Errorf("%d leafs are kept", len(ca.leafs))
	}
}

// The strictest verifiers that boxes have: OpenSSL with -x509_strict, which
// Python turns on by itself since 3.13.
func TestStrictVerifiers(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs openssl: " + err.Error())
	}
	ca, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := ca.leaf("evil.test")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, leaf := filepath.Join(dir, "root.pem"), filepath.Join(dir, "leaf.pem")
	if err := os.WriteFile(root, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate[0]})
	if err := os.WriteFile(leaf, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "evil.test", "-CAfile", root, leaf).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := tls.X509KeyPair(text, keyPEM(t, l)); err != nil {
		t.Error(err)
	}
}

func keyPEM(t *testing.T, l *tls.Certificate) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(l.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
