package rehearsal

import (
	"encoding/json"
	"strings"
)

// chat is OpenAI's Chat Completions protocol, which compatible servers speak.
type chat struct{}

func (chat) read(body []byte, q *question) error {
	var r struct {
		Model   string       `json:"model"`
		Stream  bool         `json:"stream"`
		Tools   []openaiTool `json:"tools"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
		Format struct {
			Schema struct {
				Schema *schema `json:"schema"`
			} `json:"json_schema"`
		} `json:"response_format"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Calls   []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	q.model, q.stream, q.counted, q.schema = r.Model, r.Stream, r.Options.Usage, r.Format.Schema.Schema
	for _, t := range r.Tools {
		q.tools = t.add(q.tools)
	}
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			q.user(texts(m.Content))
		case "tool":
			q.returned(texts(m.Content))
		case "assistant":
			id := ""
			if len(m.Calls) > 0 {
				id = m.Calls[0].ID
			}
			q.answered(id)
		}
	}
	return nil
}

// call is a tool call as the protocol has it; empty, as a stream begins it.
func (chat) call(m message, i int, empty bool) object {
	p := m.parts[i]
	o := object{"id": partID("call", m.id, i)}
	if p.kind == freeform {
		o["type"], o["custom"] = "custom", object{"name": p.name, "input": p.free}
		if empty {
			o["custom"] = object{"name": p.name, "input": ""}
		}
		return o
	}
	o["type"], o["function"] = "function", object{"name": p.name, "arguments": string(p.object())}
	if empty {
		o["function"] = object{"name": p.name, "arguments": ""}
	}
	return o
}

func (m message) finish() string {
	if m.called() {
		return "tool_calls"
	}
	return "stop"
}

func (m message) chatUsage() object {
	return object{
		"prompt_tokens": m.in, "completion_tokens": m.out, "total_tokens": m.in + m.out,
		"prompt_tokens_details":     object{"cached_tokens": m.cached},
		"completion_tokens_details": object{"reasoning_tokens": m.thought},
	}
}

func (c chat) whole(m message) any {
	var said, thought []string
	var calls []object
	for i, p := range m.parts {
		switch p.verb {
		case "say":
			said = append(said, p.text)
		case "reason":
			thought = append(thought, p.text)
		case "tool":
			calls = append(calls, c.call(m, i, false))
		}
	}
	o := object{"role": "assistant", "content": nil, "refusal": nil}
	if len(said) > 0 {
		o["content"] = strings.Join(said, "\n")
	}
	if len(thought) > 0 { // not the protocol's own, but what vLLM and others send
		o["reasoning_content"] = strings.Join(thought, "\n")
	}
	if len(calls) > 0 {
		o["tool_calls"] = calls
	}
	return object{
		"id": "chatcmpl" + mark + m.id, "object": "chat.completion", "created": born, "model": m.name,
		"choices": []object{{"index": 0, "message": o, "logprobs": nil, "finish_reason": m.finish()}},
		"usage":   m.chatUsage(),
	}
}

// stream sends the answer in chunks; the usage only if it was asked for.
func (c chat) stream(m message, w *wire) {
	w.begin("text/event-stream")
	send := func(choices []object, count any) {
		o := object{"id": "chatcmpl" + mark + m.id, "object": "chat.completion.chunk", "created": born, "model": m.name, "choices": choices}
		if m.counted {
			o["usage"] = count
		}
		w.sse("", o)
	}
	delta := func(d object, finish any) {
		send([]object{{"index": 0, "delta": d, "logprobs": nil, "finish_reason": finish}}, nil)
	}
	delta(object{"role": "assistant", "content": ""}, nil)
	index, said := 0, false
	for i, p := range m.parts {
		switch p.verb {
		case "pause":
			w.pause(p.duration)
		case "say":
			if said {
				delta(object{"content": "\n"}, nil)
			}
			said = true
			for _, text := range pieces(p.text) {
				delta(object{"content": text}, nil)
			}
		case "reason":
			for _, text := range pieces(p.text) {
				delta(object{"reasoning_content": text}, nil)
			}
		case "tool":
			c.streamCall(m, i, index, delta)
			index++
		}
	}
	if broken := w.answer.broken; broken != "" {
		w.sse("", openaiFailure(500, broken))
		return
	}
	delta(object{}, m.finish())
	if m.counted {
		send([]object{}, m.chatUsage())
	}
	w.event("data: ", []byte("[DONE]"), "\n\n")
}

func (c chat) streamCall(m message, i, index int, delta func(d object, finish any)) {
	head := c.call(m, i, true)
	head["index"] = index
	delta(object{"tool_calls": []object{head}}, nil)
	p := m.parts[i]
	kind, field, text := "function", "arguments", ""
	if p.kind == freeform {
		kind, field, text = "custom", "input", p.free
	} else {
		text = string(p.object())
	}
	for _, piece := range pieces(text) {
		delta(object{"tool_calls": []object{{"index": index, kind: object{field: piece}}}}, nil)
	}
}

func (chat) failure(status int, text string) object { return openaiFailure(status, text) }
