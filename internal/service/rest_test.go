package service

import (
	"strings"
	"testing"

	"cofferdam"
)

// TestTimeoutWithinTheLifetime: what could not be kept is refused before it
// begins, and so is a question that nobody could answer.
func TestTimeoutWithinTheLifetime(t *testing.T) {
	s, _ := world(t)
	s.Rest = cofferdam.Rest{Idle: 900, Lifetime: 7200}
	for name, c := range map[string]struct {
		change func(*cofferdam.TaskRequest)
		says   string
	}{
		"as long":          {func(r *cofferdam.TaskRequest) { r.Timeout = 7200 }, ""},
		"longer":           {func(r *cofferdam.TaskRequest) { r.Timeout = 7201 }, "maximum lifetime of a session, 7200"},
		"than its own":     {func(r *cofferdam.TaskRequest) { r.Timeout, r.Rest = 601, &cofferdam.Rest{Lifetime: 600} }, "maximum lifetime of a session, 600"},
		"out of range":     {func(r *cofferdam.TaskRequest) { r.Rest = &cofferdam.Rest{Idle: 1} }, "60 to 28800"},
		"idle above life":  {func(r *cofferdam.TaskRequest) { r.Rest = &cofferdam.Rest{Idle: 900, Lifetime: 600} }, "longer than the maximum lifetime"},
		"a deaf one asks":  {func(r *cofferdam.TaskRequest) { r.Ask = true }, "holds no conversation"},
		"asks and listens": {func(r *cofferdam.TaskRequest) { r.Ask, r.Agent, r.Command = true, "claude", "" }, "model"},
	} {
		r := request()
		c.change(&r)
		_, err := s.CreateTask(as(alice), r)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
