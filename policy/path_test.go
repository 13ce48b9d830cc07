package policy

import (
	"testing"

	"cofferdam"
)

// A path is judged in every way a server may read it: what is forbidden stays
// so however it is spelt, and what is permitted leads nowhere else.
func TestPathsAreJudgedInEveryReading(t *testing.T) {
	forbids := compile(t, Grant{Allow: allow(t, "good.test"), Operator: `@id("private") forbid (principal, action == Action::"request", resource) when { context.path like "/private/*" };`})
	permits := compile(t, Grant{Operator: `@id("public") permit (principal, action == Action::"request", resource) when { resource == Host::"good.test" && context.path like "/public/*" };`})
	for _, c := range []struct {
		path           string
		hidden, public bool // what the two sets have to say: forbidden, permitted
	}{
		{"/private/x", true, false},
		{"/%70rivate/x", true, false},
		{"/private%2fx", true, false},
		{"/private%2Fx", true, false},
		{"//private/x", true, false},
		{"/./private/x", true, false},
		{"/a/../private/x", true, false},
		{"/a/%2e%2e/private/x", true, false},
		{"/a/..%2fprivate/x", true, false},
		{"/a/.%2e/private/x", true, false},
		{"/a%2f..%2fprivate%2fx", true, false},
		{"/a/..;v=1/private/x", true, false},
		{"/private;v=1/x", true, false},
		{`/a\..\private\x`, true, false},
		{"/a/..%5cprivate%5cx", true, false},
		{"/%2570rivate/x", true, false},
		{"/a/%252e%252e/private/x", true, false},
		{"/public/../private/x", true, false},
		{"/public/..//private/x", true, false},

		{"/public/x", false, true},
		{"/public/@a%2fb", false, true},
		{"/public//x", false, true},
		{"/public/https://a.test/x;v=1", false, true},
		{"/public/100%25", false, true},
		{"/public/a..b/...", false, true},
		{"/public/", false, true},
		{"/public/./x", false, true},
		{"/public/../x", false, false},
		{"/public/%2e%2e/x", false, false},
		{"/public/..%2fx", false, false},
		{"/public/a/..;/..;/x", false, false},
		{`/public/..\x`, false, false},
		{"/public/%252e%252e/x", false, false},
		{"/public/a/../../x", false, false},
		{"/public/..", false, false},
		{"/privateer/x", false, false},
		{"*", false, false},
		{"", false, false},
		{"/%zz/%", false, false},
	} {
		q := Query{Action: HTTP, Host: "good.test", Port: 443, Method: "GET", Path: c.path}
		if d := forbids.Decide(q); (d.Verdict != cofferdam.Allowed) != c.hidden || c.hidden && d.Rule != "private" {
			t.Errorf("%s, and /private/ is forbidden: %+v", c.path, d)
		}
		if d := permits.Decide(q); (d.Verdict == cofferdam.Allowed) != c.public {
			t.Errorf("%s, and /public/ is permitted: %+v", c.path, d)
		}
	}
}
