package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"cofferdam/internal/config"
	"cofferdam/sandbox"
)

// lookupTimeout bounds all look-ups together.
const lookupTimeout = 10 * time.Second

// checkRegistries reports presets whose hosts resolve to addresses that the
// gateways refuse to dial unless an operator lists them. It only reports: the
// gateways' own table decides.
func checkRegistries(ctx context.Context, o Options) []sandbox.Finding {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if len(o.Presets) == 0 {
		return one("registries", sandbox.OK, "", "no preset on this machine")
	}
	var out []sandbox.Finding
	for _, preset := range slices.Sorted(maps.Keys(o.Presets)) {
		out = append(out, checkPreset(ctx, o, preset)...)
	}
	return out
}

func checkPreset(ctx context.Context, o Options, preset string) []sandbox.Finding {
	name := "registry-" + preset
	var missing, unresolved []string
	for _, item := range o.Presets[preset] {
		host := strings.TrimPrefix(item, "*.")
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		addrs, err := o.Host.Lookup(ctx, host)
		if err != nil {
			unresolved = append(unresolved, host)
			continue
		}
		for _, a := range addrs {
			if a = a.Unmap(); reserved(a) && !listed(o.Config.AllowAddresses, a) {
				missing = append(missing, a.String())
			}
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	switch {
	case len(missing) > 0:
		file := o.Config.File
		if file == "" {
			file = config.DefaultFile
		}
		return one(name, sandbox.Warn, fmt.Sprintf("if that is your own mirror, write into %s under [egress]: allow_addresses = [\"%s\"]", file, strings.Join(missing, `", "`)),
			"resolves to the reserved address %s, which the gateways refuse to dial", strings.Join(missing, ", "))
	case len(unresolved) > 0:
		return one(name, sandbox.Warn, "check the resolver, if tasks use preset:"+preset, "cannot be resolved: %s", strings.Join(unresolved, ", "))
	}
	return one(name, sandbox.OK, "", "%s", strings.Join(o.Presets[preset], ", "))
}

func listed(all []config.AddrAndPort, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(l config.AddrAndPort) bool { return l.Addr == a })
}

// reserved says whether an address is not a public one.
func reserved(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return true
	}
	for _, p := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "64:ff9b::/96", "2001:db8::/32", "2002::/16", "fec0::/10"} {
		if netip.MustParsePrefix(p).Contains(a) {
			return true
		}
	}
	return false
}
