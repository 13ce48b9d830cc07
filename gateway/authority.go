package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"cofferdam"
)

// Rules by which a request is refused that contradicts its connection.
const (
	RuleHost  = "host-mismatch" // Host or SNI is not the name that was asked for
	RuleProxy = "not-a-proxy"   // CONNECT, or an absolute request target
)

// ProviderHost returns the host at which clients of a model protocol look for
// their provider unless they are told otherwise; "" for an unknown protocol.
// In a box with a model it is a name of the model gateway. Source: the
// providers' own clients.
func ProviderHost(protocol string) cofferdam.Host {
	switch protocol {
	case "anthropic":
		return "api.anthropic.com"
	case "openai":
		return "api.openai.com"
	case "gemini":
		return "generativelanguage.googleapis.com"
	}
	return ""
}

// Named is a connection whose client has shown, in a TLS handshake, which name
// it means. ServeHTTP refuses every request on it that names another.
type Named struct {
	net.Conn
	To Target
}

// CloseWrite ends the sending side, where the connection can.
func (n *Named) CloseWrite() error { return CloseWrite(n.Conn) }

// only lets h serve the requests that name n's target.
func (n *Named) only(c *Caller, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := Request{
			Source: "gateway", Kind: cofferdam.EventRequest,
			Resource: r.Method + " " + n.To.String() + Clip(r.URL.EscapedPath()),
		}
		if err := CheckAuthority(r.Context(), c, r, n.To, act); err != nil {
			w.Header().Set("Connection", "close")
			AnswerRefusal(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// CheckAuthority refuses r, on record as act, if its bytes name another target
// than to, the one of its connection. What follows on the connection has lost
// its meaning: the answer has to end it.
func CheckAuthority(ctx context.Context, c *Caller, r *http.Request, to Target, act Request) error {
	if r.Method == http.MethodConnect || r.URL.IsAbs() || !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" {
		return Reject(ctx, c, act, RuleProxy, "this is no proxy; the request names its target in the request line",
			"connect to the host itself, without a proxy setting")
	}
	host, port := SplitAuthority(r.Host)
	if host != to.Host || port != "" && port != strconv.Itoa(int(to.Port)) {
		return Reject(ctx, c, act, RuleHost,
			fmt.Sprintf("the request's Host is %q, but %s was asked for", Clip(r.Host), to),
			"send the request to the host by its own name")
	}
	return nil
}

// SplitAuthority takes a Host header apart. What is no host name stays one.
func SplitAuthority(authority string) (host cofferdam.Host, port string) {
	name, port, _ := strings.Cut(authority, ":")
	return cofferdam.ParseHost(name), port
}

// maxShown bounds text from a box in the record and in reasons, in bytes.
const maxShown = 512

// Clip cuts text from a box to a length that a line can have.
func Clip(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}
