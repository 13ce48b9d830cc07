package model

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"strings"

	"cofferdam"
)

// rehearsalHeader marks answers of the rehearsal server; it is kept, so that
// they are labelled wherever they show.
const rehearsalHeader = "X-Cofferdam-Rehearsal"

// answer passes one answer of the provider on to the box.
type answer struct {
	writer   http.ResponseWriter
	op       string
	spending *spending // follows the answer as it comes; nil: it costs nothing
	begun    bool      // the head of the answer is out
	status   int       // of the provider; 0 until it answers
	hash     hash.Hash
	size     int64 // bytes that the box got
	usage    usage
}

var errTooLarge = errors.New("the answer is larger than the limit")

// pass copies head and body, each piece as soon as it comes and is paid for. An
// error while begun is false means that the box has seen nothing yet.
func (a *answer) pass(resp *http.Response) error {
	a.hash, a.status = sha256.New(), resp.StatusCode
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" && a.spending != nil && resp.StatusCode < http.StatusBadRequest {
		// Nobody could count it. It is not unpacked: what a box gets are the
		// provider's own bytes, and no provider of today does this unasked.
		return &cofferdam.Error{
			Op: "model.Forward", Kind: cofferdam.Denied, Subject: "model provider", // not to be tried again
			Reason: "its answer is compressed, though it was asked for plain text, so its tokens cannot be counted",
			Hint:   "a person can give the model another address, with cofferdam model add",
		}
	}
	h := a.writer.Header()
	for name, values := range resp.Header {
		if passHeader(name) {
			h[name] = values
		}
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	a.usage.stream = kind == "text/event-stream"
	a.begun = true
	a.writer.WriteHeader(resp.StatusCode)
	a.flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if a.size+int64(n) > maxAnswer {
				return errTooLarge
			}
			paid, limit := a.pay(buf[:n])
			a.size += int64(paid)
			a.hash.Write(buf[:paid])
			if _, err := a.writer.Write(buf[:paid]); err != nil {
				return err // the box went away; what it cost is counted
			}
			a.flush()
			if limit != nil {
				return limit
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pay reads line by line what has come and returns how much of it there is money
// for; an error if that is not all.
func (a *answer) pay(p []byte) (paid int, err error) {
	for paid < len(p) {
		end := len(p)
		if i := bytes.IndexByte(p[paid:], '\n'); i >= 0 {
			end = paid + i + 1
		}
		a.usage.write(p[paid:end])
		if err := a.spending.hold(&a.usage); err != nil {
			return paid, err
		}
		paid = end
	}
	return paid, nil
}

func (a *answer) flush() {
	if f, ok := a.writer.(http.Flusher); ok {
		f.Flush()
	}
}

// passHeader says whether a header of the provider is a box's business.
// Cookies, and whatever else there is, are not.
func passHeader(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Content-Encoding", "Cache-Control", "Request-Id", "X-Request-Id", "Retry-After", "Retry-After-Ms",
		"X-Should-Retry", "X-Reasoning-Included", rehearsalHeader:
		return true
	}
	return strings.HasPrefix(name, "Anthropic-Ratelimit-") || strings.HasPrefix(name, "X-Ratelimit-")
}
