package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"cofferdam"
)

// Headers of a notice. The signature is "v1=" and the hexadecimal HMAC-SHA256
// under the secret of the timestamp, a dot and the body.
const (
	HeaderTimestamp = "Cofferdam-Timestamp" // seconds since 1970, of this try
	HeaderSignature = "Cofferdam-Signature"
	HeaderDelivery  = "Cofferdam-Delivery" // the same for every try of one notice
)

// Bounds of notices. Source: docs/SPECIFICATION.md, "Approvals".
const (
	noticeTries   = 5
	noticePause   = time.Second // doubled each time
	noticeTimeout = 10 * time.Second
	maxNotices    = 256 // that wait; more are dropped, and the log says so
)

// Notice tells a program outside that a question was asked, answered or ended. It
// has no bytes of the act: who is to look at them asks the API for them.
type Notice struct {
	Schema   string             `json:"schema"` // cofferdam/approval-notice/v1
	Question cofferdam.Question `json:"question"`
}

// Webhook sends notices to one address. It tells; it takes no answer: what an
// address answers decides nothing.
type Webhook struct {
	url    string
	secret []byte
	client *http.Client
	log    *slog.Logger
	queue  chan cofferdam.Question
	pause  func(context.Context, time.Duration)
}

// NewWebhook returns a Webhook to a URL, with a secret of 32 bytes or more. A
// redirect is not followed: what is told is for this address alone.
func NewWebhook(url string, secret []byte, log *slog.Logger) *Webhook {
	return &Webhook{
		url: url, secret: secret, log: log, queue: make(chan cofferdam.Question, maxNotices), pause: pause,
		client: &http.Client{Timeout: noticeTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Told takes a notice and returns at once; see Options.Told.
func (w *Webhook) Told(q cofferdam.Question) {
	select {
	case w.queue <- q:
	default:
		w.log.Warn("a notice of a question is dropped: too many wait", slog.String("question", string(q.ID)))
	}
}

// Run sends notices, in order, until ctx ends.
func (w *Webhook) Run(ctx context.Context) {
	for {
		select {
		case q := <-w.queue:
			w.deliver(ctx, q)
		case <-ctx.Done():
			return
		}
	}
}

// deliver tries to send one notice, a few times.
func (w *Webhook) deliver(ctx context.Context, q cofferdam.Question) {
	q.Bytes = nil
	body, err := json.Marshal(Notice{"cofferdam/approval-notice/v1", q})
	if err != nil {
		w.log.WarnContext(ctx, "a notice cannot be written", slog.Any("error", err))
		return
	}
	wait := noticePause
	for n := 1; ; n++ {
		status, err := w.send(ctx, body, string(q.ID)+" "+string(q.State)+" "+strconv.Itoa(len(q.Answers)))
		if err == nil && status < 300 {
			return
		}
		final := err == nil && status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
		if final || n == noticeTries || ctx.Err() != nil {
			w.log.WarnContext(ctx, "a notice of a question did not arrive", slog.String("question", string(q.ID)), slog.Int("tries", n), slog.Int("status", status), slog.Any("error", err))
			return
		}
		w.pause(ctx, wait)
		wait *= 2
	}
}

func (w *Webhook) send(ctx context.Context, body []byte, delivery string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderTimestamp, at)
	req.Header.Set(HeaderSignature, Sign(w.secret, at, body))
	req.Header.Set(HeaderDelivery, delivery)
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // nothing of it is read
	return resp.StatusCode, nil
}

// Sign returns the signature of a notice.
func Sign(secret []byte, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(timestamp + "."))
	h.Write(body)
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}
