package gateway

import (
	"net/netip"
)

// reserved lists the IPv4 ranges that are never dialled unless an operator
// lists the very address. Source: the IANA special-purpose registry, and the
// metadata services of clouds that lie outside of it.
func reserved4() []rangeName {
	return []rangeName{
		{"this network", netip.MustParsePrefix("0.0.0.0/8")},
		{"private", netip.MustParsePrefix("10.0.0.0/8")},
		{"shared by carriers", netip.MustParsePrefix("100.64.0.0/10")}, // with the metadata service 100.100.100.200
		{"loopback", netip.MustParsePrefix("127.0.0.0/8")},
		{"a metadata service", netip.MustParsePrefix("168.63.129.16/32")},
		{"link-local", netip.MustParsePrefix("169.254.0.0/16")}, // with the metadata service 169.254.169.254
		{"private", netip.MustParsePrefix("172.16.0.0/12")},
		{"reserved for protocols", netip.MustParsePrefix("192.0.0.0/24")}, // with the metadata service 192.0.0.192
		{"documentation", netip.MustParsePrefix("192.0.2.0/24")},
		{"a retired relay", netip.MustParsePrefix("192.88.99.0/24")},
		{"private", netip.MustParsePrefix("192.168.0.0/16")},
		{"reserved for tests", netip.MustParsePrefix("198.18.0.0/15")}, // also the names of our wires
		{"documentation", netip.MustParsePrefix("198.51.100.0/24")},
		{"documentation", netip.MustParsePrefix("203.0.113.0/24")},
		{"multicast", netip.MustParsePrefix("224.0.0.0/4")},
		{"reserved", netip.MustParsePrefix("240.0.0.0/4")},
	}
}

// reserved6 lists the ranges inside 2000::/3 that are never dialled; all that
// lies outside of 2000::/3 is not global unicast and is refused as a whole.
func reserved6() []rangeName {
	return []rangeName{
		{"reserved for protocols", netip.MustParsePrefix("2001::/23")}, // with Teredo, which hides an IPv4 address
		{"documentation", netip.MustParsePrefix("2001:db8::/32")},
		{"a retired tunnel that hides an IPv4 address", netip.MustParsePrefix("2002::/16")},
		{"documentation", netip.MustParsePrefix("3fff::/20")},
	}
}

type rangeName struct {
	name   string
	prefix netip.Prefix
}

// reservedRange says which reserved range a lies in; "" if it is an address of
// the public internet. Every way to write an IPv4 address inside an IPv6 one
// is taken apart or refused.
func reservedRange(a netip.Addr) string {
	if !a.IsValid() {
		return "not an address"
	}
	if a.Zone() != "" {
		return "link-local"
	}
	a = a.Unmap()
	if a.Is4() {
		return find(reserved4(), a, "")
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return find(reserved4(), netip.AddrFrom4([4]byte(b[12:])), "")
	case !global.Contains(a):
		return "not an address of the public internet"
	case b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return "a tunnel that hides an IPv4 address" // ISATAP, RFC 5214
	}
	return find(reserved6(), a, "")
}

var (
	global = netip.MustParsePrefix("2000::/3")     // RFC 4291: global unicast
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052: an IPv4 address behind a translator
)

func find(ranges []rangeName, a netip.Addr, otherwise string) string {
	for _, r := range ranges {
		if r.prefix.Contains(a) {
			return r.name
		}
	}
	return otherwise
}
