package egress_test

import (
	"os/exec"
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
}

// Package managers and git: the reason reaches the person, in each one's own
// words, and the program ends instead of trying again.
func TestRefusedClients(t *testing.T) {
	l := newLab(t, "good.test")
	l.box.Env = append(l.box.Env, "npm_config_cafile="+l.bundle, "GONOSUMDB=*", "GOFLAGS=-mod=mod", "PIP_DISABLE_PIP_VERSION_CHECK=1")
	const reason = "evil.test:443 is refused: it is not on this task's list of allowed hosts"
	for _, c := range []struct {
		argv []string
		want []string
	}{
		{[]string{"git", "ls-remote", "https://evil.test/x.git"}, []string{"remote: cofferdam: " + reason, "remote: hint: allowed: good.test", "error: 403"}},
		{[]string{"git", "ls-remote", "git://evil.test/x.git"}, []string{"Connection refused"}},
		{[]string{"npm", "view", "left-pad", "--registry", "https://evil.test/"}, []string{"E403", reason, "--allow evil.test"}},
		{[]string{"pip", "download", "--no-deps", "--index-url", "https://evil.test/simple", "six"}, []string{reason, "No matching distribution"}},
		{[]string{"pip", "download", "--no-deps", "https://evil.test/six-1.0-py3-none-any.whl"}, []string{reason}},
		{[]string{"env", "GOPROXY=https://evil.test", "go", "list", "-m", "example.com/x@v1.0.0"}, []string{"403 Forbidden", reason, "hint: allowed: good.test"}},
		{[]string{"python3", "-c", "import urllib.request; urllib.request.urlopen('https://evil.test/')"}, []string{"HTTP Error 403", reason}},
		{[]string{"wget", "-O-", "http://evil.test/"}, []string{"ERROR 403: Forbidden: evil.test:80 is refused"}},
	} {
		t.Run(c.argv[0], func(t *testing.T) {
			if _, err := exec.LookPath(c.argv[0]); err != nil {
				t.Skip("needs " + c.argv[0] + ": " + err.Error())
			}
			out, err := l.box.Run(c.argv...)
			if err == nil {
				t.Error("ended without an error")
			}
			contains(t, out, c.want...)
		})
	}
	if r := l.reached(); len(r) != 0 {
		t.Errorf("reached the outside: %q", r)
	}
	if a := l.asked(); len(a) != 0 {
		t.Errorf("asked of the outside resolver: %q", a)
	}
}

// TestAllowedClients is the benign twin.
func TestAllowedClients(t *testing.T) {
	l := newLab(t, "good.test")
	for _, c := range []struct{ argv, want []string }{
		{[]string{"curl", "-sSf", "http://good.test/a"}, []string{"hello from good.test"}},
		{[]string{"curl", "-sSf", "https://good.test/a"}, []string{"hello from good.test"}},
		{[]string{"curl", "-sSf", "-d", "x=1", "http://good.test/echo"}, []string{"x=1"}},
		{[]string{"wget", "-qO-", "http://good.test/a"}, []string{"hello from good.test"}},
		{[]string{"python3", "-c", "import urllib.request; print(urllib.request.urlopen('https://good.test/').read())"}, []string{"hello from good.test"}},
		{[]string{"node", "-e", "fetch('https://good.test/').then(async r=>console.log(await r.text()))"}, []string{"hello from good.test"}},
	} {
		out, err := l.box.Run(c.argv...)
		if err != nil {
			t.Errorf("%v: %v", c.argv, err)
		}
		contains(t, out, c.want...)
	}
	l.settled()
	if r := l.refusals(); len(r) != 0 {
		t.Errorf("refused: %q", r)
	}
}
