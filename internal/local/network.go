package local

import (
	"context"
	"slices"
	"strings"

	"cofferdam/internal/config"
	"cofferdam/internal/local/network"
	"cofferdam/policy"
)

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

// goOut readies the gateways of this run, which is being recorded.
func (r *run) goOut(ctx context.Context) error {
	grant := policy.Grant{Allow: r.rules, Operator: r.o.Config.Policy, Run: true}
	set, err := policy.New(grant)
	if err != nil {
		return err
	}
	r.policy, r.refused = set.Digest(), &refusals{Recorder: bounded{r.record.log, maxEvents, maxRecord}}
	c := r.o.Config
	r.network, err = r.gateways().Open(ctx, network.Setup{
		Version: network.Version, Session: r.id, Scope: scope, Keys: r.state.path("keys"), Grant: grant, Policy: r.policy,
		Hosts: c.Hosts, Resolver: c.Resolver, Allow: c.AllowAddresses,
	}, r.refused)
	return err
}

// gateways are those of this system, unless a test has others.
func (r *run) gateways() network.Gateways {
	if r.o.Gateways != nil {
		return r.o.Gateways
	}
	return ownGateways(r.o.Config, r.workspace)
}
