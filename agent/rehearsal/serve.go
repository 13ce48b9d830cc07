package rehearsal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxTries is how many different requests are counted for the condition try;
// with one more, counting begins anew.
const maxTries = 10_000

type object = map[string]any

// protocol is one way to speak to a model.
type protocol interface {
	// read takes a request apart.
	read(body []byte, q *question) error
	// whole is the answer in one piece.
	whole(m message) any
	// stream sends the answer in events.
	stream(m message, w *wire)
	// failure is an error; the name is what the provider calls its kind.
	failure(status int, text string) object
}

// message is one answer on its way out.
type message struct {
	*question
	usage
	id      string
	name    string // of the model that gives it
	parts   []part
	thought int // tokens of out that were spent on thinking
}

// called says whether the answer calls a tool.
func (m message) called() bool {
	return slices.ContainsFunc(m.parts, func(p part) bool { return p.verb == "tool" })
}

// Serve answers on l until ctx ends; it closes l.
func Serve(ctx context.Context, l net.Listener, s Script) error {
	return serve(ctx, l, s.Handler())
}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
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

// player answers from a script.
type player struct {
	Script
	mu    sync.Mutex
	tries map[string]int // by the id of a question; nil if the script does not look
}

// Handler answers requests from the script.
func (s Script) Handler() http.Handler {
	p := &player{Script: s}
	if s.counts() {
		p.tries = map[string]int{}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", p.answering(anthropic{}))
	mux.HandleFunc("POST /v1/messages/count_tokens", p.counting(anthropic{}, "input_tokens"))
	mux.HandleFunc("POST /v1/responses", p.answering(responses{}))
	mux.HandleFunc("POST /v1/responses/input_tokens", p.counting(responses{}, "input_tokens"))
	mux.HandleFunc("POST /v1/chat/completions", p.answering(chat{}))
	for _, version := range []string{"v1", "v1beta", "v1alpha"} {
		mux.HandleFunc("POST /"+version+"/models/{call}", p.geminiCall)
	}
	for _, version := range []string{"v1beta", "v1alpha"} {
		mux.HandleFunc("GET /"+version+"/models", p.list)
		mux.HandleFunc("GET /"+version+"/models/{id}", p.view)
	}
	mux.HandleFunc("GET /v1/models", p.list)
	mux.HandleFunc("GET /v1/models/{id}", p.view)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, protocolOf(r), http.StatusNotFound, "the rehearsal server does not know "+r.Method+" "+r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(Header, "true")
		if s.Key != "" && key(r) != s.Key {
			fail(w, protocolOf(r), http.StatusUnauthorized, "invalid x-api-key (rehearsal)")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// key is the credential of a request, wherever its protocol puts it.
func key(r *http.Request) string {
	for _, k := range []string{r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key")} {
		if k != "" {
			return k
		}
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// protocolOf guesses the protocol of a request that no path decides.
func protocolOf(r *http.Request) protocol {
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1beta/"), strings.HasPrefix(r.URL.Path, "/v1alpha/"), strings.Contains(r.URL.Path, ":"), r.Header.Get("X-Goog-Api-Key") != "":
		return gemini{}
	case strings.HasPrefix(r.URL.Path, "/v1/messages"), r.Header.Get("X-Api-Key") != "", r.Header.Get("Anthropic-Version") != "":
		return anthropic{}
	}
	return responses{}
}

// read reads a request, or answers with the error.
func read(w http.ResponseWriter, r *http.Request, p protocol, q *question) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		q.turn, q.size = 1, len(body)
		if m := working.FindSubmatch(body); m != nil {
			q.folder = string(m[1])
		}
		err = p.read(body, q)
	}
	if err != nil {
		fail(w, p, http.StatusBadRequest, "reading the request: "+err.Error())
	}
	return err == nil
}

// counting answers how many tokens a request would be, under the given name.
func (s *player) counting(p protocol, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q question
		if read(w, r, p, &q) {
			writeJSON(w, http.StatusOK, object{name: tokens(q.size)})
		}
	}
}

// answering answers a request from the script.
func (s *player) answering(p protocol) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q question
		if read(w, r, p, &q) {
			s.play(w, r, p, &q)
		}
	}
}

func (s *player) play(w http.ResponseWriter, r *http.Request, p protocol, q *question) {
	if len(s.Serves) > 0 && !slices.Contains(s.Serves, q.model) {
		fail(w, p, http.StatusNotFound, "the model "+q.model+" does not exist (rehearsal)")
		return
	}
	a := s.answerTo(*q, s.try(q))
	if !sleep(r.Context(), a.wait) {
		return
	}
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	if a.status != 0 {
		fail(w, p, a.status, a.failure)
		return
	}
	m := message{question: q, id: q.digest(), name: ModelName, parts: q.parts(a.steps)}
	if a.as != "" {
		m.name = a.as
	}
	m.measure(a.usage)
	out := &wire{w: w, ctx: r.Context(), answer: a}
	if !q.stream {
		out.whole(p.whole(m))
		return
	}
	p.stream(m, out)
}

// measure sets the token counts: what the script says, or an estimate.
func (m *message) measure(u *usage) {
	size, thought := 0, 0
	for _, p := range m.parts {
		size += len(p.text) + len(p.input) + len(p.free)
		if p.verb == "reason" {
			thought += len(p.text)
		}
	}
	m.usage = usage{in: tokens(m.size), out: tokens(size)}
	if u != nil {
		m.usage = *u
	}
	m.thought = min(thought/4, m.out)
}

// try is how often the question came, this time included.
func (s *player) try(q *question) int {
	if s.tries == nil {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tries) >= maxTries {
		clear(s.tries)
	}
	id := q.digest()
	s.tries[id]++
	return s.tries[id]
}

// sleep waits, and says whether the client is still there.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tokens estimates: the real figure is the provider's secret, four bytes a
// token is the usual rule of thumb.
func tokens(bytes int) int { return bytes/4 + 1 }

// models are the ids that lists have.
func (s Script) models() []string {
	if len(s.Serves) > 0 {
		return s.Serves
	}
	return []string{ModelName}
}

// card describes a model in the shapes of Anthropic and OpenAI at once.
func card(id string) object {
	return object{
		"type": "model", "object": "model", "id": id, "display_name": id + " (a script, not a model)",
		"created_at": "2026-01-01T00:00:00Z", "created": 1767225600, "owned_by": "cofferdam-rehearsal",
	}
}

func (s *player) list(w http.ResponseWriter, r *http.Request) {
	ids := s.models()
	_, google := protocolOf(r).(gemini)
	var cards []object
	for _, id := range ids {
		if google {
			cards = append(cards, geminiCard(id))
		} else {
			cards = append(cards, card(id))
		}
	}
	if google {
		writeJSON(w, http.StatusOK, object{"models": cards})
		return
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": cards, "has_more": false, "first_id": ids[0], "last_id": ids[len(ids)-1]})
}

func (s *player) view(w http.ResponseWriter, r *http.Request) {
	id, p := r.PathValue("id"), protocolOf(r)
	if !slices.Contains(s.models(), id) {
		fail(w, p, http.StatusNotFound, "the model "+id+" does not exist (rehearsal)")
		return
	}
	if _, google := p.(gemini); google {
		writeJSON(w, http.StatusOK, geminiCard(id))
		return
	}
	writeJSON(w, http.StatusOK, card(id))
}

func fail(w http.ResponseWriter, p protocol, status int, text string) {
	writeJSON(w, status, p.failure(status, text))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is not our error
}

// encode encodes what cannot fail to: everything in it came from JSON or is text.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("encoding an answer: " + err.Error()) // cannot happen: Parse checked all JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
