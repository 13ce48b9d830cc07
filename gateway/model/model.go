// Package model is the gateway to a model provider. It serves
// model.cofferdam.internal inside a box, and the provider's own host name for
// agents that know no other, in three protocols: Anthropic Messages, OpenAI
// Responses with Chat Completions, and Gemini.
//
// The provider's key is attached here, on the way out, and never enters a box;
// whatever credential a box sends is dropped. An answer passes byte for byte as
// it comes: nothing is added to a stream, and only what stands before its first
// content is held, for moments, so that a call which broke off can be tried
// again. A body is changed in one place at most: the model's id, by an alias.
// The invariant: the bytes that were judged and hashed are the bytes that are
// sent, so a request that two readers could read differently (a key that occurs
// twice, broken text) is refused, and so is one that would make the provider
// reach out on the box's behalf, because that is a way out of the box which no
// other gateway sees.
package model

import (
	"context"
	"crypto/x509"
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
	// Find returns a registration by name, for the fallbacks of another. Nil:
	// there are none.
	Find func(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Model, error)
	// Clean removes secrets from text that goes on record in parts, before it is
	// cut. Nil: the recorder's own way is enough.
	Clean func(string) string
}

// Gateway serves the model provider of each session.
type Gateway struct {
	options Options
	prices  prices
	seats   seats
	readers readers
	pause   time.Duration // firstPause; tests have less time
}

// New returns a gateway.
func New(o Options) *Gateway {
	return &Gateway{options: o, prices: newPrices(o.Prices), readers: make(readers, maxReaders), pause: firstPause}
}

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

// Serve serves one connection of a box, by whichever name it came. Connections
// to the provider live no longer than it, so that sessions share none.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, _ gateway.Target) {
	k := &calls{gateway: g, caller: c, transports: map[cofferdam.ModelID]*http.Transport{}}
	defer func() {
		for _, t := range k.transports {
			t.CloseIdleConnections()
		}
	}()
	gateway.ServeHTTP(c, conn, k)
}

// transport returns the way to a registration's provider.
func (k *calls) transport(m cofferdam.Model) *http.Transport {
	t := k.transports[m.ID]
	if t == nil {
		t = k.gateway.transport(m)
		k.transports[m.ID] = t
	}
	return t
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
