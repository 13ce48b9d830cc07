package scripttest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/identity/identitytest"
)

// cmdProvider starts a real provider of OpenID Connect on loopback; NAME is its issuer.
// "provider NAME says CLAIM VALUE" has it say something else than the truth from then
// on, signed by its own key; without a value it does not say it, and "truth" is the truth.
func cmdProvider(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) >= 3 && args[1] == "says", "provider NAME [says CLAIM [VALUE]|truth]")
	b := of(ts)
	if len(args) == 1 {
		b.provider = identitytest.NewProvider(ts)
		b.labs[args[0]] = &lab{stop: b.provider.Close}
		ts.Setenv(args[0], b.provider.URL)
		return
	}
	b.provider.Forge = func(p *identitytest.Provider, claims map[string]any) string {
		delete(claims, args[2])
		if len(args) > 3 {
			claims[args[2]] = args[3]
		}
		return p.Sign(claims)
	}
	if args[2] == "truth" {
		b.provider.Forge = nil
	}
}

// cmdBrowser is cmdPerson with a browser: whoever WHO is follows the address that is
// printed. id1 and id2 are people of the provider; "id1 state" comes back with another
// state, and any other name has a passkey of its own, "NAME ORIGIN" on a page elsewhere.
func cmdBrowser(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: [!] browser WHO TEXT ARGS...")
	}
	who, apart, _ := strings.Cut(args[0], " ")
	b := &browser{ts: ts, who: who, apart: apart, seen: map[string]bool{}}
	person(ts, neg, args[1], args[2:], b.look)
}

// browser follows addresses.
type browser struct {
	ts         *testscript.TestScript
	who, apart string
	seen       map[string]bool
}

// An address as the commands print one, and the code of a sign-in without a browser.
var (
	address    = regexp.MustCompile(`(?m)^\s+(https?://\S+)\r?$`)
	deviceCode = regexp.MustCompile(`(?m)^and give it the code\r?\n\s+(\S+)\r?$`)
)

// look follows what is new in what was shown.
func (b *browser) look(shown string) {
	for _, m := range address.FindAllStringSubmatch(shown, -1) {
		at := m[1]
		u, err := url.Parse(at)
		b.ts.Check(err)
		code := deviceCode.FindStringSubmatch(shown)
		if b.seen[at] || strings.HasSuffix(u.Path, "/device") && code == nil {
			continue
		}
		b.seen[at] = true
		switch {
		case u.Path == identity.PagePath:
			b.passkey(u)
		case code != nil:
			b.ts.Check(of(b.ts).provider.Store.CompleteDeviceAuthorization(context.Background(), code[1], b.who))
		default:
			b.signIn(at)
		}
	}
}

// signIn signs in at the provider and comes back to the command.
func (b *browser) signIn(at string) {
	back := of(b.ts).provider.Authorize(b.ts, at, b.who)
	if b.apart == "state" {
		q := back.Query()
		q.Set("state", "of-somebody-else")
		back.RawQuery = q.Encode()
	}
	web := &http.Client{Timeout: time.Minute}
	resp, err := web.Get(back.String())
	b.ts.Check(err)
	resp.Body.Close()
}

// passkey shows the page of an errand and has the authenticator answer.
func (b *browser) passkey(at *url.URL) {
	origin := at.Scheme + "://" + at.Host
	keys := of(b.ts).passkeys
	if keys[b.who] == nil {
		keys[b.who] = identitytest.NewAuthenticator(b.ts, at.Hostname(), origin)
	}
	key := keys[b.who]
	if key.Origin = origin; b.apart != "" {
		key.Origin = b.apart
	}
	var page cofferdam.PasskeyPage
	b.ts.Check(json.Unmarshal(b.post(at, "", cofferdam.PasskeyTicket{Ticket: at.Fragment}), &page))
	fmt.Fprintf(b.ts.Stdout(), "the page shows: %s\n", page.What)
	answer := key.Sign
	if page.Kind == "create" {
		answer = key.Register
	}
	b.post(at, "/answer", cofferdam.PasskeyAnswer{Ticket: at.Fragment, Answer: answer(b.ts, page.Options)})
}

// post sends what the page's script would, to the server by its socket.
func (b *browser) post(at *url.URL, below string, body any) []byte {
	text, err := json.Marshal(body)
	b.ts.Check(err)
	r, err := http.NewRequest("POST", at.Scheme+"://"+at.Host+at.Path+below, bytes.NewReader(text))
	b.ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", at.Scheme+"://"+at.Host)
	web := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(b.ts.Getenv("COFFERDAM_SERVER"), "unix:"))
	}}}
	resp, err := web.Do(r)
	b.ts.Check(err)
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	b.ts.Check(err)
	if resp.StatusCode >= 300 {
		b.ts.Fatalf("%s%s: %s: %s", at.Path, below, resp.Status, out)
	}
	return out
}

// cmdUnseal puts the secret of the application for codes into the database of a server
// that is down, as servers before vaults had them.
func cmdUnseal(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "unseal")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(of(ts).state, "cofferdam.db")+"?mode=rw&_pragma=busy_timeout(10000)")
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(`UPDATE factor SET data = ? WHERE kind = 'totp'`, []byte(ts.ReadFile("application")))
	ts.Check(err)
}
