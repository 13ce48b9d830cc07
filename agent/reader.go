package agent

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"cofferdam"
)

// Limits of what is read from an agent; all of its output is hostile text and
// goes on record as exec.output anyway, whatever a Reader makes of it.
const (
	// MaxLine bounds one line in memory. A tool result of Claude Code holds up
	// to 30,000 characters of command output, JSON-escaped; 1 MiB is ample.
	MaxLine = 1 << 20
	// MaxText bounds the text of one event, in bytes.
	MaxText = 4 << 10
	// MaxEvents bounds the events of one run; later ones are only counted.
	MaxEvents = 5000
)

// What a Reader can read.
const (
	lines        = "lines"
	claudeStream = "claude-stream-json"
)

var readers = []string{lines, claudeStream}

// Markers of the last line by which an agent says that it did nothing.
const (
	nothingMarker = "cofferdam: nothing to do"
	blockedMarker = "cofferdam: blocked:"
)

// Kind sorts events.
type Kind string

// The kinds of event.
const (
	Message Kind = "message" // the agent says something
	Tool    Kind = "tool"    // the agent uses a tool
	Answer  Kind = "result"  // what the tool answered
	Change  Kind = "file"    // the agent says it changed a file; Text is its path
	Cost    Kind = "cost"    // what the agent says it spent: Tokens and Dollars
	Begin   Kind = "begin"   // a conversation begins or goes on; Text is the agent's name of it
)

// Event is one thing an agent did, as it tells it. All of it is hostile text.
type Event struct {
	Kind  Kind
	Tool  string // of Tool: its name
	Text  string // bounded by MaxText
	Error bool   // of Answer: the tool says it failed

	Tokens  int64   // of Cost: input and output together, of the whole run so far
	Dollars float64 // of Cost: US dollars, 0 if the agent does not say
}

// End is what was read by the end of an agent's output.
type End struct {
	Said    cofferdam.Said
	Message string // last words, bounded by MaxText; of a blocked agent, its reason
	Failed  bool   // the agent says that it could not go on, such as an unreachable provider

	Conversation string // the agent's own name of its conversation, by which it can be resumed; "" if it told none
	Skipped      int    // lines longer than MaxLine or not readable
	Dropped      int    // events beyond MaxEvents
}

// Reader turns an agent's standard output into events. Write never fails for
// what the output contains, only if emit fails. The events depend on the bytes
// alone, not on how they were cut into writes, so that a second process that
// reads the same output again gets the same events. Not safe for concurrent use.
type Reader struct {
	emit    func(Event) error
	parse   func(*Reader, []byte) error
	line    []byte
	tooLong bool
	events  int
	end     End
	last    string // last words so far
}

// NewReader returns a reader for the adapter's output.
func (a Adapter) NewReader(emit func(Event) error) *Reader {
	r := &Reader{emit: emit, parse: (*Reader).plainLine}
	if a.Reader == claudeStream {
		r.parse = (*Reader).claudeLine
	}
	return r
}

// Write reads p.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if len(r.line)+len(part) > MaxLine {
			r.tooLong, r.line = true, r.line[:0]
		}
		if !r.tooLong {
			r.line = append(r.line, part...)
		}
		if i < 0 {
			break
		}
		p = p[i+1:]
		if err := r.endLine(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Close reads the last line, if it had no end, and returns what was read.
func (r *Reader) Close() (End, error) {
	if len(r.line) > 0 || r.tooLong {
		if err := r.endLine(); err != nil {
			return r.end, err
		}
	}
	r.end.Said, r.end.Message = said(r.last)
	return r.end, nil
}

func (r *Reader) endLine() error {
	defer func() { r.line, r.tooLong = r.line[:0], false }()
	if r.tooLong {
		r.end.Skipped++
		return nil
	}
	line := bytes.TrimSuffix(r.line, []byte("\r"))
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	return r.parse(r, line)
}

// plainLine reads one line of a program that knows nothing of us. It is no
// event: the line is on record as exec.output already.
func (r *Reader) plainLine(line []byte) error {
	r.last = bound(string(line))
	return nil
}

func (r *Reader) send(e Event) error {
	if r.events++; r.events > MaxEvents {
		r.end.Dropped++
		return nil
	}
	e.Text, e.Tool = bound(e.Text), bound(e.Tool)
	return r.emit(e)
}

// said finds the agent's claim in the last line of its last words.
func said(words string) (cofferdam.Said, string) {
	words = strings.TrimSpace(words)
	last := strings.TrimSpace(words[strings.LastIndexByte(words, '\n')+1:])
	switch low := strings.ToLower(last); {
	case strings.TrimSuffix(low, ".") == nothingMarker:
		return cofferdam.SaidNothingToDo, bound(words)
	case strings.HasPrefix(low, blockedMarker):
		return cofferdam.SaidBlocked, bound(strings.TrimSpace(last[len(blockedMarker):]))
	}
	return cofferdam.SaidDone, bound(words)
}

// bound makes hostile text small and valid UTF-8, keeping its end: the last
// words and the last line matter most.
func bound(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxText {
		return s
	}
	cut := len(s) - (MaxText - len("…"))
	for !utf8.RuneStart(s[cut]) {
		cut++
	}
	return "…" + s[cut:]
}
