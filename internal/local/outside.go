package local

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/wire"
	"cofferdam/internal/config"
	"cofferdam/policy"
)

// outside is all that the box can reach: nothing but what policy allows.
type outside struct {
	caller  *gateway.Caller
	routes  wire.Routes
	refused *refusals
	end     context.CancelFunc
	wire    *wire.Wire // nil until it is connected
}

// presets returns the hosts of the presets that allow names. Asking a tool
// takes long, so none is asked for nothing.
func presets(ctx context.Context, c config.Config, allow []string) map[string][]string {
	if !asksPreset(allow) {
		return c.Presets
	}
	return config.Presets(ctx, c, config.ThisMachine())
}

func asksPreset(allow []string) bool {
	return slices.ContainsFunc(allow, func(e string) bool { return strings.HasPrefix(e, "preset:") })
}

// newOutside builds the gateways for a run that is recorded in r.
func newOutside(ctx context.Context, c config.Config, set *policy.Set, r *record) (*outside, error) {
	ca, err := egress.OpenCA(r.state.path("keys"))
	if err != nil {
		return nil, err
	}
	dialer := &gateway.Dialer{Resolver: gateway.NewResolver(c.Hosts, c.Resolver)}
	for _, a := range c.AllowAddresses {
		if a.Port == 0 {
			dialer.Allow = append(dialer.Allow, netip.PrefixFrom(a.Addr, a.Addr.BitLen()))
		} else {
			dialer.AllowPorts = append(dialer.AllowPorts, netip.AddrPortFrom(a.Addr, a.Port))
		}
	}
	out := egress.New(egress.Options{Dialer: dialer, CA: ca})
	o := &outside{refused: &refusals{Recorder: r.log}, routes: wire.Routes{Others: out, Refused: out.Refusal()}}
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	o.end = end
	o.caller = &gateway.Caller{
		Scope: scope, Session: r.id, Actor: cofferdam.Principal{Kind: cofferdam.Agent, Name: "run"}, Phase: gateway.Work,
		Policy: set, Record: o.refused, Live: live,
	}
	return o, nil
}

// connect serves the box whose network device is tap. It owns tap.
func (o *outside) connect(tap *os.File) error {
	var err error
	o.wire, err = wire.Attach(tap, o.caller, o.routes, nil)
	return err
}

// close ends every connection.
func (o *outside) close() error {
	o.end() // first, so that what is under way is cut and need not be waited for
	if o.wire == nil {
		return nil
	}
	return o.wire.Close()
}
