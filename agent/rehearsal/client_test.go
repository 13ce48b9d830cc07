package rehearsal

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// spoken is one protocol as a client speaks it: the path, and a request for the
// next answer to a history of rounds.
type spoken struct {
	name    string
	path    string // streamed is added for Gemini
	body    func(streamed, tools bool, rounds []round) string
	streams string // path for a stream
	p       protocol
}

// round is what the user said, or what a tool returned after an answer.
type round struct{ asked, result string }

func encoded(v any) string { return string(encode(v)) }

var protocols = []spoken{
	{"anthropic", "/v1/messages", anthropicBody, "/v1/messages", anthropic{}},
	{"responses", "/v1/responses", responsesBody, "/v1/responses", responses{}},
	{"chat", "/v1/chat/completions", chatBody, "/v1/chat/completions", chat{}},
	{"gemini", "/v1beta/models/m:generateContent", geminiBody, "/v1beta/models/m:streamGenerateContent?alt=sse", gemini{}},
	{"gemini array", "/v1/models/m:generateContent", geminiBody, "/v1/models/m:streamGenerateContent", gemini{}},
}

// shellSchema and writeSchema are what agents offer, in their own words.
func shellSchema(argument string) object {
	return object{"type": "object", "properties": object{argument: object{"type": "string"}, "description": object{"type": "string"}}, "required": []string{argument}}
}

func writeSchema(path string) object {
	return object{"type": "object", "properties": object{path: object{"type": "string"}, "content": object{"type": "string"}}, "required": []string{path, "content"}}
}

func anthropicBody(streamed, tools bool, rounds []round) string {
	o := object{"model": "m", "stream": streamed, "system": "Working directory: /work\nIs it a repository: yes"}
	if tools {
		o["tools"] = []object{{"name": "Bash", "input_schema": shellSchema("command")}, {"name": "Write", "input_schema": writeSchema("file_path")}}
	}
	var messages []object
	for i, r := range rounds {
		if i > 0 {
			messages = append(messages, object{"role": "assistant", "content": []object{{"type": "text", "text": "so"}, {"type": "tool_use", "id": "x", "name": "Bash", "input": object{}}}})
		}
		if r.result != "" {
			messages = append(messages, object{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "x", "content": r.result}}})
		}
		if r.asked != "" {
			messages = append(messages, object{"role": "user", "content": r.asked})
		}
	}
	o["messages"] = messages
	return encoded(o)
}

func responsesBody(streamed, tools bool, rounds []round) string {
	o := object{"model": "m", "stream": streamed, "instructions": "<cwd>/work</cwd>"}
	if tools {
		o["tools"] = []object{{"type": "function", "name": "exec_command", "parameters": shellSchema("cmd")}, {"type": "function", "name": "write", "parameters": writeSchema("filePath")}}
	}
	var input []object
	for i, r := range rounds {
		if i > 0 {
			input = append(input, object{"type": "reasoning", "summary": []object{}}, object{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": "so"}}})
			input = append(input, object{"type": "function_call", "call_id": "x", "name": "exec_command", "arguments": "{}"})
		}
		if r.result != "" {
			input = append(input, object{"type": "function_call_output", "call_id": "x", "output": r.result})
		}
		if r.asked != "" {
			input = append(input, object{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": r.asked}}})
		}
	}
	o["input"] = input
	return encoded(o)
}

func chatBody(streamed, tools bool, rounds []round) string {
	o := object{"model": "m", "stream": streamed, "stream_options": object{"include_usage": true}}
	if tools {
		o["tools"] = []object{{"type": "function", "function": object{"name": "shell", "parameters": shellSchema("command")}}, {"type": "function", "function": object{"name": "write_file", "parameters": writeSchema("path")}}}
	}
	messages := []object{{"role": "system", "content": "You work in the working directory /work"}}
	for i, r := range rounds {
		if i > 0 {
			messages = append(messages, object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "x", "type": "function", "function": object{"name": "shell", "arguments": "{}"}}}})
		}
		if r.result != "" {
			messages = append(messages, object{"role": "tool", "tool_call_id": "x", "content": r.result})
		}
		if r.asked != "" {
			messages = append(messages, object{"role": "user", "content": []object{{"type": "text", "text": r.asked}}})
		}
	}
	o["messages"] = messages
	return encoded(o)
}

func geminiBody(_, tools bool, rounds []round) string {
	o := object{"systemInstruction": object{"parts": []object{{"text": "I'm currently working in the directory: /work"}}}}
	if tools {
		o["tools"] = []object{{"functionDeclarations": []object{
			{"name": "run_shell_command", "parametersJsonSchema": shellSchema("command")}, {"name": "write_file", "parameters": writeSchema("file_path")},
		}}}
	}
	var contents []object
	for i, r := range rounds {
		if i > 0 {
			contents = append(contents, object{"role": "model", "parts": []object{{"text": "so"}, {"functionCall": object{"name": "f", "args": object{}}, "thoughtSignature": seal("x")}}})
		}
		if r.result != "" {
			contents = append(contents, object{"role": "user", "parts": []object{{"functionResponse": object{"name": "f", "response": object{"output": r.result}}}}})
		}
		if r.asked != "" {
			contents = append(contents, object{"role": "user", "parts": []object{{"text": r.asked}}})
		}
	}
	o["contents"] = contents
	return encoded(o)
}

// post asks once; the error is one of the connection.
func post(t *testing.T, url, body string) (*http.Response, []byte, error) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, text, err
}
