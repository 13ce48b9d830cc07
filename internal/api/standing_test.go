package api_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

// stream follows path by token; lines come as they are sent.
func (b *both) stream(t *testing.T, address, token, path string) *bufio.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Cofferdam-Project", "default")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return bufio.NewReader(resp.Body)
}

// TestStreamsEndWithTheirCaller: whose token is revoked, who has left, or whose
// account is closed, hears no more of a stream that they began before.
func TestStreamsEndWithTheirCaller(t *testing.T) {
	b := newBoth(t)
	b.fill(t)
	srv := httptest.NewServer(b.h)
	t.Cleanup(srv.Close)
	path, session := "/v1/traces/"+b.theirs.session+"/follow", cofferdam.SessionID(b.theirs.session)
	emit := func(what string) { b.m.Emit(session, cofferdam.Event{Kind: "test", Resource: what}) }
	b.m.AddSession(cofferdam.Session{ID: session, Scope: b.a})
	emit("first")
	stays := b.stream(t, srv.URL, b.tokA, path)
	ends := map[string]*bufio.Reader{}
	end := map[string]func(who identity.Caller, token identity.Token) error{
		"revoked": func(_ identity.Caller, k identity.Token) error {
			return b.st.RevokeToken(t.Context(), b.a.Organization, k.ID, time.Now())
		},
		"without a role": func(who identity.Caller, _ identity.Token) error {
			return b.st.SetMembership(t.Context(), b.a.Organization, identity.Membership{Member: who.Member})
		},
		"closed": func(who identity.Caller, _ identity.Token) error {
			return b.st.DisablePerson(t.Context(), b.a.Organization, cofferdam.PersonID(who.Member), time.Now())
		},
	}
	over := map[string]func() error{}
	for name, do := range end {
		who, err := b.people.Local(t.Context(), b.a.Organization, strings.ReplaceAll(name, " ", "-"))
		if err != nil {
			t.Fatal(err)
		}
		k, text, err := b.people.Issue(t.Context(), identity.Token{Organization: b.a.Organization, Holder: who.Principal, Member: who.Member, Most: identity.Viewer}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		ends[name], over[name] = b.stream(t, srv.URL, text, path), func() error { return do(who, k) }
	}
	for name, r := range ends {
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "first") {
			t.Fatalf("%s, before: %q %v", name, line, err)
		}
		if err := over[name](); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // as long as a look at the caller is good for, and longer
	emit("canary")
	for name, r := range ends {
		if line, err := r.ReadString('\n'); err != nil || strings.Contains(line, "canary") || !strings.Contains(line, "problem") {
			t.Errorf("%s, after: %q %v", name, line, err)
		}
		if line, err := r.ReadString('\n'); err == nil {
			t.Errorf("%s, and after that: %q", name, line)
		}
	}
	for _, want := range []string{"first", "canary"} { // who still counts hears all of it
		if line, err := stays.ReadString('\n'); err != nil || !strings.Contains(line, want) {
			t.Errorf("whoever stays: %q %v", line, err)
		}
	}
}
