package loop

import (
	"encoding/json"
	"slices"
	"strings"
)

// Kinds of entry; what is in one follows from its kind.
const (
	kindStart   = "start"   // Text is the task, Mark the frame's
	kindAnswer  = "answer"  // Parts, Stop, In, Out
	kindResult  = "result"  // Call, Name, Head, Text, Failed; Path of a changed file
	kindSaid    = "said"    // Said is the message's number, By who, Text
	kindNote    = "note"    // Text of the platform's
	kindSummary = "summary" // Text stands for the entries from 2 to Upto; In, Out
	kindEnd     = "end"     // Text, Said…: see End
)

// entry is the body of an Entry.
type entry struct {
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"`
	Mark string `json:"mark,omitempty"`

	Parts []part `json:"parts,omitempty"`
	Stop  string `json:"stop,omitempty"` // why the model stopped: see stop…
	In    int64  `json:"input_tokens,omitempty"`
	Out   int64  `json:"output_tokens,omitempty"`

	Call   string `json:"call,omitempty"` // the id the model gave it
	Name   string `json:"name,omitempty"` // of the tool
	Head   string `json:"head,omitempty"` // what the platform says of it; Text is the box's
	Failed bool   `json:"failed,omitempty"`
	Path   string `json:"path,omitempty"`
	Same   string `json:"same,omitempty"` // equal for equal calls with equal results

	Number int64  `json:"number,omitempty"`
	By     string `json:"by,omitempty"` // kind:name
	Upto   int    `json:"upto,omitempty"`

	Claim     string `json:"claim,omitempty"` // of an end: what the agent says of its work
	Exhausted bool   `json:"exhausted,omitempty"`
}

// part is one piece of an answer: text, or the call of a tool.
type part struct {
	Text string `json:"text,omitempty"`
	Call *call  `json:"call,omitempty"`
	// Signature is the provider's own and goes back as it came.
	Signature string `json:"signature,omitempty"`
}

// call is a tool that the model wants to be used. Input is what it gave, as a
// JSON object; if it gave none, Broken says why and Input is empty.
type call struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Input  string `json:"input"`
	Broken string `json:"broken,omitempty"`
}

// calls returns the calls of an answer.
func (e entry) calls() []call {
	var list []call
	for _, p := range e.Parts {
		if p.Call != nil {
			list = append(list, *p.Call)
		}
	}
	return list
}

// words returns what an answer says.
func (e entry) words() string {
	var b strings.Builder
	for _, p := range e.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// redact removes secrets from every text.
func (e *entry) redact(clean func(string) string) {
	if clean == nil {
		return
	}
	e.Text, e.Path = clean(e.Text), clean(e.Path)
	for i := range e.Parts {
		p := &e.Parts[i]
		p.Text = clean(p.Text)
		if p.Call == nil {
			continue
		}
		if p.Call.Input = clean(p.Call.Input); !isObject(p.Call.Input) {
			p.Call.Input, p.Call.Broken = "", "a secret was removed from it"
		}
	}
}

// isObject says whether text is one JSON object.
func isObject(text string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(text), &o) == nil && o != nil
}

// maxNesting bounds the nesting of a call's input. The model gateway refuses
// requests nested deeper than 200, and each of them repeats the input.
const maxNesting = 100

// newCall makes a call of what a model sent. The input is written anew: keys
// that occur twice, which the model gateway would refuse in every later request,
// are gone then.
func newCall(id, name, input string) call {
	c := call{ID: id, Name: name}
	if strings.TrimSpace(input) == "" {
		input = "{}"
	}
	dec := json.NewDecoder(strings.NewReader(input))
	dec.UseNumber()
	var o map[string]any
	switch err := dec.Decode(&o); {
	case err != nil:
		c.Broken = "it is not a JSON object"
	case dec.More():
		c.Broken = "something follows the JSON object"
	case o == nil:
		c.Broken = "it is null, not a JSON object"
	case nesting(o) > maxNesting:
		c.Broken = "it is nested too deep"
	case doubled(o):
		c.Broken = "it has one key in two spellings"
	}
	if c.Broken != "" {
		return c
	}
	text, err := json.Marshal(o)
	if err != nil {
		c.Broken = "it cannot be written again as JSON"
		return c
	}
	c.Input = string(text)
	return c
}

// doubled says whether an object has keys that a loose reader takes for the
// same, which the model gateway refuses as well.
func doubled(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		seen := map[string]bool{}
		for name, e := range v {
			f := strings.ToLower(strings.ReplaceAll(name, "_", ""))
			if seen[f] || doubled(e) {
				return true
			}
			seen[f] = true
		}
	case []any:
		return slices.ContainsFunc(v, doubled)
	}
	return false
}

func nesting(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, nesting(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, nesting(e))
		}
	default:
		return 0
	}
	return deepest + 1
}
