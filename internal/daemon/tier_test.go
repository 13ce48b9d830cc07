package daemon

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// A task gets the tier it asks for or an error, never another one.
func TestTierFits(t *testing.T) {
	const fits = cofferdam.Kind(255)
	all := []sandbox.Offer{{Tier: sandbox.Process}, {Tier: sandbox.GVisor}, {Tier: sandbox.Emulated}, {Tier: sandbox.Emulated}}
	for _, c := range []struct {
		asked, least sandbox.Tier
		kind         cofferdam.Kind // fits: it fits
		hint         string
	}{
		{sandbox.GVisor, sandbox.GVisor, fits, ""},
		{sandbox.GVisor, sandbox.Process, fits, ""},
		{sandbox.Process, sandbox.Process, fits, ""},
		{sandbox.Emulated, sandbox.Emulated, fits, ""},
		{sandbox.Process, sandbox.GVisor, cofferdam.Invalid, "operator"},
		{sandbox.Emulated, sandbox.GVisor, cofferdam.Invalid, "operator"}, // emulation is no boundary
		{sandbox.GVisor, sandbox.Emulated, cofferdam.Invalid, "operator"},
		{sandbox.MicroVM, sandbox.GVisor, cofferdam.Unavailable, "has gvisor"},
		{sandbox.None, sandbox.Process, cofferdam.Invalid, "gvisor"},
		{"GVisor", sandbox.Process, cofferdam.Invalid, "gvisor"},
		{"strong", sandbox.GVisor, cofferdam.Invalid, "give one of gvisor"},
		{"", sandbox.Process, cofferdam.Invalid, "gvisor"},
	} {
		err := tierFits(c.asked, c.least, all)
		if (err == nil) != (c.kind == fits) || err != nil && (cofferdam.KindOf(err) != c.kind || !strings.Contains(cofferdam.HintOf(err), c.hint)) {
			t.Errorf("%s, least %s: %v, hint %q", c.asked, c.least, err, cofferdam.HintOf(err))
		}
		if hint := cofferdam.HintOf(err); c.least == sandbox.GVisor && (strings.Contains(hint, "process") || strings.Contains(hint, "emulated")) {
			t.Errorf("%s, least %s: %q names what would be refused too", c.asked, c.least, hint)
		}
	}
}
