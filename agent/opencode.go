package agent

import (
	"cmp"
	"encoding/json"
)

// opencodeRecord is the part we read of one line that opencode run --format
// json writes. Everything else in a line is ignored.
type opencodeRecord struct {
	Type    string       `json:"type"`      // step_start, text, tool_use, step_finish, error
	Session string       `json:"sessionID"` // its name of the conversation
	Part    opencodePart `json:"part"`
	Error   struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
		} `json:"data"`
	} `json:"error"` // of error
}

// opencodePart is what a step of the conversation is made of.
type opencodePart struct {
	Text   string        `json:"text"` // of text
	Tool   string        `json:"tool"` // of tool_use
	State  opencodeState `json:"state"`
	Cost   float64       `json:"cost"` // of step_finish: US dollars of this step
	Tokens struct {
		In        float64 `json:"input"` // those from the provider's cache not included
		Out       float64 `json:"output"`
		Reasoning float64 `json:"reasoning"`
		Cache     struct {
			Read  float64 `json:"read"`
			Write float64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"` // of step_finish
}

// opencodeState is a call of a tool that has ended.
type opencodeState struct {
	Status   string          `json:"status"` // completed, error
	Input    json.RawMessage `json:"input"`
	Output   string          `json:"output"`
	Error    string          `json:"error"`
	Metadata struct {
		Exit  *float64 `json:"exit"` // of bash
		Files []struct {
			Path string `json:"filePath"`
		} `json:"files"` // of apply_patch
	} `json:"metadata"`
}

// opencode reads what opencode run --format json writes. A call is told when it
// has ended, in one line.
type opencode struct {
	tokens, dollars float64 // of the steps so far
}

func (o *opencode) line(r *Reader, p []byte) error {
	var rec opencodeRecord
	if json.Unmarshal(p, &rec) != nil {
		r.skip()
		return nil
	}
	if err := r.begin(rec.Session); err != nil {
		return err
	}
	switch rec.Type {
	case "text":
		r.end.Failed = false // an error before it was got over
		return r.say(rec.Part.Text)
	case "tool_use":
		return o.call(r, rec.Part)
	case "step_finish":
		t := rec.Part.Tokens
		o.tokens += t.In + t.Out + t.Reasoning + t.Cache.Read + t.Cache.Write
		o.dollars += rec.Part.Cost
		return r.spent(o.tokens, o.dollars)
	case "error":
		r.end.Failed = true
		if text := cmp.Or(rec.Error.Data.Message, rec.Error.Name); text != "" {
			r.words(text)
		}
	}
	return nil
}

// call tells a call, what it answered, and the files that it changed.
func (o *opencode) call(r *Reader, p opencodePart) error {
	text, file := opencodeInput(p.Tool, p.State.Input)
	if err := r.send(Event{Kind: Tool, Tool: p.Tool, Text: text}); err != nil {
		return err
	}
	exit := p.State.Metadata.Exit
	failed := p.State.Status != "completed" || exit != nil && *exit != 0
	err := r.send(Event{Kind: Answer, Text: cmp.Or(p.State.Output, p.State.Error), Error: failed})
	if err != nil || failed {
		return err
	}
	if file != "" {
		return r.send(Event{Kind: Change, Text: file})
	}
	if p.Tool != "apply_patch" {
		return nil
	}
	for _, f := range p.State.Metadata.Files {
		if err := r.send(Event{Kind: Change, Text: f.Path}); err != nil {
			return err
		}
	}
	return nil
}

// opencodeInput tells a tool's input in one line where the tool is well known,
// and as JSON otherwise; file is what the tool writes, if it does.
func opencodeInput(tool string, input json.RawMessage) (text, file string) {
	var known struct {
		Command string `json:"command"`
		File    string `json:"filePath"`
		Pattern string `json:"pattern"`
		URL     string `json:"url"`
	}
	if json.Unmarshal(input, &known) != nil {
		return string(input), ""
	}
	if tool == "edit" || tool == "write" {
		file = known.File
	}
	return cmp.Or(known.Command, known.File, known.Pattern, known.URL, string(input)), file
}
