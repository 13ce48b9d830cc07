package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"math/bits"
	"slices"
	"strings"
)

// anchor is how many bytes at the start of a pattern the scan looks for; every
// pattern has at least as many.
const anchor = MinLength

// matcher is a compiled set of secrets. It slides a window of eight bytes over
// the text, asks a bit map whether any pattern starts so, and compares the
// whole pattern only then: one multiplication a byte, however many there are.
type matcher struct {
	markers  [][]byte
	patterns []pattern
	anchors  map[uint64][]int32  // first eight bytes → patterns
	bitmap   []uint64            // hash of an anchor → maybe
	shift    uint                // 64 - log2(bits of bitmap)
	prefixes map[prefix]struct{} // what a pattern may start with, 1 to 7 bytes
	longest  int                 // of all patterns
}

type pattern struct {
	text   []byte
	marker int32
}

// prefix is the first n bytes of a pattern, packed.
type prefix struct {
	n    int
	word uint64
}

// match is one secret found: p[start:end], told by a marker.
type match struct {
	start, end int
	marker     int32
}

// compile returns the matcher, nil if there is nothing to find, and the names
// of the secrets that cannot be looked for.
func compile(secrets []Secret) (*matcher, []string) {
	m := &matcher{anchors: map[uint64][]int32{}, prefixes: map[prefix]struct{}{}}
	seen := map[string]bool{}
	var unfit []string
	for i, s := range secrets {
		if len(s.Value) < MinLength || len(s.Value) > MaxLength || i >= MaxSecrets {
			unfit = append(unfit, s.String())
			continue
		}
		fit := false
		for _, text := range spellings(s.Value) {
			if len(text) < anchor {
				continue
			}
			fit = true
			if !seen[string(text)] {
				seen[string(text)] = true
				m.patterns = append(m.patterns, pattern{text: text, marker: int32(len(m.markers))})
			}
		}
		if !fit {
			unfit = append(unfit, s.String())
		}
		m.markers = append(m.markers, s.marker())
	}
	if len(m.patterns) == 0 {
		return nil, unfit
	}
	m.index()
	return m, unfit
}

// spellings returns every byte sequence that stands for value once a text is
// unfolded (see view): as it is, base64 and hexadecimal.
func spellings(value []byte) [][]byte {
	out := [][]byte{unfold(value, false, true).text, unfold(value, true, true).text}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// With so many unknown bytes before it, the value's own characters
			// begin after the ones that also hold bits of those, and end
			// before the one that also holds bits of what follows.
			text := enc.EncodeToString(append(make([]byte, before), value...))
			first := []int{0, 2, 3}[before]
			last := (before + len(value)) * 8 / 6
			out = append(out, []byte(text[first:last]))
		}
	}
	lower := hex.EncodeToString(value)
	return append(out, []byte(lower), []byte(strings.ToUpper(lower)))
}

// index fills the look-up tables from m.patterns.
func (m *matcher) index() {
	for i, p := range m.patterns {
		key := word(p.text[:anchor])
		m.anchors[key] = append(m.anchors[key], int32(i))
		m.longest = max(m.longest, len(p.text))
		for n := 1; n < anchor; n++ {
			m.prefixes[prefix{n, word(p.text[:n])}] = struct{}{}
		}
	}
	// 64 bits for each anchor keep false hits under 2 %; 8 KiB to 2 MiB.
	size := min(max(bits.Len(uint(len(m.anchors)))+6, 16), 24)
	m.bitmap, m.shift = make([]uint64, 1<<size/64), uint(64-size)
	for key := range m.anchors {
		x := hash(key) >> m.shift
		m.bitmap[x/64] |= 1 << (x % 64)
	}
}

func word(p []byte) (w uint64) {
	for _, b := range p {
		w = w<<8 | uint64(b)
	}
	return w
}

// hash spreads a window over the bit map (Fibonacci hashing).
func hash(w uint64) uint64 { return w * 0x9E3779B97F4A7C15 }

// find returns the secrets in the whole text p: sorted, none overlapping.
func (m *matcher) find(p []byte) []match {
	found, _ := m.scan(p, true)
	return found
}

// scan returns the secrets in p, sorted and joined where they overlap, and how
// much of p is settled: whatever follows p, no secret can begin before that
// place and end after it. If p is the whole text, all of it is settled.
func (m *matcher) scan(p []byte, whole bool) (found []match, settled int) {
	plain := unfold(p, false, whole)
	found, settled = m.search(plain, whole)
	views := []view{plain}
	if bytes.IndexByte(p, '%') >= 0 || bytes.IndexByte(p, '\\') >= 0 {
		decoded := unfold(p, true, whole)
		more, upTo := m.search(decoded, whole)
		found, settled = append(found, more...), min(settled, upTo)
		views = append(views, decoded)
	}
	found = join(found)
	if whole {
		return found, len(p)
	}
	for before := -1; before != settled; {
		before = settled
		for _, v := range views {
			settled = v.align(settled)
		}
		for _, f := range found {
			if f.start < settled && settled < f.end {
				settled = f.start
			}
		}
	}
	return found, settled
}

// search looks for every pattern in v's text. Places are those of the source.
func (m *matcher) search(v view, whole bool) (found []match, settled int) {
	text, hold := v.text, len(v.text)
	bitmap, shift := m.bitmap, m.shift&63
	var w uint64
	for i, b := range text {
		w = w<<8 | uint64(b)
		x := hash(w) >> shift
		if bitmap[x>>6]>>(x&63)&1 == 0 || i < anchor-1 {
			continue
		}
		start := i - (anchor - 1)
		for _, c := range m.anchors[w] {
			p := m.patterns[c]
			switch rest := text[start:]; {
			case bytes.HasPrefix(rest, p.text):
				found = append(found, match{v.start(start), v.end(start + len(p.text)), p.marker})
			case !whole && bytes.HasPrefix(p.text, rest):
				hold = min(hold, start)
			}
		}
	}
	if whole {
		return found, v.source
	}
	for n := min(anchor-1, len(text)); n > 0; n-- {
		if _, ok := m.prefixes[prefix{n, word(text[len(text)-n:])}]; ok {
			hold = min(hold, len(text)-n)
			break
		}
	}
	if hold == len(text) {
		return found, v.settled
	}
	return found, min(v.settled, v.start(hold))
}

// join sorts matches and makes one of those that overlap.
func join(found []match) []match {
	if len(found) < 2 {
		return found
	}
	slices.SortFunc(found, func(a, b match) int {
		switch {
		case a.start != b.start:
			return a.start - b.start
		case a.end != b.end:
			return b.end - a.end
		}
		return int(a.marker - b.marker)
	})
	out := found[:1]
	for _, f := range found[1:] {
		if last := &out[len(out)-1]; f.start < last.end {
			last.end = max(last.end, f.end)
			continue
		}
		out = append(out, f)
	}
	return out
}

// replace returns p with markers in place of found.
func (m *matcher) replace(p []byte, found []match) []byte {
	out := make([]byte, 0, len(p)+len(found)*16)
	at := 0
	for _, f := range found {
		out = append(out, p[at:f.start]...)
		out = append(out, m.markers[f.marker]...)
		at = f.end
	}
	return append(out, p[at:]...)
}
