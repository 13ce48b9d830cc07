package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/server/common/rpc/encryption"
)

// serverName is what the engine's certificate says it is.
const serverName = "cofferdam-engine"

// keys is TLS for every port of the engine, those between its own services
// included: who does not show a certificate of the authority gets nowhere.
type keys struct {
	pair tls.Certificate
	pool *x509.CertPool
}

var _ encryption.TLSConfigProvider = (*keys)(nil)

func newKeys(s Settings) (*keys, error) {
	pair, err := tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key))
	if err != nil {
		return nil, fmt.Errorf("reading the engine's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(s.Authority)) {
		return nil, errors.New("reading the authority: no certificate in it")
	}
	return &keys{pair: pair, pool: pool}, nil
}

func (k *keys) serve() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: k.pool, NextProtos: []string{"h2"},
	}
}

func (k *keys) call() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.pair},
		RootCAs: k.pool, ServerName: serverName, NextProtos: []string{"h2"},
	}
}

// GetInternodeServerConfig is TLS of the ports between the engine's services.
func (k *keys) GetInternodeServerConfig() (*tls.Config, error) { return k.serve(), nil }

// GetInternodeClientConfig is how the engine's services call each other.
func (k *keys) GetInternodeClientConfig() (*tls.Config, error) { return k.call(), nil }

// GetFrontendServerConfig is TLS of the port that clients use.
func (k *keys) GetFrontendServerConfig() (*tls.Config, error) { return k.serve(), nil }

// GetFrontendClientConfig is how the engine's services call that port.
func (k *keys) GetFrontendClientConfig() (*tls.Config, error) { return k.call(), nil }

// GetRemoteClusterClientConfig is needed by the interface; there is no other cluster.
func (k *keys) GetRemoteClusterClientConfig(string) (*tls.Config, error) { return k.call(), nil }

// GetExpiringCerts reports none: keys are made anew at every start.
func (k *keys) GetExpiringCerts(time.Duration) (expiring, expired encryption.CertExpirationMap, err error) {
	return nil, nil, nil
}
