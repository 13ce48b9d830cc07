package rehearsal

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// gemini is Google's generateContent protocol. Its signatures are checked as
// the provider checks them: the first function call of each answer since the
// user's last text must carry the signature that it was given with.
type gemini struct{}

// skipSignature is what clients may send where they never had a signature.
const skipSignature = "skip_thought_signature_validator"

// geminiContent is one message of the history.
type geminiContent struct {
	Role  string `json:"role"`
	Parts []struct {
		Text      string `json:"text"`
		Thought   bool   `json:"thought"`
		Signature string `json:"thoughtSignature"`
		Call      *struct {
			ID string `json:"id"`
		} `json:"functionCall"`
		Response *struct {
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

func (gemini) read(body []byte, q *question) error {
	var r struct {
		Contents []geminiContent `json:"contents"`
		Tools    []struct {
			Declarations []struct {
				Name       string  `json:"name"`
				Parameters schema  `json:"parameters"`
				Schema     *schema `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Config struct {
			Schema     *schema `json:"responseSchema"`
			JSONSchema *schema `json:"responseJsonSchema"`
		} `json:"generationConfig"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	if q.schema = r.Config.Schema; q.schema == nil {
		q.schema = r.Config.JSONSchema
	}
	for _, t := range r.Tools {
		for _, d := range t.Declarations {
			if d.Schema != nil {
				d.Parameters = *d.Schema
			}
			q.tools = append(q.tools, tool{name: d.Name, schema: d.Parameters})
		}
	}
	unsigned := false // an answer since the user's last text lacks its signature
	for _, c := range r.Contents {
		if c.Role == "model" {
			q.answered("")
			unsigned = unsigned || !c.signed()
			continue
		}
		for _, p := range c.Parts {
			switch {
			case p.Response != nil:
				q.returned(texts(p.Response.Response))
			case p.Text != "":
				q.user(p.Text)
				unsigned = false
			}
		}
	}
	if unsigned {
		return errors.New("function call is missing a thought_signature, or it is not the one that was given (rehearsal)")
	}
	return nil
}

// signed says whether the first call, if there is one, has its signature.
func (c geminiContent) signed() bool {
	for _, p := range c.Parts {
		if p.Call != nil {
			return sealed(p.Signature) || p.Signature == skipSignature
		}
	}
	return true
}

// chunk is one answer or piece of one.
func (gemini) chunk(m message, parts []object, last bool) object {
	candidate := object{"content": object{"role": "model", "parts": parts}, "index": 0}
	if last {
		candidate["finishReason"] = "STOP"
	}
	count := object{
		"promptTokenCount": m.in, "candidatesTokenCount": m.out - m.thought, "totalTokenCount": m.in + m.out,
	}
	if m.cached > 0 {
		count["cachedContentTokenCount"] = m.cached
	}
	if m.thought > 0 {
		count["thoughtsTokenCount"] = m.thought
	}
	return object{
		"candidates": []object{candidate}, "usageMetadata": count, "modelVersion": m.name, "responseId": "gemini" + mark + m.id,
	}
}

// part is a part of an answer; the first call of it carries the signature.
func (gemini) part(m message, i int) object {
	p := m.parts[i]
	switch p.verb {
	case "say":
		return object{"text": p.text}
	case "reason":
		return object{"text": p.text, "thought": true}
	}
	o := object{"functionCall": object{"id": partID("call", m.id, i), "name": p.name, "args": p.object()}}
	for _, before := range m.parts[:i] {
		if before.verb == "tool" {
			return o
		}
	}
	o["thoughtSignature"] = seal(m.id)
	return o
}

func (g gemini) whole(m message) any {
	parts := []object{}
	for i, p := range m.parts {
		if p.verb != "pause" {
			parts = append(parts, g.part(m, i))
		}
	}
	return g.chunk(m, parts, true)
}

// stream sends the answer in chunks, as events or as one array. Function calls
// come in one piece, as they do from the provider.
func (g gemini) stream(m message, w *wire) {
	send, end := g.framing(m, w)
	for i, p := range m.parts {
		switch p.verb {
		case "pause":
			w.pause(p.duration)
		case "tool":
			send(g.chunk(m, []object{g.part(m, i)}, false))
		default:
			for _, text := range pieces(p.text) {
				o := g.part(m, i)
				o["text"] = text
				send(g.chunk(m, []object{o}, false))
			}
		}
	}
	if broken := w.answer.broken; broken != "" {
		send(g.failure(http.StatusServiceUnavailable, broken))
	} else {
		send(g.chunk(m, []object{{"text": ""}}, true))
	}
	end()
}

// framing returns how a chunk is sent, and what comes after the last.
func (gemini) framing(m message, w *wire) (send func(object), end func()) {
	if !m.array {
		w.begin("text/event-stream")
		return func(o object) { w.event("data: ", encode(o), "\r\n\r\n") }, func() {}
	}
	w.begin("application/json")
	before := "["
	send = func(o object) {
		w.event(before, encode(o), "")
		before = ",\r\n"
	}
	return send, func() { w.write([]byte("]\n")) }
}

func (gemini) failure(status int, text string) object {
	kind := "UNKNOWN"
	switch status {
	case http.StatusBadRequest:
		kind = "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		kind = "UNAUTHENTICATED"
	case http.StatusForbidden:
		kind = "PERMISSION_DENIED"
	case http.StatusNotFound:
		kind = "NOT_FOUND"
	case http.StatusTooManyRequests:
		kind = "RESOURCE_EXHAUSTED"
	case http.StatusInternalServerError:
		kind = "INTERNAL"
	case http.StatusServiceUnavailable:
		kind = "UNAVAILABLE"
	case http.StatusGatewayTimeout:
		kind = "DEADLINE_EXCEEDED"
	}
	return object{"error": object{"code": status, "message": text, "status": kind}}
}

// geminiCall answers MODEL:METHOD, the last part of a path of this protocol.
func (s *player) geminiCall(w http.ResponseWriter, r *http.Request) {
	model, method, _ := strings.Cut(r.PathValue("call"), ":")
	q := question{model: model}
	switch method {
	case "generateContent":
	case "streamGenerateContent":
		q.stream, q.array = true, r.URL.Query().Get("alt") != "sse"
	case "countTokens":
		if read(w, r, gemini{}, &q) {
			writeJSON(w, http.StatusOK, object{"totalTokens": tokens(q.size)})
		}
		return
	default:
		fail(w, gemini{}, http.StatusNotFound, "the rehearsal server does not know the method "+method)
		return
	}
	if read(w, r, gemini{}, &q) {
		s.play(w, r, gemini{}, &q)
	}
}

func geminiCard(id string) object {
	return object{
		"name": "models/" + id, "displayName": id + " (a script, not a model)", "version": "001",
		"inputTokenLimit": 1048576, "outputTokenLimit": 65536,
		"supportedGenerationMethods": []string{"generateContent", "streamGenerateContent", "countTokens"},
	}
}
