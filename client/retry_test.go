package client

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"cofferdam"
)

// TestRetryAfterComesBack: whoever calls learns when there is room again.
func TestRetryAfterComesBack(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(429)
		_, _ = w.Write([]byte(`{"kind":"exhausted","subject":"task","reason":"enough","hint":"try again","retry_after":90}`))
	})
	_, err := c.CreateTask(t.Context(), cofferdam.TaskRequest{})
	var e *cofferdam.Error
	if !errors.As(err, &e) || e.Kind != cofferdam.Exhausted || e.After != 90*time.Second {
		t.Errorf("%+v", err)
	}
}
