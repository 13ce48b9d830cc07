package redact

import (
	"sort"
	"unicode/utf8"
)

// Bounds of one token; longer ones are taken as ordinary bytes, so that no text
// can make a Writer hold back more than these.
const (
	maxControl   = 64 // bytes of a terminal sequence
	maxBackslash = 16 // backslashes before an escape (JSON in JSON in JSON in JSON)
	maxPercent   = 4  // times "25" in %25…41
)

// view is a text as it is searched: without line breaks and terminal colours,
// and with %XX and JSON escapes decoded if it was asked for; and the way back
// to the places of the source.
type view struct {
	text    []byte
	parts   []part
	source  int // length of the source
	settled int // where an unfinished token of the source begins; else source
}

// part maps text from at on to the source from src on: byte for byte, or, if
// width is not 0, all of its bytes to one token of that width. Places of the
// source between two parts are ignored ones.
type part struct{ at, src, width int }

// unfold makes the view of p. If p is not the whole text, a token that could go
// on after p is left out and v.settled says where it begins.
func unfold(p []byte, decode, whole bool) view {
	v := view{source: len(p), settled: len(p)}
	if next(p, decode) == len(p) { // nothing to do, and nothing to copy
		v.text, v.parts = p, []part{{}}
		return v
	}
	v.text = make([]byte, 0, len(p))
	for i := 0; i < len(p); {
		if n := next(p[i:], decode); n > 0 {
			v.parts = append(v.parts, part{at: len(v.text), src: i})
			v.text = append(v.text, p[i:i+n]...)
			i += n
			continue
		}
		var buf [utf8.UTFMax]byte
		out, width, open := token(p[i:], decode, buf[:0])
		if open && !whole {
			v.settled = i
			break
		}
		if len(out) > 0 {
			v.parts = append(v.parts, part{at: len(v.text), src: i, width: width})
			v.text = append(v.text, out...)
		}
		i += width
	}
	return v
}

// next returns how many ordinary bytes p starts with.
func next(p []byte, decode bool) int {
	if decode {
		for i, c := range p {
			if c == '\n' || c == '\r' || c == 0x1b || c == '%' || c == '\\' {
				return i
			}
		}
		return len(p)
	}
	for i, c := range p {
		if c <= 0x1b && (c == '\n' || c == '\r' || c == 0x1b) {
			return i
		}
	}
	return len(p)
}

// token reads the token that p starts with: what it stands for, appended to
// buf, and its width. open says that more bytes after p could change it.
func token(p []byte, decode bool, buf []byte) (out []byte, width int, open bool) {
	switch {
	case p[0] == '\n' || p[0] == '\r':
		return buf, 1, false
	case p[0] == 0x1b:
		return control(p, buf)
	case p[0] == '%' && decode:
		return percent(p, buf)
	case p[0] == '\\' && decode:
		return backslash(p, buf)
	}
	return append(buf, p[0]), 1, false
}

// control reads ESC [ parameters final, which stands for nothing.
func control(p, buf []byte) (out []byte, width int, open bool) {
	for i := 1; i < maxControl; i++ {
		if i == len(p) {
			return append(buf, p[0]), 1, true
		}
		c := p[i]
		switch {
		case i == 1 && c == '[', i > 1 && c >= 0x20 && c < 0x40:
		case i > 1 && c >= 0x40 && c < 0x7f:
			return buf, i + 1, false
		default:
			return append(buf, p[0]), 1, false
		}
	}
	return append(buf, p[0]), 1, false
}

// percent reads %XX, %25XX, %2525XX and so on.
func percent(p, buf []byte) (out []byte, width int, open bool) {
	i := 1
	for n := 0; n < maxPercent && i+1 < len(p) && p[i] == '2' && p[i+1] == '5'; n++ {
		i += 2
	}
	if i+1 < len(p) {
		if hi, lo := digit(p[i]), digit(p[i+1]); hi >= 0 && lo >= 0 {
			return letter(buf, rune(hi<<4|lo), true), i + 2, false
		}
		return append(buf, '%'), i, false
	}
	open = i == len(p) || digit(p[i]) >= 0
	return append(buf, '%'), i, open
}

// backslash reads a run of backslashes and the escape after it.
func backslash(p, buf []byte) (out []byte, width int, open bool) {
	n := 1
	for n < len(p) && n < maxBackslash && p[n] == '\\' {
		n++
	}
	if n == len(p) {
		return append(buf, '\\'), n, true
	}
	switch c := p[n]; c {
	case 'n', 'r':
		return buf, n + 1, false
	case 't':
		return append(buf, '\t'), n + 1, false
	case 'b':
		return append(buf, '\b'), n + 1, false
	case 'f':
		return append(buf, '\f'), n + 1, false
	case '/', '"', '\'':
		return append(buf, c), n + 1, false
	case 'u':
		r := rune(0)
		for i := n + 1; i < n+5; i++ {
			if i == len(p) {
				return append(buf, '\\'), n, true
			}
			d := digit(p[i])
			if d < 0 {
				return append(buf, '\\'), n, false
			}
			r = r<<4 | rune(d)
		}
		return letter(buf, r, false), n + 5, false
	}
	return append(buf, '\\'), n, false
}

// letter appends what an escape stands for; line breaks stand for nothing.
func letter(buf []byte, r rune, oneByte bool) []byte {
	switch {
	case r == '\n' || r == '\r':
		return buf
	case oneByte:
		return append(buf, byte(r))
	}
	return utf8.AppendRune(buf, r)
}

// digit returns the value of a hexadecimal digit, or -1.
func digit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// start returns the place in the source where the byte text[i] begins.
func (v view) start(i int) int {
	p := v.parts[sort.Search(len(v.parts), func(n int) bool { return v.parts[n].at > i })-1]
	if p.width > 0 {
		return p.src
	}
	return p.src + i - p.at
}

// end returns the place in the source behind the byte text[i-1].
func (v view) end(i int) int {
	p := v.parts[sort.Search(len(v.parts), func(n int) bool { return v.parts[n].at > i-1 })-1]
	if p.width > 0 {
		return p.src + p.width
	}
	return p.src + i - p.at
}

// align returns the last place not after off at which no token of the view is
// under way, so that reading could begin anew there.
func (v view) align(off int) int {
	if off >= v.settled {
		return v.settled
	}
	n := sort.Search(len(v.parts), func(n int) bool { return v.parts[n].src > off })
	if n == 0 {
		return 0
	}
	p, end := v.parts[n-1], len(v.text)
	if n < len(v.parts) {
		end = v.parts[n].at
	}
	width := p.width
	if width == 0 {
		width = end - p.at
	}
	switch {
	case off >= p.src+width: // among ignored bytes: where they begin
		return p.src + width
	case p.width == 0:
		return off
	}
	return p.src
}
