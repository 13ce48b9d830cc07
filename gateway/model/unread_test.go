package model_test

import (
	"net/http"
	"strings"
	"testing"

	"cofferdam"
)

// TestRefusedBeforeJudgementIsOnRecord: asking for what the gateway has not, and
// what it cannot read, is on record and counts like any other act.
func TestRefusedBeforeJudgementIsOnRecord(t *testing.T) {
	server, seen := provider(t, func(http.ResponseWriter, *http.Request) {})
	for name, c := range map[string]struct {
		path, body string
		status     int
	}{
		"another endpoint": {"/v1/messages/batches", `{}`, 404},
		"a file":           {"/v1/files", `{}`, 404},
		"no JSON":          {"/v1/messages", `{"a":1`, 400},
		"a key twice":      {"/v1/messages", `{"a":1,"a":2}`, 400},
		"hidden counts":    {"/v1/messages?fields=x", `{}`, 400},
		"deep":             {"/v1/messages", strings.Repeat("[", 300), 400},
	} {
		b := start(t, server.URL, true)
		resp, body := b.post(t, c.path, c.body)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
		events := b.record.Events()
		if len(events) != 1 || events[0].Verdict != cofferdam.Refused || events[0].Reason == "" || b.caller.Counts.Acts.Load() != 1 || b.caller.Counts.Refused.Load() != 1 {
			t.Errorf("%s: on record: %+v", name, events)
		}
	}
	if len(*seen) != 0 {
		t.Errorf("%d requests left", len(*seen))
	}
}
