package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// codexRecord is the part we read of one line that codex exec --json writes.
type codexRecord struct {
	Type    string    `json:"type"`      // thread.started, turn.completed, turn.failed, item.started, item.completed, error
	Thread  string    `json:"thread_id"` // of thread.started
	Item    codexItem `json:"item"`
	Message string    `json:"message"` // of error
	Error   struct {
		Message string `json:"message"`
	} `json:"error"` // of turn.failed
	Usage struct {
		In  float64 `json:"input_tokens"` // those from the provider's cache included
		Out float64 `json:"output_tokens"`
	} `json:"usage"` // of turn.completed
}

// codexItem is one thing that happens in a turn.
type codexItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"` // agent_message, command_execution, file_change, mcp_tool_call, web_search, …
	Status  string `json:"status"`
	Text    string `json:"text"`    // of agent_message
	Message string `json:"message"` // of error
	Command string `json:"command"`
	Output  string `json:"aggregated_output"`
	Exit    *int64 `json:"exit_code"`
	Changes []struct {
		Path string `json:"path"`
	} `json:"changes"`
	Server    string          `json:"server"` // of mcp_tool_call
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Failure   json.RawMessage `json:"error"`
	Query     string          `json:"query"` // of web_search
}

// codex reads what codex exec --json writes.
type codex struct {
	open map[string]bool // items of which the beginning was told
}

func (c *codex) line(r *Reader, p []byte) error {
	var rec codexRecord
	if json.Unmarshal(p, &rec) != nil {
		r.skip()
		return nil
	}
	switch rec.Type {
	case "thread.started":
		return r.begin(rec.Thread)
	case "item.started":
		return c.started(r, rec.Item)
	case "item.completed":
		return c.completed(r, rec.Item)
	case "turn.completed":
		r.end.Failed = false // an error before it was got over
		return r.spent(rec.Usage.In+rec.Usage.Out, 0)
	case "turn.failed", "error":
		r.end.Failed = true
		if text := cmp.Or(rec.Error.Message, rec.Message); text != "" {
			r.words(text)
		}
	}
	return nil
}

// started tells that a tool is used.
func (c *codex) started(r *Reader, i codexItem) error {
	name, text := i.call()
	if name == "" || c.open[i.ID] {
		return nil
	}
	if len(c.open) < maxOpen && len(i.ID) <= MaxText {
		c.open[i.ID] = true
	}
	return r.send(Event{Kind: Tool, Tool: name, Text: text})
}

// call returns the tool of an item that is a call, and what it is given.
func (i codexItem) call() (name, text string) {
	switch i.Type {
	case "command_execution":
		return "shell", i.Command
	case "mcp_tool_call":
		return i.Server + "." + i.Tool, string(i.Arguments)
	case "web_search":
		return "web_search", i.Query
	}
	return "", ""
}

func (c *codex) completed(r *Reader, i codexItem) error {
	if !c.open[i.ID] {
		if err := c.started(r, i); err != nil {
			return err
		}
	}
	delete(c.open, i.ID)
	failed := i.Status == "failed" || i.Status == "declined" || i.Exit != nil && *i.Exit != 0
	switch i.Type {
	case "agent_message":
		return r.say(i.Text)
	case "command_execution":
		return r.send(Event{Kind: Answer, Text: i.Output, Error: failed})
	case "mcp_tool_call", "web_search":
		text := string(i.Result)
		if failed {
			text = string(i.Failure)
		}
		return r.send(Event{Kind: Answer, Text: text, Error: failed})
	case "file_change":
		return c.changed(r, i, failed)
	}
	return nil
}

func (c *codex) changed(r *Reader, i codexItem, failed bool) error {
	if failed {
		return r.send(Event{Kind: Answer, Text: fmt.Sprintf("a change of %d files was not made", len(i.Changes)), Error: true})
	}
	for _, change := range i.Changes {
		if err := r.send(Event{Kind: Change, Text: change.Path}); err != nil {
			return err
		}
	}
	return nil
}
