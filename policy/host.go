package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"cofferdam"
)

// Names inside a box that stand for our own gateways. Nothing outside is ever
// reached under this suffix.
const ownSuffix = ".cofferdam.internal"

// Lengths of a DNS name and of a label in it. Source: RFC 1035, section 2.3.4.
const (
	maxName  = 253
	maxLabel = 63
)

// CheckHost says why name is not a host name that may be judged; nil if it is.
// The grammar is that of RFC 1123 with at least two labels: letters, digits,
// hyphens and dots, nothing else, so that no byte can make the name that is
// judged differ from the name that is dialled. A name whose last label is a
// number is refused, because some resolvers read it as an address.
//
// name must be in the form of cofferdam.ParseHost: lower case, no trailing dot.
func CheckHost(name cofferdam.Host) error {
	s := string(name)
	switch {
	case s == "":
		return fmt.Errorf("the name is empty")
	case len(s) > maxName:
		return fmt.Errorf("the name is longer than %d characters", maxName)
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if err := checkLabel(l); err != nil {
			return err
		}
	}
	if _, err := netip.ParseAddr(s); err == nil || numeric(labels[len(labels)-1]) {
		return fmt.Errorf("it is an address, and only names are allowed")
	}
	if len(labels) < 2 {
		return fmt.Errorf("it has no dot; only full names are known here")
	}
	return nil
}

func checkLabel(l string) error {
	switch {
	case l == "":
		return fmt.Errorf("the name has an empty label")
	case len(l) > maxLabel:
		return fmt.Errorf("a label is longer than %d characters", maxLabel)
	case l[0] == '-' || l[len(l)-1] == '-':
		return fmt.Errorf("a label starts or ends with a hyphen")
	}
	for i := range len(l) {
		c := l[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("the character %q is not part of a host name", c)
		}
	}
	return nil
}

// numeric says whether a resolver might read l as part of an address: decimal
// digits, or hexadecimal ones after 0x.
func numeric(l string) bool {
	digits := "0123456789"
	if h, ok := strings.CutPrefix(l, "0x"); ok {
		l, digits = h, "0123456789abcdef"
	}
	return strings.Trim(l, digits) == ""
}
