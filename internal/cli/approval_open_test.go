package cli

import (
	"strings"
	"testing"
)

// TestOpenBadBounds gives approval open what it cannot open. It says so before it
// asks who is there: with bounds that are good, the terminal is what is missing.
func TestOpenBadBounds(t *testing.T) {
	b := newBench(t)
	b.shop()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"good.test", 9, "no terminal"},
		{"good.test:8099 --for 24h --uses 100000", 9, "no terminal"},
		{"model:work --action use", 9, "no terminal"},
		{"http://good.test/", 2, "scheme"},
		{"good.test:0", 2, ""},
		{"good.test:99999", 2, ""},
		{"good.test --for 0", 2, "--for is 1s to 24h"},
		{"good.test --for 25h", 2, "--for is 1s to 24h"},
		{"good.test --uses 0", 2, "--uses is 1 to 100000"},
		{"good.test --uses -1", 2, "--uses is 1 to 100000"},
		{"good.test --uses 100001", 2, "--uses is 1 to 100000"},
	} {
		code, _, errs := b.run(append([]string{"approval", "open", "t-1"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("approval open t-1 %s: exit %d, %q, wanted %d and %q", c.args, code, errs, c.code, c.want)
		}
	}
}
