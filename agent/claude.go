package agent

import (
	"cmp"
	"encoding/json"
	"strings"
)

// claudeRecord is the part we read of one line of Claude Code's output format
// stream-json. Everything else in a line is ignored, and what does not fit is
// skipped and counted: the format is not ours and the text is hostile.
type claudeRecord struct {
	Type    string `json:"type"`       // system, assistant, user, result
	Subtype string `json:"subtype"`    // of system: init
	Session string `json:"session_id"` // its name of the conversation
	Message struct {
		Content claudeContent `json:"content"`
	} `json:"message"`
	Answer  json.RawMessage `json:"tool_use_result"` // of user: about the result, in any form
	IsError bool            `json:"is_error"`        // of result
	Result  string          `json:"result"`          // of result: the last words
	Dollars float64         `json:"total_cost_usd"`  // of result, by its own list of prices
	Usage   claudeUsage     `json:"usage"`           // of result
}

// claudeUsage counts tokens. Those that the provider had in its cache are not
// part of the first number.
type claudeUsage struct {
	In      float64 `json:"input_tokens"`
	Written float64 `json:"cache_creation_input_tokens"`
	Read    float64 `json:"cache_read_input_tokens"`
	Out     float64 `json:"output_tokens"`
}

// claudeContent is a list of blocks, or in some messages plain text.
type claudeContent []claudeBlock

type claudeBlock struct {
	Type    string          `json:"type"`        // text, tool_use, tool_result
	ID      string          `json:"id"`          // of tool_use
	Of      string          `json:"tool_use_id"` // of tool_result
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Content claudeContent   `json:"content"` // of tool_result
	IsError bool            `json:"is_error"`
}

// UnmarshalJSON accepts a list of blocks, a text or null.
func (c *claudeContent) UnmarshalJSON(p []byte) error {
	var text string
	if json.Unmarshal(p, &text) == nil {
		*c = nil
		if text != "" {
			*c = claudeContent{{Type: "text", Text: text}}
		}
		return nil
	}
	return json.Unmarshal(p, (*[]claudeBlock)(c))
}

func (c claudeContent) text() string {
	var b strings.Builder
	for _, block := range c {
		b.WriteString(block.Text)
	}
	return b.String()
}

// claude reads Claude Code's stream-json.
type claude struct {
	edits map[string]string // files of calls that have no result yet, by id of the call
}

// maxOpen bounds the calls that wait for their result; later ones are told
// without.
const maxOpen = 64

func (c *claude) line(r *Reader, p []byte) error {
	var rec claudeRecord
	if json.Unmarshal(p, &rec) != nil {
		r.skip()
		return nil
	}
	switch rec.Type {
	case "system":
		if rec.Subtype == "init" {
			return r.begin(rec.Session)
		}
	case "assistant", "user":
		for _, block := range rec.Message.Content {
			if err := c.block(r, rec.Type, block); err != nil {
				return err
			}
		}
		return rec.changed(r)
	case "result":
		r.end.Failed = rec.IsError
		if rec.Result != "" {
			r.words(rec.Result)
		}
		u := rec.Usage
		return r.spent(u.In+u.Written+u.Read+u.Out, rec.Dollars)
	}
	return nil
}

// changed tells which files a shell command changed, as far as the agent looked.
func (rec claudeRecord) changed(r *Reader) error {
	var about struct {
		Diff struct {
			Files []string `json:"changedFiles"`
		} `json:"bashEditDiff"`
	}
	if len(rec.Answer) == 0 || json.Unmarshal(rec.Answer, &about) != nil {
		return nil
	}
	for _, f := range about.Diff.Files {
		if err := r.send(Event{Kind: Change, Text: f}); err != nil {
			return err
		}
	}
	return nil
}

func (c *claude) block(r *Reader, from string, b claudeBlock) error {
	switch {
	case b.Type == "text" && from == "assistant":
		return r.say(b.Text)
	case b.Type == "tool_use":
		text, file := claudeInput(b.Name, b.Input)
		if file != "" && len(c.edits) < maxOpen && len(file) <= MaxText {
			c.edits[b.ID] = file
		}
		return r.send(Event{Kind: Tool, Tool: b.Name, Text: text})
	case b.Type == "tool_result":
		file, edits := c.edits[b.Of]
		delete(c.edits, b.Of)
		if err := r.send(Event{Kind: Answer, Text: b.Content.text(), Error: b.IsError}); err != nil || !edits || b.IsError {
			return err
		}
		return r.send(Event{Kind: Change, Text: file})
	}
	return nil
}

// claudeInput tells a tool's input in one line where the tool is well known,
// and as JSON otherwise; file is what the tool writes, if it does.
func claudeInput(tool string, input json.RawMessage) (text, file string) {
	var known struct {
		Command  string `json:"command"`
		File     string `json:"file_path"`
		Notebook string `json:"notebook_path"`
		Pattern  string `json:"pattern"`
		URL      string `json:"url"`
	}
	if json.Unmarshal(input, &known) != nil {
		return string(input), ""
	}
	switch tool {
	case "Edit", "MultiEdit", "Write", "NotebookEdit":
		file = cmp.Or(known.File, known.Notebook)
	}
	return cmp.Or(known.Command, known.File, known.Notebook, known.Pattern, known.URL, string(input)), file
}
