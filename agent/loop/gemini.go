package loop

import (
	"encoding/json"
	"net/url"
	"strings"
)

func geminiPath(q question) string {
	return "/v1beta/models/" + url.PathEscape(q.Model) + ":streamGenerateContent?alt=sse"
}

// geminiBody is a request of generateContent.
func geminiBody(q question) any {
	var contents []object
	for _, t := range q.Turns {
		role, parts := "user", []object{}
		if t.Assistant {
			role = "model"
		}
		for _, p := range t.Parts {
			o := object{"text": p.Text}
			if p.Call != nil {
				o = object{"functionCall": object{"name": p.Call.Name, "args": p.Call.object()}}
			}
			if p.Signature != "" {
				o["thoughtSignature"] = p.Signature
			}
			parts = append(parts, o)
		}
		for _, r := range t.Results {
			key := "output"
			if r.Failed {
				key = "error"
			}
			parts = append(parts, object{"functionResponse": object{"name": r.Name, "response": object{key: r.Text}}})
		}
		for _, text := range t.Texts {
			parts = append(parts, object{"text": text})
		}
		contents = append(contents, object{"role": role, "parts": parts})
	}
	body := object{
		"contents":          contents,
		"systemInstruction": object{"parts": []object{{"text": q.System}}},
		"generationConfig":  object{"maxOutputTokens": q.Max},
	}
	var tools []object
	for _, t := range q.Tools {
		tools = append(tools, object{"name": t.Name, "description": t.About, "parameters": t.schema()})
	}
	if tools != nil {
		body["tools"] = []object{{"functionDeclarations": tools}}
	}
	return body
}

// geminiStream reads chunks, each with the next parts, until one says why the
// model stopped.
type geminiStream struct {
	parts   []*geminiPart
	stop    string
	blocked string
	in      int64
	out     int64
	size    grown
}

type geminiPart struct {
	text      strings.Builder
	call      *call
	signature string
}

type geminiChunk struct {
	Candidates []struct {
		Content struct {
			Parts []struct {
				Text      string `json:"text"`
				Thought   bool   `json:"thought"`
				Signature string `json:"thoughtSignature"`
				Call      *struct {
					Name string          `json:"name"`
					Args json.RawMessage `json:"args"`
				} `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
		Finish string `json:"finishReason"`
	} `json:"candidates"`
	Feedback struct {
		Block string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage struct {
		Prompt     int64 `json:"promptTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (s *geminiStream) event(data []byte) error {
	var c geminiChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return unreadable(err)
	}
	if c.Error != nil {
		return &fault{status: 500, message: clip(c.Error.Message, maxFaultText)}
	}
	s.in, s.out = max(s.in, c.Usage.Prompt), max(s.out, c.Usage.Candidates+c.Usage.Thoughts)
	if c.Feedback.Block != "" {
		s.blocked = c.Feedback.Block
	}
	if len(c.Candidates) == 0 {
		return nil
	}
	candidate := c.Candidates[0]
	if candidate.Finish != "" {
		s.stop = candidate.Finish
	}
	for _, p := range candidate.Content.Parts {
		if err := s.size.add(p.Text, p.Signature); err != nil {
			return err
		}
		switch last := len(s.parts) - 1; {
		case p.Call != nil:
			k := newCall("", p.Call.Name, string(p.Call.Args))
			if err := s.size.add(k.Input); err != nil {
				return err
			}
			s.parts = append(s.parts, &geminiPart{call: &k, signature: p.Signature})
		case p.Thought:
			// Its signature, if it has one, comes with the part that follows.
		case p.Signature == "" && last >= 0 && s.parts[last].call == nil && s.parts[last].signature == "":
			s.parts[last].text.WriteString(p.Text)
		case p.Text != "" || p.Signature != "":
			fresh := &geminiPart{signature: p.Signature}
			fresh.text.WriteString(p.Text)
			s.parts = append(s.parts, fresh)
		}
		if len(s.parts) > 4*MaxCalls {
			return errCalls
		}
	}
	return nil
}

func (s *geminiStream) end() (entry, error) {
	e := entry{Kind: kindAnswer, Stop: stopDone, In: s.in, Out: s.out}
	for _, p := range s.parts {
		e.Parts = append(e.Parts, part{Text: p.text.String(), Call: p.call, Signature: p.signature})
	}
	switch {
	case s.blocked != "":
		e.Stop = stopFilter
	case s.stop == "":
		return entry{}, errCut
	case s.stop == "MAX_TOKENS":
		e.Stop = stopLength
	case strings.HasPrefix(s.stop, "MALFORMED"):
		return entry{}, unreadable(errBadCall)
	case s.stop != "STOP":
		e.Stop = stopFilter
	}
	return e, nil
}
