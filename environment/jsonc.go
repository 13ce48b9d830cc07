package environment

import (
	"encoding/json"
	"fmt"
	"strings"
)

// node is a value of JSON with comments, with the line it begins at. Go's own
// decoder knows no comments, no lines, and takes a key twice.
type node struct {
	line    int
	kind    byte // one of { [ " n (number) b (true, false) 0 (null)
	text    string
	items   []node   // of [
	members []member // of {, in order
}

type member struct {
	key   string
	line  int
	value node
}

// maxDepth bounds how deep values are nested.
const maxDepth = 32

// jsonc reads JSON with comments of both kinds, trailing commas and a byte
// order mark. Everything else is as the standard has it.
type jsonc struct {
	rest  string
	line  int
	depth int
}

func parseJSONC(text string) (node, error) {
	p := &jsonc{rest: strings.TrimPrefix(text, "\ufeff"), line: 1}
	n, err := p.value()
	if err == nil {
		if err = p.space(); err == nil && p.rest != "" {
			err = p.wrong("text after the end")
		}
	}
	return n, err
}

func (p *jsonc) wrong(why string) error { return fmt.Errorf("line %d: %s", p.line, why) }

func (p *jsonc) skip(n int) {
	p.line += strings.Count(p.rest[:n], "\n")
	p.rest = p.rest[n:]
}

// space passes blanks and comments.
func (p *jsonc) space() error {
	for {
		p.skip(len(p.rest) - len(strings.TrimLeft(p.rest, " \t\r\n")))
		switch {
		case strings.HasPrefix(p.rest, "//"):
			n := strings.IndexByte(p.rest, '\n')
			if n < 0 {
				n = len(p.rest)
			}
			p.skip(n)
		case strings.HasPrefix(p.rest, "/*"):
			n := strings.Index(p.rest[2:], "*/")
			if n < 0 {
				return p.wrong("a comment that does not end")
			}
			p.skip(n + 4)
		default:
			return nil
		}
	}
}

// next passes blanks and says which byte comes then; 0 at the end.
func (p *jsonc) next() (byte, error) {
	if err := p.space(); err != nil || p.rest == "" {
		return 0, err
	}
	return p.rest[0], nil
}

func (p *jsonc) value() (node, error) {
	c, err := p.next()
	if err != nil {
		return node{}, err
	}
	n := node{line: p.line}
	if p.depth++; p.depth > maxDepth {
		return n, p.wrong(fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	defer func() { p.depth-- }()
	switch {
	case c == '{' || c == '[':
		n.kind = c
		p.skip(1)
		return n, p.inside(&n)
	case c == '"':
		n.kind = c
		n.text, err = p.text()
		return n, err
	}
	word := p.rest[:len(p.rest)-len(strings.TrimLeft(p.rest, "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))]
	switch {
	case word == "true" || word == "false":
		n.kind = 'b'
	case word == "null":
		n.kind = '0'
	case word != "" && json.Valid([]byte(word)):
		n.kind = 'n'
	default:
		return n, p.wrong("a value is expected")
	}
	n.text = word
	p.skip(len(word))
	return n, nil
}

// inside reads members or items up to the closing bracket.
func (p *jsonc) inside(n *node) error {
	end := map[byte]byte{'{': '}', '[': ']'}[n.kind]
	seen := map[string]bool{}
	for {
		c, err := p.next()
		if err != nil {
			return err
		}
		if c == end {
			p.skip(1)
			return nil
		}
		if n.kind == '{' {
			m, err := p.member()
			if err != nil {
				return err
			}
			if seen[m.key] {
				return fmt.Errorf("line %d: key %.80q is there twice", m.line, m.key)
			}
			seen[m.key] = true
			n.members = append(n.members, m)
		} else {
			v, err := p.value()
			if err != nil {
				return err
			}
			n.items = append(n.items, v)
		}
		switch c, err := p.next(); {
		case err != nil:
			return err
		case c == ',':
			p.skip(1)
		case c != end:
			return p.wrong(fmt.Sprintf("a comma or %c is expected", end))
		}
	}
}

func (p *jsonc) member() (m member, err error) {
	if !strings.HasPrefix(p.rest, `"`) {
		return m, p.wrong("a key in quotes is expected")
	}
	m.line = p.line
	if m.key, err = p.text(); err != nil {
		return m, err
	}
	switch c, err := p.next(); {
	case err != nil:
		return m, err
	case c != ':':
		return m, p.wrong("a colon is expected")
	}
	p.skip(1)
	m.value, err = p.value()
	return m, err
}

// text reads a quoted text; its escapes are for Go's own decoder.
func (p *jsonc) text() (string, error) {
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '"':
			var s string
			if err := json.Unmarshal([]byte(p.rest[:i+1]), &s); err != nil {
				return "", p.wrong("a text that is none: " + strings.TrimPrefix(err.Error(), "json: "))
			}
			p.skip(i + 1)
			return s, nil
		}
	}
	return "", p.wrong("a text that does not end")
}
