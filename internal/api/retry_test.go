package api_test

import (
	"testing"
	"time"

	"cofferdam"
)

// TestRetryAfter: a refusal that ends by itself says when, in whole seconds, and
// never too early; one that does not says nothing.
func TestRetryAfter(t *testing.T) {
	h, m := world(t)
	for after, want := range map[time.Duration]string{0: "", time.Second: "1", 1500 * time.Millisecond: "2", 40 * time.Minute: "2400"} {
		m.Fail = &cofferdam.Error{Op: "task.Create", Kind: cofferdam.Exhausted, Subject: "task", Reason: "enough", After: after}
		w, p := do(t, h, "GET", "/v1/tasks/t-1", "")
		if w.Code != 429 || w.Header().Get("Retry-After") != want || p.Kind != "exhausted" {
			t.Errorf("%s: %d, Retry-After %q, want %q", after, w.Code, w.Header().Get("Retry-After"), want)
		}
	}
}
