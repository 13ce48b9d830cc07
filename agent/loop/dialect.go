package loop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"cofferdam"
)

// DefaultModel is the model id that is asked for where nobody names one, by
// protocol. The names are the providers' own for their middle size.
var DefaultModel = map[string]string{
	"anthropic": "claude-sonnet-4-5", "openai": "gpt-5", "gemini": "gemini-2.5-pro",
}

// Bounds of one answer.
const (
	maxOutput = 16 << 10  // tokens that an answer is asked to stay below
	maxAnswer = 512 << 10 // bytes of its text and calls
	MaxCalls  = 16        // tools that one answer may call
	maxEvent  = 1 << 20   // bytes of one event of a stream
	maxStream = 64 << 20  // bytes of a stream, which spends some hundred on each token
)

// Why a model stopped, in our words.
const (
	stopDone   = "done"
	stopLength = "length" // it met the bound of an answer
	stopFilter = "refused"
)

// question is what a model is asked.
type question struct {
	Model, System string
	Turns         []turn
	Tools         []tool
	Max           int // tokens of the answer
}

// dialect is one provider's protocol.
type dialect struct {
	path   func(q question) string
	body   func(q question) any
	header http.Header
	stream func() stream
}

// stream puts an answer together from the events of a stream.
type stream interface {
	// event takes the data of one event.
	event(data []byte) error
	// end returns the answer; an error if the stream was not whole.
	end() (entry, error)
}

var dialects = map[string]dialect{
	"anthropic": {
		path: func(question) string { return "/v1/messages" }, body: anthropicBody,
		header: http.Header{"Anthropic-Version": {"2023-06-01"}},
		stream: func() stream { return &anthropicStream{} },
	},
	"openai": {
		path: func(question) string { return "/v1/chat/completions" }, body: openaiBody,
		stream: func() stream { return &openaiStream{} },
	},
	"gemini": {
		path: geminiPath, body: geminiBody,
		stream: func() stream { return &geminiStream{} },
	},
}

var (
	errCut     = errors.New("the answer was cut before its end")
	errTooLong = errors.New("the answer is longer than an answer may be")
	errBadCall = errors.New("the model called a tool in a way that its provider could not read")
	errCalls   = fmt.Errorf("the answer calls more than %d tools", MaxCalls)
)

// unreadable makes an error of an event that is not what the protocol says.
func unreadable(err error) error { return fmt.Errorf("the answer cannot be read: %w", err) }

// readStream reads server-sent events into s until the body ends.
func readStream(body io.Reader, s stream) (entry, error) {
	lines := bufio.NewScanner(io.LimitReader(body, maxStream))
	lines.Buffer(nil, maxEvent)
	var data []byte
	flush := func() error {
		text := bytes.TrimSpace(data)
		data = nil
		if len(text) == 0 || string(text) == "[DONE]" {
			return nil
		}
		return s.event(text)
	}
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if err := flush(); err != nil {
				return entry{}, err
			}
			continue
		}
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if data = append(append(data, '\n'), text...); len(data) > maxEvent {
				return entry{}, errTooLong
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return entry{}, errTooLong
	case err != nil:
		return entry{}, errors.Join(errCut, err)
	}
	if err := flush(); err != nil {
		return entry{}, err
	}
	e, err := s.end()
	if err != nil {
		return entry{}, err
	}
	return e, e.check()
}

// check holds an answer to the bounds.
func (e entry) check() error {
	size, calls := 0, 0
	for _, p := range e.Parts {
		size += len(p.Text) + len(p.Signature)
		if p.Call != nil {
			size += len(p.Call.Input)
			calls++
		}
	}
	switch {
	case size > maxAnswer:
		return errTooLong
	case calls > MaxCalls:
		return errCalls
	}
	return nil
}

// grown bounds what a stream collects while it comes.
type grown int

func (g *grown) add(texts ...string) error {
	for _, t := range texts {
		*g += grown(len(t))
	}
	if *g > maxAnswer {
		return errTooLong
	}
	return nil
}

// fault is an error that a provider or the gateway answered.
type fault struct {
	status  int
	message string
	final   bool // another try would be answered the same
	spent   bool // the task's budget is used up
}

func (f *fault) Error() string {
	return fmt.Sprintf("the model provider answered %d: %s", f.status, f.message)
}

// maxFault bounds what is read of an error, and maxFaultText what is kept.
const (
	maxFault     = 64 << 10
	maxFaultText = 1000
)

// readFault reads an answer that is not 200. All three protocols put the reason
// into error.message.
func readFault(resp *http.Response) *fault {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFault))
	if err != nil {
		body = nil // its status says enough
	}
	f := &fault{status: resp.StatusCode, message: faultMessage(body)}
	if f.message == "" {
		f.message = http.StatusText(f.status)
	}
	rule := resp.Header.Get(ruleHeader)
	switch f.status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
	default:
		f.final = f.status < 500
	}
	// What the gateway refuses stays refused, whatever the status says.
	f.final = f.final || rule != "" || resp.Header.Get("X-Should-Retry") == "false"
	f.spent = rule == cofferdam.RuleBudget || rule == cofferdam.RuleUnpriced
	return f
}

// ruleHeader is in answers of the gateway itself that refuse: the rule's name.
const ruleHeader = "X-Cofferdam-Rule"

func faultMessage(body []byte) string {
	type told struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	var one told
	if json.Unmarshal(body, &one) != nil {
		var list []told // as Gemini does for streams
		if json.Unmarshal(body, &list) == nil && len(list) > 0 {
			one = list[0]
		}
	}
	text := one.Error.Message
	if reason, _, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(text, "cofferdam: ") {
		text = reason // the gateway's own has a second line with a hint for people
	}
	return clip(strings.Join(strings.Fields(text), " "), maxFaultText)
}

// tooMuch says whether a provider refused a request because it is longer than
// the model's window; each has its own words for that.
func (f *fault) tooMuch() bool {
	if f.status != http.StatusBadRequest && f.status != http.StatusRequestEntityTooLarge {
		return false
	}
	text := strings.ToLower(f.message)
	for _, words := range []string{"too long", "context length", "context_length", "context size", "context window", "maximum number of tokens"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return f.status == http.StatusRequestEntityTooLarge
}

// unknownProvider is the error for a protocol that no dialect speaks.
func unknownProvider(name string) error {
	return &cofferdam.Error{
		Op: "loop.Run", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("model of protocol %q", name),
		Reason: "the agent loop does not speak it", Hint: "use a model of the protocol anthropic, openai or gemini",
	}
}
