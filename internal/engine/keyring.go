package engine

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
	"time"
)

// serverName is what the engine's certificate says it is.
const serverName = "cofferdam-engine"

// certificateLife is longer than any server runs without a new start; keys are
// in memory only and die with it.
const certificateLife = 10 * 365 * 24 * time.Hour

// keyring is one authority with two leaves: the engine's and ours. None of it is
// written anywhere; the engine gets its leaf through its standard input.
type keyring struct {
	authority             string // PEM
	serverCert, serverKey string // PEM
	client                *tls.Config
}

func newKeyring() (*keyring, error) {
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cofferdam engine authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	if err != nil {
		return nil, err
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	k := &keyring{authority: encode("CERTIFICATE", der)}
	// The engine's services call each other, so its leaf serves and calls.
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if k.serverCert, k.serverKey, err = leaf(root, rootKey, 2, serverName, both); err != nil {
		return nil, err
	}
	cert, key, err := leaf(root, rootKey, 3, "cofferdam-server", both[1:])
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, err
	}
	k.client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: serverName}
	return k, nil
}

func leaf(root *x509.Certificate, rootKey *ecdsa.PrivateKey, serial int64, name string, usage []x509.ExtKeyUsage) (cert, key string, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage, BasicConstraintsValid: true,
	}, root, &k.PublicKey, rootKey)
	if err != nil {
		return "", "", fmt.Errorf("signing %s: %w", name, err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return "", "", err
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", raw), nil
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
