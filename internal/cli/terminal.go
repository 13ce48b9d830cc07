package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"cofferdam"
	"cofferdam/sandbox"
)

// screen is where an answer goes, as people see it: a terminal, or not one.
type screen struct{ *app }

// columns is how wide the terminal is that the answer goes to; 0 if it goes
// elsewhere, where nothing is cut or folded.
func (s screen) columns() int {
	if !s.Terminal(s.stdout) {
		return 0
	}
	return s.Width()
}

// narrowest is what a column keeps, in characters, however narrow the terminal is.
const narrowest = 8

// narrow makes columns, two blanks apart, fit into a row: the widest gives way,
// and never the first, by which things are named.
func narrow(width []int, row int) {
	total := 2 * (len(width) - 1)
	for _, w := range width {
		total += w
	}
	for ; total > row; total-- {
		widest := 0
		for i := 1; i < len(width); i++ {
			if widest == 0 || width[i] > width[widest] {
				widest = i
			}
		}
		if widest == 0 || width[widest] <= narrowest {
			return
		}
		width[widest]--
	}
}

// shortID is an id as a list shows it: on a terminal its first digits, by which
// every command knows it, elsewhere all of it.
func (s screen) shortID(id string) string {
	if s.columns() == 0 {
		return id
	}
	return id[:min(len(id), len("s-")+12)]
}

// hanging prints text after a head of so many characters. On a terminal it is
// folded at blanks, below where it began; what has no blanks, such as a path, stays
// whole.
func (s screen) hanging(head string, width int, text string) {
	indent := strings.Repeat(" ", width)
	most := s.columns()
	for line := range strings.Lines(strings.TrimRight(cleanText(text), "\n") + "\n") {
		line = strings.TrimSuffix(line, "\n")
		for most > 0 && width+utf8.RuneCountInString(line) > most {
			part := []rune(line)
			part = part[:min(len(part), max(1, most-width+1))]
			at := strings.LastIndexByte(string(part), ' ')
			if at <= 0 {
				at = strings.IndexByte(line, ' ')
			}
			if at <= 0 {
				break
			}
			fmt.Fprintln(s.Out, head+line[:at])
			head, line = indent, strings.TrimLeft(line[at:], " ")
		}
		fmt.Fprintln(s.Out, head+line)
		head = indent
	}
}

// Colours of a terminal, of status words alone: the word says it without them.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	normal = "\x1b[0m"
)

// colours says whether the answer has colours: as --color says, else on a terminal
// that knows them, unless NO_COLOR is set.
func (s screen) colours() bool {
	switch s.color {
	case "always":
		return true
	case "never":
		return false
	}
	return s.Getenv("NO_COLOR") == "" && s.Getenv("TERM") != "dumb" && s.Terminal(s.stdout)
}

// painted is a cell in the colour of the status that it names, or as it is.
func (s screen) painted(cell string) string {
	colour := ""
	switch word := strings.TrimRight(cell, " "); word {
	case sandbox.OK, "usable", string(cofferdam.Done), string(cofferdam.InReview), string(cofferdam.NothingToDo):
		colour = green
	case sandbox.Warn, string(cofferdam.Waiting):
		colour = yellow
	case sandbox.Fail, string(cofferdam.Blocked), string(cofferdam.Failed), string(cofferdam.TimedOut):
		colour = red
	}
	if colour == "" || !s.colours() {
		return cell
	}
	return colour + cell + normal
}
