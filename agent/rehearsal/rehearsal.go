// Package rehearsal is a scripted server that stands in for a model provider.
// It speaks the Anthropic Messages protocol, streamed and not, and answers from
// a script, so that a whole task can be played without a provider, a key or
// money. It is never a model and always says so: each answer carries the header
// X-Cofferdam-Rehearsal: true and the model name cofferdam-rehearsal.
//
// The invariant: an answer depends on the request and the script alone, never
// on what was asked before, so restarts and parallel conversations change nothing.
//
// # The format of a script
//
// Text, one instruction a line; empty lines and lines that begin with # are
// skipped. A script is a list of answers. An answer begins with one or more
// conditions and goes on with what to do; the first answer all of whose
// conditions hold is given.
//
//	key SECRET         at the top: requests must carry this API key
//
//	turn N             holds in the Nth answer of a conversation, from 1
//	asked TEXT         holds if a user's text contains TEXT
//	after TEXT         holds if the latest tool result contains TEXT
//	otherwise          always holds
//
//	say TEXT           the answer says TEXT
//	bash COMMAND       the answer calls the tool Bash with COMMAND
//	tool NAME JSON     the answer calls the tool NAME with the input JSON
//	wait DURATION      the answer comes after DURATION, such as 500ms
//	fail STATUS TEXT   the answer is the error STATUS, such as 529, with TEXT
//	| TEXT             one more line of the say or bash before it
//
// Where no answer holds, and in conversations of more than 100 answers, the
// server says that the script has ended. Requests that offer no tools, which
// agents make for titles and quota checks, are answered with one word.
package rehearsal

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
)

// ModelName is what every answer gives as its model.
const ModelName = "cofferdam-rehearsal"

// Header marks every answer.
const Header = "X-Cofferdam-Rehearsal"

// Script is a parsed script.
type Script struct {
	Key     string // "": any key will do
	answers []answer
}

type answer struct {
	turn      int      // 0: any
	asked     []string // each must be contained in a text of the user
	after     []string // each must be contained in the latest tool result
	blocks    []block
	wait      time.Duration
	status    int // of fail; 0: none
	failure   string
	otherwise bool
}

// block is one part of an answer: text, or a call of a tool.
type block struct {
	text  string
	tool  string
	bash  string          // input of the tool Bash
	input json.RawMessage // input of any other
}

// Parse reads a script. Errors name the line.
func Parse(r io.Reader) (Script, error) {
	var s Script
	scan := bufio.NewScanner(io.LimitReader(r, maxScript+1))
	scan.Buffer(nil, maxScript)
	read := 0
	for n := 1; scan.Scan(); n++ {
		if read += len(scan.Bytes()) + 1; read > maxScript {
			return s, fmt.Errorf("reading a rehearsal script: it is larger than %d bytes", maxScript)
		}
		line := strings.TrimRight(scan.Text(), " \t\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		if err := s.add(verb, rest); err != nil {
			return s, fmt.Errorf("reading a rehearsal script: line %d: %w", n, err)
		}
	}
	if err := scan.Err(); err != nil {
		return s, fmt.Errorf("reading a rehearsal script: %w", err)
	}
	if len(s.answers) == 0 {
		return s, fmt.Errorf("reading a rehearsal script: it has no answers")
	}
	return s, nil
}

func (s *Script) add(verb, rest string) error {
	switch verb {
	case "key":
		if len(s.answers) > 0 || rest == "" {
			return fmt.Errorf("key stands at the top and has a value")
		}
		s.Key = rest
		return nil
	case "turn", "asked", "after", "otherwise":
		return s.condition(verb, rest)
	}
	if len(s.answers) == 0 {
		return fmt.Errorf("%q stands before any condition (turn, asked, after, otherwise)", verb)
	}
	return s.answers[len(s.answers)-1].act(verb, rest)
}

func (s *Script) condition(verb, rest string) error {
	if n := len(s.answers); n == 0 || s.answers[n-1].acts() {
		s.answers = append(s.answers, answer{})
	}
	a := &s.answers[len(s.answers)-1]
	if (verb == "otherwise") != (rest == "") {
		return fmt.Errorf("%s: a value is missing or too many", verb)
	}
	switch verb {
	case "turn":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 {
			return fmt.Errorf("turn needs a number from 1, not %q", rest)
		}
		a.turn = n
	case "asked":
		a.asked = append(a.asked, rest)
	case "after":
		a.after = append(a.after, rest)
	case "otherwise":
		a.otherwise = true
	}
	return nil
}

// acts says whether a has more than conditions.
func (a *answer) acts() bool { return len(a.blocks) > 0 || a.wait > 0 || a.status > 0 }

func (a *answer) act(verb, rest string) error {
	switch verb {
	case "say":
		a.blocks = append(a.blocks, block{text: rest})
	case "bash":
		a.blocks = append(a.blocks, block{tool: "Bash", bash: rest})
	case "tool":
		name, input, _ := strings.Cut(rest, " ")
		if !json.Valid([]byte(input)) {
			return fmt.Errorf("tool needs a name and valid JSON")
		}
		a.blocks = append(a.blocks, block{tool: name, input: json.RawMessage(input)})
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil || d <= 0 || d > maxWait {
			return fmt.Errorf("wait needs a duration up to %v, not %q", maxWait, rest)
		}
		a.wait = d
	case "fail":
		code, text, _ := strings.Cut(rest, " ")
		status, err := strconv.Atoi(code)
		if err != nil || status < 400 || status > 599 {
			return fmt.Errorf("fail needs a status from 400 to 599, not %q", code)
		}
		a.status, a.failure = status, text
	case "|":
		return a.more(rest)
	default:
		return fmt.Errorf("unknown instruction %q", verb)
	}
	return nil
}

func (a *answer) more(line string) error {
	if len(a.blocks) == 0 {
		return fmt.Errorf("| continues say or bash, and there is none before it")
	}
	switch b := &a.blocks[len(a.blocks)-1]; {
	case b.tool == "":
		b.text += "\n" + line
	case b.tool == "Bash" && b.input == nil:
		b.bash += "\n" + line
	default:
		return fmt.Errorf("| continues say or bash")
	}
	return nil
}

// answerTo finds the answer to a conversation.
func (s Script) answerTo(c conversation) answer {
	if c.turn <= maxTurns {
		for _, a := range s.answers {
			if a.holds(c) {
				return a
			}
		}
	}
	return answer{blocks: []block{{text: "The rehearsal script has no more answers."}}}
}

func (a answer) holds(c conversation) bool {
	if a.turn != 0 && a.turn != c.turn {
		return false
	}
	for _, text := range a.asked {
		if !strings.Contains(c.asked, text) {
			return false
		}
	}
	for _, text := range a.after {
		if !strings.Contains(c.result, text) {
			return false
		}
	}
	return true
}
