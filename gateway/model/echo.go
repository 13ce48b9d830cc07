package model

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"cofferdam"
)

// errEcho ends an answer that has the key in it.
var errEcho = &cofferdam.Error{
	Op: "model.Forward", Kind: cofferdam.Denied, Subject: "model provider",
	Reason: "the answer has the key in it that it was asked with, and no key enters a box",
	Hint:   "a person can look at what serves the model with: cofferdam model view",
}

// keyIn returns the key that is attached to a request; "" for none.
func keyIn(m cofferdam.Model, h http.Header) string {
	name, format, ok := KeyHeader(m.Provider)
	if !ok {
		return ""
	}
	head, _, _ := strings.Cut(format, "%s")
	return strings.TrimPrefix(h.Get(name), head)
}

// guard keeps the key out of an answer: servers that are set up badly say in an
// error, or for debugging, what they were sent. A header with it is dropped, a
// body ends before it.
func guard(resp *http.Response, key string) {
	if key == "" {
		return
	}
	for name, values := range resp.Header {
		if strings.Contains(strings.Join(values, "\n"), key) {
			delete(resp.Header, name)
		}
	}
	resp.Body = &guarded{ReadCloser: resp.Body, key: []byte(key)}
}

// guarded is a body without a key. All of it is passed on at once, but for an end
// that could be the beginning of the key.
type guarded struct {
	io.ReadCloser
	key   []byte
	ready []byte // may be read
	held  []byte // a proper beginning of the key
	err   error  // comes after ready
	buf   []byte
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	for len(g.ready) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		g.next()
	}
	n := copy(p, g.ready)
	g.ready = g.ready[n:]
	return n, nil
}

func (g *guarded) next() {
	const size = 32 << 10
	if g.buf == nil {
		g.buf = make([]byte, len(g.key)+size)
	}
	kept := copy(g.buf, g.held)
	n, err := g.ReadCloser.Read(g.buf[kept : kept+size])
	text := g.buf[:kept+n]
	if bytes.Contains(text, g.key) {
		g.held, g.err = nil, errEcho
		return
	}
	end := len(text)
	if err == nil {
		end -= overlap(text, g.key)
	}
	g.ready, g.held, g.err = text[:end], append([]byte(nil), text[end:]...), err
}

// overlap is how much of the end of text is a proper beginning of key.
func overlap(text, key []byte) int {
	for n := min(len(text), len(key)-1); n > 0; n-- {
		if bytes.HasSuffix(text, key[:n]) {
			return n
		}
	}
	return 0
}
