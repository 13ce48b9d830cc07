package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/agent/rehearsal"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/model"
	"cofferdam/policy"
)

// turns is a task in two runs of an agent: the second goes on in the
// conversation of the first.
const turns = "key " + realKey + `
serves right-model

asked and now the rest
turn 4
say I go on.
| cofferdam: blocked: a person must look

turn 3
say It is there.

turn 2
write made.txt
| one
| two
bash cat made.txt

turn 1
say I look.
bash printf old >made.txt; ls
`

// TestOpencodeAndGemini runs the pinned version in each of its protocols, and Gemini CLI
// in its own.
func TestOpencodeAndGemini(t *testing.T) {
	for _, name := range []string{"opencode", "gemini"} {
		soak(t)
		dir, a := installed(t, name)
		for _, provider := range a.Providers {
			t.Run(name+"/"+provider, func(t *testing.T) { twoRuns(t, a, provider, "", dir) })
		}
	}
}

// TestGeminiJoinsURLs is BR-12: Gemini CLI with the base URLs that people give
// it. The rehearsal wants its signatures back as it gave them.
func TestGeminiJoinsURLs(t *testing.T) {
	soak(t)
	dir, a := installed(t, "gemini")
	for _, suffix := range []string{"/", "/v1beta", "/v1beta/"} {
		t.Run(suffix, func(t *testing.T) { twoRuns(t, a, "gemini", suffix, dir) })
	}
}

// soak skips what takes long.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("takes long: make soak runs it, or COFFERDAM_SOAK=1")
	}
}

// twoRuns plays turns with an agent, through the model gateway, whose URL it is
// given with the suffix.
func twoRuns(t *testing.T, a agent.Adapter, provider, suffix, dir string) {
	script, err := rehearsal.Parse(strings.NewReader(turns))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(script.Handler())
	t.Cleanup(server.Close)
	caller, record, _ := gatewaytest.NewCaller(t, policy.Grant{Model: "rehearsal"})
	caller.Model = cofferdam.Model{Name: "rehearsal", Provider: provider, URL: server.URL, Rehearsal: true}
	g := model.New(model.Options{Dialer: &gateway.Dialer{}, Attach: func(_ context.Context, m cofferdam.Model, h http.Header) error {
		name, form, _ := model.KeyHeader(m.Provider)
		h.Set(name, fmt.Sprintf(form, realKey))
		return nil
	}})
	in := agent.Input{
		Text: "make the file made.txt", Branch: "cofferdam/t-1-1", EnvDir: filepath.Join(dir, "env"), Home: filepath.Join(dir, "home"),
		ModelURL: "http://" + gatewaytest.Serve(t, g, caller, gateway.Target{Host: gateway.ModelHost, Port: 80}) + suffix,
		Provider: provider, Model: "right-model",
	}
	seen, end := run(t, a, in, dir)
	if end.Said != cofferdam.SaidDone || end.Message != "It is there." || end.Failed || end.Skipped != 0 || end.Conversation == "" {
		t.Errorf("end %+v", end)
	}
	for _, want := range []agent.Kind{agent.Begin, agent.Message, agent.Tool, agent.Answer, agent.Change, agent.Cost} {
		if !strings.Contains(seen, string(want)+" ") {
			t.Errorf("no event %s in %s", want, seen)
		}
	}
	made, err := os.ReadFile(filepath.Join(dir, "work", "made.txt"))
	if err != nil || strings.TrimSpace(string(made)) != "one\ntwo" {
		t.Errorf("the tool did not run: %q %v", made, err)
	}
	in.Conversation, in.Message = end.Conversation, "and now the rest"
	if _, end := run(t, a, in, dir); end.Said != cofferdam.SaidBlocked || end.Message != "a person must look" || end.Conversation != in.Conversation {
		t.Errorf("the second run does not go on: %+v", end)
	}
	for _, e := range record.Events() {
		if e.Outcome != "" && e.Outcome != gateway.OK {
			t.Errorf("a call went wrong: %+v", e)
		}
	}
}
