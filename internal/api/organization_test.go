package api_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
)

// Who runs the server makes organisations; an owner of the server's own, by a token
// of theirs, does not, and neither does the owner of another. Its owner is invited,
// again for as long as they have chosen nothing, and is in no other.
func TestOrganizations(t *testing.T) {
	b := newBoth(t)
	const runs = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	o := b.m.Options(b.a)
	o.People, o.Accounts, o.Projects, o.Repos = b.people, b.people, b.seen, b.seen
	b.h = api.New(service.New(o), api.Options{Log: slog.New(slog.DiscardHandler), Auth: api.Auth{UID: os.Getuid(), Name: "ada", Token: runs}})
	body := func(name, owner string) string {
		return `{"name":"` + name + `","owner":"` + owner + `",` + proofText + `}`
	}
	for name, token := range map[string]string{"an owner's token": b.tokA, "another's owner's": b.tokB} {
		for _, r := range [][3]string{{"GET", "/v1/organizations", ""}, {"POST", "/v1/organizations", body("acme", "eve")}} {
			if code, text := b.call(t, token, r[0], r[1], r[2]); code != 403 || strings.Contains(text, "rival") {
				t.Errorf("%s: %s %d %s", name, r[0], code, text)
			}
		}
	}
	for what, bad := range map[string]string{
		"no name": body("", "eve"), "no owner": body("acme", ""), "like an id": body("o-0123456789", "eve"), "a capital": body("Acme", "eve"), "long": body(strings.Repeat("a", 64), "eve"),
		"owner like an id": body("acme", "u-0123456789"),
	} {
		if code, text := b.call(t, runs, "POST", "/v1/organizations", bad); code != 400 {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
	if code, text := b.call(t, runs, "POST", "/v1/organizations", `{"name":"acme","owner":"eve"}`); code != 403 {
		t.Errorf("without a proof: %d %s", code, text)
	}
	add := func(name, owner string) (int, cofferdam.OrganizationAdded) {
		t.Helper()
		var added cofferdam.OrganizationAdded
		code, text := b.call(t, runs, "POST", "/v1/organizations", body(name, owner))
		if code == 201 && json.Unmarshal([]byte(text), &added) != nil {
			t.Fatal(text)
		}
		return code, added
	}
	code, first := add("acme", "eve")
	again, second := add("acme", "eve")
	if code != 201 || again != 201 || first.Organization.ID != second.Organization.ID || first.Invitation == second.Invitation {
		t.Errorf("%d %v, %d %v", code, first, again, second)
	}
	// The invitation lets eve choose a password, and nothing else; then nobody is
	// invited in her name any more.
	eve, err := b.people.Bearer(t.Context(), second.Invitation)
	if err != nil || eve.Organization != first.Organization.ID || eve.Runs {
		t.Fatalf("%+v %v", eve, err)
	}
	none := func(r *http.Request) { r.Header.Del("Cofferdam-Project") }
	if code, text := b.call(t, second.Invitation, "GET", "/v1/repos", "", none); code != 403 {
		t.Errorf("an invitation lists repositories: %d %s", code, text)
	}
	if code, text := b.call(t, second.Invitation, "GET", "/v1/self", "", none); code != 200 || !strings.Contains(text, `"role":"owner"`) {
		t.Errorf("eve is not the owner: %d %s", code, text)
	}
	err = b.st.AddFactor(t.Context(), identity.Factor{ID: cofferdam.NewID("f"), Person: cofferdam.PersonID(eve.Member), Kind: identity.Password, Data: []byte("x"), Created: time.Now()}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"acme", "eve"}, {"acme", "mallory"}, {"default", "ada"}, {"default", "canary-ann"}} {
		if code, added := add(c[0], c[1]); code != 409 || added.Invitation != "" {
			t.Errorf("%v: %d %v", c, code, added)
		}
	}
	var list struct{ Items []cofferdam.Organization }
	if code, text := b.call(t, runs, "GET", "/v1/organizations", ""); code != 200 || json.Unmarshal([]byte(text), &list) != nil || len(list.Items) != 3 || list.Items[0].Name != "acme" || list.Items[2].Name != "rival" {
		t.Errorf("%d %s", code, text)
	}
}
