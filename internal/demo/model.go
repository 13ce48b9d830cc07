package demo

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"cofferdam"
	"cofferdam/agent/rehearsal"
)

// Models of a play: a script, or the provider's.
const (
	Rehearsal = "rehearsal"
	Real      = "real"
)

// agents are the agents that the demo plays, with the protocols that each may
// speak, the preferred one first, and whether it is installed from npm.
var agents = map[string]struct {
	providers []string
	npm       bool
}{
	"loop":     {[]string{"anthropic", "openai", "gemini"}, false},
	"command":  {nil, false},
	"claude":   {[]string{"anthropic"}, true},
	"codex":    {[]string{"openai"}, true},
	"opencode": {[]string{"anthropic", "openai", "gemini"}, true},
	"gemini":   {[]string{"gemini"}, true},
}

// variables have the key of each provider.
var variables = map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}

// limits bound what a play with a real model may spend.
var limits = cofferdam.Budget{Tokens: 2_000_000, Calls: 60}

// cast checks who plays, and takes the key out of the environment: it is read
// once, and what the demo starts never has it.
func (s *story) cast() error {
	a, ok := agents[s.Agent]
	if !ok {
		return bad("agent "+s.Agent, "the demo plays loop, command, claude, codex, opencode and gemini", "make demo AGENT=loop")
	}
	switch {
	case s.Model == Rehearsal && len(a.providers) > 0:
		s.provider, s.key = a.providers[0], random()
	case s.Model == Rehearsal:
		s.key = random() // nobody has it
	case s.Model != Real:
		return bad("model "+s.Model, "the demo plays with the models rehearsal and real", "make demo MODEL=rehearsal")
	case len(a.providers) == 0:
		return bad("model real", "the agent "+s.Agent+" asks no model", "make demo AGENT=loop MODEL=real")
	}
	var names []string
	for _, p := range a.providers {
		names = append(names, variables[p])
		key := strings.TrimSpace(os.Getenv(variables[p]))
		if s.Model == Real && s.key == "" && key != "" {
			s.provider, s.key = p, key
		}
	}
	for _, name := range variables {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	if s.key == "" {
		return bad("model real", "no key for the agent "+s.Agent+" is in the environment", "set "+strings.Join(names, " or ")+"; make demo without MODEL=real plays a script")
	}
	return nil
}

func bad(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "demo.Run", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// addModel registers the model with its key, which the vault seals. A rehearsal
// is started first, and labelled as such.
func (s *story) addModel(ctx context.Context) error {
	if s.provider == "" {
		return nil
	}
	r := cofferdam.ModelRequest{Name: s.Model, Provider: s.provider, URL: s.url, Key: cofferdam.Sensitive(s.key)}
	if s.Model == Rehearsal {
		var err error
		if r.URL, err = s.rehearse(ctx); err != nil {
			return err
		}
		r.Rehearsal = true
	}
	_, err := s.person.AddModel(ctx, r)
	return err
}

// rehearse serves the script that misbehaves, and returns where.
func (s *story) rehearse(ctx context.Context) (string, error) {
	text, err := s.rehearsal()
	if err != nil {
		return "", err
	}
	script, err := rehearsal.Parse(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	serving, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rehearsal.Serve(serving, l, script) // the task fails if it does
	}()
	s.stops = append(s.stops, func() { stop(); <-done })
	u := url.URL{Scheme: "http", Host: l.Addr().String()}
	return u.String(), nil
}

// rehearsal is what the scripted model says: the same misdeeds, as tool calls.
func (s *story) rehearsal() (string, error) {
	text, err := s.agent()
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return fmt.Sprintf("key %s\nturn 1\nsay I will do what the notes say.\nbash %s\n", s.key, strings.Join(lines, "\n| ")) +
		"turn 2\nsay The discount is given from exactly 10,000 cents on, and the change is committed.\n", nil
}
