package service

import (
	"strings"
	"testing"

	"cofferdam"
)

func TestAgents(t *testing.T) {
	s, _ := world(t)
	all, err := s.ListAgents(as(alice))
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v %v", all, err)
	}
	if a, err := s.Agent(as(alice), "loop"); err != nil || a.Place != "server" {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := s.Agent(as(alice), "eve"); cofferdam.KindOf(err) != cofferdam.NotFound || !strings.Contains(cofferdam.HintOf(err), "claude, command, loop") {
		t.Errorf("%v, hint %q", err, cofferdam.HintOf(err))
	}
}

// An agent gets a model of a protocol that it speaks, or a refusal before
// anything starts.
func TestAgentsAndModelsMatch(t *testing.T) {
	s, _ := world(t)
	ask := func(model string) (cofferdam.Task, error) {
		r := request()
		r.Agent, r.Command, r.Model = "claude", "", model
		return s.CreateTask(as(alice), r)
	}
	add := func(name, provider string) {
		if _, err := s.AddModel(as(alice), cofferdam.ModelRequest{Name: name, Provider: provider, Key: "sk-test-12345678"}); err != nil {
			t.Fatal(err)
		}
	}
	add("work", "openai")
	for _, model := range []string{"", "work"} {
		if _, err := ask(model); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "claude does not speak") || cofferdam.HintOf(err) == "" {
			t.Errorf("model %q: %v, hint %q", model, err, cofferdam.HintOf(err))
		}
	}
	add("home", "anthropic")
	if made, err := ask(""); err != nil || made.Request.Model != "home" {
		t.Errorf("%+v %v", made.Request, err)
	}
}
