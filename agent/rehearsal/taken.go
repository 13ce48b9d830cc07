package rehearsal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode"
)

// taken is one answer of a provider, as a script can give it again.
type taken struct {
	question
	usage      usage
	model      string // that the provider named
	status     int
	failure    string // text of an error, also of one within a stream
	retryAfter string
	steps      []step
}

// taking reads an answer, in one piece or as events.
func taking(p protocol, resp *http.Response, body []byte) (taken, error) {
	t := taken{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After")}
	if resp.StatusCode != http.StatusOK {
		if t.status < 400 || t.status > 599 {
			return t, fmt.Errorf("status %d", t.status)
		}
		t.failure = errorText(body)
		return t, nil
	}
	payloads, err := payloadsOf(resp.Header.Get("Content-Type"), body)
	if err != nil {
		return t, err
	}
	var take func(payload []byte) error
	switch p.(type) {
	case anthropic:
		take = t.anthropic()
	case responses:
		take = t.responses
	case chat:
		take = t.chat()
	case gemini:
		take = t.gemini
	}
	for _, payload := range payloads {
		if err := take(payload); err != nil {
			return t, err
		}
	}
	for _, s := range t.steps {
		if s.verb == "tool" && (s.name == "" || strings.ContainsFunc(s.name, unicode.IsSpace) || !json.Valid(s.input)) {
			return t, fmt.Errorf("the call of the tool %q is not whole", s.name)
		}
	}
	return t, nil
}

// payloadsOf is the JSON of an answer: one, or one of each event.
func payloadsOf(contentType string, body []byte) ([][]byte, error) {
	kind, _, _ := mime.ParseMediaType(contentType)
	if kind == "text/event-stream" {
		var all [][]byte
		for _, line := range bytes.Split(body, []byte("\n")) {
			data, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\r")), []byte("data:"))
			if data = bytes.TrimSpace(data); ok && string(data) != "[DONE]" {
				all = append(all, data)
			}
		}
		return all, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil { // a stream of Gemini's without alt=sse
		var all [][]byte
		for _, e := range list {
			all = append(all, e)
		}
		return all, nil
	}
	if !json.Valid(body) {
		return nil, errors.New("it is no JSON")
	}
	return [][]byte{body}, nil
}

// errorText finds the message of an error in the shapes of all protocols.
func errorText(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return string(bytes.ToValidUTF8(body[:min(len(body), 500)], nil))
}

// text adds to a text that the answer says or thinks.
func (t *taken) text(verb, text string) {
	if n := len(t.steps); n > 0 && t.steps[n-1].verb == verb {
		t.steps[n-1].text += text
		return
	}
	if text != "" {
		t.steps = append(t.steps, step{verb: verb, text: text})
	}
}

// call adds a tool call. An empty input is the empty object.
func (t *taken) call(name string, input []byte) {
	if len(bytes.TrimSpace(input)) == 0 {
		input = []byte("{}")
	}
	var compact bytes.Buffer
	if json.Compact(&compact, input) == nil {
		input = compact.Bytes()
	}
	t.steps = append(t.steps, step{verb: "tool", name: name, input: input})
}

// anthropicUsage is what both ends of a stream count.
type anthropicUsage struct {
	In     *int `json:"input_tokens"`
	Out    *int `json:"output_tokens"`
	Read   int  `json:"cache_read_input_tokens"`
	Create int  `json:"cache_creation_input_tokens"`
}

func (t *taken) countAnthropic(u anthropicUsage) {
	if u.In != nil {
		t.usage.in, t.usage.cached = *u.In+u.Read+u.Create, u.Read
	}
	if u.Out != nil {
		t.usage.out = *u.Out
	}
}

// anthropicBlock is a block of a message or the begin of one in a stream.
type anthropicBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
}

func (t *taken) takeBlock(b anthropicBlock) {
	switch b.Type {
	case "text":
		t.text("say", b.Text)
	case "thinking":
		t.text("reason", b.Thinking)
	case "tool_use":
		t.call(b.Name, b.Input)
	}
}

func (t *taken) anthropic() func([]byte) error {
	var open anthropicBlock
	return func(payload []byte) error {
		var e struct {
			Type    string           `json:"type"`
			Model   string           `json:"model"`
			Content []anthropicBlock `json:"content"`
			Usage   anthropicUsage   `json:"usage"`
			Message struct {
				Model string         `json:"model"`
				Usage anthropicUsage `json:"usage"`
			} `json:"message"`
			Block anthropicBlock `json:"content_block"`
			Delta struct {
				Text     string `json:"text"`
				Thinking string `json:"thinking"`
				Input    string `json:"partial_json"`
			} `json:"delta"`
		}
		if err := json.Unmarshal(payload, &e); err != nil {
			return err
		}
		switch e.Type {
		case "message":
			t.model = e.Model
			for _, b := range e.Content {
				t.takeBlock(b)
			}
		case "message_start":
			t.model, e.Usage = e.Message.Model, e.Message.Usage
		case "content_block_start":
			if open = e.Block; open.Type == "tool_use" {
				open.Input = nil // what comes in pieces replaces it
			}
		case "content_block_delta":
			open.Text += e.Delta.Text
			open.Thinking += e.Delta.Thinking
			open.Input = append(open.Input, e.Delta.Input...)
		case "content_block_stop":
			t.takeBlock(open)
		case "error":
			t.failure = errorText(payload)
		}
		t.countAnthropic(e.Usage)
		return nil
	}
}

// takenItem is an item of a response.
type takenItem struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Input     string `json:"input"`
	Content   []struct {
		Text string `json:"text"`
	} `json:"content"`
	Summary []struct {
		Text string `json:"text"`
	} `json:"summary"`
	Action json.RawMessage `json:"action"`
}

func (t *taken) takeItem(i takenItem) {
	switch i.Type {
	case "message":
		for _, c := range i.Content {
			t.steps = append(t.steps, step{verb: "say", text: c.Text})
		}
	case "reasoning":
		for _, s := range i.Summary {
			t.text("reason", s.Text)
		}
	case "function_call":
		t.call(i.Name, []byte(i.Arguments))
	case "custom_tool_call":
		t.call(i.Name, encode(i.Input))
	case "local_shell_call":
		t.call("local_shell", i.Action)
	}
}

func (t *taken) responses(payload []byte) error {
	type response struct {
		Model  string      `json:"model"`
		Output []takenItem `json:"output"`
		Error  *struct {
			Message string `json:"message"`
		} `json:"error"`
		Usage struct {
			In      int `json:"input_tokens"`
			Out     int `json:"output_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"input_tokens_details"`
		} `json:"usage"`
	}
	var e struct {
		Type     string    `json:"type"`
		Response *response `json:"response"`
		Item     takenItem `json:"item"`
		response
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return err
	}
	r := &e.response
	switch e.Type {
	case "response.output_item.done":
		t.takeItem(e.Item)
		return nil
	case "response.completed", "response.failed", "response.incomplete":
		if r = e.Response; r == nil {
			return fmt.Errorf("the event %s has no response", e.Type)
		}
	case "":
		for _, i := range r.Output {
			t.takeItem(i)
		}
	default:
		return nil
	}
	t.model, t.usage = r.Model, usage{in: r.Usage.In, out: r.Usage.Out, cached: r.Usage.Details.Cached}
	if r.Error != nil {
		t.failure = r.Error.Message
	}
	return nil
}

// takenCall is a tool call of Chat Completions, or a piece of one.
type takenCall struct {
	Index    int `json:"index"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	Custom *struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"custom"`
}

// chat gathers the calls by their index; each is as a step from its begin on.
func (t *taken) chat() func([]byte) error {
	at := map[int]int{} // step of a call
	calls := func(list []takenCall, whole bool) {
		for i, c := range list {
			if whole {
				c.Index = i
			}
			k, ok := at[c.Index]
			if !ok {
				k = len(t.steps)
				at[c.Index] = k
				t.steps = append(t.steps, step{verb: "tool", name: c.Function.Name})
			}
			t.steps[k].input = append(t.steps[k].input, c.Function.Arguments...)
			if c.Custom != nil {
				t.steps[k].name += c.Custom.Name
				t.steps[k].text += c.Custom.Input
				t.steps[k].input = encode(t.steps[k].text)
			}
		}
	}
	type message struct {
		Content string      `json:"content"`
		Thought string      `json:"reasoning_content"`
		Calls   []takenCall `json:"tool_calls"`
	}
	return func(payload []byte) error {
		var e struct {
			Model   string `json:"model"`
			Choices []struct {
				Delta   message `json:"delta"`
				Message message `json:"message"`
			} `json:"choices"`
			Usage *struct {
				In      int `json:"prompt_tokens"`
				Out     int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(payload, &e); err != nil {
			return err
		}
		if e.Model != "" {
			t.model = e.Model
		}
		if e.Usage != nil {
			t.usage = usage{in: e.Usage.In, out: e.Usage.Out, cached: e.Usage.Details.Cached}
		}
		if e.Error != nil {
			t.failure = errorText(payload)
		}
		if len(e.Choices) > 0 {
			for i, m := range []message{e.Choices[0].Delta, e.Choices[0].Message} {
				t.text("reason", m.Thought)
				t.text("say", m.Content)
				calls(m.Calls, i == 1)
			}
		}
		return nil
	}
}

func (t *taken) gemini(payload []byte) error {
	var e struct {
		Candidates []struct {
			Content struct {
				Parts []struct {
					Text    string `json:"text"`
					Thought bool   `json:"thought"`
					Call    *struct {
						Name string          `json:"name"`
						Args json.RawMessage `json:"args"`
					} `json:"functionCall"`
				} `json:"parts"`
			} `json:"content"`
		} `json:"candidates"`
		Usage struct {
			In      int `json:"promptTokenCount"`
			Out     int `json:"candidatesTokenCount"`
			Thought int `json:"thoughtsTokenCount"`
			Cached  int `json:"cachedContentTokenCount"`
		} `json:"usageMetadata"`
		Model string          `json:"modelVersion"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return err
	}
	if e.Error != nil {
		t.failure = errorText(payload)
		return nil
	}
	t.model, t.usage = e.Model, usage{in: e.Usage.In, out: e.Usage.Out + e.Usage.Thought, cached: e.Usage.Cached}
	if len(e.Candidates) == 0 {
		return nil
	}
	for _, p := range e.Candidates[0].Content.Parts {
		switch {
		case p.Call != nil:
			t.call(p.Call.Name, p.Call.Args)
		case p.Thought:
			t.text("reason", p.Text)
		default:
			t.text("say", p.Text)
		}
	}
	return nil
}
