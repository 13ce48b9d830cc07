package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/redact"
	"cofferdam/internal/repo"
	"cofferdam/secret"
)

// carrier is what one git process of ours can say to one upstream: a fetch, or
// the push of one update. It trusts that process no more than a box, because it
// reads what boxes wrote.
type carrier struct {
	g    *Gateway
	repo cofferdam.Repo
	only *repo.Update // nil: fetching only

	mu  sync.Mutex
	err error // guarded by mu; the first thing that went wrong, for people
	// known is guarded by mu: the credential that was used. An upstream that
	// says it back would tell it to the box.
	known secret.Value
}

// service is what this carrier is for.
func (c *carrier) service() repo.Service {
	if c.only != nil {
		return repo.ReceivePack
	}
	return repo.UploadPack
}

// ServeHTTP lets through the three requests of the one exchange.
func (c *carrier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := string(c.service())
	defer func() { _, _ = io.Copy(io.Discard, r.Body) }() // a git that still sends would not hear the answer
	switch r.Method + " " + r.RequestURI {
	case "GET /upstream.git/info/refs?service=" + s:
		c.forward(w, r, "/info/refs?service="+s, nil)
	case "POST /upstream.git/" + s:
		body := io.Reader(r.Body)
		if c.only != nil {
			checked, err := c.check(r)
			if err != nil {
				c.fail(w, &cofferdam.Error{Op: "git.Carry", Kind: cofferdam.Internal, Subject: "write " + string(c.only.Ref), Reason: "our own git asked the upstream for something else", Err: err})
				return
			}
			body = checked
		}
		c.forward(w, r, "/"+s, body)
	default:
		http.Error(w, "not carried", http.StatusNotFound)
	}
}

// check makes sure that the push is the one that was decided, and returns its
// body from the start.
func (c *carrier) check(r *http.Request) (io.Reader, error) {
	if r.Header.Get("Content-Encoding") != "" {
		return nil, errors.New("the push is encoded")
	}
	var seen bytes.Buffer
	// What the buffered reader reads ahead is in seen too, so nothing is lost.
	p, err := readPush(bufio.NewReader(io.TeeReader(r.Body, &seen)))
	if errors.Is(err, errProbe) {
		return strings.NewReader("0000"), nil
	}
	if err != nil {
		return nil, err
	}
	if len(p.updates) != 1 || p.updates[0] != *c.only {
		return nil, fmt.Errorf("%d updates, the first of %q", len(p.updates), p.updates[0].Ref)
	}
	return io.MultiReader(&seen, r.Body), nil
}

// forward sends the request to the upstream and its answer back.
func (c *carrier) forward(w http.ResponseWriter, r *http.Request, path string, body io.Reader) {
	var err error
	if local(c.repo) {
		err = c.forwardLocal(w, r, body)
	} else {
		err = c.forwardHTTPS(w, r, path, body)
	}
	if err != nil {
		c.fail(w, err)
	}
}

func (c *carrier) forwardLocal(w http.ResponseWriter, r *http.Request, body io.Reader) error {
	at, err := c.g.repos.Upstream(c.repo.Upstream)
	if err != nil {
		return err
	}
	s, protocol := c.service(), r.Header.Get("Git-Protocol")
	if r.Method == http.MethodGet {
		startAdvertisement(w.Header(), w, s, protocol)
		return upstreamFailed(c.g.repos.Advertise(r.Context(), at, s, protocol, w))
	}
	if c.only == nil {
		body, err = inflate(r, body, maxWants)
		if err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/x-"+string(s)+"-result")
	return upstreamFailed(c.g.repos.Answer(r.Context(), at, s, protocol, body, flushing(w)))
}

func upstreamFailed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &cofferdam.Error{Op: "git.Carry", Kind: cofferdam.Unavailable, Reason: "the upstream's git failed: " + repo.OneLine(err.Error()), Hint: "look at the upstream repository with git fsck", Err: err}
}

// carriedHeaders are all a request or an answer keeps on its way.
var carriedHeaders = []string{"Accept", "Content-Type", "Content-Encoding", "Git-Protocol"}

func (c *carrier) forwardHTTPS(w http.ResponseWriter, r *http.Request, path string, body io.Reader) error {
	u, err := parseUpstream(c.repo)
	if err != nil {
		return err
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, strings.TrimSuffix(u.String(), "/")+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		out.ContentLength = r.ContentLength
	}
	copyHeaders(out.Header, r.Header)
	out.Header.Set("User-Agent", "git/2 (cofferdam)") // forges serve smart HTTP to names that begin so
	if err := c.authorize(r.Context(), out); err != nil {
		return err
	}
	answer, err := c.g.clients.forOne(c.repo.Organization).RoundTrip(out)
	if err != nil {
		return c.unreachable(u.Host, err)
	}
	defer answer.Body.Close()
	if err := c.judgeStatus(u.Host, answer); err != nil {
		return err
	}
	copyHeaders(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, err = io.Copy(flushing(w), answer.Body)
	return err
}

// authorize adds the credential. It is the only place where it is used.
func (c *carrier) authorize(ctx context.Context, out *http.Request) error {
	if c.g.credential == nil {
		return nil
	}
	v, ok, err := c.g.credential(ctx, c.repo)
	if err != nil || !ok {
		return err
	}
	c.mu.Lock()
	c.known = v
	c.mu.Unlock()
	user := c.repo.User
	if user == "" {
		user = "git" // forges that take tokens take any name
	}
	return v.SetBasicAuth(out.Header, user)
}

func copyHeaders(to, from http.Header) {
	for _, name := range carriedHeaders {
		if v := from.Get(name); v != "" {
			to.Set(name, v)
		}
	}
}

func (c *carrier) unreachable(host string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if cofferdam.KindOf(err) != cofferdam.Internal { // the dialer's own words
		return err
	}
	return &cofferdam.Error{Op: "git.Carry", Kind: cofferdam.Unavailable, Subject: "reach the upstream of " + c.repo.Name, Reason: host + " does not answer as it should", Hint: "check the URL, this machine's network and its CA bundle with cofferdam doctor", Err: err}
}

// judgeStatus turns an answer that is no answer into an error. A redirect is
// never followed: the credential is for this host alone.
func (c *carrier) judgeStatus(host string, answer *http.Response) error {
	e := &cofferdam.Error{Op: "git.Carry", Kind: cofferdam.Unavailable, Subject: "reach the upstream of " + c.repo.Name}
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code >= 300 && code < 400:
		e.Reason, e.Hint = host+" answers with a redirect, which is not followed", "register the address it points to: "+repo.OneLine(answer.Header.Get("Location"))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Reason, e.Hint = host+" does not accept the credential", "give it a new one: cofferdam repo remove and repo add, with a token that may read and write this repository"
	case code == http.StatusNotFound:
		e.Reason, e.Hint = host+" has no such repository, or hides it from this credential", "check the URL and the credential"
	default:
		e.Reason, e.Hint = fmt.Sprintf("%s answers with status %d", host, code), "try again later"
	}
	return e
}

// fail keeps err for explain and ends the exchange.
func (c *carrier) fail(w http.ResponseWriter, err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	reason, _ := gateway.Explain(err)
	http.Error(w, reason, http.StatusBadGateway) // too late if the answer has begun: git sees it cut off
}

// explain returns what went wrong in an exchange, for people.
func (c *carrier) explain(subject string, err error) error {
	c.mu.Lock()
	cause := c.err
	c.mu.Unlock()
	var e *cofferdam.Error
	if errors.As(cause, &e) {
		said := *e
		if said.Subject == "" {
			said.Subject = subject
		}
		said.Err = errors.Join(e.Err, err)
		return &said
	}
	if x := (*repo.RefusedError)(nil); errors.As(err, &x) {
		reason := "the upstream refuses it: " + c.clean(x.Reason)
		if said := c.clean(x.Message); said != "" {
			reason += "; it says: " + said
		}
		return &cofferdam.Error{Op: "git.Carry", Kind: cofferdam.Conflict, Subject: subject, Reason: repo.OneLine(reason), Hint: "look at the upstream's rules for this branch", Err: err}
	}
	if cancelled(err) {
		return err
	}
	return &cofferdam.Error{Op: "git.Carry", Kind: cofferdam.Unavailable, Subject: subject, Reason: "the exchange with the upstream broke off", Hint: "try again; cofferdam doctor checks this host", Err: errors.Join(cause, err)}
}

// clean removes the credential from what an upstream says, in every spelling.
func (c *carrier) clean(s string) string {
	c.mu.Lock()
	v := c.known
	c.mu.Unlock()
	if v.IsZero() {
		return s
	}
	r := redact.New(nil)
	if err := r.Set([]redact.Secret{v.Matcher("upstream")}); err != nil {
		return "" // better unheard than told on
	}
	return r.String(s)
}

func cancelled(err error) bool {
	return errors.Is(err, context.Canceled)
}
