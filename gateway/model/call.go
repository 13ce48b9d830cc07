package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// calls serves the requests of one connection, one after the other.
type calls struct {
	gateway    *Gateway
	caller     *gateway.Caller
	transports map[cofferdam.ModelID]*http.Transport // by registration
}

// ServeHTTP answers one request.
func (k *calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := speaks(k.caller.Model.Provider, r.URL.Path)
	if upgrades(r) {
		k.negotiate(w, r, p)
		return
	}
	x, err := k.read(w, r, p)
	if err != nil {
		writeError(w, p, k.unread(r, err))
		return
	}
	defer x.seat.leave()
	if err := x.run(); err != nil {
		writeError(w, p, err)
	}
}

// unread puts on record that a request is refused before policy was asked,
// because there is no such path or it can be read in two ways. It counts like
// any other act; the client is told err in its protocol's own terms.
func (k *calls) unread(r *http.Request, err error) error {
	rule := gateway.RuleMalformed
	switch cofferdam.KindOf(err) {
	case cofferdam.NotFound:
		rule = RulePath
	case cofferdam.Invalid:
	default:
		return err // no judgement of the request: the session has ended, say
	}
	reason, hint := gateway.Explain(err)
	act := gateway.Request{Source: "model", Kind: cofferdam.EventRequest, Resource: clip(r.Method + " " + r.URL.Path)}
	if refused := gateway.Reject(r.Context(), k.caller, act, rule, reason, hint); cofferdam.KindOf(refused) != cofferdam.Denied {
		return refused // it cannot go on record, or too much was tried
	}
	return err
}

// read takes a request in. The exchange it returns holds a seat.
func (k *calls) read(w http.ResponseWriter, r *http.Request, p *protocol) (*exchange, error) {
	x := &exchange{calls: k, protocol: p, writer: w, request: r, begun: time.Now()}
	var ok bool
	if x.call, ok = p.read(r.Method, r.URL.Path); !ok {
		err := &cofferdam.Error{
			Op: "model.Serve", Kind: cofferdam.NotFound,
			Reason: "the model gateway has no " + clip(r.Method) + " " + strconv.Quote(clip(r.URL.Path)), Hint: "for this model it serves " + p.served,
		}
		return nil, err
	}
	if x.query, ok = withoutKey(r.URL.RawQuery); !ok {
		return nil, invalid("the query cannot be read", "escape it as RFC 3986 says")
	}
	var err error
	if x.seat, err = k.gateway.seats.sit(r.Context(), k.caller.Session); err != nil {
		return nil, err
	}
	if x.body, err = x.readBody(w, r); err == nil {
		err = x.readRequest()
	}
	if err != nil {
		x.seat.leave()
		return nil, err
	}
	return x, nil
}

func (x *exchange) readRequest() error {
	done, err := x.gateway.readers.wait(x.request.Context(), len(x.body))
	if err != nil {
		return err
	}
	defer done()
	x.asked, err = readRequest(x.protocol, x.call, x.body)
	return err
}

func (x *exchange) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, invalid("the request is compressed", "send it without Content-Encoding")
	}
	var b bytes.Buffer
	b.Grow(int(min(max(r.ContentLength, 0), largeRequest)) + bytes.MinRead) // what is said is no proof
	body := http.MaxBytesReader(w, r.Body, MaxRequest)
	_, err := b.ReadFrom(io.LimitReader(body, largeRequest))
	if err == nil && b.Len() == largeRequest {
		if err := x.seat.grow(r.Context()); err != nil {
			return nil, err
		}
		_, err = b.ReadFrom(body)
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, invalid("the request is larger than "+strconv.Itoa(MaxRequest)+" bytes", "send less context")
	}
	if err != nil {
		return nil, invalid("the request could not be read", "send it again")
	}
	return b.Bytes(), nil
}

// exchange is one request of a box with all the tries that are made for it.
type exchange struct {
	*calls
	protocol *protocol
	writer   http.ResponseWriter
	request  *http.Request
	call     call
	query    string
	body     []byte
	asked    request
	seat     *seat
	begun    time.Time
	tries    int
	kept     bool // the prompt's text is on record
}

// act is one try, ready to be judged. Policy is asked for the registration that
// the task was given: its fallbacks are a part of it, named by the operator.
func (x *exchange) act(m cofferdam.Model, target string, body []byte) gateway.Request {
	own := x.caller.Model.Name
	act := gateway.Request{
		Source: "model", Kind: cofferdam.EventModelCall, Resource: m.Name,
		Query:   policy.Query{Action: policy.Call, Model: own},
		Durable: true, // a credential is used
		Fields: map[string]string{
			"op": x.asked.Op, "model": clip(target), "stream": strconv.FormatBool(x.asked.Stream),
			"prompt": digest(body), "prompt_bytes": strconv.Itoa(len(body)), "try": strconv.Itoa(x.tries),
		},
	}
	if target != x.asked.Asked {
		act.Fields["asked"] = clip(x.asked.Asked)
	}
	if m.Name != own {
		act.Fields["fallback_of"] = own
	}
	return act
}

// try takes one try through the six steps. An error is returned only while
// nothing has been answered yet.
func (x *exchange) try(m cofferdam.Model, target string, r *retries) error {
	ctx := x.request.Context()
	body := x.asked.rename(x.protocol, x.body, target)
	x.tries++
	act := x.act(m, target, body)
	out, err := x.upstream(ctx, m, target, body)
	if err != nil {
		return err
	}
	head := head(out)
	act.Show = func(context.Context) (gateway.Shown, error) {
		return gateway.Show(append(head, body...), clip(target)), nil
	}
	act.Attach = func(ctx context.Context) error {
		attach := func(ctx context.Context) error { return x.gateway.options.Attach(ctx, m, out.Header) }
		if m.NoKey {
			return attach(ctx)
		}
		return gateway.Use(ctx, x.caller, gateway.ModelSecret+m.Name, attach)
	}
	q := x.asked
	held, err := x.reserve(ctx, act, ask{
		Op: q.Op, Model: target, Stream: q.Stream, Bytes: len(body), Output: q.output, Answers: q.answers,
		Dear: q.dear, Uncounted: q.uncounted,
	})
	if err != nil {
		return err
	}
	a := &answer{writer: x.writer, op: q.Op, spending: held}
	sent := false
	err = gateway.Handle(ctx, x.caller, act, func(ctx context.Context) (gateway.Outcome, error) {
		sent = true
		return x.forward(ctx, m, out, body, a, r)
	})
	if !sent {
		held.settle(nil, nil)
	}
	if err != nil && a.begun {
		// The answer's head is out: an end without its closing chunk is the only
		// way left to say that it is not whole. net/http documents this panic for
		// exactly that; it ends this connection and is not logged.
		panic(http.ErrAbortHandler)
	}
	return err
}

// forward sends the request and passes the answer on as it comes, unless it is
// one for another try.
func (x *exchange) forward(ctx context.Context, m cofferdam.Model, out *http.Request, body []byte, a *answer, r *retries) (gateway.Outcome, error) {
	if err := x.keepPrompt(ctx, m, body); err != nil {
		a.spending.settle(nil, nil)
		return gateway.Outcome{}, err
	}
	begun := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := x.transport(m).RoundTrip(out.WithContext(ctx))
	if err != nil {
		err = unreachable(err)
		if cofferdam.KindOf(err) == cofferdam.Unavailable && ctx.Err() == nil {
			err = r.next(err, 0, false)
		}
	} else {
		defer resp.Body.Close()
		guard(resp, keyIn(m, out.Header))
		resp.Body = watch(resp.Body, stop)
		if err = r.judge(x.protocol, resp, x.asked.Stream); err == nil {
			err = x.pass(ctx, m, resp, a)
		} else {
			a.status = resp.StatusCode
		}
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
	}
	return outcome(m, resp, a, err, begun), err
}

// pass passes an answer on, and keeps its text where the registration says so.
func (x *exchange) pass(ctx context.Context, m cofferdam.Model, resp *http.Response, a *answer) error {
	t := &tee{ResponseWriter: a.writer}
	if x.keeps(m) {
		a.writer = t
	}
	err := a.pass(resp)
	if t.total > 0 {
		// ctx may have ended with the client; what it got is recorded all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
		defer cancel()
		err = errors.Join(err, x.keep(ctx, m, "answer", t.text, t.total, string(cofferdam.DigestOfSum([32]byte(a.hash.Sum(nil))))))
	}
	return err
}

// outcome is what goes on record of a try.
func outcome(m cofferdam.Model, resp *http.Response, a *answer, err error, begun time.Time) gateway.Outcome {
	o := gateway.Outcome{Fields: map[string]string{"milliseconds": strconv.FormatInt(time.Since(begun).Milliseconds(), 10)}}
	for name, value := range a.spending.settle(a, err) {
		o.Fields[name] = value
	}
	var next *again
	if errors.As(err, &next) {
		o.Status, o.Fields["next"] = gateway.Failed, next.plan()
	}
	if resp == nil {
		return o
	}
	o.Fields["status"] = strconv.Itoa(resp.StatusCode)
	if a.hash != nil {
		o.Fields["answer"], o.Fields["answer_bytes"] = string(cofferdam.DigestOfSum([32]byte(a.hash.Sum(nil)))), strconv.FormatInt(a.size, 10)
		o.Fields["answered_by"] = clip(a.usage.model())
	}
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		if id := resp.Header.Get(name); id != "" {
			o.Fields["request_id"] = clip(id)
		}
	}
	if resp.Header.Get(rehearsalHeader) != "" {
		o.Fields["rehearsal"] = "true"
	}
	switch {
	case a.spending.cutReason() != "":
		o.Status, o.Reason = gateway.Cut, a.spending.cutReason()
	case err != nil: // Handle tells a cut session from a failure
	case resp.StatusCode >= http.StatusBadRequest:
		o.Status, o.Reason = gateway.Failed, refused(m, resp.StatusCode)
	default:
		o.Status = gateway.OK
	}
	return o
}

// upstream makes the request that goes out: the provider's address, the
// headers that the protocol needs, and not one more.
func (x *exchange) upstream(ctx context.Context, m cofferdam.Model, target string, body []byte) (*http.Request, error) {
	base, err := CheckURL(m.URL)
	if err != nil {
		return nil, err
	}
	inPath := ""
	if x.call.model != "" {
		inPath = target
	}
	u := x.protocol.address(base, x.call, inPath, x.query)
	out, err := http.NewRequestWithContext(ctx, x.request.Method, u.String(), bodyReader(body))
	if err != nil {
		return nil, invalid("the request's path cannot be sent on", "ask for "+x.protocol.served)
	}
	for _, name := range append([]string{"User-Agent"}, x.protocol.headers...) {
		if values := x.request.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	// What was read is JSON, and what can be counted is JSON or a stream of events.
	if len(body) > 0 {
		out.Header.Set("Content-Type", "application/json")
	}
	if accept := x.request.Header.Get("Accept"); slices.Contains([]string{"application/json", "text/event-stream"}, accept) {
		out.Header.Set("Accept", accept)
	} else {
		out.Header.Set("Accept", "*/*")
	}
	out.Header.Set("Accept-Encoding", "identity") // an answer is read as it comes
	if x.protocol.name == anthropic && out.Header.Get("Anthropic-Version") == "" {
		out.Header.Set("Anthropic-Version", "2023-06-01")
	}
	return out, nil
}

// head is what goes out before the body, without the credential: which operation of
// the provider is asked for, and by which of its features.
func head(out *http.Request) []byte {
	var b bytes.Buffer
	b.WriteString(out.Method + " " + out.URL.RequestURI() + "\r\n")
	_ = out.Header.Write(&b) // memory takes all
	b.WriteString("\r\n")
	return b.Bytes()
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
	return string(cofferdam.DigestOfSum(sha256.Sum256(p)))
}

// clip bounds text of a box or a provider for the record.
func clip(s string) string { return s[:min(len(s), 200)] }
