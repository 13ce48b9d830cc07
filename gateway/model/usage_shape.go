package model

import "encoding/json"

// report is the part of an answer, or of one event of it, that we read. The
// shapes of all protocols are in it.
type report struct {
	Type  string `json:"type"` // of an event: message_delta, response.completed …
	Model string `json:"model"`

	Usage   *counted `json:"usage"`   // Anthropic, OpenAI
	Message *report  `json:"message"` // Anthropic: of message_start

	Response *report `json:"response"` // Responses: of response.completed and the like

	Delta   json.RawMessage `json:"delta"` // Anthropic: an object; Responses: text
	Choices []struct {      // Chat Completions
		Delta   chatText `json:"delta"`
		Message chatText `json:"message"`
		Finish  string   `json:"finish_reason"`
	} `json:"choices"`

	ModelVersion  string          `json:"modelVersion"` // Gemini, as the two below
	UsageMetadata *geminiCounted  `json:"usageMetadata"`
	Candidates    []geminiContent `json:"candidates"`
}

// counted is the usage object of Anthropic and OpenAI.
type counted struct {
	// Both; with InputDetails, cached tokens are among Input.
	Input        int64       `json:"input_tokens"`
	Output       int64       `json:"output_tokens"`
	InputDetails *cachedPart `json:"input_tokens_details"`
	// Anthropic: beside Input.
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Creation   struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	// Chat Completions.
	Prompt        int64       `json:"prompt_tokens"`
	Completion    int64       `json:"completion_tokens"`
	PromptDetails *cachedPart `json:"prompt_tokens_details"`
}

type cachedPart struct {
	Cached int64 `json:"cached_tokens"`
}

// tokens returns the counts in our terms; nil for none.
func (c *counted) tokens() *tokens {
	switch {
	case c == nil:
		return nil
	case c.Prompt != 0 || c.Completion != 0:
		return inside(c.Prompt, c.PromptDetails, c.Completion)
	case c.InputDetails != nil:
		return inside(c.Input, c.InputDetails, c.Output)
	}
	return &tokens{Input: c.Input, CacheRead: c.CacheRead, CacheWrite: c.CacheWrite, Output: c.Output, Hour: c.Creation.Hour}
}

// inside splits an input that has its cached part inside. A part that is larger
// than the whole is nonsense, and comes out as a count that is not sane.
func inside(input int64, details *cachedPart, output int64) *tokens {
	t := &tokens{Input: input, Output: output}
	if details != nil {
		t.CacheRead = details.Cached
		t.Input -= details.Cached
	}
	return t
}

// geminiCounted is Gemini's usageMetadata. Thoughts are output; what tools put
// into the prompt is input.
type geminiCounted struct {
	Prompt     int64 `json:"promptTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	ToolPrompt int64 `json:"toolUsePromptTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
}

func (c *geminiCounted) tokens() *tokens {
	if c == nil {
		return nil
	}
	return inside(c.Prompt+c.ToolPrompt, &cachedPart{c.Cached}, c.Candidates+c.Thoughts)
}

// chatText is what a model writes in Chat Completions.
type chatText struct {
	Content          json.RawMessage `json:"content"` // text, or parts of it
	Refusal          string          `json:"refusal"`
	Reasoning        string          `json:"reasoning"` // of some compatible servers, as the next
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (c chatText) size() int {
	n := len(unquoted(c.Content)) + len(c.Refusal) + max(len(c.Reasoning), len(c.ReasoningContent))
	for _, call := range c.ToolCalls {
		n += len(call.Function.Name) + len(call.Function.Arguments)
	}
	return n
}

// geminiContent is what a model writes in Gemini's protocol.
type geminiContent struct {
	Content struct {
		Parts []struct {
			Text         string          `json:"text"`
			FunctionCall json.RawMessage `json:"functionCall"`
		} `json:"parts"`
	} `json:"content"`
	Finish string `json:"finishReason"`
}

// text is how many bytes of the model's own writing an event brings.
func (r *report) text() int {
	n := 0
	if len(r.Delta) > 0 {
		var d struct {
			Text        string `json:"text"`
			PartialJSON string `json:"partial_json"`
			Thinking    string `json:"thinking"`
		}
		if text := unquoted(r.Delta); text != "" {
			n += len(text)
		} else if json.Unmarshal(r.Delta, &d) == nil {
			n += len(d.Text) + len(d.PartialJSON) + len(d.Thinking)
		}
	}
	for _, c := range r.Choices {
		n += c.Delta.size() + c.Message.size()
	}
	for _, c := range r.Candidates {
		for _, p := range c.Content.Parts {
			n += len(p.Text) + len(p.FunctionCall)
		}
	}
	return n
}

// unquoted returns the text of a JSON string; "" if it is something else.
func unquoted(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// last says whether counts in this event are those of the whole answer.
// Anthropic's first event and Gemini's early ones, and those of some compatible
// servers, have counts of what was written until then.
func (r *report) last() bool {
	switch r.Type {
	case "message_delta", "response.completed", "response.incomplete", "response.failed":
		return true
	case "":
	default:
		return false
	}
	for _, c := range r.Choices {
		if c.Finish == "" {
			return false
		}
	}
	for _, c := range r.Candidates {
		if c.Finish == "" {
			return false
		}
	}
	return r.Usage != nil || len(r.Candidates) > 0
}
