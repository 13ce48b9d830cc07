package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"cofferdam"
)

// Problem is an error as it travels (RFC 9457).
type Problem struct {
	Type       string `json:"type"` // urn:cofferdam:problem:KIND
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Kind       string `json:"kind"`
	Op         string `json:"op,omitempty"`
	Subject    string `json:"subject,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Hint       string `json:"hint"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
	// Errand is what a person has to do with a browser before the same request is
	// sent again.
	Errand    *cofferdam.Errand `json:"errand,omitempty"`
	RequestID string            `json:"request_id"`
	Cause     string            `json:"cause,omitempty"` // only of a server started with --debug
}

// problemOf turns an error into a Problem. An error without words for people
// says only that something went wrong inside: its text may hold anything.
func (s *Server) problemOf(r *http.Request, err error) Problem {
	kind := cofferdam.KindOf(err)
	info := cofferdam.Kinds()[kind]
	id, _ := r.Context().Value(requestKey{}).(string)
	p := Problem{
		Type: "urn:cofferdam:problem:" + strings.ReplaceAll(info.Name, " ", "-"), Title: info.Name, Status: info.HTTP,
		Kind: info.Name, Hint: cofferdam.HintOf(err), RequestID: id, Detail: "something went wrong inside the server",
	}
	var e *cofferdam.Error
	if errors.As(err, &e) {
		p.Op, p.Subject, p.Reason, p.Detail = e.Op, e.Subject, e.Reason, e.Error()
		p.RetryAfter = int64(math.Ceil(e.After.Seconds()))
		if e.Reason == "" && kind == cofferdam.Internal {
			p.Detail = e.Subject + ": something went wrong inside the server"
		}
	}
	_ = errors.As(err, &p.Errand) // there is none but of passkeys
	if s.o.Debug {
		if p.Cause = causes(err); p.Cause == "" {
			p.Cause = err.Error()
		}
	}
	return p
}

// causes is the whole chain, for the log and --debug: what a person reads
// leaves it out.
func causes(err error) string {
	var chain []string
	for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
		chain = append(chain, u.Error())
	}
	return strings.Join(chain, "; ")
}

func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problemOf(r, err)
	s.o.Log.InfoContext(r.Context(), "request refused", slog.Any("request", p.RequestID), slog.Any("method", r.Method), slog.Any("path", r.URL.Path), slog.Any("status", p.Status), slog.Any("kind", p.Kind), slog.Any("op", p.Op), slog.Any("error", err), slog.Any("cause", causes(err)))
	limitWrite(w)
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller has gone if this fails
}
