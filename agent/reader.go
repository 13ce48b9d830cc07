package agent

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"cofferdam"
)

// Limits of what is read from an agent; all of its output is hostile text and
// goes on record as exec.output anyway, whatever a Reader makes of it.
const (
	// MaxLine bounds one line in memory, in bytes, after long strings in it were
	// cut. A tool result of Claude Code holds up to 30,000 characters of command
	// output, JSON-escaped; 1 MiB is ample.
	MaxLine = 1 << 20
	// MaxText bounds the text of one event, in bytes.
	MaxText = 4 << 10
	// MaxEvents bounds the events of one run; later ones are only counted.
	MaxEvents = 5000

	// What one run of an agent cannot have spent: such a number is a mistake.
	maxTokens  = 1e12
	maxDollars = 1e6
)

// lines is the reader of programs that know nothing of us.
const lines = "lines"

// readers are the values of an adapter's reader.
var readers = []string{lines, "claude-stream-json", "codex-json", "opencode-json", "gemini-stream-json"}

// dialect reads one kind of output. It may remember what it read of the same
// run; that is bounded.
type dialect interface {
	// line reads one line, not empty and at most MaxLine bytes, and tells by
	// r.send and r's fields what is in it. It calls r.skip for what it cannot
	// read, and fails only if r.send does.
	line(r *Reader, p []byte) error
}

// dialectOf returns a dialect for one run; nil if there is none of that name.
func dialectOf(reader string) dialect {
	switch reader {
	case lines:
		return plain{}
	case "claude-stream-json":
		return &claude{edits: map[string]string{}}
	case "codex-json":
		return &codex{open: map[string]bool{}}
	case "opencode-json":
		return &opencode{}
	case "gemini-stream-json":
		return &gemini{edits: map[string]string{}}
	}
	return nil
}

// Markers of the last line by which an agent says that it did nothing, or asks.
const (
	nothingMarker  = "cofferdam: nothing to do"
	blockedMarker  = "cofferdam: blocked:"
	questionMarker = "cofferdam: question:"
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
	Message string // last words, bounded by MaxText; of a blocked agent, its reason; of one that asks, its question
	Failed  bool   // the agent says that it could not go on, such as an unreachable provider

	Conversation string // the agent's own name of its conversation, by which it can be resumed; "" if it told none
	Skipped      int    // lines that could not be read, or are longer than MaxLine even without their long strings
	Dropped      int    // events beyond MaxEvents
}

// Reader turns an agent's standard output into events. Write never fails for
// what the output contains, only if emit fails. The events depend on the bytes
// alone, not on how they were cut into writes, so that a second process that
// reads the same output again gets the same events. Its memory is bounded: of a
// long string in a line the middle is left out. Not safe for concurrent use.
type Reader struct {
	emit    func(Event) error
	dialect dialect
	line    clipper
	events  int
	end     End
	last    string // last words so far, at most MaxLine bytes
	lost    int    // bytes that were dropped from them
}

// NewReader returns a reader for the adapter's output.
func (a Adapter) NewReader(emit func(Event) error) *Reader {
	d := dialectOf(a.Reader)
	if d == nil {
		d = plain{}
	}
	_, text := d.(plain)
	return &Reader{emit: emit, dialect: d, line: clipper{text: text}}
}

// Write reads p.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			r.line.add(p)
			break
		}
		r.line.add(p[:i])
		p = p[i+1:]
		if err := r.endLine(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Close reads the last line, if it had no end, and returns what was read.
func (r *Reader) Close() (End, error) {
	if err := r.endLine(); err != nil {
		return r.end, err
	}
	r.end.Said, r.end.Message = Claim(r.last)
	r.end.Message = bound(r.end.Message, r.lost)
	return r.end, nil
}

func (r *Reader) endLine() error {
	defer r.line.reset()
	p, ok := r.line.whole()
	if !ok {
		r.skip()
		return nil
	}
	p = bytes.TrimSuffix(p, []byte("\r"))
	if len(bytes.TrimSpace(p)) == 0 {
		return nil
	}
	return r.dialect.line(r, p)
}

// skip counts a line that could not be read.
func (r *Reader) skip() { r.end.Skipped++ }

// say is what the agent says to people; its last words tell how it ended.
func (r *Reader) say(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	r.words(text)
	return r.send(Event{Kind: Message, Text: text})
}

// words remembers the last words.
func (r *Reader) words(text string) { r.last, r.lost = text, r.line.dropped }

// spent tells what the agent says it spent. Numbers that are none are not told.
func (r *Reader) spent(tokens, dollars float64) error {
	if !(tokens >= 0 && tokens < maxTokens) {
		tokens = 0
	}
	if !(dollars >= 0 && dollars < maxDollars) {
		dollars = 0
	}
	if tokens == 0 && dollars == 0 {
		return nil
	}
	return r.send(Event{Kind: Cost, Tokens: int64(tokens), Dollars: dollars})
}

// begin tells the name of the conversation, once. A name that could be taken
// for anything else than a name is not believed.
func (r *Reader) begin(conversation string) error {
	if conversation == r.end.Conversation || !isConversation(conversation) {
		return nil
	}
	r.end.Conversation = conversation
	return r.send(Event{Kind: Begin, Text: conversation})
}

var conversationForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// isConversation says whether s can be the name of a conversation: it comes
// from the box and becomes an argument of a command in it.
func isConversation(s string) bool { return conversationForm.MatchString(s) }

func (r *Reader) send(e Event) error {
	if r.events++; r.events > MaxEvents {
		r.end.Dropped++
		return nil
	}
	e.Text, e.Tool = bound(e.Text, r.line.dropped), bound(e.Tool, r.line.dropped)
	return r.emit(e)
}

// bound makes hostile text small and valid UTF-8, keeping its end: the last
// words and the last line matter most. What was cut is marked with the length
// of the whole; dropped is what was lost of it before, in bytes as written.
func bound(s string, dropped int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxText {
		return s
	}
	mark := fmt.Sprintf("[the end of %d bytes] …", len(s)+dropped)
	cut := len(s) - (MaxText - len(mark))
	for !utf8.RuneStart(s[cut]) {
		cut++
	}
	return mark + s[cut:]
}

// plain reads a program that knows nothing of us. Its lines are no events: they
// are on record as exec.output already.
type plain struct{}

func (plain) line(r *Reader, p []byte) error {
	r.words(string(p))
	return nil
}

// Claim finds what an agent says of its own work in the last line of its last
// words. The text is not bounded.
func Claim(words string) (cofferdam.Said, string) {
	words = strings.TrimSpace(words)
	last := strings.TrimSpace(words[strings.LastIndexByte(words, '\n')+1:])
	switch low := strings.ToLower(last); {
	case strings.TrimSuffix(low, ".") == nothingMarker:
		return cofferdam.SaidNothingToDo, words
	case strings.HasPrefix(low, blockedMarker):
		return cofferdam.SaidBlocked, strings.TrimSpace(last[len(blockedMarker):])
	case strings.HasPrefix(low, questionMarker):
		return cofferdam.SaidQuestion, strings.TrimSpace(last[len(questionMarker):])
	}
	return cofferdam.SaidDone, words
}
