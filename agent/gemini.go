package agent

import (
	"cmp"
	"encoding/json"
)

// geminiRecord is the part we read of one line that gemini --output-format
// stream-json writes. Everything else in a line is ignored.
type geminiRecord struct {
	Type    string          `json:"type"`       // init, message, tool_use, tool_result, error, result
	Session string          `json:"session_id"` // of init: its name of the conversation
	Role    string          `json:"role"`       // of message: user, assistant
	Content string          `json:"content"`    // of message
	Delta   bool            `json:"delta"`      // of message: it goes on with the one before
	Tool    string          `json:"tool_name"`  // of tool_use
	ID      string          `json:"tool_id"`    // of tool_use and tool_result
	Input   json.RawMessage `json:"parameters"` // of tool_use
	Status  string          `json:"status"`     // of tool_result and result: success, error
	Output  string          `json:"output"`     // of tool_result
	Message string          `json:"message"`    // of error
	Level   string          `json:"severity"`   // of error: warning, error
	Error   struct {
		Message string `json:"message"`
	} `json:"error"` // of tool_result and result
	Stats struct {
		Tokens float64 `json:"total_tokens"`
	} `json:"stats"` // of result
}

// gemini reads what gemini --output-format stream-json writes. What it says
// comes in pieces; they are told as one message.
type gemini struct {
	edits  map[string]string // files of calls that have no result yet, by id of the call
	saying []byte            // pieces so far, at most maxSaying bytes: the end of them
	lost   int               // bytes that were dropped from the pieces
}

// maxSaying bounds the pieces of one message, in bytes; of a longer one the end
// is kept, which has the last words.
const maxSaying = 16 << 10

func (g *gemini) line(r *Reader, p []byte) error {
	var rec geminiRecord
	if json.Unmarshal(p, &rec) != nil {
		r.skip()
		return nil
	}
	if rec.Type == "message" && rec.Role == "assistant" && rec.Delta {
		g.piece(r, rec.Content)
		return nil
	}
	if err := g.said(r); err != nil {
		return err
	}
	switch rec.Type {
	case "init":
		return r.begin(rec.Session)
	case "message":
		if rec.Role == "assistant" {
			return r.say(rec.Content)
		}
	case "tool_use":
		text, file := geminiInput(rec.Tool, rec.Input)
		if file != "" && len(g.edits) < maxOpen && len(file) <= MaxText && len(rec.ID) <= MaxText {
			g.edits[rec.ID] = file
		}
		return r.send(Event{Kind: Tool, Tool: rec.Tool, Text: text})
	case "tool_result":
		return g.result(r, rec)
	case "error":
		if rec.Level != "warning" && rec.Message != "" {
			r.words(rec.Message)
		}
	case "result":
		if r.end.Failed = rec.Status != "success"; r.end.Failed && rec.Error.Message != "" {
			r.words(rec.Error.Message)
		}
		return r.spent(rec.Stats.Tokens, 0)
	}
	return nil
}

// piece takes a piece of what the agent says.
func (g *gemini) piece(r *Reader, text string) {
	g.saying, g.lost = append(g.saying, text...), g.lost+r.line.dropped
	if cut := len(g.saying) - maxSaying; cut > 0 {
		g.lost += cut
		g.saying = append(g.saying[:0], g.saying[cut:]...)
	}
	// A run that ends here has these as its last words.
	r.last, r.lost = string(g.saying), g.lost
}

// said tells the message of which the pieces are there.
func (g *gemini) said(r *Reader) error {
	text, lost := string(g.saying), g.lost
	g.saying, g.lost = g.saying[:0], 0
	if text == "" {
		return nil
	}
	dropped := r.line.dropped
	defer func() { r.line.dropped = dropped }()
	r.line.dropped = lost // what was lost belongs to the pieces, not to the line that ends them
	return r.say(text)
}

func (g *gemini) result(r *Reader, rec geminiRecord) error {
	file, edits := g.edits[rec.ID]
	delete(g.edits, rec.ID)
	failed := rec.Status != "success"
	err := r.send(Event{Kind: Answer, Text: cmp.Or(rec.Output, rec.Error.Message), Error: failed})
	if err != nil || !edits || failed {
		return err
	}
	return r.send(Event{Kind: Change, Text: file})
}

// geminiInput tells a tool's input in one line where the tool is well known,
// and as JSON otherwise; file is what the tool writes, if it does.
func geminiInput(tool string, input json.RawMessage) (text, file string) {
	var known struct {
		Command string `json:"command"`
		File    string `json:"file_path"`
		Pattern string `json:"pattern"`
		Folder  string `json:"dir_path"`
	}
	if json.Unmarshal(input, &known) != nil {
		return string(input), ""
	}
	if tool == "replace" || tool == "write_file" {
		file = known.File
	}
	return cmp.Or(known.Command, known.File, known.Pattern, known.Folder, string(input)), file
}
