package agent

import "unicode/utf8"

// Of a string in a line, clipHead bytes of its beginning and at least clipTail
// of its end are kept; in between bytes are dropped once it is longer than
// clipMost. The end has the last line of an agent's last words.
const (
	clipHead = 8 << 10
	clipTail = 8 << 10
	clipMost = 32 << 10
)

// clipMark stands where bytes were dropped.
const clipMark = "…"

// clipper collects one line in bounded memory: it follows the strings of JSON
// and drops the middle of long ones, so that what is left is still JSON. The
// result depends on the bytes alone, not on how they come in.
type clipper struct {
	text bool // the line is no JSON but one string

	line    []byte
	dropped int // bytes that the line is shorter than it was
	tooLong bool

	inside bool // in a string
	escape int  // bytes that still belong to an escape sequence
	begin  int  // where in line the string's content begins
	cut    int  // where in line the string was cut, after the mark; 0: it was not
}

func (c *clipper) reset() { *c = clipper{text: c.text, line: c.line[:0]} }

// whole returns the line, valid until the next reset; false if it is too long.
func (c *clipper) whole() ([]byte, bool) { return c.line, !c.tooLong }

func (c *clipper) add(p []byte) {
	if c.tooLong {
		return
	}
	for _, b := range p {
		c.line = append(c.line, b)
		switch {
		case c.text:
		case c.escape > 0:
			if c.escape--; b == 'u' && c.escape == 0 && c.line[len(c.line)-2] == '\\' {
				c.escape = 4
			}
		case b == '\\' && c.inside:
			c.escape = 1
		case b == '"':
			c.inside, c.begin, c.cut = !c.inside, len(c.line), 0
		}
		if (c.inside || c.text) && len(c.line)-max(c.begin, c.cut) > clipMost {
			c.clip()
		}
		if len(c.line) > MaxLine {
			// It is not made of long strings: no agent writes such a line.
			c.tooLong, c.line = true, nil
			return
		}
	}
}

// clip drops the middle of the string that the line ends with. Both ends of
// what is dropped lie between whole letters and whole escape sequences.
func (c *clipper) clip() {
	from := c.cut
	if from == 0 {
		from = c.next(c.begin, c.begin+clipHead)
	}
	to := c.next(from, len(c.line)-clipTail)
	if to >= len(c.line) {
		return
	}
	c.dropped += to - from
	rest := c.line[to:]
	if c.cut == 0 {
		c.line = append(c.line[:from], clipMark...)
		from = len(c.line)
		c.cut = from
		c.dropped -= len(clipMark) // it stands for as many
	}
	// rest begins at least clipTail bytes after the mark, so it still is whole.
	c.line = append(c.line[:from], rest...)
}

// next returns the first place at or after least where a letter begins; at must
// be such a place.
func (c *clipper) next(at, least int) int {
	for at < least || at < len(c.line) && !utf8.RuneStart(c.line[at]) {
		switch {
		case c.text || c.line[at] != '\\':
			at++
		case at+1 < len(c.line) && c.line[at+1] == 'u':
			at += 6
		default:
			at += 2
		}
	}
	return at
}
