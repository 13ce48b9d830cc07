package rehearsal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Serve answers on l until ctx ends; it closes l.
func Serve(ctx context.Context, l net.Listener, s Script) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler answers requests from the script.
func (s Script) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, object{"data": []object{{
			"type": "model", "id": ModelName, "display_name": "Cofferdam rehearsal (a script, not a model)",
			"created_at": "2026-01-01T00:00:00Z",
		}}, "has_more": false, "first_id": ModelName, "last_id": ModelName})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "the rehearsal server does not know "+r.Method+" "+r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(Header, "true")
		if s.Key != "" && key(r) != s.Key {
			fail(w, http.StatusUnauthorized, "invalid x-api-key (rehearsal)")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func key(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

type object = map[string]any

// request is the part we read of a Messages request.
type request struct {
	Stream bool `json:"stream"`
	Tools  []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
}

type content []struct {
	Type    string  `json:"type"`
	Text    string  `json:"text"`
	Content content `json:"content"` // of tool_result
}

// UnmarshalJSON accepts a list of blocks or a plain text.
func (c *content) UnmarshalJSON(p []byte) error {
	var text string
	if json.Unmarshal(p, &text) == nil {
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	type list content
	return json.Unmarshal(p, (*list)(c))
}

func (c content) text() string {
	var b strings.Builder
	for _, block := range c {
		b.WriteString(block.Text + "\n" + block.Content.text())
	}
	return b.String()
}

// conversation is what conditions look at.
type conversation struct {
	turn   int    // number of the answer asked for, from 1
	asked  string // all texts of the user
	result string // the latest tool result
}

func (r request) conversation() conversation {
	c := conversation{turn: 1}
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			c.turn++
			continue
		}
		for _, block := range m.Content {
			switch block.Type {
			case "text":
				c.asked += block.Text + "\n"
			case "tool_result":
				c.result = block.Text + block.Content.text()
			}
		}
	}
	return c
}

func read(w http.ResponseWriter, r *http.Request) (request, int, bool) {
	var q request
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "reading the request: "+err.Error())
	}
	return q, len(body), err == nil
}

func (s Script) countTokens(w http.ResponseWriter, r *http.Request) {
	if _, size, ok := read(w, r); ok {
		writeJSON(w, http.StatusOK, object{"input_tokens": tokens(size)})
	}
}

func (s Script) messages(w http.ResponseWriter, r *http.Request) {
	q, size, ok := read(w, r)
	if !ok {
		return
	}
	a := answer{blocks: []block{{text: "rehearsal"}}}
	c := q.conversation()
	if len(q.Tools) > 0 {
		a = s.answerTo(c)
	}
	if a.wait > 0 {
		select {
		case <-time.After(a.wait):
		case <-r.Context().Done():
			return
		}
	}
	if a.status != 0 {
		fail(w, a.status, a.failure)
		return
	}
	m := message{id: idOf(c), blocks: a.blocks, in: tokens(size)}
	if q.Stream {
		m.stream(w)
		return
	}
	writeJSON(w, http.StatusOK, m.whole())
}

// tokens estimates: the real figure is the provider's secret, four bytes a
// token is the usual rule of thumb.
func tokens(bytes int) int { return bytes/4 + 1 }

func idOf(c conversation) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", c.turn, c.asked, c.result))
	return hex.EncodeToString(sum[:12])
}

func fail(w http.ResponseWriter, status int, text string) {
	kind := "api_error"
	switch status {
	case 400:
		kind = "invalid_request_error"
	case 401:
		kind = "authentication_error"
	case 404:
		kind = "not_found_error"
	case 429:
		kind = "rate_limit_error"
	case 529:
		kind = "overloaded_error"
	}
	writeJSON(w, status, object{"type": "error", "error": object{"type": kind, "message": text}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is not our error
}
