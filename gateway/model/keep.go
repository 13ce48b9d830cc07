package model

import (
	"context"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"cofferdam"
)

// Bounds of the text that goes on record where a registration keeps it.
const (
	// maxKept is how much of one prompt or answer is kept; the rest is counted.
	maxKept = 1 << 20
	// keptPart is how much of it one event holds; whatever bytes it has, the
	// event then is not larger than an event may be.
	keptPart    = 128 << 10
	keepTimeout = 10 * time.Second
)

// keeps says whether text of a try goes on record: the registration says so, or
// the one that it stands in for.
func (x *exchange) keeps(m cofferdam.Model) bool {
	return (m.KeepText || x.caller.Model.KeepText) && spends(x.asked.Op)
}

// keepPrompt puts the text of a request on record, once, before it is sent.
func (x *exchange) keepPrompt(ctx context.Context, m cofferdam.Model, body []byte) error {
	if x.kept || !x.keeps(m) {
		return nil
	}
	x.kept = true
	return x.keep(ctx, m, "prompt", body[:min(len(body), maxKept)], int64(len(body)), digest(body))
}

// keep records a text in parts. It is cleaned of secrets as a whole before it
// is cut, since one may stand across a cut. sum is of the text as it was sent,
// and is the same in the model.call that it belongs to.
func (x *exchange) keep(ctx context.Context, m cofferdam.Model, what string, text []byte, total int64, sum string) error {
	clean := string(text)
	if x.gateway.options.Clean != nil {
		clean = x.gateway.options.Clean(clean)
	}
	c := x.caller
	for number := 1; len(clean) > 0; number++ {
		n := min(len(clean), keptPart)
		for n < len(clean) && n > keptPart-utf8.UTFMax && !utf8.RuneStart(clean[n]) {
			n-- // not inside a letter
		}
		_, err := c.Record.Record(ctx, cofferdam.Event{
			Scope: c.Scope, Task: c.Task, Session: c.Session, Actor: c.Actor, Source: "model", Kind: cofferdam.EventModelText, Resource: m.Name,
			Fields: map[string]string{
				"what": what, "digest": sum, "part": strconv.Itoa(number), "text": clean[:n],
				"bytes": strconv.FormatInt(total, 10), "cut": strconv.FormatBool(total > int64(len(text))),
			},
		})
		if err != nil {
			return &cofferdam.Error{
				Op: "model.Forward", Kind: cofferdam.Unavailable, Subject: "text of the " + what,
				Reason: "it cannot be put on record", Hint: "look at the server's disk with cofferdam doctor", Err: err,
			}
		}
		clean = clean[n:]
	}
	return nil
}

// tee keeps the beginning of what is answered.
type tee struct {
	http.ResponseWriter
	text  []byte
	total int64
}

// Write implements http.ResponseWriter.
func (t *tee) Write(p []byte) (int, error) {
	t.total += int64(len(p))
	t.text = append(t.text, p[:min(len(p), maxKept-len(t.text))]...)
	return t.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (t *tee) Flush() {
	if f, ok := t.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
