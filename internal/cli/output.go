package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// hidden says whether a character has no shape of its own: control, direction,
// zero width, tags, variation selectors and fillers can deceive a reader.
func hidden(r rune) bool {
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x2800, 0x3164, 0xffa0:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Zl, unicode.Zp) || r >= 0xe0100 && r <= 0xe01ef
}

// clean makes hidden characters and broken UTF-8 visible; for one line.
func clean(s string) string { return visible(s, "") }

// cleanText does the same for text of several lines.
func cleanText(s string) string { return visible(s, "\n\t") }

func visible(s, keep string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || hidden(r) }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strings.ContainsRune(keep, r) || !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// safeJSON escapes hidden characters in JSON; the values stay the same.
func safeJSON(data []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(data) {
		switch {
		case r == '\n' || !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// object prints one JSON object.
func (a *app) object(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", safeJSON(data))
	return err
}

// line prints one object of a stream.
func (a *app) line(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", safeJSON(data))
	return err
}

type list[T any] struct {
	Schema string `json:"schema"`
	Items  []T    `json:"items"`
}

// items prints a list in one of its three forms.
func items[T any](a *app, schema string, all []T, id func(T) string, head []string, row func(T) []string) error {
	switch {
	case a.json:
		if all == nil {
			all = []T{}
		}
		return a.object(list[T]{schema, all})
	case a.quiet:
		for _, v := range all {
			fmt.Fprintln(a.Out, clean(id(v)))
		}
		return nil
	}
	rows := make([][]string, 0, len(all))
	for _, v := range all {
		rows = append(rows, row(v))
	}
	return a.table(head, rows)
}

// table prints columns two blanks apart; the last is not padded. No cell has two
// blanks in a row, so that a row splits at them. On a terminal it fits, and a cell
// that is cut ends with a mark.
func (a *app) table(head []string, rows [][]string) error {
	width := make([]int, len(head))
	all := append([][]string{head}, rows...)
	for _, row := range all {
		for i, cell := range row {
			row[i] = cmp.Or(strings.Join(strings.Fields(clean(cell)), " "), "-")
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	if most := (screen{a}).columns(); most > 0 {
		narrow(width, most)
	}
	for _, row := range all {
		var b strings.Builder
		for i, cell := range row {
			cell = cut(cell, width[i])
			shown := cell
			if head[i] == "STATE" {
				shown = screen{a}.painted(cell)
			}
			b.WriteString(shown)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(a.Out, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// label is one line of a view.
type label struct{ name, value string }

// labels prints the lines whose value is not empty, their values in one column.
func (a *app) labels(lines []label) error {
	width := 13
	for _, l := range lines {
		if l.value != "" {
			width = max(width, len(l.name)+len(":"))
		}
	}
	for _, l := range lines {
		if l.value == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "%-*s %s\n", width, l.name+":", clean(l.value)); err != nil {
			return err
		}
	}
	return nil
}

// say prints a sentence for people, beside what was asked for.
func (a *app) say(format string, args ...any) {
	if a.quiet || a.json {
		return
	}
	fmt.Fprintln(a.Err, clean(fmt.Sprintf(format, args...)))
}

// count is a number and its noun.
func count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// short cuts a commit or digest for people.
func short(s string) string {
	s = strings.TrimPrefix(s, "sha256:")
	return s[:min(len(s), 12)]
}

func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// age is the last column of a list.
func age(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
