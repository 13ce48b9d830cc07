// Package proposal is where an agent asks a person to let its task reach a host:
// http://policy.cofferdam.internal in a box. POST / with the host, why, and for how
// long, how many requests and how many bytes waits for the answer; GET / says what
// the task may reach.
//
// It opens nothing and decides nothing: a proposal goes through gateway.Handle as a
// question to people, and what they allow counts for this task alone. The
// invariants: a proposal names one host and has all three bounds; what policy
// denies or limits is not put before anybody; of one session one proposal waits at
// a time.
package proposal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// Bounds of a proposal, of those that it names none of, and at most. A person may
// open more unasked. Source: docs/SPECIFICATION.md, "Approvals".
const (
	maxBody = 8 << 10 // bytes of a request
	maxWhy  = 1000    // bytes of an agent's words

	defaultFor   = 30 * time.Minute
	defaultUses  = 100
	defaultBytes = 10_000_000
	maxFor       = 4 * time.Hour
	maxUses      = 1000
	maxBytes     = 100_000_000

	shownHosts = 100 // in the answer to GET
)

// Gateway serves boxes. Safe for concurrent use.
type Gateway struct {
	mu      sync.Mutex
	waiting map[cofferdam.SessionID]bool // guarded by mu: a proposal of that session waits
}

// New returns a Gateway.
func New() *Gateway { return &Gateway{waiting: map[cofferdam.SessionID]bool{}} }

// Serve implements gateway.Handler. It owns conn.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	gateway.ServeHTTP(c, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := strings.Cut(r.Host, ":")
		var err error
		switch {
		case cofferdam.ParseHost(host) != to.Host:
			err = invalid("host", "the request names another one", "ask http://"+string(gateway.PolicyHost))
		case r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodPost:
			err = &cofferdam.Error{Op: "proposal.Serve", Kind: cofferdam.NotFound, Subject: "address", Reason: "there is nothing", Hint: "GET / says what this task may reach; POST / asks a person for one host more"}
		case r.Method == http.MethodGet:
			err = list(c, w)
		default:
			err = g.post(c, w, r)
		}
		if err != nil {
			gateway.AnswerRefusal(w, r, err)
		}
	}))
}

func invalid(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "proposal.Serve", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// request is what an agent sends. A bound that is missing is the default.
type request struct {
	Entry string `json:"entry"`           // HOST[:PORT]
	Why   string `json:"why"`             // in its own words
	For   string `json:"for,omitempty"`   // such as 30m
	Uses  *int   `json:"uses,omitempty"`  // requests
	Bytes *int64 `json:"bytes,omitempty"` // sent and received, together
}

// asText is where a proposal's shape is told.
const asText = `send one JSON object: {"entry":"api.example.com","why":"...","for":"30m","uses":100,"bytes":10000000}`

// read reads a proposal strictly.
func read(w http.ResponseWriter, r *http.Request) (request, error) {
	var p request
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return p, invalid("proposal", fmt.Sprintf("it broke off, or is larger than %d bytes", maxBody), asText)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || !utf8.Valid(text) {
		return p, invalid("proposal", "it is not the JSON that is read here", asText)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return p, invalid("proposal", "it goes on after its end", asText)
	}
	switch {
	case len(p.Why) > maxWhy:
		return p, invalid("why", fmt.Sprintf("it is longer than %d bytes", maxWhy), "say in a sentence what the work needs it for")
	case !strings.ContainsFunc(p.Why, unicode.IsLetter):
		return p, invalid("why", "it says nothing", "say in a sentence what the work needs it for")
	}
	return p, nil
}

// proposal checks what is asked for, and gives it the bounds that it names none of.
func (p request) proposal() (*gateway.Proposal, error) {
	rule, err := policy.ParseOpening(policy.HTTP, p.Entry)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(rule.Pattern, "*") {
		return nil, invalid("entry", "it is more than one host", "name the one host that the work needs")
	}
	b := cofferdam.Bounds{Entry: rule.String(), Seconds: defaultFor.Seconds(), Uses: defaultUses, Bytes: defaultBytes}
	if p.For != "" {
		d, err := time.ParseDuration(p.For)
		if err != nil || d < time.Second || d > maxFor {
			return nil, invalid("for", fmt.Sprintf("it is no time from 1s to %s", maxFor), "write it as 30m; a person may open more unasked")
		}
		b.Seconds = d.Seconds()
	}
	if p.Uses != nil {
		b.Uses = *p.Uses
	}
	if p.Bytes != nil {
		b.Bytes = *p.Bytes
	}
	switch {
	case b.Uses < 1 || b.Uses > maxUses:
		return nil, invalid("uses", fmt.Sprintf("it is no number of requests from 1 to %d", maxUses), "a person may open more unasked")
	case b.Bytes < 1 || b.Bytes > maxBytes:
		return nil, invalid("bytes", fmt.Sprintf("it is no number from 1 to %d", maxBytes), "a person may open more unasked")
	}
	return &gateway.Proposal{Rule: rule, Bounds: b}, nil
}

// post puts a proposal before a person and waits.
func (g *Gateway) post(c *gateway.Caller, w http.ResponseWriter, r *http.Request) error {
	asked, err := read(w, r)
	if err != nil {
		return err
	}
	p, err := asked.proposal()
	if err != nil {
		return err
	}
	if c.Phase != gateway.Work {
		return &cofferdam.Error{Op: "proposal.Serve", Kind: cofferdam.Denied, Subject: p.Rule.String(), Reason: "only the work of a task asks people", Hint: "give a setup its hosts in its definition"}
	}
	if !g.begin(c.Session) {
		return &cofferdam.Error{Op: "proposal.Serve", Kind: cofferdam.Conflict, Subject: p.Rule.String(), Reason: "another proposal of this task waits", Hint: "wait for its answer"}
	}
	defer g.end(c.Session)
	port := p.Rule.Port
	if port == 0 {
		port = 443
	}
	b := p.Bounds
	return gateway.Handle(r.Context(), c, gateway.Request{
		Source: "proposal", Kind: cofferdam.EventProposal, Resource: b.Entry, Durable: true, Proposes: p,
		Query:  policy.Query{Action: policy.HTTP, Host: cofferdam.Host(p.Rule.Pattern), Port: port, Method: http.MethodGet, Path: "/"},
		Fields: map[string]string{"why": asked.Why, "entry": b.Entry, "seconds": fmt.Sprint(b.Seconds), "uses": fmt.Sprint(b.Uses), "bytes": fmt.Sprint(b.Bytes)},
		Show:   func(context.Context) (gateway.Shown, error) { return gateway.Show([]byte(asked.Why), ""), nil },
	}, func(context.Context) (gateway.Outcome, error) {
		o := opened(p.Opened)
		return gateway.Outcome{Status: gateway.OK}, answer(w, o)
	})
}

// begin says whether no proposal of a session waits, and that one does now.
func (g *Gateway) begin(s cofferdam.SessionID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[s] {
		return false
	}
	g.waiting[s] = true
	return true
}

func (g *Gateway) end(s cofferdam.SessionID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, s)
}

// opening is what is open for a while, as an agent sees it.
type opening struct {
	Entry string    `json:"entry"`
	Until time.Time `json:"until"`
	Uses  int       `json:"uses,omitempty"`
	Bytes int64     `json:"bytes,omitempty"`
}

func opened(g policy.Opening) opening {
	return opening{Entry: g.Rule.String(), Until: g.Until.UTC().Truncate(time.Second), Uses: g.Uses, Bytes: g.Bytes}
}

// list answers what the task may reach: its own grant, and no more of the policy
// than that.
func list(c *gateway.Caller, w http.ResponseWriter) error {
	grant := c.Policy.Set().Grant()
	out := struct {
		Allowed []string  `json:"allowed"`
		More    int       `json:"more,omitempty"` // that are not listed
		Opened  []opening `json:"opened"`
	}{Allowed: []string{}, Opened: []opening{}}
	hosts := grant.Hosts()
	for _, r := range hosts[:min(len(hosts), shownHosts)] {
		out.Allowed = append(out.Allowed, r.String())
	}
	out.More = len(hosts) - len(out.Allowed)
	for _, g := range grant.Openings {
		out.Opened = append(out.Opened, opened(g))
	}
	return answer(w, out)
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(v)
}
