package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// upstreamTimeout bounds the TLS handshake with a host outside.
const upstreamTimeout = 15 * time.Second

// shownNames is how many names of a certificate a reason lists.
const shownNames = 4

// dial connects to the target. An address that is never reached goes on record
// as a refusal of its own: policy had let the name through.
func (g *Gateway) dial(ctx context.Context, c *gateway.Caller, to gateway.Target) (net.Conn, netip.AddrPort, error) {
	conn, addr, err := g.dialer.Dial(ctx, string(to.Host), to.Port)
	if d, refused := gateway.DecisionOf(err); refused {
		err = gateway.Reject(ctx, c, connectRequest(to), d.Rule, d.Reason, d.Hint)
	}
	return conn, addr, err
}

// secure makes TLS of a connection to the target. The certificate has to be for
// its name, by an authority this machine trusts; if it is not, that goes on
// record as a refusal, since no byte of the request is sent there.
func (f *forwarder) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	to := f.to
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	defer context.AfterFunc(f.caller.Live, cancel)()
	s := tls.Client(conn, &tls.Config{
		ServerName: string(to.Host), RootCAs: f.gateway.roots, NextProtos: []string{alpnHTTP}, MinVersion: tls.VersionTLS12,
	})
	err := s.HandshakeContext(ctx)
	if err == nil {
		return s, nil
	}
	conn.Close()
	if reason, hint := certificateReason(to, err); reason != "" {
		return nil, gateway.Reject(ctx, f.caller, connectRequest(to), RuleCertificate, reason, hint)
	}
	return nil, handshakeError(ctx, f.caller, to, err)
}

// handshakeError says why TLS with a host did not come about.
func handshakeError(ctx context.Context, c *gateway.Caller, to gateway.Target, err error) error {
	const again = "try again; the host may be down, or TLS may not be what this port is for"
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header):
		return unavailable(to, err, "it does not speak TLS there", again)
	case ctx.Err() != nil:
		return unavailable(to, err, "it did not complete the TLS handshake in time", again)
	case isAlert(err, alertNoProtocol):
		return unavailable(to, err, "it speaks no HTTP/1.1", passHint(c, to))
	case wantsClient(err):
		return unavailable(to, err, "it refuses our TLS, maybe for want of a certificate of the client", passHint(c, to))
	}
	return unavailable(to, err, "the TLS handshake with it did not come about", again)
}

// wantsClient says whether a host may have ended TLS for want of a client's
// certificate: certificate_required in TLS 1.3, where it comes after the
// handshake; before that handshake_failure or bad_certificate.
func wantsClient(err error) bool { return isAlert(err, 116, 40, 42) }

func unavailable(to gateway.Target, err error, reason, hint string) error {
	return &cofferdam.Error{
		Op: "egress.Forward", Kind: cofferdam.Unavailable, Subject: to.String(),
		Reason: fmt.Sprintf("%s cannot be reached: %s", to, reason), Hint: hint, Err: err,
	}
}

// certificateReason says what is wrong with a host's certificate; "" if that is
// not what err is about.
func certificateReason(to gateway.Target, err error) (reason, hint string) {
	var (
		unknown x509.UnknownAuthorityError
		other   x509.HostnameError
		invalid x509.CertificateInvalidError
		failed  *tls.CertificateVerificationError
	)
	const operator = "; only its operator can mend that"
	switch {
	case errors.As(err, &other):
		return fmt.Sprintf("the certificate of %s is for another name (%s)", to, names(other.Certificate)),
			"check the host's name" + operator
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		from, until := invalid.Cert.NotBefore.UTC(), invalid.Cert.NotAfter.UTC()
		return fmt.Sprintf("the certificate of %s is valid from %s to %s, which is not now", to, from.Format(time.DateOnly), until.Format(time.DateOnly)),
			"check this machine's clock" + operator
	case errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of %s is signed by an authority that this machine does not know", to),
			"an operator who trusts that authority adds it to this machine's certificates, or starts the server with SSL_CERT_FILE"
	case errors.As(err, &failed):
		return fmt.Sprintf("the certificate of %s does not hold: %s", to, gateway.Clip(failed.Err.Error())), "check the host's name" + operator
	}
	return "", ""
}

// names lists what a certificate is for, as text of a stranger.
func names(c *x509.Certificate) string {
	if len(c.DNSNames) == 0 {
		return "it lists none"
	}
	var out []string
	for _, n := range c.DNSNames[:min(len(c.DNSNames), shownNames)] {
		out = append(out, fmt.Sprintf("%q", gateway.Clip(n)))
	}
	if more := len(c.DNSNames) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
