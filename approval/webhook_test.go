package approval

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// heard is one try as it arrived.
type heard struct {
	at, signature, delivery string
	body                    []byte
}

// hook sends notices to a server that answers one status after the other, and the
// last of them from then on.
func hook(t *testing.T, statuses ...int) (*Webhook, chan heard) {
	t.Helper()
	all := make(chan heard, 64)
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		status := statuses[min(n, len(statuses)-1)]
		n++
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		all <- heard{r.Header.Get(HeaderTimestamp), r.Header.Get(HeaderSignature), r.Header.Get(HeaderID), body}
	}))
	t.Cleanup(s.Close)
	w := NewWebhook(s.URL, func(_ context.Context, message []byte) (all [][]byte, err error) {
		for _, key := range []string{"k", "old"} {
			all = append(all, mac(key, message))
		}
		return all, nil
	}, slog.New(slog.DiscardHandler))
	w.pause = func(context.Context, time.Duration) {}
	return w, all
}

func mac(key string, message []byte) []byte {
	h := hmac.New(sha256.New, []byte(strings.Repeat(key, 32)))
	h.Write(message)
	return h.Sum(nil)
}

// TestNoticeIsSigned: a receiver that holds the secret, or the one before it, can
// tell that a notice is ours, which it is and when it was sent; it has no bytes of
// the act.
func TestNoticeIsSigned(t *testing.T) {
	w, all := hook(t, 200)
	w.deliver(t.Context(), cofferdam.Question{ID: "a-1", State: cofferdam.QuestionOpen, Resource: "POST x.test", Bytes: []byte("canary"), Size: 6})
	got := <-all
	message := []byte(got.delivery + "." + got.at + "." + string(got.body))
	enc := base64.StdEncoding
	if got.signature != "v1,"+enc.EncodeToString(mac("k", message))+" v1,"+enc.EncodeToString(mac("old", message)) || strings.Contains(got.delivery, ".") {
		t.Errorf("the signature of %q is %q", got.delivery, got.signature)
	}
	var n Notice
	if err := json.Unmarshal(got.body, &n); err != nil || n.Question.ID != "a-1" || n.Question.Size != 6 || len(n.Question.Bytes) != 0 {
		t.Errorf("%s: %v", got.body, err)
	}
	w.sign = func(context.Context, []byte) ([][]byte, error) { return nil, errors.New("no secret") }
	w.deliver(t.Context(), cofferdam.Question{ID: "a-1", State: cofferdam.QuestionOpen})
	if len(all) != 0 {
		t.Error("a notice was sent unsigned")
	}
}

// TestNoticeIsTriedAgain: a few times, by the same name, and not where trying
// again cannot help; a redirect is not followed.
func TestNoticeIsTriedAgain(t *testing.T) {
	for want, statuses := range map[int][]int{1: {204}, 3: {500, 503, 200}, noticeTries: {500}, 2: {429, 400}} {
		w, all := hook(t, statuses...)
		w.deliver(t.Context(), cofferdam.Question{ID: "a-1", State: cofferdam.QuestionOpen})
		if len(all) != want {
			t.Errorf("%v: %d tries, want %d", statuses, len(all), want)
		}
		for name := (<-all).delivery; len(all) > 0; {
			if again := (<-all).delivery; again != name {
				t.Errorf("%v: a try is called %q, the first %q", statuses, again, name)
			}
		}
	}
	w, all := hook(t, 302)
	w.deliver(t.Context(), cofferdam.Question{ID: "a-1"})
	if len(all) != 1 {
		t.Errorf("a redirect made %d requests", len(all))
	}
}

// TestNoticesWaitInBounds: whoever asks is never held up, however many wait.
func TestNoticesWaitInBounds(t *testing.T) {
	w, all := hook(t, 200)
	for range maxNotices + 50 {
		w.Told(cofferdam.Question{ID: "a-1"})
	}
	if n := len(w.queue.lines[0].list); n != maxNotices {
		t.Errorf("%d wait", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	for range maxNotices {
		<-all
	}
	cancel()
	<-ended
}
