// Package api is HTTP and JSON over package service: it authenticates, decodes
// strictly, calls one verb and encodes the answer or a problem document
// (RFC 9457). Streams are one JSON object a line.
//
// It holds no rule of its own about what may be done. The invariant: no request
// reaches a verb without a principal, whichever listener it came in on, but
// those that are marked open, and nothing in a request body that is unknown, doubled, mistyped or oversized is
// accepted.
//
// Routes are one table (Routes); the OpenAPI document at /v1/openapi.json is
// made from it, and a test holds the two together.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/internal/service"
)

// Options is what a Server is made from.
type Options struct {
	Version string
	Auth    Auth
	Log     *slog.Logger // nil: slog.Default
	Debug   bool         // causes in problem documents
	// PageOrigin is where browsers see this server, for the page that asks for
	// passkeys; "" for none.
	PageOrigin string
}

// Server is the API. It is an http.Handler; Serve runs it on a listener.
type Server struct {
	svc     *service.Service
	o       Options
	mux     *http.ServeMux
	openapi []byte
	open    map[string]Route // routes that ask for nobody, by pattern
}

// Bounds of the API. Source: docs/SPECIFICATION.md, "API".
const (
	maxBody       = 4 << 20          // bytes of a request body: 32 checks of 64 KiB, a text and a definition of done of 256 KiB each, escaped
	maxHeader     = 64 << 10         // bytes of all headers
	maxConns      = 256              // connections of one listener
	maxStranger   = 64               // of those, of one user who neither runs the server nor is root
	headerTimeout = 10 * time.Second // until the headers are in
	bodyTimeout   = 60 * time.Second // until the body is in
	idleTimeout   = 2 * time.Minute
	maxWait       = 10 * time.Minute // of one wait request
)

// New returns a Server over svc.
func New(svc *service.Service, o Options) *Server {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{svc: svc, o: o, mux: http.NewServeMux(), open: map[string]Route{}}
	s.openapi = document(o.Version, Routes())
	for _, r := range Routes() {
		s.mux.Handle(r.Method+" "+r.Path, s.handler(r))
		if r.Open {
			s.open[r.Method+" "+r.Path] = r
		}
	}
	return s
}

// ServeHTTP gives the request an id, authenticates it and finds its route.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := cofferdam.NewID("q")
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	limitBody(w, r, bodyTimeout)
	source, _ := r.Context().Value(sourceKey{}).(string)
	ctx := identity.WithSource(context.WithValue(r.Context(), requestKey{}, id), source)
	r = r.WithContext(ctx)
	_, pattern := s.mux.Handler(r)
	if open, ok := s.open[pattern]; ok {
		admit := fromBrowser
		if open.Page {
			admit = s.fromPage
		}
		if err := admit(r); err != nil {
			s.problem(w, r, err)
			return
		}
		s.mux.ServeHTTP(w, r)
		return
	}
	acting, err := s.o.Auth.acting(r, s.svc)
	if err != nil {
		s.problem(w, r, err)
		return
	}
	ctx = identity.WithSource(ctx, "member "+acting.Caller.Member) // known by now: what others do who came the same way is not theirs
	r = r.WithContext(service.WithActing(ctx, acting))
	if pattern == "" {
		s.problem(w, r, s.noRoute(r))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// noRoute tells a wrong path from a wrong method.
func (s *Server) noRoute(r *http.Request) error {
	for _, m := range []string{"GET", "POST", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := s.mux.Handler(other); pattern != "" {
			return invalid("method "+visible(r.Method), "this path takes "+m, "see /v1/openapi.json")
		}
	}
	return &cofferdam.Error{Op: "api.Route", Kind: cofferdam.NotFound, Subject: "path " + visible(r.URL.Path), Reason: "there is nothing", Hint: "see /v1/openapi.json"}
}

type requestKey struct{}

// errStopping is why requests end when the server does. One whose caller has gone
// ends as well, for no reason of ours.
var errStopping = errors.New("the server is stopping")

// Serve answers on l until ctx ends, then lets running requests finish for a
// moment. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Requests end with ctx, so that streams do not hold up the end.
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: withPeer,
		ErrorLog:    slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(newBounded(l, maxConns, maxStranger, s.o.Auth.runs)) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	cancel(errStopping)
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if err := srv.Shutdown(grace); err != nil {
		_ = srv.Close() // what did not finish in time is cut
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
