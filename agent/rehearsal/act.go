package rehearsal

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// step is one instruction of an answer that becomes a part of it.
type step struct {
	verb     string // say, reason, bash, read, write, edit, tool or pause
	text     string // what is said; the command; the content; the old text of edit
	with     string // the new text of edit
	name     string // tool, or path
	input    json.RawMessage
	duration time.Duration
	huge     int  // bytes to add to text
	begun    bool // edit has had its first - line
	replaced bool // edit has had its first + line
}

func (a *answer) act(verb, rest string) error {
	word := strings.TrimSpace(rest)
	switch verb {
	case "say", "reason", "bash":
		a.steps = append(a.steps, step{verb: verb, text: rest})
	case "read", "write", "edit":
		if word == "" {
			return fmt.Errorf("%s needs a path", verb)
		}
		a.steps = append(a.steps, step{verb: verb, name: word})
	case "tool":
		name, input, _ := strings.Cut(word, " ")
		if name == "" || !json.Valid([]byte(input)) {
			return fmt.Errorf("tool needs a name and valid JSON")
		}
		a.steps = append(a.steps, step{verb: verb, name: name, input: json.RawMessage(input)})
	case "|":
		return a.more(rest)
	case "-", "+":
		return a.replace(verb, rest)
	case "huge":
		return a.grow(word)
	case "wait", "slow", "pause":
		return a.time(verb, word)
	case "empty":
		a.empty = true
	case "as":
		if word == "" {
			return fmt.Errorf("as needs the name of a model")
		}
		a.as = word
	case "usage":
		return a.count(strings.Fields(rest))
	default:
		return a.mishap(verb, rest)
	}
	return nil
}

// mishap reads what makes an answer go wrong.
func (a *answer) mishap(verb, rest string) error {
	number, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(number)
	bad := err != nil || n < 1
	switch verb {
	case "fail":
		if bad || n < 400 || n > 599 {
			return fmt.Errorf("fail needs a status from 400 to 599, not %q", number)
		}
		a.status, a.failure = n, text
	case "retry-after":
		if bad || text != "" || n > int(maxWait/time.Second) {
			return fmt.Errorf("retry-after needs a number of seconds up to %d, not %q", maxWait/time.Second, rest)
		}
		a.retryAfter = n
	case "break":
		if a.broken = strings.TrimSpace(rest); a.broken == "" {
			return fmt.Errorf("break needs a text")
		}
	case "cut":
		if bad || (text != "" && text != "bytes") {
			return fmt.Errorf(`cut needs a number of events, or a number and "bytes", not %q`, rest)
		}
		if text == "" {
			a.cutEvents = n
		} else {
			a.cutSize = n
		}
	case "malformed":
		if bad || text != "" {
			return fmt.Errorf("malformed needs the number of an event, not %q", rest)
		}
		a.malformed = n
	default:
		return fmt.Errorf("unknown instruction %q", verb)
	}
	return nil
}

func (a *answer) time(verb, word string) error {
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 || d > maxWait {
		return fmt.Errorf("%s needs a duration up to %v, not %q", verb, maxWait, word)
	}
	switch verb {
	case "wait":
		a.wait = d
	case "slow":
		a.slow = d
	case "pause":
		a.steps = append(a.steps, step{verb: verb, duration: d})
	}
	return nil
}

func (a *answer) count(fields []string) error {
	var n [3]int
	if len(fields) < 2 || len(fields) > 3 {
		return fmt.Errorf("usage needs IN OUT [CACHED]")
	}
	for i, f := range fields {
		v, err := strconv.Atoi(f)
		if err != nil || v < 0 || v > maxTokens {
			return fmt.Errorf("usage needs numbers of tokens, not %q", f)
		}
		n[i] = v
	}
	if n[2] > n[0] {
		return fmt.Errorf("usage: %d cached tokens are more than the %d of the input", n[2], n[0])
	}
	a.usage = &usage{in: n[0], out: n[1], cached: n[2]}
	return nil
}

// last is the step that | - + and huge go on with.
func (a *answer) last(verbs string) *step {
	if len(a.steps) == 0 {
		return nil
	}
	s := &a.steps[len(a.steps)-1]
	if !strings.Contains(" "+verbs+" ", " "+s.verb+" ") {
		return nil
	}
	return s
}

func (a *answer) more(line string) error {
	s := a.last("say reason bash write")
	if s == nil {
		return fmt.Errorf("| continues say, reason, bash or write, and there is none before it")
	}
	if s.verb == "write" {
		s.text += line + "\n"
	} else {
		s.text += "\n" + line
	}
	return nil
}

func (a *answer) replace(verb, line string) error {
	s := a.last("edit")
	if s == nil {
		return fmt.Errorf("%s continues edit, and there is none before it", verb)
	}
	if verb == "+" {
		s.with, s.replaced = join(s.with, line, s.replaced), true
		return nil
	}
	if s.replaced {
		return fmt.Errorf("edit: the - lines stand before the + lines")
	}
	s.text, s.begun = join(s.text, line, s.begun), true
	return nil
}

func join(text, line string, begun bool) string {
	if !begun {
		return line
	}
	return text + "\n" + line
}

func (a *answer) grow(word string) error {
	n, err := strconv.Atoi(word)
	s := a.last("say reason bash write")
	if s == nil {
		a.steps = append(a.steps, step{verb: "say"})
		s = &a.steps[len(a.steps)-1]
	}
	if err != nil || n < 1 || n > maxHuge-s.huge {
		return fmt.Errorf("huge needs a number of bytes up to %d, not %q", maxHuge, word)
	}
	s.huge += n
	return nil
}
