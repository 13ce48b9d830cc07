// Package workload is where a box gets the token that says which session it is:
// http://identity.cofferdam.internal in a box. GET /token?audience=NAME answers a
// JWT for that audience, if the policy of the session lets it use the name
// identity:NAME; POST /check says whose token another one is.
//
// It keeps nothing and hands out no credential of anybody. The invariant: a token
// is bound to the wire it was asked for on, and on any other wire it is none. Who
// is outside checks it against /v1/jwks.json of the API, and cannot see the wire:
// there it is worth its five minutes to whoever holds it.
package workload

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/identity"
	"cofferdam/policy"
)

// Issuer signs and checks tokens; package identity offers it.
type Issuer interface {
	Sign(w identity.Workload, audience string) (string, time.Time, error)
	Check(text, audience, wire string) (identity.Workload, error)
}

// Bounds of a request. Source: docs/SPECIFICATION.md, "Identity".
const (
	maxAudience = 256      // bytes
	maxBody     = 16 << 10 // bytes of a form with a token
)

// Gateway serves boxes. Safe for concurrent use.
type Gateway struct{ issuer Issuer }

// New returns a Gateway.
func New(i Issuer) *Gateway { return &Gateway{i} }

// Serve implements gateway.Handler. It owns conn.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	gateway.ServeHTTP(c, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := strings.Cut(r.Host, ":")
		audience, err := audienceOf(w, r)
		switch {
		case cofferdam.ParseHost(host) != to.Host:
			err = &cofferdam.Error{Op: "workload.Serve", Kind: cofferdam.Invalid, Subject: "host", Reason: "the request names another one", Hint: "ask http://" + string(gateway.IdentityHost)}
		case err != nil:
		case r.Method+" "+r.URL.Path == "GET /token":
			err = g.token(c, w, r, audience)
		case r.Method+" "+r.URL.Path == "POST /check":
			err = g.check(c, w, r, audience)
		default:
			err = &cofferdam.Error{Op: "workload.Serve", Kind: cofferdam.NotFound, Subject: "address", Reason: "there is nothing", Hint: "GET /token?audience=NAME, or POST /check with token and audience"}
		}
		if err != nil {
			gateway.AnswerRefusal(w, r, err)
		}
	}))
}

// audienceOf reads for whom a token is, from the query or the form.
func audienceOf(w http.ResponseWriter, r *http.Request) (string, error) {
	bad := func(reason string) error {
		return &cofferdam.Error{Op: "workload.Serve", Kind: cofferdam.Invalid, Subject: "audience", Reason: reason, Hint: "name who will check the token, such as https://api.example.com"}
	}
	values := url.Values{}
	var err error
	if r.Method == http.MethodPost {
		text, rerr := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if rerr != nil {
			return "", bad("the request is larger than a token and a name")
		}
		if values, err = url.ParseQuery(string(text)); err == nil {
			r.PostForm = values
		}
	} else {
		values, err = url.ParseQuery(r.URL.RawQuery)
	}
	name := values.Get("audience")
	switch {
	case err != nil:
		return "", bad("the request cannot be read")
	case len(values["audience"]) != 1 || name == "" || len(name) > maxAudience:
		return "", bad("it is not one name of 1 to 256 bytes")
	case strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "", bad("it has a character that is not printed, or is not ASCII")
	}
	return name, nil
}

// token answers a token of the session for an audience.
func (g *Gateway) token(c *gateway.Caller, w http.ResponseWriter, r *http.Request, audience string) error {
	return gateway.Handle(r.Context(), c, gateway.Request{
		Source: "workload", Kind: cofferdam.EventWorkload, Resource: "token for " + audience, Durable: true,
		Query: policy.Query{Action: policy.Use, Name: "identity:" + audience}, Fields: map[string]string{"audience": audience},
	}, func(context.Context) (gateway.Outcome, error) {
		text, ends, err := g.issuer.Sign(identity.Workload{Scope: c.Scope, Task: c.Task, Session: c.Session, Wire: c.Wire()}, audience)
		if err != nil {
			return gateway.Outcome{}, err
		}
		return gateway.Outcome{Status: gateway.OK}, answer(w, map[string]any{"token": text, "expires": ends.UTC().Format(time.RFC3339)})
	})
}

// check answers whose token it is that came in on this wire.
func (g *Gateway) check(c *gateway.Caller, w http.ResponseWriter, r *http.Request, audience string) error {
	who, err := g.issuer.Check(r.PostForm.Get("token"), audience, c.Wire())
	if err != nil {
		return err
	}
	return answer(w, map[string]any{"session": who.Session, "task": who.Task, "organization": who.Scope.Organization, "project": who.Scope.Project})
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(v)
}
