package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a request's JSON. Conversations nest four deep, tool schemas some
// more; long conversations have some ten thousand values.
const (
	maxDepth  = 200
	maxValues = 1 << 20
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
	if !json.Valid(body) { // from here on only what is valid is walked
		return nil, bad(whyInvalid(body))
	}
	s := &scanner{body: body}
	n, err := s.value(0)
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

// whyInvalid tells a client of bad JSON what a decoder says of it.
func whyInvalid(body []byte) string {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		return fmt.Sprintf("%v, at byte %d", syntax, syntax.Offset)
	}
	return "it is nested too deep"
}

// scanner walks JSON that is known to be valid.
type scanner struct {
	body   []byte
	pos    int
	values int
}

func (s *scanner) space() {
	for s.pos < len(s.body) {
		switch s.body[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) value(depth int) (*node, error) {
	s.space()
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	if s.values++; s.values > maxValues {
		return nil, fmt.Errorf("it has more than %d values", maxValues)
	}
	n := &node{kind: s.body[s.pos], at: s.pos}
	var err error
	switch n.kind {
	case '{', '[':
		err = s.members(n, depth)
	case '"':
		s.text()
	default:
		for s.pos < len(s.body) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(s.body[s.pos])) {
			s.pos++
		}
	}
	n.raw = s.body[n.at:s.pos]
	return n, err
}

// members reads an object or an array, from its first bracket.
func (s *scanner) members(n *node, depth int) error {
	s.pos++
	var seen, folded map[string]bool
	if n.kind == '{' {
		seen, folded = map[string]bool{}, map[string]bool{}
	}
	for {
		s.space()
		switch s.body[s.pos] {
		case '}', ']':
			s.pos++
			return nil
		case ',':
			s.pos++
			continue
		}
		if n.kind == '{' {
			name := s.text()
			if seen[name] {
				return fmt.Errorf("the key %q occurs twice", clip(name))
			}
			f := fold(name)
			n.loose = n.loose || folded[f]
			seen[name], folded[f] = true, true
			n.names, n.folds = append(n.names, name), append(n.folds, f)
			s.space()
			s.pos++ // the colon
		}
		v, err := s.value(depth + 1)
		if err != nil {
			return err
		}
		n.list = append(n.list, v)
	}
}

// text reads a string and returns what it says.
func (s *scanner) text() string {
	begin := s.pos
	for s.pos++; s.body[s.pos] != '"'; s.pos++ {
		i := bytes.IndexAny(s.body[s.pos:], `"\`)
		if s.pos += i; s.body[s.pos] == '"' {
			break
		}
		s.pos++ // what a backslash stands before
	}
	s.pos++
	return unquote(s.body[begin:s.pos])
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

// smallValue bounds what is decoded of a request for its figures.
const smallValue = 4 << 10

// figures returns the numbers of an object and its small objects, decoded.
func (n *node) figures() map[string]any {
	o := map[string]any{}
	for i, name := range n.names {
		v := n.list[i]
		if v.kind == '"' || v.kind == '[' || len(v.raw) > smallValue {
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(v.raw))
		dec.UseNumber()
		var any any
		if dec.Decode(&any) == nil {
			o[name] = any
		}
	}
	return o
}
