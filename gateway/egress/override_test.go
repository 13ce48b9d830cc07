package egress_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"cofferdam/policy"
)

// A server may take another method or path than those of the request line, where a
// header says so. What policy refuses of them is refused by whatever header it comes.
func TestHeadersThatNameAnotherMethodOrPath(t *testing.T) {
	d, err := policy.ParseDocument("project", []byte(`
[egress]
allow = ["good.test"]
[[egress.rule]]
id = "kept"
effect = "deny"
hosts = ["good.test"]
methods = ["DELETE"]
[[egress.rule]]
id = "closed"
effect = "deny"
hosts = ["good.test"]
paths = ["/admin*"]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLabFor(t, policy.Grant{Project: &d})
	client := &http.Client{Transport: &http.Transport{Dial: func(_, _ string) (net.Conn, error) { return l.box.DialName("good.test", 80) }}}
	for _, c := range []struct {
		name, value string
		status      int
		rule        string
	}{
		{"X-Fine", "DELETE", 200, ""}, // control
		{"X-HTTP-Method-Override", "PATCH", 200, ""},
		{"X-HTTP-Method-Override", "DELETE", 403, "project.kept"},
		{"x-http-method-override", " delete ", 403, "project.kept"},
		{"X-HTTP-Method", "DELETE", 403, "project.kept"},
		{"X-Method-Override", "DELETE", 403, "project.kept"},
		{"X-Original-URL", "/fine", 200, ""},
		{"X-Original-URL", "/admin/users", 403, "project.closed"},
		{"X-Rewrite-URL", "/x/%2e%2e/admin?a=b", 403, "project.closed"},
		{"X-Rewrite-URL", "https://good.test/admin", 403, "project.closed"},
	} {
		before := len(l.reached())
		r, err := http.NewRequest("POST", "http://good.test/hello", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header[c.name] = []string{c.value}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s: %s: %v", c.name, c.value, err)
		}
		resp.Body.Close()
		if rule := resp.Header.Get("X-Cofferdam-Rule"); resp.StatusCode != c.status || rule != c.rule || (len(l.reached()) > before) != (c.status == 200) {
			t.Errorf("%s: %s: %d by %q, %q outside", c.name, c.value, resp.StatusCode, rule, l.reached()[before:])
		}
	}
	before := len(l.reached())
	r, err := http.NewRequest("GET", "http://good.test/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["X-Http-Method"] = []string{"GET", "GET", "GET", "GET", "DELETE"}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 || len(l.reached()) > before {
		t.Errorf("more headers than are looked at: %d", resp.StatusCode)
	}
}
