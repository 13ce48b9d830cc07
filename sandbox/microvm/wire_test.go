package microvm

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	gatewaywire "cofferdam/gateway/wire"
	"cofferdam/policy"
)

// greeter says what was asked for, or that it was refused.
type greeter string

// Serve implements gateway.Handler.
func (g greeter) Serve(_ *gateway.Caller, conn net.Conn, to gateway.Target) {
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s:%d\n", g, to.Host, to.Port)
	_, _ = io.Copy(io.Discard, conn)
}

// testGateway puts the product's own wire behind the machine: names lead to a
// gateway, refused ones to the refusal, which all of them share, and nothing else answers.
func testGateway(t *testing.T, b *box) {
	caller, _, end := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test"), Repo: "r-1"})
	defer end()
	lent, err := b.Wire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w, err := gatewaywire.Attach(lent, caller, gatewaywire.Routes{
		Own: map[cofferdam.Host]gateway.Handler{}, Others: greeter("allowed"), Refused: greeter("refused"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, c := range []struct{ text, want string }{
		{"echo | nc -w 5 good.test 80 | head -n 1", "allowed good.test:80"},
		{"echo | nc -w 5 bad.test 80 | head -n 1", "refused :80"},
		{"nc -w 3 192.0.2.1 80 </dev/null >/dev/null 2>&1 || echo nothing", "nothing"},
	} {
		if got, r := sh(t, b, c.text); got != c.want {
			t.Errorf("%s: %q, %+v; want %q", c.text, got, r, c.want)
		}
	}
}
