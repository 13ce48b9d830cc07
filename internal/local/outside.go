package local

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	serving chan struct{} // closed when the wire is there or nobody waits for a packet; nil: never connected
	tap     *os.File

	mu      sync.Mutex
	closing bool       // guarded by mu
	wire    *wire.Wire // nil until the first packet; guarded by mu until serving is closed
	failed  error      // why there is none; likewise
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
		Policy: gateway.NewRules(set), Record: o.refused, Live: live,
	}
	return o, nil
}

// connect serves the box whose network device is tap, which it owns. The network
// behind it is made when the box sends its first packet, which waits in the
// device: most commands send none, and all would wait for it.
func (o *outside) connect(tap *os.File) error {
	raw, err := tap.SyscallConn()
	if err != nil {
		return first(err, tap.Close())
	}
	o.tap, o.serving = tap, make(chan struct{})
	go func() {
		defer close(o.serving)
		if raw.Read(sends) != nil {
			return // the box ended, or its run
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.closing {
			o.wire, o.failed = wire.Attach(tap, o.caller, o.routes, nil)
			o.tap = nil
		}
	}()
	return nil
}

// sends says whether a packet waits in the device, and leaves it there.
func sends(device uintptr) bool {
	waiting := []unix.PollFd{{Fd: int32(device), Events: unix.POLLIN}}
	n, err := unix.Poll(waiting, 0)
	return err == nil && n > 0
}

// close ends every connection.
func (o *outside) close() error {
	o.end() // first, so that what is under way is cut and need not be waited for
	if o.serving == nil {
		return nil
	}
	o.mu.Lock()
	o.closing = true
	var err error
	if o.tap != nil {
		err = o.tap.SetReadDeadline(time.Now())
	}
	o.mu.Unlock()
	<-o.serving
	switch {
	case o.wire != nil:
		return o.wire.Close()
	case o.failed != nil:
		return o.failed // nothing has passed
	}
	return first(err, o.tap.Close())
}
