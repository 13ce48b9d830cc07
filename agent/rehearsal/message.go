package rehearsal

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// piece is the size of one streamed part, in bytes or the next rune boundary:
// small, so that readers are exercised with many events.
const piece = 24

// message is one answer on its way out.
type message struct {
	id     string
	blocks []block
	in     int // tokens of the request
}

func (m message) out() int {
	size := 0
	for _, b := range m.blocks {
		size += len(b.text) + len(b.arguments())
	}
	return tokens(size)
}

func (m message) stop() string {
	for _, b := range m.blocks {
		if b.tool != "" {
			return "tool_use"
		}
	}
	return "end_turn"
}

func (b block) arguments() json.RawMessage {
	if b.tool == "Bash" && b.input == nil {
		input, err := json.Marshal(object{"command": b.bash, "description": "a step of the rehearsal"})
		if err != nil {
			panic("encoding two strings: " + err.Error()) // cannot happen: strings always encode
		}
		return input
	}
	return b.input
}

func (m message) head(blocks []object, stop any, out int) object {
	return object{
		"id": "msg_rehearsal_" + m.id, "type": "message", "role": "assistant", "model": ModelName,
		"content": blocks, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": m.in, "output_tokens": out},
	}
}

func (m message) whole() object {
	var blocks []object
	for i, b := range m.blocks {
		if b.tool == "" {
			blocks = append(blocks, object{"type": "text", "text": b.text})
			continue
		}
		blocks = append(blocks, object{"type": "tool_use", "id": m.toolID(i), "name": b.tool, "input": b.arguments()})
	}
	return m.head(blocks, m.stop(), m.out())
}

func (m message) toolID(i int) string { return fmt.Sprintf("toolu_rehearsal_%s_%d", m.id, i) }

// stream sends the message as server-sent events, in the order the protocol has.
func (m message) stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	send := func(event string, v object) {
		v["type"] = event
		data, err := json.Marshal(v)
		if err != nil {
			panic("encoding an event: " + err.Error()) // cannot happen: Parse checked all JSON
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	send("message_start", object{"message": m.head([]object{}, nil, 1)})
	send("ping", object{})
	for i, b := range m.blocks {
		start, kind, field, text := object{"type": "text", "text": ""}, "text_delta", "text", b.text
		if b.tool != "" {
			start = object{"type": "tool_use", "id": m.toolID(i), "name": b.tool, "input": object{}}
			kind, field, text = "input_json_delta", "partial_json", string(b.arguments())
		}
		send("content_block_start", object{"index": i, "content_block": start})
		for _, part := range pieces(text) {
			send("content_block_delta", object{"index": i, "delta": object{"type": kind, field: part}})
		}
		send("content_block_stop", object{"index": i})
	}
	send("message_delta", object{
		"delta": object{"stop_reason": m.stop(), "stop_sequence": nil},
		"usage": object{"output_tokens": m.out()},
	})
	send("message_stop", object{})
}

// pieces cuts text between runes.
func pieces(text string) []string {
	var parts []string
	begin := 0
	for i := range text {
		if i-begin >= piece {
			parts = append(parts, text[begin:i])
			begin = i
		}
	}
	return append(parts, text[begin:])
}
