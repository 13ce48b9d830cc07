package egress

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
)

// Lives of certificates.
const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 7 * 24 * time.Hour
	backdate = time.Hour // for clocks that run behind
	maxLeafs = 256       // kept; others are made again
)

// CAFile is the name of the file with key and certificate of the authority,
// PEM, mode 0600.
const CAFile = "gateway-ca.pem"

// CA is the certificate authority of this installation. Only boxes trust it,
// and its key signs nothing but names that boxes ask for.
type CA struct {
	cert    *x509.Certificate
	key     crypto.Signer
	leafKey crypto.Signer // of every leaf; made at start, never written

	mu    sync.Mutex
	leafs map[cofferdam.Host]*tls.Certificate // guarded by mu
}

// OpenCA returns the authority whose key lies in dir, and makes it if there is
// none. Two processes that make one at the same time get the same.
func OpenCA(dir string) (*CA, error) {
	path := filepath.Join(dir, CAFile)
	text, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createCA(dir, path); err == nil {
			text, err = readPrivate(path)
		}
	}
	if err != nil {
		return nil, badCA(path, err, "check space and permissions of its folder, or restore the file")
	}
	ca, err := parseCA(text)
	if err != nil {
		return nil, badCA(path, err, "restore the file, or remove it and start again: boxes then trust a new authority")
	}
	return ca, nil
}

func badCA(path string, err error, hint string) error {
	return &cofferdam.Error{
		Op: "egress.OpenCA", Kind: cofferdam.Unavailable, Subject: "certificate authority " + path, Reason: err.Error(), Hint: hint, Err: err,
	}
}

// readPrivate reads a file that nobody else may read.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others may read it (mode %04o): run chmod 600 on it", info.Mode().Perm())
	}
	const maxFile = 64 << 10 // key and certificate need 2 KiB
	b := make([]byte, maxFile)
	n, err := f.Read(b)
	return b[:n], err
}

// createCA makes key and certificate and puts them in place in one step.
func createCA(dir, path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	id, err := keyID(key)
	if err != nil {
		return err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: serial(),
		// What people read when a client does not trust it.
		Subject:   pkix.Name{CommonName: fmt.Sprintf("Cofferdam gateway %x (reads the TLS of its boxes)", id[:4]), Organization: []string{"Cofferdam"}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, // critical, as RFC 5280 asks
		KeyUsage:     x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId: id, AuthorityKeyId: id,
		// It names hosts and never addresses. A list of hosts would be no bound:
		// the next task may reach others, and clients differ in how they read one.
		ExcludedIPRanges: []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		},
		PermittedDNSDomainsCritical: true, // of all constraints, as RFC 5280 asks
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, b := range []pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: private}} {
		if err := pem.Encode(&text, &b); err != nil {
			return err
		}
	}
	return place(dir, path, text.Bytes())
}

// place writes a private file under another name and links it into its own, so
// that nobody ever reads half of it and a second maker finds the first's.
func place(dir, path string, text []byte) error {
	f, err := os.CreateTemp(dir, CAFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func parseCA(text []byte) (*CA, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("it holds no authority")
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("it expired on %s", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &CA{cert: pair.Leaf, key: key, leafKey: leafKey, leafs: map[cofferdam.Host]*tls.Certificate{}}, nil
}

// PEM returns the certificate that boxes trust.
func (c *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// leaf returns a certificate for name. It has no subject, only the name as a
// critical alternative, so that names of any length fit.
func (c *CA) leaf(name cofferdam.Host) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if l, ok := c.leafs[name]; ok && now.Before(l.Leaf.NotAfter.Add(-leafLife/2)) {
		return l, nil
	}
	id, err := keyID(c.leafKey)
	if err != nil {
		return nil, err
	}
	until := now.Add(leafLife)
	if until.After(c.cert.NotAfter) {
		until = c.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(), DNSNames: []string{string(name)},
		NotBefore: now.Add(-backdate), NotAfter: until, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, SubjectKeyId: id,
	}, c.cert, c.leafKey.Public(), c.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(c.leafs) >= maxLeafs {
		clear(c.leafs)
	}
	l := &tls.Certificate{Certificate: [][]byte{der, c.cert.Raw}, PrivateKey: c.leafKey, Leaf: parsed}
	c.leafs[name] = l
	return l, nil
}

// keyID identifies a public key. Source: RFC 7093, section 2, method 1.
func keyID(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return sum[:20], nil
}

// serial returns a random positive number of 126 bits; RFC 5280 allows 20
// octets, and asks that it cannot be guessed.
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		panic("egress: crypto/rand never fails since Go 1.24")
	}
	return n.Add(n, big.NewInt(1))
}
