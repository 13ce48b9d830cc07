package local

import (
	"context"
	"slices"
	"strings"

	"cofferdam/internal/config"
	"cofferdam/internal/local/outside"
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
	grant := policy.Grant{Allow: r.rules, Operator: r.o.Config.Policy}
	set, err := policy.New(grant)
	if err != nil {
		return err
	}
	r.policy, r.refused = set.Digest(), &refusals{Recorder: r.record.log}
	c := r.o.Config
	r.outside, err = r.gateways().Open(ctx, outside.Setup{
		Version: outside.Version, Session: r.id, Scope: scope, Keys: r.state.path("keys"), Grant: grant, Policy: r.policy,
		Hosts: c.Hosts, Resolver: c.Resolver, Allow: c.AllowAddresses,
	}, r.refused)
	return err
}

// gateways are those of this system, unless a test has others.
func (r *run) gateways() outside.Gateways {
	if r.o.Gateways != nil {
		return r.o.Gateways
	}
	return ownGateways(r.o.Config, r.workspace)
}
