package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"strings"
)

// rehearsalHeader marks answers of the rehearsal server; it is kept, so that
// they are labelled wherever they show.
const rehearsalHeader = "X-Cofferdam-Rehearsal"

// answer passes one answer of the provider on to the box.
type answer struct {
	writer http.ResponseWriter
	op     string
	begun  bool // the head of the answer is out
	hash   hash.Hash
	size   int64
	usage  usage
}

var errTooLarge = errors.New("the answer is larger than the limit")

// pass copies head and body, each piece as soon as it comes.
func (a *answer) pass(resp *http.Response) error {
	a.hash = sha256.New()
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
			if a.size += int64(n); a.size > maxAnswer {
				return errTooLarge
			}
			a.hash.Write(buf[:n])
			a.usage.write(buf[:n])
			if _, err := a.writer.Write(buf[:n]); err != nil {
				return err // the box went away; what it cost is counted
			}
			a.flush()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
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
	case "Content-Type", "Content-Length", "Content-Encoding", "Cache-Control", "Request-Id", "Retry-After",
		"X-Should-Retry", rehearsalHeader:
		return true
	}
	return strings.HasPrefix(name, "Anthropic-Ratelimit-")
}

// maxLine bounds what is kept in memory to find the usage in an answer. The
// lines that carry it are small; longer ones are skipped.
const maxLine = 1 << 20

// usage finds the token counts in an answer as it passes.
type usage struct {
	stream  bool
	line    []byte
	tooLong bool
	sum     tokens
	name    string
}

// tokens is what a call used. Input includes what was read from and written to
// the provider's cache.
type tokens struct{ Input, Output int64 }

// report is the part of an answer, or of one event of it, that we read.
type report struct {
	Model   string   `json:"model"`
	Usage   *counted `json:"usage"`
	Message *struct {
		Model string   `json:"model"`
		Usage *counted `json:"usage"`
	} `json:"message"`
}

type counted struct {
	Input      int64 `json:"input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

func (u *usage) write(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if len(u.line)+len(part) > maxLine {
			u.tooLong, u.line = true, nil
		}
		if !u.tooLong {
			u.line = append(u.line, part...)
		}
		if i < 0 {
			return
		}
		p = p[i+1:]
		if u.stream {
			u.endLine()
		}
	}
}

func (u *usage) endLine() {
	if data, ok := bytes.CutPrefix(u.line, []byte("data:")); ok && !u.tooLong {
		u.read(data)
	}
	u.line, u.tooLong = u.line[:0], false
}

func (u *usage) read(data []byte) {
	var r report
	if json.Unmarshal(data, &r) != nil {
		return
	}
	if r.Message != nil {
		r.Model, r.Usage = r.Message.Model, r.Message.Usage
	}
	if r.Model != "" {
		u.name = r.Model
	}
	// Counts of one answer only grow: later events repeat or raise them. A
	// provider's nonsense below zero is not counted.
	if c := r.Usage; c != nil {
		u.sum.Input = max(u.sum.Input, c.Input+c.CacheWrite+c.CacheRead)
		u.sum.Output = max(u.sum.Output, c.Output)
	}
}

// total returns what was used, once the answer is through or cut.
func (u *usage) total() tokens {
	if !u.stream && !u.tooLong {
		u.read(u.line)
	}
	return u.sum
}

func (u *usage) model() string { return u.name }
