// Package client calls a Cofferdam server: one method per verb, typed, over the
// server's unix socket or a loopback address with a token. Errors are
// *cofferdam.Error as the server told them, with kind, reason and hint.
//
// It never decides anything for the server and keeps no state between calls.
// The invariant: a call is sent again only if repeating it cannot do anything
// twice, which is said of each method by how it is sent: reads, and the creation
// of a task with its idempotency key.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"cofferdam"
)

// Options says where the server is.
type Options struct {
	Server string // unix:PATH or http://ADDRESS:PORT
	Token  string // needed over http, allowed over unix; "" for none
	// Project is that which calls are about, by name or id; "" for the only one the
	// caller is in, or the server's own.
	Project string
	// Browse is told of an errand, once for each call that has one: the call waits
	// until a browser has done it. nil: the call fails, and its error has the errand.
	Browse func(cofferdam.Errand)
}

// Client calls one server. Safe for concurrent use.
type Client struct {
	base   string
	server string
	token  string
	scope  string // name of the project
	http   *http.Client
	pause  func(context.Context, time.Duration) error
	browse func(cofferdam.Errand)
}

// Bounds of a call. Source: docs/SPECIFICATION.md, "API".
const (
	attempts     = 4                      // of a call that may be repeated
	firstPause   = 100 * time.Millisecond // doubled each time
	maxAnswer    = 64 << 20               // bytes of one JSON answer
	maxProblem   = 1 << 20
	maxLine      = 8 << 20 // of a stream
	dialTimeout  = 10 * time.Second
	headerWait   = 11 * time.Minute // a wait request answers after 10
	idleInClient = 30 * time.Second
	errandPause  = 2 * time.Second // between looks whether a browser has answered
)

// New returns a Client. It does not call the server yet.
func New(o Options) (*Client, error) {
	t := &http.Transport{ResponseHeaderTimeout: headerWait, IdleConnTimeout: idleInClient, Proxy: nil}
	c := &Client{server: o.Server, token: o.Token, scope: o.Project, http: &http.Client{Transport: t, CheckRedirect: noRedirect}, pause: sleep, browse: o.Browse}
	dialer := &net.Dialer{Timeout: dialTimeout}
	path, isUnix := strings.CutPrefix(o.Server, "unix:")
	switch {
	case isUnix && path != "":
		c.base = "http://cofferdam"
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
	case strings.HasPrefix(o.Server, "http://") && !loopback(o.Server):
		return nil, &cofferdam.Error{Op: "client.New", Kind: cofferdam.Invalid, Subject: "server " + o.Server, Reason: "plain http to another machine would show the token on the way", Hint: "use unix:PATH, http://127.0.0.1:PORT, or https"}
	case strings.HasPrefix(o.Server, "http://"), strings.HasPrefix(o.Server, "https://"):
		c.base = strings.TrimSuffix(o.Server, "/")
		t.DialContext = dialer.DialContext
	default:
		return nil, &cofferdam.Error{Op: "client.New", Kind: cofferdam.Invalid, Subject: "server " + o.Server, Reason: "is neither unix:PATH nor a URL", Hint: "use unix:PATH or http://127.0.0.1:PORT"}
	}
	return c, nil
}

// loopback says whether what is sent to a URL stays on this machine.
func loopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.IsLoopback() || u.Hostname() == "localhost"
}

// noRedirect: a token follows nobody elsewhere.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request is one call.
type request struct {
	method, path string
	body         any
	key          string // idempotency key
}

// safe says whether sending it twice does nothing twice.
func (r request) safe() bool { return r.method == http.MethodGet || r.key != "" }

// send returns an answer of success with its body open.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("encoding request: %w", err)
		}
	}
	wait := firstPause
	told := false
	for n := 1; ; n++ {
		resp, err := c.once(ctx, r, body)
		var errand *cofferdam.Errand
		if c.browse != nil && errors.As(err, &errand) {
			if !told {
				c.browse(*errand)
			}
			told, n = true, 0
			if perr := c.pause(ctx, errandPause); perr != nil {
				return nil, perr
			}
			continue // nothing was done: the server waits for the browser
		}
		if err == nil || n == attempts || !r.safe() || !passing(err) || ctx.Err() != nil {
			return resp, err
		}
		if perr := c.pause(ctx, wait); perr != nil {
			return nil, err
		}
		wait *= 2
	}
}

// passing says whether an error may be gone in a moment. A missing socket is
// not: nobody is starting there as far as we know.
func passing(err error) bool {
	return cofferdam.KindOf(err) == cofferdam.Unavailable && !errors.Is(err, fs.ErrNotExist)
}

func (c *Client) once(ctx context.Context, r request, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, reader)
	if err != nil {
		return nil, &cofferdam.Error{Op: "client.Call", Kind: cofferdam.Invalid, Subject: "request", Reason: err.Error(), Hint: "check the name that was given"}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.scope != "" {
		req.Header.Set("Cofferdam-Project", c.scope)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode < 300 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.problem(resp)
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := &cofferdam.Error{
		Op: "client.Call", Kind: cofferdam.Unavailable, Err: err,
		Hint: "start one with cofferdam serve, or set COFFERDAM_SERVER; cofferdam doctor checks this host",
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		e.Subject = "no server at " + c.server
		e.Reason = "nobody answers there"
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Subject, e.Reason = cofferdam.Forbidden, "server at "+c.server, "its socket is not open to this user"
		e.Hint = "call it as root or as the server's own user, for example with sudo"
	default:
		e.Subject, e.Reason = "server at "+c.server, "the connection broke: "+plain(err)
		e.Hint = "try again; what was asked may have been done: look with the list command"
	}
	return e
}

// plain is an error without net/http's repetition of method and address.
func plain(err error) string {
	for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
		err = u
	}
	return err.Error()
}

// problem turns a problem document into the error the server had.
func (c *Client) problem(resp *http.Response) error {
	var p problem
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil || json.Unmarshal(data, &p) != nil || p.Kind == "" {
		return &cofferdam.Error{
			Op: "client.Call", Kind: kindOfStatus(resp.StatusCode), Subject: "server at " + c.server,
			Reason: fmt.Sprintf("answered %s without a reason", resp.Status), Hint: "is that a cofferdam server? see COFFERDAM_SERVER",
		}
	}
	return p.err()
}

type problem struct {
	Kind, Op, Subject, Reason, Detail, Hint, Cause string
	RequestID                                      string `json:"request_id"`
	RetryAfter                                     int64  `json:"retry_after"` // seconds
	Errand                                         *cofferdam.Errand
}

// RequestError is the cause of an error that a server told: it knows the
// request's id in the server's log.
type RequestError struct {
	RequestID string
	Cause     string // only from a server started with --debug
}

// Error returns the line for --debug.
func (e *RequestError) Error() string {
	if e.Cause == "" {
		return "request " + e.RequestID
	}
	return "request " + e.RequestID + ": " + e.Cause
}

func (p problem) err() error {
	e := &cofferdam.Error{Op: p.Op, Kind: cofferdam.ParseKind(p.Kind), Subject: p.Subject, Reason: p.Reason, Hint: p.Hint, After: time.Duration(p.RetryAfter) * time.Second, Err: &RequestError{p.RequestID, p.Cause}}
	if p.Errand != nil {
		e.Err = errors.Join(e.Err, p.Errand)
	}
	if e.Subject == "" && e.Reason == "" {
		e.Reason = p.Detail
	} else if e.Reason == "" {
		e.Reason = strings.TrimPrefix(p.Detail, e.Subject+": ")
	}
	return e
}

// kindOfStatus is for answers that are no problem documents. A 404 among them is
// no word about a task: whoever answers is not a server of this kind.
func kindOfStatus(status int) cofferdam.Kind {
	switch status {
	case http.StatusUnauthorized:
		return cofferdam.Unauthenticated
	case http.StatusForbidden:
		return cofferdam.Forbidden
	case http.StatusNotFound, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return cofferdam.Unavailable
	}
	return cofferdam.Internal
}

// call sends r and decodes the answer into v; nil for none.
func (c *Client) call(ctx context.Context, r request, v any) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if v == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("it is larger than %d bytes", maxAnswer)
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &cofferdam.Error{Op: "client.Call", Kind: cofferdam.Unavailable, Subject: "answer of the server at " + c.server, Reason: "cannot be read: " + plain(err), Hint: "is that a cofferdam server of this version? see COFFERDAM_SERVER", Err: err}
	}
	return nil
}
