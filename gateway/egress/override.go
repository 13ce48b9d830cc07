package egress

import (
	"net/http"
	"net/url"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// Headers by which some servers, and what stands in front of them, take another
// method or path than those of the request line.
var (
	methodHeaders = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}
	pathHeaders   = []string{"X-Original-Url", "X-Rewrite-Url"}
)

// maxOverrides bounds how many of each kind are looked at in one request.
const maxOverrides = 4

// strictest returns the question to judge r by: q, or what its headers make of it
// where policy refuses or asks about that and not about q. It is false if there are
// more of them than anybody sends.
func strictest(c *gateway.Caller, r *http.Request, q policy.Query) (policy.Query, bool) {
	methods, paths := []string{q.Method}, []string{q.Path}
	for _, name := range methodHeaders {
		for _, v := range r.Header.Values(name) {
			methods = append(methods, strings.ToUpper(strings.TrimSpace(v)))
		}
	}
	for _, name := range pathHeaders {
		for _, v := range r.Header.Values(name) {
			if u, err := url.Parse(v); err == nil {
				v = u.EscapedPath()
			}
			paths = append(paths, v) // what is no address is judged as it stands
		}
	}
	if len(methods) > 1+maxOverrides || len(paths) > 1+maxOverrides {
		return q, false
	}
	if len(methods)+len(paths) == 2 { // nearly all
		return q, true
	}
	worst, most := q, rank(c, q)
	for _, q.Method = range methods {
		for _, q.Path = range paths {
			if n := rank(c, q); n > most {
				worst, most = q, n
			}
		}
	}
	return worst, true
}

func rank(c *gateway.Caller, q policy.Query) int {
	switch c.Policy.Decide(q).Verdict {
	case cofferdam.Refused:
		return 2
	case cofferdam.Asked:
		return 1
	}
	return 0
}
