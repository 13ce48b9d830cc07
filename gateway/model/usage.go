package model

import (
	"bytes"
	"encoding/json"
	"errors"
)

// maxPiece bounds what is kept in memory to find the usage in an answer: one
// event of a stream, or an answer in one piece. The last event of a Responses
// stream repeats the whole answer, 128 k tokens of it at most; longer pieces
// are skipped, and the call is guessed.
const maxPiece = 4 << 20

// tokens is what a call used; all are disjoint but Hour, the part of CacheWrite
// that is to stay for an hour, which has a price of its own.
type tokens struct{ Input, CacheRead, CacheWrite, Output, Hour int64 }

func (t tokens) input() int64 { return t.Input + t.CacheRead + t.CacheWrite }

// usage finds the token counts in an answer as it passes, and how much text it
// has brought so far. It reads the shapes of all protocols, because compatible
// servers mix them.
type usage struct {
	stream  bool // server-sent events; otherwise JSON: an object, or a list of them
	piece   []byte
	tooLong bool
	json    splitter

	sum     tokens
	counted bool // the provider has given counts
	closed  bool // and they are its last word: those of the whole answer
	text    int  // bytes that the model wrote, as far as they were shown
	size    int  // bytes of an answer that is no stream of events
	name    string
}

// write reads what comes next of an answer.
func (u *usage) write(p []byte) {
	if !u.stream {
		u.objects(p)
		return
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		u.keep(part)
		if i < 0 {
			return
		}
		p = p[i+1:]
		if data, ok := bytes.CutPrefix(u.piece, []byte("data:")); ok {
			u.read(data)
		}
		u.next()
	}
}

// keep adds to the piece that is being read.
func (u *usage) keep(part []byte) {
	if !u.tooLong && len(u.piece)+len(part) <= maxPiece {
		u.piece = append(u.piece, part...)
		return
	}
	u.text += len(u.piece) + len(part) // unread, it is taken for text
	u.tooLong, u.piece = true, nil
}

func (u *usage) next() { u.piece, u.tooLong = u.piece[:0], false }

// objects reads JSON objects, alone or in a list: Gemini streams a list of them
// to those who do not ask for server-sent events.
func (u *usage) objects(p []byte) {
	u.size += len(p)
	begin := 0 // of what belongs to an object
	for i, c := range p {
		was := u.json.depth
		u.json.step(c)
		switch {
		case was == 0 && u.json.depth == 1:
			begin = i
		case was == 1 && u.json.depth == 0:
			u.keep(p[begin : i+1])
			if !u.tooLong {
				u.read(u.piece)
			}
			u.next()
		}
	}
	if u.json.depth > 0 {
		u.keep(p[begin:])
	}
}

// splitter finds where objects begin and end in JSON, without understanding
// more of it than strings and braces.
type splitter struct {
	depth          int
	quoted, escape bool
}

func (s *splitter) step(c byte) {
	switch {
	case s.escape:
		s.escape = false
	case s.quoted:
		s.escape, s.quoted = c == '\\', c != '"'
	case c == '"':
		s.quoted = true
	case c == '{':
		s.depth++
	case c == '}' && s.depth > 0:
		s.depth--
	}
}

// soFar is what a call that still runs has taken, given the guess it began
// with. Counts of one answer only grow.
func (u *usage) soFar(guess tokens) tokens {
	t := u.sum
	if t.input() == 0 {
		t.Input = guess.Input
	}
	t.Output = max(t.Output, perToken(u.text))
	return t
}

// total is what the provider has counted.
func (u *usage) total() tokens { return u.sum }

// final is what a call has taken that has ended, broken off or not, and whether
// that is a guess.
func (u *usage) final(guess tokens, broken bool) (t tokens, estimated bool) {
	whole := u.closed || u.counted && !u.stream && !broken
	if whole && u.sum.input() > 0 {
		return u.sum, false
	}
	t = u.soFar(guess)
	switch {
	case u.stream || whole:
	case broken: // it was written in full, whoever has read it
		t.Output = max(t.Output, guess.Output)
	default:
		t.Output = max(t.Output, min(perToken(u.size), guess.Output))
	}
	return t, true
}

func (u *usage) model() string { return u.name }

// read takes down what one event, or one whole answer, says. A field of another
// type than we know hides itself, not the others.
func (u *usage) read(data []byte) {
	var r report
	var other *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &r); err != nil && !errors.As(err, &other) {
		return
	}
	u.text += r.text()
	for _, part := range []*report{r.Message, r.Response} {
		if part != nil {
			r.Model, r.Usage = first(r.Model, part.Model), first(r.Usage, part.Usage)
		}
	}
	u.name = first(r.Model, r.ModelVersion, u.name)
	c := first(r.Usage.tokens(), r.UsageMetadata.tokens())
	if c == nil || !c.sane() {
		return
	}
	u.counted, u.closed = true, u.closed || r.last()
	if c.input() >= u.sum.input() { // counts only grow; what was cached may be told later
		c.Output = max(u.sum.Output, c.Output)
		u.sum = *c
	}
	u.sum.Output = max(u.sum.Output, c.Output)
}

// first returns the first of the values that is not zero.
func first[T comparable](values ...T) (none T) {
	for _, v := range values {
		if v != none {
			return v
		}
	}
	return none
}

// sane says whether the counts can be true: no call takes nothing.
func (t tokens) sane() bool {
	for _, n := range []int64{t.Input, t.CacheRead, t.CacheWrite - t.Hour, t.Hour, t.Output} {
		if n < 0 || n > maxTokens {
			return false
		}
	}
	return t != tokens{}
}
