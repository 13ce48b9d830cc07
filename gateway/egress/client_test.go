package egress_test

import (
	"testing"
)

// What the clients of every day show when they are let through and when they
// are refused: at once, and with the reason.
func TestCurl(t *testing.T) {
	l := newLab(t, "good.test")
	for _, c := range []struct {
		name string
		argv []string
		want []string
		fail bool
	}{
		{"http", []string{"curl", "-sS", "http://good.test/a"}, []string{"hello from good.test"}, false},
		{"https", []string{"curl", "-sS", "https://good.test/a"}, []string{"hello from good.test"}, false},
		{"refused http", []string{"curl", "-sS", "-i", "http://evil.test/a"}, []string{"403 Forbidden", "X-Cofferdam-Rule: default-deny", "evil.test", "hint: allowed: good.test"}, false},
		{"refused https", []string{"curl", "-sS", "-i", "https://evil.test/a"}, []string{"403 Forbidden", "X-Cofferdam-Rule: default-deny", "hint: allowed: good.test"}, false},
		{"refused https, -f", []string{"curl", "-sSf", "https://evil.test/a"}, []string{"403"}, true},
		{"port", []string{"curl", "-sS", "http://good.test:8080/"}, []string{"onnect"}, true},
		{"literal", []string{"curl", "-sS", "http://93.184.216.34/"}, []string{"onnect"}, true},
		{"metadata", []string{"curl", "-sS", "http://169.254.169.254/latest/"}, []string{"onnect"}, true},
		{"ipv6", []string{"curl", "-sS", "http://[2606:4700::1]/"}, []string{"onnect"}, true},
		{"no dot", []string{"curl", "-sS", "http://intranet/"}, []string{"not resolve"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := l.box.Run(c.argv...)
			if (err != nil) != c.fail {
				t.Errorf("ended with %v", err)
			}
			contains(t, out, c.want...)
		})
	}
	for _, r := range l.reached() {
		if r != "GET good.test/a " {
			t.Errorf("reached the outside: %s", r)
		}
	}
	t.Log(l.refusals())
}
