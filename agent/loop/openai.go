package loop

import (
	"encoding/json"
	"errors"
	"strings"
)

// openaiBody is a request of Chat Completions, which compatible servers speak
// as well.
func openaiBody(q question) any {
	messages := []object{{"role": "system", "content": q.System}}
	for _, t := range q.Turns {
		if t.Assistant {
			messages = append(messages, openaiAnswer(t))
			continue
		}
		for _, r := range t.Results {
			messages = append(messages, object{"role": "tool", "tool_call_id": r.ID, "content": r.Text})
		}
		if len(t.Texts) > 0 {
			messages = append(messages, object{"role": "user", "content": strings.Join(t.Texts, "\n\n")})
		}
	}
	body := object{
		"model": q.Model, "max_completion_tokens": q.Max, "messages": messages,
		"stream": true, "stream_options": object{"include_usage": true},
	}
	var tools []object
	for _, t := range q.Tools {
		tools = append(tools, object{"type": "function", "function": object{"name": t.Name, "description": t.About, "parameters": t.schema()}})
	}
	if tools != nil {
		body["tools"] = tools
	}
	return body
}

func openaiAnswer(t turn) object {
	var text strings.Builder
	var calls []object
	for _, p := range t.Parts {
		text.WriteString(p.Text)
		if p.Call != nil {
			calls = append(calls, object{"id": p.Call.ID, "type": "function", "function": object{
				"name": p.Call.Name, "arguments": string(p.Call.object()),
			}})
		}
	}
	m := object{"role": "assistant", "content": text.String()}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return m
}

// openaiStream reads chunks until one says why the model stopped.
type openaiStream struct {
	text  strings.Builder
	calls []*openaiCall
	stop  string
	in    int64
	out   int64
	size  grown
}

type openaiCall struct {
	id, name  string
	arguments strings.Builder
}

type openaiChunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
			Refusal string `json:"refusal"`
			Calls   []struct {
				Index    *int   `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (s *openaiStream) event(data []byte) error {
	var c openaiChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return unreadable(err)
	}
	if c.Error != nil {
		return &fault{status: 500, message: clip(c.Error.Message, maxFaultText)}
	}
	if c.Usage != nil {
		s.in, s.out = max(s.in, c.Usage.Prompt), max(s.out, c.Usage.Completion)
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := c.Choices[0]
	if choice.Finish != "" {
		s.stop = choice.Finish
	}
	s.text.WriteString(choice.Delta.Content)
	s.text.WriteString(choice.Delta.Refusal)
	if err := s.size.add(choice.Delta.Content, choice.Delta.Refusal); err != nil {
		return err
	}
	for _, d := range choice.Delta.Calls {
		// Some servers leave the index away and send each call whole.
		at := len(s.calls)
		if d.Index != nil {
			at = *d.Index
		} else if d.ID == "" && at > 0 {
			at--
		}
		if at < 0 || at > len(s.calls) || at > MaxCalls {
			return unreadable(errors.New("its calls are out of order or too many"))
		}
		if at == len(s.calls) {
			s.calls = append(s.calls, &openaiCall{})
		}
		k := s.calls[at]
		if k.id == "" {
			k.id = d.ID
		}
		if k.name == "" {
			k.name = d.Function.Name
		}
		k.arguments.WriteString(d.Function.Arguments)
		if err := s.size.add(d.Function.Arguments, d.ID, d.Function.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *openaiStream) end() (entry, error) {
	if s.stop == "" {
		return entry{}, errCut
	}
	e := entry{Kind: kindAnswer, Stop: stopDone, In: s.in, Out: s.out}
	switch s.stop {
	case "length":
		e.Stop = stopLength
	case "content_filter":
		e.Stop = stopFilter
	}
	if s.text.Len() > 0 {
		e.Parts = append(e.Parts, part{Text: s.text.String()})
	}
	for _, k := range s.calls {
		c := newCall(k.id, k.name, k.arguments.String())
		e.Parts = append(e.Parts, part{Call: &c})
	}
	return e, nil
}
