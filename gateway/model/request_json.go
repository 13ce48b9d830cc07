package model

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a request's JSON. Conversations nest four deep, tool schemas some
// more; long conversations have some ten thousand values, of some 100 bytes here.
const (
	maxDepth  = 200
	maxValues = 1 << 18
)

// node is one value of a request, and where it stands: what is judged can be
// replaced in place, and the rest of the bytes stays as it came.
type node struct {
	kind  byte   // its first byte: { [ " t f n, or of a number
	raw   []byte // the value's own bytes
	at    int    // of raw in the body
	names []string
	folds []string // the names as fold gives them
	loose bool     // two of its names differ only in a way that some readers ignore
	list  []*node  // the values of an object, beside names, or of an array
}

// readJSON reads a body strictly. It is hostile: what two readers could
// understand differently (a key twice, text that is no UTF-8) is refused, so
// that what is judged is what is meant.
func readJSON(body []byte) (*node, error) {
	if !utf8.Valid(body) {
		return nil, invalid("the request is not UTF-8", "send JSON in UTF-8")
	}
	bad := func(reason string) error {
		return invalid("the request is not plain JSON: "+reason, "send one JSON object")
	}
	s := &scanner{body: body}
	n, err := s.value(0)
	if err == nil {
		if s.space(); s.pos < len(body) {
			err = fmt.Errorf("something follows the value, at byte %d", s.pos)
		}
	}
	if err != nil {
		return nil, bad(err.Error())
	}
	if n.kind != '{' {
		return nil, invalid("the request is not a JSON object", "send one JSON object")
	}
	if n.loose {
		return nil, bad("a key occurs twice, in two spellings")
	}
	return n, nil
}

// scanner reads JSON as RFC 8259 has it, in one pass. The usual decoder would
// need several, and does not say where a value stands.
type scanner struct {
	body   []byte
	pos    int
	values int
}

// next returns the byte that comes next; 0, which is no part of JSON, at the end.
func (s *scanner) next() byte {
	if s.pos < len(s.body) {
		return s.body[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for c := s.next(); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = s.next() {
		s.pos++
	}
}

func (s *scanner) wrong(what string) error {
	if s.pos >= len(s.body) {
		return errors.New("it ends too early")
	}
	return fmt.Errorf("no %s at byte %d", what, s.pos)
}

func (s *scanner) value(depth int) (*node, error) {
	s.space()
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	if s.values++; s.values > maxValues {
		return nil, fmt.Errorf("it has more than %d values", maxValues)
	}
	n := &node{kind: s.next(), at: s.pos}
	var err error
	switch n.kind {
	case '{', '[':
		err = s.members(n, depth)
	case '"':
		err = s.text()
	default:
		err = s.scalar()
	}
	n.raw = s.body[n.at:s.pos]
	return n, err
}

// scalar passes a number or one of the three words.
func (s *scanner) scalar() error {
	end := s.pos
	for end < len(s.body) && strings.IndexByte("0123456789+-.eEtrufalsn", s.body[end]) >= 0 {
		end++
	}
	if !json.Valid(s.body[s.pos:end]) {
		return s.wrong("value")
	}
	s.pos = end
	return nil
}

// members reads an object or an array, from its first bracket.
func (s *scanner) members(n *node, depth int) error {
	end := n.kind + 2 // ] follows [ by two, and } follows {
	s.pos++
	if s.space(); s.next() == end {
		s.pos++
		return nil
	}
	seen := map[string]bool{} // in large objects only
	for {
		if n.kind == '{' {
			if err := s.name(n, seen); err != nil {
				return err
			}
		}
		v, err := s.value(depth + 1)
		if err != nil {
			return err
		}
		n.list = append(n.list, v)
		s.space()
		switch c := s.next(); c {
		case ',', end:
			if s.pos++; c == end {
				return nil
			}
		default:
			return s.wrong("comma or end")
		}
	}
}

// name reads a key and its colon. It must not have occurred in its object.
func (s *scanner) name(n *node, seen map[string]bool) error {
	s.space()
	begin := s.pos
	if s.next() != '"' {
		return s.wrong("key")
	}
	if err := s.text(); err != nil {
		return err
	}
	name := unquote(s.body[begin:s.pos])
	f := fold(name)
	const large = 16
	switch {
	case len(n.names) < large && slices.Contains(n.names, name), seen["="+name]:
		return fmt.Errorf("the key %q occurs twice", clip(name))
	case len(n.names) < large && slices.Contains(n.folds, f), seen["~"+f]:
		n.loose = true
	}
	n.names, n.folds = append(n.names, name), append(n.folds, f)
	switch {
	case len(n.names) == large:
		for i := range n.names {
			seen["="+n.names[i]], seen["~"+n.folds[i]] = true, true
		}
	case len(n.names) > large:
		seen["="+name], seen["~"+f] = true, true
	}
	if s.space(); s.next() != ':' {
		return s.wrong("colon")
	}
	s.pos++
	return nil
}

// text passes a string.
func (s *scanner) text() error {
	for s.pos++; s.pos < len(s.body); s.pos++ {
		switch c := s.body[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c < ' ':
			return s.wrong("control character may stand")
		case c != '\\':
			continue
		}
		s.pos++
		switch c := s.next(); {
		case c == 'u':
			if s.pos+4 >= len(s.body) || !isHex(s.body[s.pos+1:s.pos+5]) {
				return s.wrong("escape")
			}
			s.pos += 4
		case c == 0 || strings.IndexByte(`"\/bfnrt`, c) < 0:
			return s.wrong("escape")
		}
	}
	return s.wrong("end of the text")
}

func isHex(p []byte) bool {
	_, err := hex.DecodeString(string(p))
	return err == nil
}

// unquote returns what a JSON string says; long ones without an escape are not
// read twice.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var v string
	_ = json.Unmarshal(raw, &v) // it is valid
	return v
}

// fold is a name as the loosest of readers sees it: Go's ignores case, and
// those of Protocol Buffers take snake_case for camelCase.
func fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// get returns the value under a name as fold gives it, or nil. The nil node has
// no values.
func (n *node) get(folded string) *node {
	if n == nil {
		return nil
	}
	for i, name := range n.folds {
		if name == folded {
			return n.list[i]
		}
	}
	return nil
}

// text returns what a string says; ok is false for all else.
func (n *node) text() (s string, ok bool) {
	if n == nil || n.kind != '"' {
		return "", false
	}
	return unquote(n.raw), true
}

func (n *node) isTrue() bool { return n != nil && n.kind == 't' }

// says is false for what is not there, null, false, and what is empty.
func (n *node) says() bool {
	switch {
	case n == nil:
		return false
	case n.kind == '{', n.kind == '[':
		return len(n.list) > 0
	case n.kind == '"':
		return len(n.raw) > 2
	}
	return n.kind != 'n' && n.kind != 'f'
}

// elements returns the values of an array, or the value itself if it is none:
// some readers take one for a list of one.
func (n *node) elements() []*node {
	switch {
	case n == nil:
		return nil
	case n.kind == '[':
		return n.list
	}
	return []*node{n}
}

// most returns the largest whole number of an object under one of the names; 0
// for none.
func (n *node) most(names ...string) int64 {
	var most int64
	for i, name := range n.names {
		if !slices.Contains(names, name) {
			continue
		}
		if f, err := strconv.ParseFloat(string(n.list[i].raw), 64); err == nil && f >= 1 {
			most = max(most, int64(min(f, maxTokens)))
		}
	}
	return most
}

// loosest is most for a figure that makes a call larger: it counts in every
// spelling, and in quotes, as lenient servers and Protocol Buffers take it.
func (n *node) loosest(names ...string) int64 {
	const longest = 64 // bytes of a number
	var most int64
	for _, name := range names {
		v := n.get(fold(name))
		if v == nil || len(v.raw) > longest {
			continue
		}
		text, ok := v.text()
		if !ok {
			text = string(v.raw)
		}
		if f, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && f >= 1 {
			most = max(most, int64(min(f, maxTokens)))
		}
	}
	return most
}
