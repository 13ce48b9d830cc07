package egress

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"cofferdam"
	"cofferdam/gateway"
)

// A box has no credentials of ours, so what it sends to prove who it is was never meant
// for it to have, or is somebody's who wants to read what it sends: their account on an
// allowed host is a way out. What is looked for are the places where protocols carry
// such things; a body is not read.

// Headers that carry a credential and whose names do not end in a word for one.
var credentialHeaders = []string{"X-Auth-Key", "Ocp-Apim-Subscription-Key", "X-Functions-Key"}

// credentialWords are the last parts of the names of headers that carry a credential:
// Authorization, X-Auth-Token, X-Amz-Security-Token.
var credentialWords = []string{"apikey", "authorization", "auth", "token", "secret", "password", "credential"}

// harmlessHeaders end in such a word and carry no credential.
var harmlessHeaders = []string{"X-Csrf-Token", "X-Xsrf-Token", "Proxy-Authorization"} // the last one is not passed on

// Parameters of a query that carry a credential, in lower case.
var credentialParameters = []string{
	"access_token", "api_key", "apikey", "api-key", "auth_token", "authtoken", "client_secret", "job_token", "private_token", "password", "x-api-key",
}

// signatures are the parameters of a query that was signed ahead with a key, for
// whoever has the address. Hosts answer with such addresses, so that they count where
// something is sent and not where something is fetched.
var signatures = []string{"x-amz-signature", "x-goog-signature", "signature", "sig"}

// longKey is from how many characters on a parameter named key or token is one.
const longKey = 16

// credentials lists where a request carries something to prove by, such as "header
// X-Api-Key", without what it is; nil if nowhere. Cookies are left out: see cookies.
func credentials(r *http.Request) []string {
	var found []string
	for name := range r.Header {
		if carriesCredential(name) {
			found = append(found, "header "+gateway.Clip(name))
		}
	}
	for _, pair := range strings.FieldsFunc(r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		name = strings.ToLower(name)
		sends := r.Method != http.MethodGet && r.Method != http.MethodHead
		if slices.Contains(credentialParameters, name) || (name == "key" || name == "token") && len(value) >= longKey || sends && slices.Contains(signatures, name) {
			found = append(found, "parameter "+gateway.Clip(name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// carriesCredential says whether a header is one that carries a credential.
func carriesCredential(name string) bool {
	if slices.Contains(credentialHeaders, name) {
		return true
	}
	if slices.Contains(harmlessHeaders, name) {
		return false
	}
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "api-key") || slices.Contains(credentialWords, name[strings.LastIndexByte(name, '-')+1:])
}

// own puts into the question what a request carries to prove by. Cookies that no host
// has given this box are taken out where policy does not let it have some of its own:
// clients keep them for years, and a host does without.
func (g *Gateway) own(c *gateway.Caller, r *http.Request, to gateway.Target, req *gateway.Request) {
	found := credentials(r)
	if len(found) > 0 && r.URL.RawQuery != "" {
		req.Fields["query"] = "not kept: the request carries a credential"
	}
	jar := g.jars.of(c)
	if known, foreign := jar.sort(to.Host, r.Header["Cookie"]); foreign {
		with := req.Query
		with.Credential = true
		if c.Policy.Decide(with).Verdict == cofferdam.Allowed {
			found = append(found, "header Cookie")
		} else {
			r.Header.Del("Cookie")
			if len(known) > 0 {
				r.Header.Set("Cookie", strings.Join(known, "; "))
			}
			req.Fields["removed"] = "header Cookie"
		}
	}
	if len(found) > 0 {
		req.Query.Credential = true
		req.Fields[cofferdam.FieldCredential] = gateway.Clip(strings.Join(found, ", "))
	}
}

// maxCookies is how many cookies of hosts are remembered for one session.
const maxCookies = 4096

// jar knows the cookies that hosts have given a session, by their digests. What a host
// gave may go back to it, and to hosts below the same two labels.
type jar struct {
	mu    sync.Mutex
	given map[[32]byte]bool // at most maxCookies; guarded by mu
}

func cookieKey(host cofferdam.Host, name, value string) [32]byte {
	labels := strings.Split(string(host), ".")
	site := strings.Join(labels[max(0, len(labels)-2):], ".")
	return sha256.Sum256([]byte(site + "\x00" + name + "\x00" + strings.Trim(value, `"`)))
}

// take remembers the cookies of an answer.
func (j *jar) take(host cofferdam.Host, answer *http.Response) {
	for _, c := range answer.Cookies() {
		j.mu.Lock()
		if len(j.given) < maxCookies {
			j.given[cookieKey(host, c.Name, c.Value)] = true
		}
		j.mu.Unlock()
	}
}

// sort returns the cookies among lines of a header that the host has given, and
// whether there is anything else.
func (j *jar) sort(host cofferdam.Host, lines []string) (known []string, foreign bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range lines {
		for piece := range strings.SplitSeq(line, ";") {
			piece = strings.TrimSpace(piece)
			name, value, _ := strings.Cut(piece, "=")
			if j.given[cookieKey(host, name, value)] {
				known = append(known, piece)
			} else {
				foreign = foreign || piece != ""
			}
		}
	}
	return known, foreign
}

// jars are those of all sessions.
type jars struct {
	mu   sync.Mutex
	open map[cofferdam.SessionID]*jar // guarded by mu; gone with the session
}

// of returns the jar of a caller.
func (j *jars) of(c *gateway.Caller) *jar {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.open[c.Session] == nil {
		if j.open == nil {
			j.open = map[cofferdam.SessionID]*jar{}
		}
		j.open[c.Session] = &jar{given: map[[32]byte]bool{}}
		context.AfterFunc(c.Live, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			delete(j.open, c.Session)
		})
	}
	return j.open[c.Session]
}
