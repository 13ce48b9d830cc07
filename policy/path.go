package policy

import (
	"net/url"
	"slices"
	"strings"

	"cofferdam"
)

// maxDecoded is how often percent signs are taken off a path to read it. Once is
// what the standard says; proxies in front of a server take off one more.
const maxDecoded = 3

// inEveryReading judges q again for each way in which a server may read its path:
// escapes, doubled slashes, backslashes, parameters and dots. d is what was
// decided of the path as it stands. What a rule forbids stays forbidden in any of
// them, and what a layer asks about is asked, also where another one leaves that
// reading out; what is permitted has to be so wherever dots may lead.
func (s *Set) inEveryReading(q Query, d cofferdam.Decision) cofferdam.Decision {
	type reading struct {
		path string
		all  bool // must be permitted too
	}
	var seen []reading
	text := q.Path
	for range 1 + maxDecoded {
		for _, r := range []reading{{dotless(text), hasDots(text)}, {text, false}, {dotless(single(text)), false}} {
			if r.path == q.Path || slices.Contains(seen, r) {
				continue
			}
			seen = append(seen, r)
			other := q
			other.Path = r.path
			switch o := s.decide(other); {
			case o.Verdict == cofferdam.Refused && (r.all || o.Rule != DefaultDeny):
				return o
			case o.Verdict == cofferdam.Refused: // also what nothing permits may be asked about
				if j, _ := s.judge(other); j.asks.people > d.People {
					d.Verdict, d.Rule, d.People = cofferdam.Asked, j.asks.rule, j.asks.people
					d.Reason, d.Hint = asked(d.Rule)
				}
			case o.Verdict == cofferdam.Asked && (d.Verdict == cofferdam.Allowed || o.People > d.People):
				d = o
			}
		}
		next := unescaped(text)
		if next == text {
			return d
		}
		text = next
	}
	return d
}

// unescaped takes the percent signs off a path. One that escapes nothing stays, as
// servers leave it that are not strict: it must not keep the rest from being read.
func unescaped(path string) string {
	if next, err := url.PathUnescape(path); err == nil {
		return next
	}
	var b strings.Builder
	for path != "" {
		if len(path) >= 3 && path[0] == '%' {
			if c, err := url.PathUnescape(path[:3]); err == nil {
				b.WriteString(c)
				path = path[3:]
				continue
			}
		}
		b.WriteByte(path[0])
		path = path[1:]
	}
	return b.String()
}

// segments cuts a path where servers do. Those of Windows take a backslash for a
// slash, and those of Java end a segment's name at a semicolon.
func segments(path string) (names, whole []string) {
	whole = strings.Split(strings.ReplaceAll(path, `\`, "/"), "/")
	for _, w := range whole {
		name, _, _ := strings.Cut(w, ";")
		names = append(names, name)
	}
	return names, whole
}

func hasDots(path string) bool {
	names, _ := segments(path)
	return slices.Contains(names, "..") || slices.Contains(names, ".")
}

// dotless follows the dots in a path. Source: RFC 3986, section 5.2.4.
func dotless(path string) string {
	if !hasDots(path) {
		return path
	}
	names, whole := segments(path)
	var out []string
	for i, name := range names {
		last := i == len(names)-1
		switch name {
		case "..":
			out = out[:max(min(1, len(out)), len(out)-1)] // the first is empty, before the slash
		case ".":
		default:
			out = append(out, whole[i])
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return strings.Join(out, "/")
}

// single is a path without parameters, backslashes and doubled slashes.
func single(path string) string {
	names, _ := segments(path)
	text := strings.Join(names, "/")
	for strings.Contains(text, "//") {
		text = strings.ReplaceAll(text, "//", "/")
	}
	return text
}
