package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// calls serves the requests of one connection.
type calls struct {
	gateway   *Gateway
	caller    *gateway.Caller
	transport *http.Transport
}

// ServeHTTP answers one request.
func (k *calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := ""
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/messages":
		op = "messages"
	case "POST /v1/messages/count_tokens":
		op = "count_tokens"
	case "GET /v1/models":
		op = "models"
	default:
		writeError(w, &cofferdam.Error{
			Op: "model.Serve", Kind: cofferdam.NotFound, Reason: "the model gateway has no " + r.Method + " " + strconv.Quote(r.URL.Path),
			Hint: "it serves POST /v1/messages, POST /v1/messages/count_tokens and GET /v1/models",
		})
		return
	}
	body, err := readBody(w, r)
	if err == nil {
		err = k.serve(w, r, op, body)
	}
	if err != nil {
		writeError(w, err)
	}
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, invalid("the request is compressed", "send it without Content-Encoding")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, invalid("the request is larger than "+strconv.Itoa(MaxRequest)+" bytes", "send less context")
	}
	if err != nil {
		return nil, invalid("the request could not be read", "send it again")
	}
	return body, nil
}

func invalid(reason, hint string) error {
	return &cofferdam.Error{Op: "model.Serve", Kind: cofferdam.Invalid, Reason: reason, Hint: hint}
}

// serve takes one call through the six steps. An error is returned only while
// nothing has been answered yet.
func (k *calls) serve(w http.ResponseWriter, r *http.Request, op string, body []byte) error {
	q, err := readRequest(op, body)
	if err != nil {
		return err
	}
	act := gateway.Request{
		Source: "model", Kind: cofferdam.EventModelCall, Resource: k.caller.Model.Name,
		Query:   policy.Query{Action: policy.Call, Model: k.caller.Model.Name},
		Durable: true, // a credential is used
		Fields: map[string]string{
			"op": op, "model": q.Model, "stream": strconv.FormatBool(q.Stream),
			"prompt": digest(body), "prompt_bytes": strconv.Itoa(len(body)),
		},
	}
	if q.exit != "" {
		return k.refuseExit(r.Context(), act, q.exit)
	}
	out, err := k.upstream(r.Context(), r, body)
	if err != nil {
		return err
	}
	act.Attach = func(ctx context.Context) error {
		return k.gateway.options.Attach(ctx, k.caller.Model, out.Header)
	}
	a := &answer{writer: w, op: op}
	err = gateway.Handle(r.Context(), k.caller, act, func(ctx context.Context) (gateway.Outcome, error) {
		return k.forward(out.WithContext(ctx), a)
	})
	if err != nil && a.begun {
		// The answer's head is out: an end without its closing chunk is the only
		// way left to say that it is not whole. net/http documents this panic for
		// exactly that; it ends this connection and is not logged.
		panic(http.ErrAbortHandler)
	}
	return err
}

// refuseExit refuses a request that would have the provider reach out.
func (k *calls) refuseExit(ctx context.Context, act gateway.Request, exit string) error {
	d := cofferdam.Decision{
		Verdict: cofferdam.Refused, Rule: RuleExit, Policy: k.caller.Policy.Digest(),
		Reason: "the request asks the provider to reach out by itself (" + exit + "), which would be a way around this box's policy",
		Hint:   "use tools that run inside the box; hosts that the task may reach are reached from there",
	}
	c := k.caller
	c.Counts.Refused.Add(1)
	if c.Counts.Acts.Add(1) <= gateway.MaxActs {
		_, err := c.Record.Record(ctx, cofferdam.Event{
			Scope: c.Scope, Task: c.Task, Session: c.Session, Actor: c.Actor, Source: act.Source, Kind: act.Kind,
			Resource: act.Resource, Verdict: d.Verdict, Rule: d.Rule, Reason: d.Reason, Fields: act.Fields,
		})
		if err != nil {
			return &cofferdam.Error{
				Op: "model.Serve", Kind: cofferdam.Unavailable, Reason: "the refusal cannot be put on record",
				Hint: "look at the server's disk with cofferdam doctor", Err: err,
			}
		}
	}
	return gateway.Refuse(act, d)
}

// forward sends the request and passes the answer on as it comes.
func (k *calls) forward(out *http.Request, a *answer) (gateway.Outcome, error) {
	counts := &k.caller.Counts
	if a.op == "messages" {
		counts.ModelCalls.Add(1)
	}
	begun := time.Now()
	resp, err := k.transport.RoundTrip(out)
	if err != nil {
		return gateway.Outcome{}, unreachable(err)
	}
	defer resp.Body.Close()
	err = a.pass(resp)
	u := a.usage.total()
	if a.op == "messages" {
		counts.InputTokens.Add(u.Input)
		counts.OutputTokens.Add(u.Output)
	}
	fields := map[string]string{
		"status": strconv.Itoa(resp.StatusCode), "answer": "sha256:" + hex.EncodeToString(a.hash.Sum(nil)),
		"answer_bytes": strconv.FormatInt(a.size, 10), "answered_by": clip(a.usage.model()),
		"milliseconds": strconv.FormatInt(time.Since(begun).Milliseconds(), 10),
	}
	if a.op == "messages" {
		fields["input_tokens"] = strconv.FormatInt(u.Input, 10)
		fields["output_tokens"] = strconv.FormatInt(u.Output, 10)
	}
	if id := resp.Header.Get("Request-Id"); id != "" {
		fields["request_id"] = clip(id)
	}
	if resp.Header.Get(rehearsalHeader) != "" {
		fields["rehearsal"] = "true"
	}
	o := gateway.Outcome{Fields: fields}
	switch {
	case err != nil: // Handle tells a cut session from a failure
	case resp.StatusCode >= 400:
		o.Status = gateway.Failed
	default:
		o.Status = gateway.OK
	}
	return o, err
}

// unreachable tells a box that the provider does not answer, without the
// addresses that the cause may name.
func unreachable(err error) error {
	if cofferdam.KindOf(err) == cofferdam.Denied {
		return err // the dialer refused the provider's address, and says what lists it
	}
	reason := "the model provider does not answer"
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		reason = "the model provider's certificate is signed by an authority that this machine does not know"
	}
	return &cofferdam.Error{
		Op: "model.Forward", Kind: cofferdam.Unavailable, Subject: "model provider", Reason: reason,
		Hint: "a person can look at the provider's address with: cofferdam model view", Err: err,
	}
}

func tlsConfig(roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func bodyReader(body []byte) io.Reader {
	if len(body) == 0 {
		return http.NoBody
	}
	return bytes.NewReader(body)
}

func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// clip bounds text of a box or a provider for the record.
func clip(s string) string { return s[:min(len(s), 200)] }

// writeError answers in the shape that clients of this provider read. A refusal
// is never worth another try, and says so in the header they look at.
func writeError(w http.ResponseWriter, err error) {
	kind := cofferdam.KindOf(err)
	reason, hint := gateway.Explain(err)
	h := w.Header()
	if d, ok := gateway.DecisionOf(err); ok {
		h.Set(gateway.RuleHeader, d.Rule)
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", strconv.FormatBool(kind == cofferdam.Unavailable))
	w.WriteHeader(cofferdam.Kinds()[kind].HTTP)
	body := map[string]any{"type": "error", "error": map[string]string{
		"type": errorType(kind), "message": "cofferdam: " + reason + " (hint: " + hint + ")",
	}}
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func errorType(k cofferdam.Kind) string {
	switch k {
	case cofferdam.Invalid:
		return "invalid_request_error"
	case cofferdam.Denied, cofferdam.Forbidden:
		return "permission_error"
	case cofferdam.NotFound:
		return "not_found_error"
	case cofferdam.Exhausted:
		return "rate_limit_error"
	}
	return "api_error"
}
