package approval

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cofferdam"
)

// Headers of a message that is signed, ours and those of systems outside. Source:
// the Standard Webhooks specification. A notice's signature is "v1," and the
// HMAC-SHA256 in base64, under the secret, of id, time and body with dots between;
// while one secret replaces another there are two, with a blank between.
const (
	HeaderID        = "webhook-id"        // the same for every try of one notice
	HeaderTimestamp = "webhook-timestamp" // seconds since 1970, of this try
	HeaderSignature = "webhook-signature"
)

// Bounds of notices. Source: docs/SPECIFICATION.md, "Approvals".
const (
	noticeTries   = 5
	noticePause   = time.Second // doubled each time
	noticeTimeout = 10 * time.Second
	maxNotices    = 256 // that wait; more are dropped, of who has most, and the log says so
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
	sign   Signer
	client *http.Client
	log    *slog.Logger
	queue  *notices
	pause  func(context.Context, time.Duration)
}

// Signer returns the HMAC-SHA256 of a message under each secret that counts: one, or
// two while one replaces the other.
type Signer func(ctx context.Context, message []byte) ([][]byte, error)

// NewWebhook returns a Webhook to a URL. A redirect is not followed: what is told is
// for this address alone.
func NewWebhook(url string, sign Signer, log *slog.Logger) *Webhook {
	return &Webhook{
		url: url, sign: sign, log: log, queue: newNotices(), pause: pause,
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
	q.Bytes = nil // 64 KiB of each that waits
	if dropped := w.queue.add(q); dropped != "" {
		w.log.Warn("a notice of a question is dropped: too many wait", slog.String("question", string(dropped)))
	}
}

// Run sends notices, those of one organisation in order, until ctx ends.
func (w *Webhook) Run(ctx context.Context) {
	for {
		q, ok := w.queue.next(ctx)
		if !ok || ctx.Err() != nil {
			return
		}
		w.deliver(ctx, q)
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
		status, err := w.send(ctx, body, string(q.ID)+"_"+string(q.State)+"_"+strconv.Itoa(len(q.Answers)))
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
	signatures, err := w.sign(ctx, append([]byte(delivery+"."+at+"."), body...))
	if err != nil {
		return 0, err
	}
	var text []string
	for _, s := range signatures {
		text = append(text, "v1,"+base64.StdEncoding.EncodeToString(s))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderID, delivery)
	req.Header.Set(HeaderTimestamp, at)
	req.Header.Set(HeaderSignature, strings.Join(text, " "))
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // nothing of it is read
	return resp.StatusCode, nil
}
