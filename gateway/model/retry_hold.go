package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"cofferdam"
)

// Bounds of the time before an answer's first content.
const (
	// holdTime and holdBytes bound what of a stream's beginning is held back, so
	// that one which breaks off before it says anything can be tried again.
	holdTime  = 2 * time.Second
	holdBytes = 64 << 10
	// maxSilence is how long a provider may send nothing in the middle of an
	// answer. Those that think for long send something all along.
	maxSilence = 15 * time.Minute
)

var (
	errEarly  = errors.New("the model provider's answer broke off before it said anything")
	errBroken = errors.New("the model provider's answer began with an error")
	errSilent = &cofferdam.Error{
		Op: "model.Forward", Kind: cofferdam.Unavailable, Subject: "model provider",
		Reason: "the model provider has sent nothing for " + maxSilence.String(), Hint: "send the request again",
	}
)

// piece is what one read brought.
type piece struct {
	p   []byte
	err error
}

// hold reads a stream until its first content has come, and puts what it read
// back in front of it. The beginning is the only thing that is ever held, and
// at most for holdTime: then it goes out as it is. An error means that the
// stream ended before any content.
func hold(p *protocol, resp *http.Response) error {
	timer := time.NewTimer(holdTime)
	defer timer.Stop()
	h := &held{ReadCloser: resp.Body}
	resp.Body = h
	for {
		coming := make(chan piece, 1)
		go func() {
			buf := make([]byte, 16<<10)
			n, err := h.ReadCloser.Read(buf)
			coming <- piece{buf[:n], err}
		}()
		select {
		case got := <-coming:
			h.first = append(h.first, got.p...)
			h.err = got.err
			switch content := begins(p, h.first, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")); {
			case content == anError:
				return errBroken
			case content == some || len(h.first) >= holdBytes:
				return nil
			case got.err != nil:
				return errEarly
			}
		case <-timer.C:
			h.coming = coming
			return nil
		}
	}
}

// held is a body whose beginning was read already.
type held struct {
	io.ReadCloser
	first  []byte
	err    error      // came with the last of first
	coming chan piece // a read that was under way
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	if len(h.first) == 0 && h.err == nil && h.coming != nil {
		got := <-h.coming
		h.first, h.err, h.coming = got.p, got.err, nil
	}
	if len(h.first) > 0 {
		n := copy(p, h.first)
		h.first = h.first[n:]
		return n, nil
	}
	if h.err != nil {
		return 0, h.err
	}
	return h.ReadCloser.Read(p)
}

// What the beginning of a stream is.
const (
	nothing = iota // so far
	some
	anError // that may be over in a moment
)

// preamble are the events that come before the model has said anything.
var preamble = []string{"message_start", "ping", "response.created", "response.queued", "response.in_progress"}

// passingErrors are the words of those errors that may be over in a moment.
var passingErrors = []string{
	"overloaded_error", "api_error", "rate_limit_error", "server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down",
	"UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED",
}

// begins says what the beginning of a stream is. What is not a stream of events
// is content from its first byte that is no space.
func begins(p *protocol, text []byte, events bool) int {
	if !events {
		if len(bytes.TrimSpace(text)) > 0 {
			return some
		}
		return nothing
	}
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return nothing
		}
		text = rest
		if name, ok := bytes.CutPrefix(line, []byte("event:")); ok {
			name := strings.TrimSpace(string(name))
			if name != "error" && name != "response.failed" && !slices.Contains(preamble, name) {
				return some // its data may come later
			}
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		var event struct {
			Type     string
			Error    *streamError
			Response struct{ Error *streamError }
		}
		if json.Unmarshal(data, &event) != nil {
			return some
		}
		e := event.Error
		if e == nil {
			e = event.Response.Error
		}
		if e.passes() {
			return anError
		}
		if !slices.Contains(preamble, event.Type) {
			return some
		}
	}
}

// streamError is an error in a stream, in the words of any protocol.
type streamError struct {
	Type, Status string
	Code         any // a word or a number
}

func (e *streamError) passes() bool {
	if e == nil {
		return false
	}
	code, _ := e.Code.(string)
	return slices.ContainsFunc(passingErrors, func(w string) bool { return w == e.Type || w == e.Status || w == code })
}

// watch ends a body that stays silent for too long, by stop.
func watch(body io.ReadCloser, stop context.CancelCauseFunc) io.ReadCloser {
	return &watched{body, time.AfterFunc(maxSilence, func() { stop(errSilent) })}
}

type watched struct {
	io.ReadCloser
	timer *time.Timer
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err == nil {
		w.timer.Reset(maxSilence)
	} else {
		w.timer.Stop()
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.timer.Stop()
	return w.ReadCloser.Close()
}
