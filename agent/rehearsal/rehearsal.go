// Package rehearsal is a scripted server that stands in for a model provider.
// It speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and
// Gemini generateContent, streamed and not, and answers from a script, so that
// a whole task can be played without a provider, a key or money. It is never a
// model and always says so: each answer carries the header
// X-Cofferdam-Rehearsal: true and, unless the script says otherwise, the model
// name cofferdam-rehearsal.
//
// The invariant: an answer depends on the request and the script alone, never
// on what was asked before, so restarts and parallel conversations change
// nothing. The one exception is the condition "try": only scripts that have it
// count how often each request came.
//
// # The format of a script
//
// Text, one instruction a line; empty lines and lines that begin with # are
// skipped. A script is a list of answers. An answer begins with one or more
// conditions and goes on with what to do; the first answer all of whose
// conditions hold is given. One script serves all protocols.
//
//	key SECRET         at the top: requests must carry this API key
//	serves MODEL ...   at the top: a request for another model is an error
//
//	turn N             holds in the Nth answer of a conversation, from 1
//	asked TEXT         holds if a user's text contains TEXT
//	after TEXT         holds if one of the latest tool results contains TEXT
//	model TEXT         holds if the model asked for contains TEXT
//	try N              holds the Nth time that this very request is asked
//	bare               holds if the request offers no tools
//	otherwise          always holds
//
//	say TEXT           the answer says TEXT
//	reason TEXT        the answer thinks TEXT aloud
//	bash COMMAND       the answer calls the shell tool that is offered
//	read PATH          the answer reads the file PATH
//	write PATH         the answer writes the file PATH with the | lines that follow
//	edit PATH          the answer replaces the - lines that follow by the + lines
//	tool NAME JSON     the answer calls the tool NAME with the input JSON; a
//	                   JSON string is the input of a free-form tool
//	| TEXT             one more line of the say, reason, bash or write before it
//	huge BYTES         the say, reason, bash or write before it grows by so much,
//	                   or the answer says so much
//	wait DURATION      the answer comes after DURATION, such as 500ms
//	pause DURATION     the stream is silent for so long, here between its parts
//	slow DURATION      each piece of the stream comes so long after the last
//	usage IN OUT [CACHED]  token counts; CACHED of IN came from a cache
//	as MODEL           the answer says that MODEL gave it
//	empty              the answer has no parts
//	fail STATUS TEXT   the answer is the error STATUS, such as 529, with TEXT
//	retry-after N      the error asks the client to wait N seconds
//	break TEXT         the stream ends in the protocol's error with TEXT
//	cut N              the connection ends after N events of a stream
//	cut N bytes        the connection ends after N bytes of the answer
//	malformed N        event N of a stream, or the whole answer, is broken JSON
//
// Several tool lines in one answer are parallel calls. bash, read, write and
// edit take the names and arguments of the tools that the request offers; read,
// write and edit fall back on the shell. A relative PATH is completed by the
// working directory that the request names, if it does.
//
// Where no answer holds, and in conversations of more than 100 answers, the
// server says that the script has ended. Requests that offer no tools, which
// agents make for titles and quota checks, are answered with one word (or the
// smallest JSON that the schema they give allows) unless an answer has "bare".
package rehearsal

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a script and of a conversation.
const (
	maxScript = 1 << 20 // bytes of a script
	maxTurns  = 100     // answers of one conversation: a script that loops ends here
	maxWait   = 10 * time.Minute
	maxBody   = 32 << 20 // bytes of a request, as the provider has it
	maxHuge   = 32 << 20 // bytes that huge may add to one part
	maxTokens = 1 << 40  // of one usage line
)

// ModelName is what an answer gives as its model unless the script says
// otherwise.
const ModelName = "cofferdam-rehearsal"

// Header marks every answer.
const Header = "X-Cofferdam-Rehearsal"

// Script is a parsed script.
type Script struct {
	Key     string   // "": any key will do
	Serves  []string // models that can be asked for; empty: any
	answers []answer
}

// answer is what the script says of one answer: when it holds, and what it does.
type answer struct {
	turn, try          int      // 0: any
	asked              []string // each must be contained in a text of the user
	after              []string // each must be contained in the latest tool results
	model              []string // each must be contained in the model asked for
	bare, otherwise    bool
	steps              []step
	wait, slow         time.Duration
	usage              *usage
	as                 string
	empty              bool
	status             int // of fail; 0: none
	failure            string
	retryAfter         int // seconds; 0: not said
	broken             string
	cutEvents, cutSize int // 0: whole
	malformed          int // event; 0: none
	acts               bool
}

// usage is what an answer says it used, in tokens.
type usage struct{ in, out, cached int }

// Parse reads a script. Errors name the line.
func Parse(r io.Reader) (Script, error) {
	var s Script
	text, err := io.ReadAll(io.LimitReader(r, maxScript+1))
	if err != nil {
		return s, fmt.Errorf("reading a rehearsal script: %w", err)
	}
	if len(text) > maxScript {
		return s, fmt.Errorf("reading a rehearsal script: it is larger than %d bytes", maxScript)
	}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		if err := s.add(verb, rest); err != nil {
			return s, fmt.Errorf("reading a rehearsal script: line %d: %w", i+1, err)
		}
	}
	for i, a := range s.answers {
		if !a.acts {
			return s, fmt.Errorf("reading a rehearsal script: answer %d has conditions and does nothing", i+1)
		}
	}
	if len(s.answers) == 0 {
		return s, fmt.Errorf("reading a rehearsal script: it has no answers")
	}
	return s, nil
}

func (s *Script) add(verb, rest string) error {
	switch verb {
	case "key", "serves":
		rest = strings.TrimSpace(rest)
		if len(s.answers) > 0 || rest == "" {
			return fmt.Errorf("%s stands at the top and has a value", verb)
		}
		if verb == "key" {
			s.Key = rest
		} else {
			s.Serves = append(s.Serves, strings.Fields(rest)...)
		}
		return nil
	case "turn", "try", "asked", "after", "model", "bare", "otherwise":
		return s.condition(verb, strings.TrimSpace(rest))
	}
	if len(s.answers) == 0 {
		return fmt.Errorf("%q stands before any condition (turn, asked, after, model, try, bare, otherwise)", verb)
	}
	a := &s.answers[len(s.answers)-1]
	a.acts = true
	return a.act(verb, rest)
}

func (s *Script) condition(verb, rest string) error {
	if n := len(s.answers); n == 0 || s.answers[n-1].acts {
		s.answers = append(s.answers, answer{})
	}
	a := &s.answers[len(s.answers)-1]
	if (verb == "otherwise" || verb == "bare") != (rest == "") {
		return fmt.Errorf("%s: a value is missing or too many", verb)
	}
	switch verb {
	case "turn", "try":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 {
			return fmt.Errorf("%s needs a number from 1, not %q", verb, rest)
		}
		if verb == "turn" {
			a.turn = n
		} else {
			a.try = n
		}
	case "asked":
		a.asked = append(a.asked, rest)
	case "after":
		a.after = append(a.after, rest)
	case "model":
		a.model = append(a.model, rest)
	case "bare":
		a.bare = true
	case "otherwise":
		a.otherwise = true
	}
	return nil
}

// counts says whether the script looks at how often a request came.
func (s Script) counts() bool {
	return slices.ContainsFunc(s.answers, func(a answer) bool { return a.try > 0 })
}

// answerTo finds the answer to a question that is asked for the given time.
func (s Script) answerTo(q question, try int) answer {
	if q.turn <= maxTurns {
		for _, a := range s.answers {
			if a.holds(q, try) {
				return a
			}
		}
	}
	if len(q.tools) == 0 {
		return answer{steps: []step{{verb: "say", text: q.oneWord()}}}
	}
	return answer{steps: []step{{verb: "say", text: "The rehearsal script has no more answers."}}}
}

func (a answer) holds(q question, try int) bool {
	in := func(text string) func(string) bool {
		return func(part string) bool { return !strings.Contains(text, part) }
	}
	return a.bare == (len(q.tools) == 0) &&
		(a.turn == 0 || a.turn == q.turn) &&
		(a.try == 0 || a.try == try) &&
		!slices.ContainsFunc(a.asked, in(q.asked)) &&
		!slices.ContainsFunc(a.after, in(q.result)) &&
		!slices.ContainsFunc(a.model, in(q.model))
}

// oneWord answers a request that offers no tools, in the shape it asks for.
func (q question) oneWord() string {
	if q.schema == nil {
		return "rehearsal"
	}
	text, err := json.Marshal(q.schema.smallest(0))
	if err != nil {
		panic("encoding a smallest value: " + err.Error()) // cannot happen: it was decoded from JSON
	}
	return string(text)
}
