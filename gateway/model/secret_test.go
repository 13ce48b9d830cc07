package model_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// TestTheUseOfACredentialIsAskedAbout: policy can deny the key of a call that it lets
// through, or have a person asked; the provider then gets nothing, and the record
// says why. Of each registration that is tried its own key is asked about.
func TestTheUseOfACredentialIsAskedAbout(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		people       *people
		status       int
		rule         string
	}{
		{"no policy", "", nil, 200, "use-own-credentials"},
		{"another key", "[secret]\ndeny = [\"model:other\", \"repo:*\"]\n", nil, 200, "use-own-credentials"},
		{"denied", "[secret]\ndeny = [\"model:provider\"]\n", nil, 403, "project.secret.deny-1"},
		{"asked, allowed", "[secret]\nask = [\"model:*\"]\n", &people{}, 200, "project.secret.ask-1"},
		{"asked, refused", "[secret]\nask = [\"model:*\"]\n", &people{no: &cofferdam.Error{Kind: cofferdam.Denied, Reason: "no"}}, 403, "not-allowed"},
		{"asked, nobody there", "[secret]\nask = [\"model:*\"]\n", nil, 403, "nobody-to-ask"},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys := 0
			upstream, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Api-Key") == realKey {
					keys++
				}
				io.WriteString(w, `{"type":"message","usage":{"input_tokens":1,"output_tokens":1}}`)
			})
			b := start(t, upstream.URL, true)
			d, err := policy.ParseDocument(policy.ProjectName, []byte(c.policy), nil)
			if err != nil {
				t.Fatal(err)
			}
			set, err := policy.New(policy.Grant{Model: "provider", Project: &d})
			if err != nil {
				t.Fatal(err)
			}
			b.caller.Policy = gateway.NewRules(set)
			if c.people != nil {
				b.caller.Ask = c.people
			}
			resp, body := b.post(t, "/v1/messages", fmt.Sprintf(question, false))
			if resp.StatusCode != c.status || keys != map[int]int{200: 1}[c.status] {
				t.Fatalf("%d %s, and the provider got %d keys", resp.StatusCode, body, keys)
			}
			events := b.keys.Events()
			last := events[len(events)-1]
			if c.status == 200 {
				if last.Of == nil || last.Outcome != gateway.OK {
					t.Errorf("outcome: %+v", last)
				}
				last = events[len(events)-2]
			}
			if last.Resource != "model:provider" || last.Rule != c.rule {
				t.Errorf("on record: %+v, want rule %s", last, c.rule)
			}
			if call := b.record.Wait(t, 2); c.status != 200 && (call[1].Outcome != gateway.Failed || call[1].Reason == "") {
				t.Errorf("the call's outcome: %+v", call[1])
			}
			for _, e := range append(events, b.record.Events()...) {
				if strings.Contains(fmt.Sprint(e), realKey) {
					t.Error("the key is on record")
				}
			}
		})
	}
}
