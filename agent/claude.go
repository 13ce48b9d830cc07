package agent

import (
	"encoding/json"
	"strings"
)

// claudeRecord is the part we read of one line of Claude Code's output format
// stream-json. Everything else in a line is ignored, and what does not fit is
// skipped and counted: the format is not ours and the text is hostile.
type claudeRecord struct {
	Type    string `json:"type"` // system, assistant, user, result
	Message struct {
		Content claudeContent `json:"content"`
	} `json:"message"`
	IsError bool   `json:"is_error"` // of result
	Result  string `json:"result"`   // of result: the last words
}

// claudeContent is a list of blocks, or in some messages plain text.
type claudeContent []claudeBlock

type claudeBlock struct {
	Type    string          `json:"type"` // text, tool_use, tool_result
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

// claudeLine reads one line of stream-json.
func (r *Reader) claudeLine(line []byte) error {
	var rec claudeRecord
	if json.Unmarshal(line, &rec) != nil {
		r.end.Skipped++
		return nil
	}
	switch rec.Type {
	case "assistant", "user":
		for _, block := range rec.Message.Content {
			if err := r.claudeBlock(rec.Type, block); err != nil {
				return err
			}
		}
	case "result":
		r.end.Failed = rec.IsError
		if rec.Result != "" {
			r.last = rec.Result
		}
	}
	return nil
}

func (r *Reader) claudeBlock(from string, b claudeBlock) error {
	switch {
	case b.Type == "text" && from == "assistant" && strings.TrimSpace(b.Text) != "":
		r.last = b.Text
		return r.send(Event{Kind: Message, Text: b.Text})
	case b.Type == "tool_use":
		return r.send(Event{Kind: Tool, Tool: b.Name, Text: claudeInput(b.Input)})
	case b.Type == "tool_result":
		return r.send(Event{Kind: Answer, Text: b.Content.text(), Error: b.IsError})
	}
	return nil
}

// claudeInput tells a tool's input in one line where the tool is well known,
// and as JSON otherwise.
func claudeInput(input json.RawMessage) string {
	var known struct {
		Command  string `json:"command"`
		FilePath string `json:"file_path"`
		Pattern  string `json:"pattern"`
		URL      string `json:"url"`
	}
	if json.Unmarshal(input, &known) == nil {
		for _, text := range []string{known.Command, known.FilePath, known.Pattern, known.URL} {
			if text != "" {
				return text
			}
		}
	}
	return string(input)
}
