package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// innerBuffer is enough to look at the first byte inside TLS; larger reads go
// around it.
const innerBuffer = 4 << 10

// distrustTimeout is how soon after the handshake a client that looks at the
// certificate only then gives the connection up, without having asked for
// anything. Source: Node verifies after the handshake and closes within 50 ms.
const distrustTimeout = 2 * time.Second

// serveTLS judges a TLS connection by its first message. What is inside is
// then judged request by request, or passes unseen where a rule asks for that.
func (g *Gateway) serveTLS(c *gateway.Caller, p *peekConn, to gateway.Target) {
	splice := c.Policy.Splices(to.Host, to.Port)
	if !g.greet(c, p, to, splice) {
		return
	}
	if splice {
		g.splice(c, p, to)
		return
	}
	// Policy may forbid all connections to a host, whatever is asked in them.
	// Where it does not, the requests are what goes on record.
	if r := connectRequest(to); c.Policy.Decide(r.Query).Verdict != cofferdam.Allowed {
		g.oneShot(c, p, gateway.Handle(c.Live, c, r, nothing))
		return
	}
	if conn := g.terminate(c, p, to); conn != nil {
		g.forward(c, conn, to, "https")
	}
}

// nothing stands for an act that policy is known to refuse.
func nothing(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }

// Provider returns the handler of a model provider's own name. TLS to it is
// terminated, and what is inside is served by models, as if the client had
// used the model gateway's own name. Every request has to name the provider.
func (g *Gateway) Provider(models gateway.Handler) gateway.Handler { return provider{g, models} }

type provider struct {
	gateway *Gateway
	models  gateway.Handler
}

// Serve implements gateway.Handler.
func (v provider) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	v.gateway.serve(c, conn, to, v.plain, v.encrypted)
}

func (v provider) plain(c *gateway.Caller, p *peekConn, to gateway.Target) {
	err := reject(c, connectRequest(to), RuleProtocol, fmt.Sprintf("%s leads to the model gateway, and is spoken to in TLS alone", to.Host),
		"use https, or the model gateway's own name http://"+string(gateway.ModelHost))
	gateway.ServeHTTP(c, p, refuseAll(err))
}

func (v provider) encrypted(c *gateway.Caller, p *peekConn, to gateway.Target) {
	if !v.gateway.greet(c, p, to, false) {
		return
	}
	if conn := v.gateway.terminate(c, p, to); conn != nil {
		v.models.Serve(c, &gateway.Named{Conn: conn, To: to}, to)
	}
}

// greet checks a client's hello. A client that is refused has been told when it
// returns false.
func (g *Gateway) greet(c *gateway.Caller, p *peekConn, to gateway.Target, splice bool) bool {
	h, err := checkHello(c, p, to, splice)
	switch {
	case err == nil:
		return true
	case h.name == "":
		alert(p, alertUnrecognized)
	case !h.http:
		alert(p, alertNoProtocol)
	default:
		g.oneShot(c, p, err)
	}
	return false
}

// checkHello compares the server name with the name asked for. The hello is
// empty if it cannot be read.
func checkHello(c *gateway.Caller, p *peekConn, to gateway.Target, splice bool) (hello, error) {
	h, err := p.hello()
	r := connectRequest(to)
	switch {
	case err != nil:
		return hello{}, reject(c, r, RuleProtocol, "the first message is no TLS client hello that can be read", "only HTTP and TLS leave a box")
	case h.name == "":
		return h, reject(c, r, RuleNoName, fmt.Sprintf("the TLS handshake names no server, and %s was asked for", to.Host),
			"use a client that sends the server's name (SNI)")
	case h.name != to.Host:
		r.Fields = map[string]string{"sni": string(h.name)}
		return h, reject(c, r, gateway.RuleHost, fmt.Sprintf("the TLS handshake names %s, but %s was asked for", h.name, to.Host),
			"connect to the host by its own name")
	case h.ech && splice: // browsers always seem to carry one; where TLS is terminated it has no reader, and no effect
		return h, hidden(c, to)
	case !h.http && !splice:
		return h, unheard(c, to, RuleProtocol, "the TLS handshake offers no HTTP/1.1, and nothing else is read inside TLS", passHint(c, to))
	}
	return h, nil
}

// hidden refuses a hello inside a hello.
func hidden(c *gateway.Caller, to gateway.Target) error {
	return reject(c, connectRequest(to), RuleHidden, "the TLS handshake carries an encrypted hello, which can name another host",
		"turn encrypted client hello (ECH) off in the client")
}

// passHint says how a client that cannot be read may get through all the same.
func passHint(c *gateway.Caller, to gateway.Target) string {
	if c.Model.Name != "" && to.Host == gateway.ProviderHost(c.Model.Provider) {
		return "give it the model gateway's own address, http://" + string(gateway.ModelHost)
	}
	entry := "splice:" + string(to.Host)
	if !policy.WebPort(to.Port) {
		entry = "splice:" + to.String()
	}
	return "a person can let TLS to this host pass unseen with --allow " + entry
}

// terminate completes TLS as the host that was asked for, and waits for the
// first byte in it. nil means that the client is gone or was refused, which is
// then on record.
func (g *Gateway) terminate(c *gateway.Caller, p *peekConn, to gateway.Target) net.Conn {
	raw := &lastRecord{peekConn: p}
	conn := tls.Server(raw, g.server)
	ctx, cancel := context.WithTimeout(c.Live, helloTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		if a, ok := raw.alert(); ok {
			err = a
		}
		if c.Live.Err() == nil {
			failedHandshake(c, to, err)
		}
		return nil
	}
	begun := time.Now()
	inner := newPeekConn(conn, innerBuffer)
	first, err := inner.first()
	switch {
	case err == nil && speaksHTTP(first):
		return inner
	case c.Live.Err() != nil:
	case err == nil:
		_ = unheard(c, to, RuleProtocol, "what is inside TLS is no HTTP, and nothing else is read there", passHint(c, to))
	case distrust(err) || isAlert(err, alertECHRequired) || hungUp(err) && time.Since(begun) < distrustTimeout:
		failedHandshake(c, to, err) // some clients see what is wrong only when it is over
	}
	conn.Close()
	return nil
}

// oneShot answers one HTTP request on a TLS connection under a certificate of
// our CA: the client sees the reason where it expected the host.
func (g *Gateway) oneShot(c *gateway.Caller, p *peekConn, cause error) {
	conn := tls.Server(p, g.server)
	ctx, cancel := context.WithTimeout(c.Live, helloTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return // the client does not trust us, and is refused all the same
	}
	gateway.ServeHTTP(c, conn, refuseAll(cause))
}

// failedHandshake records why TLS with a client did not come about.
func failedHandshake(c *gateway.Caller, to gateway.Target, err error) {
	switch {
	case distrust(err) || hungUp(err):
		untrusted(c, to, err)
		return
	case isAlert(err, alertECHRequired):
		_ = hidden(c, to)
		return
	}
	_ = unheard(c, to, RuleProtocol, "the TLS handshake did not come about: "+gateway.Clip(err.Error()),
		"use a client that speaks TLS 1.2 or 1.3, or: "+passHint(c, to))
}

// unheard records a refusal that its client cannot be told. The hint goes on
// record with it, because nobody else would ever read it.
func unheard(c *gateway.Caller, to gateway.Target, rule, reason, hint string) error {
	r := connectRequest(to)
	r.Fields = map[string]string{"hint": hint}
	return reject(c, r, rule, reason, hint)
}

// untrusted records that a client did not accept our certificate. It cannot be
// told: it believes nothing we say.
func untrusted(c *gateway.Caller, to gateway.Target, err error) {
	how := "closed the connection when it saw our certificate"
	if distrust(err) {
		how = fmt.Sprintf("answered our certificate with %q", err.Error())
	}
	_ = unheard(c, to, RuleUntrusted,
		fmt.Sprintf("the client does not trust the authority under which %s is read: it %s", to.Host, how),
		"let it trust "+TrustPath+" (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS and their like name it in every box); for a client that has its certificates built in, "+passHint(c, to))
}

// distrust says whether a client ended TLS with an alert about our certificate:
// bad_certificate, unsupported_certificate, certificate_expired,
// certificate_unknown or unknown_ca.
func distrust(err error) bool { return isAlert(err, 42, 43, 45, 46, 48) }

// isAlert says whether the other side ended TLS with one of these alerts.
func isAlert(err error, alerts ...tls.AlertError) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" && op.Err != nil {
		err = op.Err
	}
	// crypto/tls keeps the type of alerts that it receives to itself, and gives
	// their text.
	return slices.ContainsFunc(alerts, func(a tls.AlertError) bool { return err.Error() == a.Error() })
}

// lastRecord remembers the end of what a client has sent. OpenSSL sends its
// alert about a certificate without encryption, also in TLS 1.3, where
// crypto/tls takes it for a broken record.
type lastRecord struct {
	*peekConn
	end [recordHeader + 2]byte
}

// Read reads, and remembers the last bytes.
func (l *lastRecord) Read(b []byte) (int, error) {
	n, err := l.peekConn.Read(b)
	if k := min(n, len(l.end)); k > 0 {
		copy(l.end[:], l.end[k:])
		copy(l.end[len(l.end)-k:], b[n-k:n])
	}
	return n, err
}

// alert returns the fatal alert that came last, if it came in the clear.
func (l *lastRecord) alert() (tls.AlertError, bool) {
	e := l.end
	return tls.AlertError(e[6]), e[0] == recordAlert && e[1] == 3 && e[3] == 0 && e[4] == 2 && e[5] == 2
}

// hungUp says whether the other side ended the connection without a word.
func hungUp(err error) bool {
	// netstack gives the text of a reset and not its number.
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.HasSuffix(err.Error(), syscall.ECONNRESET.Error())
}
