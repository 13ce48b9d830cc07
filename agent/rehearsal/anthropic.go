package rehearsal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// anthropic is the Messages protocol.
type anthropic struct{}

func (anthropic) read(body []byte, q *question) error {
	var r struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Name   string `json:"name"`
			Schema schema `json:"input_schema"`
		} `json:"tools"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Output struct {
			Format struct {
				Schema *schema `json:"schema"`
			} `json:"format"`
		} `json:"output_config"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	q.model, q.stream, q.schema = r.Model, r.Stream, r.Output.Format.Schema
	for _, t := range r.Tools {
		q.tools = append(q.tools, tool{name: t.Name, schema: t.Schema})
	}
	for _, m := range r.Messages {
		var blocks []struct {
			Type    string          `json:"type"`
			Text    string          `json:"text"`
			ID      string          `json:"id"`
			Content json.RawMessage `json:"content"` // of tool_result
		}
		switch {
		case m.Role == "assistant":
			q.answered("")
		case len(m.Content) > 0 && m.Content[0] == '"':
			q.user(texts(m.Content))
		case len(m.Content) > 0:
			if err := json.Unmarshal(m.Content, &blocks); err != nil {
				return err
			}
		}
		for _, b := range blocks {
			switch b.Type {
			case "text":
				q.user(b.Text)
			case "tool_result":
				q.returned(texts(b.Content))
			}
		}
	}
	return nil
}

// block is a part as the protocol has it; empty, as a stream begins it.
func (anthropic) block(m message, i int, empty bool) object {
	p := m.parts[i]
	text := p.text
	if empty {
		text = ""
	}
	switch p.verb {
	case "say":
		return object{"type": "text", "text": text}
	case "reason":
		b := object{"type": "thinking", "thinking": text, "signature": ""}
		if !empty {
			b["signature"] = seal(m.id)
		}
		return b
	}
	b := object{"type": "tool_use", "id": partID("toolu", m.id, i), "name": p.name, "input": object{}}
	if !empty {
		b["input"] = p.object()
	}
	return b
}

// object is the input of a call in a protocol that has only objects.
func (p part) object() json.RawMessage {
	switch p.kind {
	case freeform:
		return encode(object{"input": p.free})
	case localShell:
		return encode(object{"command": p.argv})
	}
	return p.input
}

// seal is what stands for a provider's signature: with the letters + / = that
// careless hands change, and such that unsealed tells whether they did.
func seal(id string) string {
	head := sha256.Sum256([]byte(id))
	tail := sha256.Sum256(head[:16])
	return "++//" + base64.StdEncoding.EncodeToString(append(head[:16], tail[:16]...))
}

// sealed says whether a signature came back as it was given.
func sealed(signature string) bool {
	if len(signature) < 4 || signature[:4] != "++//" {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(signature[4:])
	if err != nil || len(b) != 32 {
		return false
	}
	tail := sha256.Sum256(b[:16])
	return string(b[16:]) == string(tail[:16])
}

func (m message) stopReason() string {
	if m.called() {
		return "tool_use"
	}
	return "end_turn"
}

func (anthropic) head(m message, blocks []object, stop any, out int) object {
	return object{
		"id": "msg" + mark + m.id, "type": "message", "role": "assistant", "model": m.name,
		"content": blocks, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{
			"input_tokens": m.in - m.cached, "cache_read_input_tokens": m.cached, "cache_creation_input_tokens": 0, "output_tokens": out,
		},
	}
}

func (a anthropic) whole(m message) any {
	blocks := []object{}
	for i, p := range m.parts {
		if p.verb != "pause" {
			blocks = append(blocks, a.block(m, i, false))
		}
	}
	return a.head(m, blocks, m.stopReason(), m.out)
}

// stream sends the message in the order that the protocol has.
func (a anthropic) stream(m message, w *wire) {
	w.begin("text/event-stream")
	send := func(name string, v object) {
		v["type"] = name
		w.sse(name, v)
	}
	send("message_start", object{"message": a.head(m, []object{}, nil, 1)})
	send("ping", object{})
	index := 0
	for i, p := range m.parts {
		if p.verb == "pause" {
			w.pause(p.duration)
			continue
		}
		kind, field, text := "text_delta", "text", p.text
		switch p.verb {
		case "reason":
			kind, field = "thinking_delta", "thinking"
		case "tool":
			kind, field, text = "input_json_delta", "partial_json", string(p.object())
		}
		send("content_block_start", object{"index": index, "content_block": a.block(m, i, true)})
		for _, part := range pieces(text) {
			send("content_block_delta", object{"index": index, "delta": object{"type": kind, field: part}})
		}
		if p.verb == "reason" {
			send("content_block_delta", object{"index": index, "delta": object{"type": "signature_delta", "signature": seal(m.id)}})
		}
		send("content_block_stop", object{"index": index})
		index++
	}
	if broken := w.answer.broken; broken != "" {
		send("error", object{"error": object{"type": "overloaded_error", "message": broken}})
		return
	}
	send("message_delta", object{
		"delta": object{"stop_reason": m.stopReason(), "stop_sequence": nil},
		"usage": object{"output_tokens": m.out},
	})
	send("message_stop", object{})
}

func (anthropic) failure(status int, text string) object {
	kind := "api_error"
	switch status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case 529: // overloaded, the protocol's own status
		kind = "overloaded_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": text}}
}
