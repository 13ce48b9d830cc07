package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"cofferdam"
	"cofferdam/internal/service"
)

// Param is one query parameter.
type Param struct{ Name, Type, Doc string } // Type: string, integer

// Route is one path and method: what goes in, what comes out, which verb.
type Route struct {
	Method, Path, ID, Doc string
	Query                 []Param
	Body                  any    // zero value of the body's struct; nil for none
	Reply                 any    // zero value of the answer; nil for none
	List                  string // schema name if the answer is a list of Reply
	Stream                bool   // one Reply a line
	Raw                   string // content type of an answer that is no JSON object
	Created               bool   // answers 201
	Open                  bool   // asks for nobody: who calls it is not known yet
	Page                  bool   // of our own page in a browser
	Signed                bool   // the body is part of a signed message
	call                  func(c *call) (any, error)
}

// call is one request on its way to a verb.
type call struct {
	ctx   context.Context
	svc   *service.Service
	name  string // {name} of the path
	part  string // {checkpoint} of the path
	query url.Values
	body  any // pointer to the type of Route.Body
	key   string
	head  http.Header  // of a signed message
	raw   bytes.Buffer // its body, as it came
	s     *Server
	w     http.ResponseWriter
	req   *http.Request
	stood time.Time // when it was seen last that the caller may have the answer
	sent  bool      // a stream has begun: errors go into it
}

func (s *Server) handler(r Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := &call{ctx: req.Context(), svc: s.svc, name: req.PathValue("name"), part: req.PathValue("checkpoint"), s: s, w: w, req: req, stood: time.Now()}
		defer s.survive(c, req)
		reply, err := c.do(r, req)
		if err == nil && r.Method == http.MethodGet && !c.sent {
			err = c.stands() // it may have waited for long
		}
		switch {
		case err != nil && c.sent:
			c.breakOff(req, err)
		case err != nil:
			s.problem(w, req, err)
		case !c.sent:
			s.answer(w, req, r, reply)
		}
	})
}

// survive turns a panic of one request into its answer: the server goes on.
func (s *Server) survive(c *call, req *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p) // net/http's own way to cut a connection
	}
	s.o.Log.ErrorContext(req.Context(), "request panicked", slog.Any("path", req.URL.Path), slog.Any("panic", fmt.Sprint(p)), slog.Any("stack", string(debug.Stack())))
	err := errors.New("panic")
	if c.sent {
		c.breakOff(req, err)
		return
	}
	s.problem(c.w, req, err)
}

func (c *call) do(r Route, req *http.Request) (any, error) {
	var err error
	if c.query, err = query(req, r.Query); err != nil {
		return nil, err
	}
	if len(c.name) > 300 || len(c.part) > 300 {
		return nil, invalid("name", "is longer than 300 bytes", "list what there is")
	}
	if r.Body != nil {
		c.body = fresh(r.Body)
		if r.Signed {
			c.keep(req)
		}
		if err := decode(c.w, req, c.body); err != nil {
			return nil, err
		}
	} else if req.ContentLength != 0 {
		return nil, invalid("request body", "this path takes none", "send no body")
	}
	if c.key, err = idempotencyKey(req); err != nil {
		return nil, err
	}
	c.ctx = service.WithAsked(c.ctx, func() string { return asked(r, c.name, c.body) })
	return r.call(c)
}

// maxSigned bounds the body of a signed message, which nobody is known to have sent
// before it is read. Source: docs/SPECIFICATION.md, "Approvals".
const maxSigned = 16 << 10

// keep keeps the head of a request, and its body as it is read.
func (c *call) keep(req *http.Request) {
	body := http.MaxBytesReader(c.w, req.Body, maxSigned)
	c.head, req.Body = req.Header, struct {
		io.Reader
		io.Closer
	}{io.TeeReader(body, &c.raw), body}
}

func idempotencyKey(req *http.Request) (string, error) {
	values := req.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || values[0] == "" || len(values[0]) > 255 {
		return "", invalid("Idempotency-Key", "is not one key of 1 to 255 bytes", "use a random identifier")
	}
	return values[0], nil
}

func (s *Server) answer(w http.ResponseWriter, req *http.Request, r Route, reply any) {
	if reply == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	data, err := json.Marshal(reply)
	if err != nil {
		s.problem(w, req, fmt.Errorf("encoding answer: %w", err))
		return
	}
	limitWrite(w)
	w.Header().Set("Content-Type", "application/json")
	if r.Created {
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = w.Write(append(data, '\n')) // the caller has gone if this fails
}

// writeTimeout is how long a reader may leave one answer, or one piece of a
// stream, unread.
const writeTimeout = 30 * time.Second

func limitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // recorders in tests have none
}

// standing is how long an answer goes on without a look whether its caller still
// counts: a token is revoked or over, or a role taken away, while a stream goes on.
// Source: docs/SPECIFICATION.md, "Identity".
const standing = 1 * time.Second

// stands says whether the caller may still have what this request asks for.
func (c *call) stands() error {
	was, known := service.ActingOf(c.ctx)
	if !known || time.Since(c.stood) < standing { // routes that are open ask for nobody
		return nil
	}
	now, err := c.s.o.Auth.acting(c.req, c.s.svc)
	if err != nil {
		return err
	}
	if now.Scope != was.Scope || now.Caller.Member != was.Caller.Member {
		return unauthenticated("its caller is in another project now")
	}
	c.stood = time.Now()
	return nil
}

// begin starts an answer that is written bit by bit.
func (c *call) begin(contentType string) {
	c.sent = true
	limitWrite(c.w)
	c.w.Header().Set("Content-Type", contentType)
	c.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(c.w).Flush() // recorders in tests may have none
}

// line writes one object of a stream and sends it off.
func (c *call) line(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	limitWrite(c.w)
	if _, err := c.w.Write(append(data, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

// breakOff ends a stream with its error as the last line; a raw stream is cut,
// so that nobody takes a part for the whole.
func (c *call) breakOff(req *http.Request, err error) {
	level := slog.LevelInfo
	switch cause := context.Cause(c.ctx); {
	case errors.Is(cause, errStopping):
		err = &cofferdam.Error{Op: "api.Stream", Kind: cofferdam.Unavailable, Subject: "stream", Reason: "the server is stopping", Hint: "follow again when it is back", Err: err}
	case cause != nil: // nobody reads any more, which is nothing to tell an operator
		level = slog.LevelDebug
		err = &cofferdam.Error{Op: "api.Stream", Kind: cofferdam.Unavailable, Subject: "stream", Reason: "its reader has gone", Err: err}
	}
	p := c.s.problemOf(req, err)
	c.s.o.Log.Log(req.Context(), level, "stream ended early", slog.Any("request", p.RequestID), slog.Any("path", req.URL.Path), slog.Any("error", err))
	if c.w.Header().Get("Content-Type") != ndjson {
		panic(http.ErrAbortHandler)
	}
	_ = c.line(map[string]any{"problem": p}) // the caller may have gone
}

const ndjson = "application/x-ndjson"

// list is how every list travels.
type list[T any] struct {
	Schema string `json:"schema"`
	Items  []T    `json:"items"`
}

func listOf[T any](schema string, items []T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if items == nil {
		items = []T{}
	}
	return list[T]{Schema: schema, Items: items}, nil
}

func stateNames() []cofferdam.TaskState {
	return []cofferdam.TaskState{
		cofferdam.Queued, cofferdam.Preparing, cofferdam.Running, cofferdam.Verifying, cofferdam.Waiting, cofferdam.InReview,
		cofferdam.Done, cofferdam.NothingToDo, cofferdam.Blocked, cofferdam.Failed, cofferdam.TimedOut, cofferdam.Cancelled,
	}
}
