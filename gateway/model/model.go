// Package model is the gateway to a model provider. It serves
// model.cofferdam.internal inside a box and speaks the Anthropic Messages
// protocol: messages (streamed and not), token counts and the list of models.
//
// The provider's key is attached here, on the way out, and never enters a box;
// whatever credential a box sends is dropped. The gateway never buffers a
// streamed answer and never changes a body. The invariant: the bytes that were
// judged and hashed are the bytes that are sent, so a request that two readers
// could read differently (a key that occurs twice, broken text) is refused, and
// so is one that would make the provider reach out on the box's behalf, because
// that is a way out of the box which no other gateway sees.
package model

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Bounds of one call. The sizes are the provider's own or above them.
const (
	// MaxRequest is the provider's limit of a Messages request, 32 MB.
	MaxRequest = 32 << 20
	// maxAnswer bounds an answer, streamed or not; 128 k tokens of output are
	// less than 1 MiB of text and less than 32 MiB of events.
	maxAnswer = 64 << 20
	// headerTimeout is how long the provider may think before it answers;
	// answers that are not streamed come after all of the thinking.
	headerTimeout = 10 * time.Minute
	dialTimeout   = 30 * time.Second
)

// Options is what a Gateway needs.
type Options struct {
	Dialer *gateway.Dialer
	Roots  *x509.CertPool // nil: the machine's own
	// Prices of the operator; they stand before ListPrices.
	Prices []cofferdam.Price
	// Attach sets the provider's credential on the header of an outgoing
	// request. It is called after the decision is on record.
	Attach func(ctx context.Context, m cofferdam.Model, h http.Header) error
}

// Gateway serves the model provider of each session.
type Gateway struct {
	options Options
	prices  prices
}

// New returns a gateway.
func New(o Options) *Gateway { return &Gateway{o, newPrices(o.Prices)} }

// CheckURL says whether text can be the address of a provider: https, or http
// to an address of this machine. It returns the address to list for plain http.
func CheckURL(text string) (*url.URL, error) {
	bad := func(reason string) error {
		return &cofferdam.Error{
			Op: "model.CheckURL", Kind: cofferdam.Invalid, Subject: "model URL " + strconv.Quote(text), Reason: reason,
			Hint: "give an address such as https://api.anthropic.com; plain http only on this machine, such as http://127.0.0.1:8791",
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, bad("it is not a URL")
	case u.Host == "" || u.Hostname() == "":
		return nil, bad("it names no host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("user, query and fragment have no place in it")
	case u.Scheme == "https":
		return u, nil
	case u.Scheme != "http":
		return nil, bad("it is neither https nor http")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err != nil || !a.IsLoopback() {
		return nil, bad("plain http would send the key over the network")
	}
	return u, nil
}

// Serve serves one connection of a box. Connections to the provider live no
// longer than it, so that sessions share none.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	t := g.transport(c.Model)
	defer t.CloseIdleConnections()
	gateway.ServeHTTP(c, conn, &calls{gateway: g, caller: c, transport: t})
}

func (g *Gateway) transport(m cofferdam.Model) *http.Transport {
	dialer := *g.options.Dialer
	// An address in the URL is one that a person named with model add: that very
	// address and port are listed for this provider, and nothing else is.
	if u, err := CheckURL(m.URL); err == nil {
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			listed := append([]netip.AddrPort{}, dialer.AllowPorts...)
			dialer.AllowPorts = append(listed, netip.AddrPortFrom(a.Unmap(), port(u)))
		}
	}
	t := &http.Transport{
		Proxy: nil, DialContext: dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout,
		DisableCompression: true, // an answer is read as it comes
		ForceAttemptHTTP2:  true,
		MaxIdleConns:       4, MaxConnsPerHost: 16, IdleConnTimeout: time.Minute,
		MaxResponseHeaderBytes: 256 << 10,
	}
	t.TLSClientConfig = tlsConfig(g.options.Roots)
	return t
}

func port(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// upstream makes the request that goes out: the provider's address, the
// headers that the protocol needs, and not one more.
func (k *calls) upstream(ctx context.Context, r *http.Request, body []byte) (*http.Request, error) {
	base, err := CheckURL(k.caller.Model.URL)
	if err != nil {
		return nil, err
	}
	u := base.JoinPath(r.URL.Path)
	u.RawQuery = r.URL.RawQuery
	out, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bodyReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request to the provider: %w", err)
	}
	for _, name := range []string{"Accept", "Content-Type", "User-Agent", "Anthropic-Version", "Anthropic-Beta"} {
		if values := r.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	if out.Header.Get("Anthropic-Version") == "" {
		out.Header.Set("Anthropic-Version", "2023-06-01")
	}
	return out, nil
}
