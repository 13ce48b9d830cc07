package loop

import (
	"encoding/json"
	"errors"
	"strings"
)

type object = map[string]any

// anthropicBody is a request of the Messages protocol.
func anthropicBody(q question) any {
	var messages []object
	for _, t := range q.Turns {
		role, content := "user", []object{}
		if t.Assistant {
			role = "assistant"
		}
		for _, p := range t.Parts {
			switch {
			case p.Call != nil:
				content = append(content, object{"type": "tool_use", "id": p.Call.ID, "name": p.Call.Name, "input": p.Call.object()})
			case strings.TrimSpace(p.Text) != "": // the provider refuses text that is only space
				content = append(content, object{"type": "text", "text": p.Text})
			}
		}
		for _, r := range t.Results {
			content = append(content, object{"type": "tool_result", "tool_use_id": r.ID, "content": r.Text, "is_error": r.Failed})
		}
		for _, text := range t.Texts {
			content = append(content, object{"type": "text", "text": text})
		}
		messages = append(messages, object{"role": role, "content": content})
	}
	body := object{"model": q.Model, "max_tokens": q.Max, "stream": true, "messages": messages}
	// What is asked next begins with what was asked before: the provider may keep it.
	if last := messages[len(messages)-1]["content"].([]object); len(last) > 0 {
		last[len(last)-1]["cache_control"] = object{"type": "ephemeral"}
	}
	body["system"] = []object{{"type": "text", "text": q.System, "cache_control": object{"type": "ephemeral"}}}
	var tools []object
	for _, t := range q.Tools {
		tools = append(tools, object{"name": t.Name, "description": t.About, "input_schema": t.schema()})
	}
	if tools != nil {
		body["tools"] = tools
	}
	return body
}

// object returns the input as JSON; a broken one as an empty object, because
// protocols take nothing else. The result says what was wrong.
func (c call) object() json.RawMessage {
	if c.Input == "" {
		return json.RawMessage("{}")
	}
	return json.RawMessage(c.Input)
}

// anthropicStream reads message_start to message_stop.
type anthropicStream struct {
	blocks []*anthropicBlock
	stop   string
	ended  bool
	in     int64
	out    int64
	size   grown
}

type anthropicBlock struct {
	kind, id, name string
	text           strings.Builder // of a call: its input
}

type anthropicUsage struct {
	Input      int64 `json:"input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

type anthropicEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	Block struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Text  string          `json:"text"`
		Input json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Text    string `json:"text"`
		Partial string `json:"partial_json"`
		Stop    string `json:"stop_reason"`
	} `json:"delta"`
	Usage anthropicUsage `json:"usage"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func (s *anthropicStream) event(data []byte) error {
	var e anthropicEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return unreadable(err)
	}
	s.count(e.Message.Usage)
	s.count(e.Usage)
	switch e.Type {
	case "content_block_start":
		if e.Index != len(s.blocks) || e.Index > 4*MaxCalls {
			return unreadable(errors.New("its parts are out of order or too many"))
		}
		b := &anthropicBlock{kind: e.Block.Type, id: e.Block.ID, name: e.Block.Name}
		b.text.WriteString(e.Block.Text)
		if input := string(e.Block.Input); input != "" && input != "{}" && input != "null" {
			b.text.WriteString(input) // some servers send it whole
		}
		s.blocks = append(s.blocks, b)
		return s.size.add(b.text.String(), b.id, b.name)
	case "content_block_delta":
		if e.Index < 0 || e.Index >= len(s.blocks) {
			return unreadable(errors.New("it adds to a part that was not begun"))
		}
		b := s.blocks[e.Index]
		b.text.WriteString(e.Delta.Text)
		b.text.WriteString(e.Delta.Partial)
		return s.size.add(e.Delta.Text, e.Delta.Partial)
	case "message_delta":
		if e.Delta.Stop != "" {
			s.stop = e.Delta.Stop
		}
	case "message_stop":
		s.ended = true
	case "error":
		return &fault{status: 500, message: clip(e.Error.Type+": "+e.Error.Message, maxFaultText)}
	}
	return nil
}

// count takes what was used; counts of one answer only grow.
func (s *anthropicStream) count(u anthropicUsage) {
	s.in = max(s.in, u.Input+u.CacheWrite+u.CacheRead)
	s.out = max(s.out, u.Output)
}

func (s *anthropicStream) end() (entry, error) {
	if !s.ended {
		return entry{}, errCut
	}
	e := entry{Kind: kindAnswer, Stop: stopDone, In: s.in, Out: s.out}
	switch s.stop {
	case "max_tokens", "model_context_window_exceeded":
		e.Stop = stopLength
	case "refusal":
		e.Stop = stopFilter
	}
	for _, b := range s.blocks {
		switch b.kind {
		case "text":
			e.Parts = append(e.Parts, part{Text: b.text.String()})
		case "tool_use":
			c := newCall(b.id, b.name, b.text.String())
			e.Parts = append(e.Parts, part{Call: &c})
		}
	}
	return e, nil
}
