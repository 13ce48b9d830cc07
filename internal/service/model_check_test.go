package service

import (
	"strings"
	"testing"

	"cofferdam"
)

func TestModelsOfARegistration(t *testing.T) {
	s, m := world(t)
	add := func(r cofferdam.ModelRequest) (cofferdam.Model, error) {
		if !r.NoKey {
			r.Key = "sk-test-12345678"
		}
		return s.AddModel(as(alice), r)
	}
	for _, r := range []cofferdam.ModelRequest{
		{Name: "openai", Provider: "openai"},
		{Name: "gemini", Provider: "gemini"},
		{Name: "local", Provider: "openai", URL: "http://127.0.0.1:11434/v1", NoKey: true},
	} {
		v, err := add(r)
		if err != nil || v.URL == "" || (m.Secret(ModelSecret(v.ID)) == "") != r.NoKey || v.NoKey != r.NoKey {
			t.Fatalf("%+v: %+v %v", r, v, err)
		}
	}
	full := cofferdam.ModelRequest{
		Name: "work", Provider: "openai", Default: "small", Allow: []string{"gpt-5*", "org/own:8b"}, Alias: map[string]string{"small": "gpt-5-mini"},
		Fallback: []string{"local", "openai"}, KeepText: true,
	}
	for name, change := range map[string]func(*cofferdam.ModelRequest){
		"unknown fallback":     func(r *cofferdam.ModelRequest) { r.Fallback = []string{"nowhere"} },
		"fallback of another":  func(r *cofferdam.ModelRequest) { r.Fallback = []string{"gemini"} },
		"fallback twice":       func(r *cofferdam.ModelRequest) { r.Fallback = []string{"local", "local"} },
		"fallback to itself":   func(r *cofferdam.ModelRequest) { r.Fallback = []string{"work"} },
		"many fallbacks":       func(r *cofferdam.ModelRequest) { r.Fallback = strings.Fields(strings.Repeat("local ", maxFallbacks+1)) },
		"star in the middle":   func(r *cofferdam.ModelRequest) { r.Allow = []string{"gpt-*-mini"} },
		"two stars":            func(r *cofferdam.ModelRequest) { r.Allow = []string{"gpt-**"} },
		"empty pattern":        func(r *cofferdam.ModelRequest) { r.Allow = []string{""} },
		"space":                func(r *cofferdam.ModelRequest) { r.Allow = append(r.Allow, "gpt 5") },
		"quote":                func(r *cofferdam.ModelRequest) { r.Default = `gpt-5"` },
		"huge id":              func(r *cofferdam.ModelRequest) { r.Default = "gpt-5" + strings.Repeat("x", maxModelID) },
		"many allowed":         func(r *cofferdam.ModelRequest) { r.Allow = strings.Fields(strings.Repeat("gpt-5 ", maxModelIDs+1)) },
		"alias not allowed":    func(r *cofferdam.ModelRequest) { r.Alias = map[string]string{"small": "gpt-4"} },
		"alias of an alias":    func(r *cofferdam.ModelRequest) { r.Alias["tiny"] = "small" },
		"alias to itself":      func(r *cofferdam.ModelRequest) { r.Alias["gpt-5"] = "gpt-5" },
		"alias without target": func(r *cofferdam.ModelRequest) { r.Alias["x"] = "" },
		"default not allowed":  func(r *cofferdam.ModelRequest) { r.Default = "gpt-4" },
		"no key at its own":    func(r *cofferdam.ModelRequest) { r.NoKey = true },
	} {
		r := full
		r.Alias = map[string]string{"small": "gpt-5-mini"}
		r.Allow = append([]string{}, full.Allow...)
		change(&r)
		if _, err := add(r); cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := full
	r.NoKey, r.URL, r.Key = true, "http://127.0.0.1:1", "sk-test-12345678"
	if _, err := s.AddModel(as(alice), r); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a key where there is none: %v", err)
	}
	if v, err := add(full); err != nil || v.Default != "small" || !v.KeepText || len(v.Fallback) != 2 {
		t.Fatalf("%+v %v", v, err)
	}
	if err := s.RemoveModel(as(alice), "local"); cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "work falls back to it") {
		t.Errorf("removing a fallback: %v", err)
	}
	if err := s.RemoveModel(as(alice), "work"); err != nil {
		t.Error(err)
	}
	if err := s.RemoveModel(as(alice), "local"); err != nil { // it has no key to forget
		t.Error(err)
	}
}
