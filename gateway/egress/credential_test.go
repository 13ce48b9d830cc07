package egress_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"cofferdam"
)

// TestCredentialsOfTheBox: what a box has itself to prove by goes nowhere, unless an
// entry says so of the host: somebody's account on an allowed host is a way out.
func TestCredentialsOfTheBox(t *testing.T) {
	l := newLab(t, "good.test", "credentials:other.test")
	const canary = "canary-of-somebody-else"
	for _, c := range []struct {
		method, target, header, where string
	}{
		{"GET", "/", "", ""}, // controls: what looks alike and proves nothing
		{"GET", "/?key=a-word&token=7&next_token=0123456789abcdef0123456789", "", ""},
		{"GET", "/?X-Amz-Signature=" + canary, "", ""},
		{"GET", "/", "Npm-Auth-Type: web", ""},
		{"GET", "/", "X-Csrf-Token: " + canary, ""},
		{"GET", "/", "Idempotency-Key: " + canary, ""},
		{"GET", "/", "Authorization: Bearer " + canary, "header Authorization"},
		{"GET", "/", "authorization: Basic " + canary, "header Authorization"},
		{"POST", "/", "x-api-key: " + canary, "header X-Api-Key"},
		{"GET", "/", "X-Goog-Api-Key: " + canary, "header X-Goog-Api-Key"},
		{"GET", "/", "PRIVATE-TOKEN: " + canary, "header Private-Token"},
		{"GET", "/", "X-Auth-Key: " + canary, "header X-Auth-Key"},
		{"GET", "/?a=b&api_key=" + canary, "", "parameter api_key"},
		{"GET", "/?ACCESS%5Ftoken=" + canary, "", "parameter access_token"},
		{"GET", "/?a;key=" + canary, "", "parameter key"},
		{"PUT", "/?X-Amz-Signature=" + canary, "", "parameter x-amz-signature"},
	} {
		for _, host := range []string{"good.test", "other.test"} {
			before := len(l.reached())
			r, err := http.NewRequest(c.method, "http://"+host+c.target, nil)
			if err != nil {
				t.Fatal(err)
			}
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				r.Header[name] = []string{value}
			}
			status, body := l.do(t, r)
			refused := c.where != "" && host == "good.test"
			if refused != (status == http.StatusForbidden) || refused == (len(l.reached()) > before) {
				t.Errorf("%s %s%s %q: %d %s", c.method, host, c.target, c.header, status, body)
			}
			if refused && (!strings.Contains(body, "credentials:good.test") || strings.Contains(body, canary)) {
				t.Errorf("%s %q: the hint does not say what helps, or says too much: %s", c.target, c.header, body)
			}
			e := l.record.Find(cofferdam.EventRequest)
			last := e[len(e)-1]
			if !refused {
				last = e[len(e)-2] // before its outcome
			}
			if c.where != "" && last.Fields["credential"] != c.where {
				t.Errorf("%s%s %q: the record says %q", host, c.target, c.header, last.Fields)
			}
			if text := fmt.Sprint(last); c.where != "" && strings.Contains(text, canary) {
				t.Errorf("%s%s %q: the record has the credential: %s", host, c.target, c.header, text)
			}
		}
	}
}

// do sends a request from the box.
func (l *lab) do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Dial: func(_, _ string) (net.Conn, error) { return l.box.DialName(r.URL.Hostname(), 80) }}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestCookies: what a host gave goes back to it, and to hosts of its site; all else is
// taken out, unless an entry lets the box have credentials of its own there.
func TestCookies(t *testing.T) {
	l := newLab(t, "good.test", "below.good.test", "credentials:other.test")
	get := func(host string, cookies ...string) string {
		t.Helper()
		r, err := http.NewRequest("GET", "http://"+host+"/cookie", nil)
		if err != nil {
			t.Fatal(err)
		}
		if cookies != nil {
			r.Header["Cookie"] = cookies
		}
		status, body := l.do(t, r)
		if status != http.StatusOK {
			t.Fatalf("%s %q: %d %s", host, cookies, status, body)
		}
		return strings.TrimSpace(body)
	}
	for _, c := range []struct {
		host    string
		cookies []string
		want    string
	}{
		{"good.test", []string{"sid=given"}, `cookies []`}, // not yet: the answer gives it
		{"good.test", []string{"sid=given"}, `cookies ["sid=given"]`},
		{"good.test", []string{"sid=given; theirs=canary", "sid=other"}, `cookies ["sid=given"]`},
		{"good.test", []string{"canary", "; =canary;"}, `cookies []`},
		{"below.good.test", []string{"sid=given"}, `cookies ["sid=given"]`},
		{"other.test", []string{"sid=canary"}, `cookies ["sid=canary"]`},
	} {
		if got := get(c.host, c.cookies...); got != c.want {
			t.Errorf("%s %q: the host saw %s, want %s", c.host, c.cookies, got, c.want)
		}
	}
	removed := 0
	for _, e := range l.record.Find(cofferdam.EventRequest) {
		if e.Fields["removed"] == "header Cookie" {
			removed++
		}
	}
	if removed != 3 {
		t.Errorf("the record says of %d requests that a cookie was taken out", removed)
	}
}
