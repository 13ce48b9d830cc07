package rehearsal

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// responses is OpenAI's Responses protocol.
type responses struct{}

// born is the time that answers carry: always the same, as all of an answer is.
const born = 1767225600

func (responses) read(body []byte, q *question) error {
	var r struct {
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
		Tools    []openaiTool    `json:"tools"`
		Input    json.RawMessage `json:"input"`
		Previous string          `json:"previous_response_id"`
		Include  []string        `json:"include"`
		Text     struct {
			Format struct {
				Schema *schema `json:"schema"`
			} `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	q.model, q.stream, q.schema = r.Model, r.Stream, r.Text.Format.Schema
	q.sealed = strings.Contains(strings.Join(r.Include, " "), "reasoning.encrypted_content")
	for _, t := range r.Tools {
		q.tools = t.add(q.tools)
	}
	if _, rest, ok := strings.Cut(r.Previous, mark); ok {
		turn, _, _ := strings.Cut(rest, "_")
		if n, err := strconv.Atoi(turn); err == nil && n > 0 && n < maxTurns {
			q.turn = n + 1
		}
	}
	if len(r.Input) > 0 && r.Input[0] == '"' {
		q.user(texts(r.Input))
		return nil
	}
	return responses{}.history(r.Input, q)
}

func (responses) history(input json.RawMessage, q *question) error {
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		ID      string          `json:"id"`
		CallID  string          `json:"call_id"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
		Tools   []openaiTool    `json:"tools"`
	}
	if len(input) == 0 {
		return nil
	}
	if err := json.Unmarshal(input, &items); err != nil {
		return err
	}
	for _, item := range items {
		for _, t := range item.Tools { // of additional_tools, as Codex offers them to newer models
			q.tools = t.add(q.tools)
		}
		switch {
		case strings.HasSuffix(item.Type, "_output"):
			q.returned(texts(item.Output))
		case item.Role == "user":
			q.user(texts(item.Content))
		case item.Role == "assistant", item.Type == "reasoning", item.Type == "item_reference", strings.HasSuffix(item.Type, "_call"):
			if answerOf(item.CallID) != "" {
				item.ID = item.CallID
			}
			q.answered(item.ID)
		}
	}
	return nil
}

// openaiTool is a tool as both OpenAI protocols offer it: flat, or within an
// object named as its type.
type openaiTool struct {
	Type        string       `json:"type"`
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Parameters  schema       `json:"parameters"`
	Function    *openaiTool  `json:"function"`
	Custom      *openaiTool  `json:"custom"`
	Tools       []openaiTool `json:"tools"` // of a namespace
}

func (t openaiTool) add(list []tool) []tool {
	inner := t
	switch {
	case t.Function != nil:
		inner = *t.Function
	case t.Custom != nil:
		inner = *t.Custom
	}
	switch t.Type {
	case "function":
		return append(list, tool{name: inner.Name, schema: inner.Parameters})
	case "custom":
		return append(list, tool{name: inner.Name, kind: freeform, code: strings.Contains(inner.Description, "tools.exec_command(")})
	case "local_shell":
		return append(list, tool{name: "local_shell", kind: localShell})
	case "namespace":
		for _, inner := range t.Tools {
			list = inner.add(list)
		}
	}
	return list
}

// item is a part as the protocol has it; empty, as a stream begins it.
func (responses) item(m message, i int, empty bool) object {
	p := m.parts[i]
	status := "completed"
	if empty {
		status = "in_progress"
	}
	pick := func(full any, none any) any {
		if empty {
			return none
		}
		return full
	}
	o := object{"status": status}
	switch {
	case p.verb == "say":
		o["id"], o["type"], o["role"] = partID("msg", m.id, i), "message", "assistant"
		o["content"] = pick([]object{outputText(p.text)}, []object{})
	case p.verb == "reason":
		o["id"], o["type"] = partID("rs", m.id, i), "reasoning"
		o["summary"] = pick([]object{{"type": "summary_text", "text": p.text}}, []object{})
		if m.sealed {
			o["encrypted_content"] = pick(seal(m.id), "")
		}
	case p.kind == freeform:
		o["id"], o["type"], o["call_id"], o["name"] = partID("ctc", m.id, i), "custom_tool_call", partID("call", m.id, i), p.name
		o["input"] = pick(p.free, "")
	case p.kind == localShell:
		o["id"], o["type"], o["call_id"] = partID("lsh", m.id, i), "local_shell_call", partID("call", m.id, i)
		o["action"] = object{"type": "exec", "command": p.argv, "env": object{}}
	default:
		o["id"], o["type"], o["call_id"], o["name"] = partID("fc", m.id, i), "function_call", partID("call", m.id, i), p.name
		o["arguments"] = pick(string(p.input), "")
	}
	return o
}

func outputText(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

// response is the answer around the items.
func (responses) response(m message, status string, items []object, counted bool) object {
	o := object{
		"id": "resp" + mark + m.id, "object": "response", "created_at": born, "status": status, "model": m.name,
		"output": items, "error": nil, "incomplete_details": nil, "instructions": nil, "parallel_tool_calls": true,
		"previous_response_id": nil, "store": false, "tool_choice": "auto", "tools": []object{}, "metadata": object{}, "usage": nil,
	}
	if counted {
		o["usage"] = object{
			"input_tokens": m.in, "input_tokens_details": object{"cached_tokens": m.cached},
			"output_tokens": m.out, "output_tokens_details": object{"reasoning_tokens": m.thought},
			"total_tokens": m.in + m.out,
		}
	}
	return o
}

func (r responses) items(m message) []object {
	items := []object{}
	for i, p := range m.parts {
		if p.verb != "pause" {
			items = append(items, r.item(m, i, false))
		}
	}
	return items
}

func (r responses) whole(m message) any { return r.response(m, "completed", r.items(m), true) }

// stream sends the answer in the order that the protocol has.
func (r responses) stream(m message, w *wire) {
	w.begin("text/event-stream")
	sequence := 0
	send := func(name string, v object) {
		v["type"], v["sequence_number"] = name, sequence
		sequence++
		w.sse(name, v)
	}
	send("response.created", object{"response": r.response(m, "in_progress", []object{}, false)})
	send("response.in_progress", object{"response": r.response(m, "in_progress", []object{}, false)})
	index := 0
	for i, p := range m.parts {
		if p.verb == "pause" {
			w.pause(p.duration)
			continue
		}
		send("response.output_item.added", object{"output_index": index, "item": r.item(m, i, true)})
		item := r.item(m, i, false)
		r.inner(p, func(name string, v object) {
			v["item_id"], v["output_index"] = item["id"], index
			send(name, v)
		})
		send("response.output_item.done", object{"output_index": index, "item": item})
		index++
	}
	if broken := w.answer.broken; broken != "" {
		failed := r.response(m, "failed", []object{}, false)
		failed["error"] = object{"code": "server_error", "message": broken}
		send("response.failed", object{"response": failed})
		return
	}
	send("response.completed", object{"response": r.response(m, "completed", r.items(m), true)})
}

// inner sends what comes between the begin and the end of an item.
func (responses) inner(p part, send func(name string, v object)) {
	deltas := func(kind, text string, at object) {
		for _, piece := range pieces(text) {
			o := object{"delta": piece}
			for k, v := range at {
				o[k] = v
			}
			send("response."+kind+".delta", o)
		}
	}
	switch {
	case p.verb == "say":
		send("response.content_part.added", object{"content_index": 0, "part": outputText("")})
		deltas("output_text", p.text, object{"content_index": 0, "logprobs": []object{}})
		send("response.output_text.done", object{"content_index": 0, "text": p.text, "logprobs": []object{}})
		send("response.content_part.done", object{"content_index": 0, "part": outputText(p.text)})
	case p.verb == "reason":
		summary := func(text string) object { return object{"type": "summary_text", "text": text} }
		send("response.reasoning_summary_part.added", object{"summary_index": 0, "part": summary("")})
		deltas("reasoning_summary_text", p.text, object{"summary_index": 0})
		send("response.reasoning_summary_text.done", object{"summary_index": 0, "text": p.text})
		send("response.reasoning_summary_part.done", object{"summary_index": 0, "part": summary(p.text)})
	case p.kind == freeform:
		deltas("custom_tool_call_input", p.free, nil)
		send("response.custom_tool_call_input.done", object{"input": p.free})
	case p.kind == function:
		deltas("function_call_arguments", string(p.input), nil)
		send("response.function_call_arguments.done", object{"name": p.name, "arguments": string(p.input)})
	}
}

// failure is the error of both OpenAI protocols.
func (responses) failure(status int, text string) object { return openaiFailure(status, text) }

func openaiFailure(status int, text string) object {
	kind, code := "server_error", any(nil)
	switch status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind, code = "invalid_request_error", "invalid_api_key"
	case http.StatusNotFound:
		kind, code = "invalid_request_error", "model_not_found"
	case http.StatusTooManyRequests:
		kind, code = "requests", "rate_limit_exceeded"
	}
	return object{"error": object{"message": text, "type": kind, "param": nil, "code": code}}
}
