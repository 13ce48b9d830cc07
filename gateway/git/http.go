package git

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/repo"
	"cofferdam/policy"
)

// Bounds of what a box sends.
const (
	maxWants    = 16 << 20 // bytes of a fetch request, inflated: 300,000 commits; it is held in memory
	maxPush     = repo.MaxPush + maxListing
	maxRecorded = 20 // refs of a push that its record names
)

// serveHTTP answers one request of a box. There are four, spelled exactly:
// what is spelled otherwise is another repository's business.
func (g *Gateway) serveHTTP(c *gateway.Caller, to gateway.Target, w http.ResponseWriter, r *http.Request) {
	leave, err := g.sit(r.Context(), c.Session)
	if err != nil {
		return // the client or the session is gone
	}
	defer leave()
	path, ours := strings.CutPrefix(r.RequestURI, "/"+c.Repo.Name+".git")
	if c.Repo.ID == "" || !ours || cofferdam.ParseHost(hostName(r.Host)) != to.Host {
		g.elsewhere(c, w, r)
		return
	}
	switch r.Method + " " + path {
	case "GET /info/refs?service=git-upload-pack":
		g.serveFetch(c, w, r, "list", func(ctx context.Context, at repo.Place, out io.Writer) error {
			startAdvertisement(w.Header(), out, repo.UploadPack, r.Header.Get("Git-Protocol"))
			return g.repos.Advertise(ctx, at, repo.UploadPack, r.Header.Get("Git-Protocol"), out)
		})
	case "POST /git-upload-pack":
		g.serveFetch(c, w, r, "pack", func(ctx context.Context, at repo.Place, out io.Writer) error {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			return g.answerFetch(ctx, c, r, at, out)
		})
	case "GET /info/refs?service=git-receive-pack":
		g.serveFetch(c, w, r, "list for push", func(ctx context.Context, at repo.Place, out io.Writer) error {
			startAdvertisement(w.Header(), out, repo.ReceivePack, "")
			return g.repos.Advertise(ctx, at, repo.ReceivePack, "", out)
		})
	case "POST /git-receive-pack":
		g.servePush(c, w, r)
	default:
		g.elsewhere(c, w, r)
	}
}

func hostName(host string) string {
	name, _, _ := strings.Cut(host, ":")
	return name
}

// elsewhere refuses what is not the session's own repository, on record.
func (g *Gateway) elsewhere(c *gateway.Caller, w http.ResponseWriter, r *http.Request) {
	err := gateway.Handle(r.Context(), c, gateway.Request{
		Source: "git", Kind: cofferdam.EventFetch, Resource: repo.OneLine(r.Method + " " + r.RequestURI), Query: policy.Query{Action: policy.Fetch},
	}, func(context.Context) (gateway.Outcome, error) {
		return gateway.Outcome{}, &cofferdam.Error{Op: "git.Serve", Kind: cofferdam.NotFound, Reason: "there is nothing at this address"}
	})
	if c.Repo.ID != "" {
		err = withHint(err, "the repository of this task is at "+CloneURL(c.Repo))
	}
	gateway.WriteRefusal(w, err)
}

func withHint(err error, hint string) error {
	var e *cofferdam.Error
	if !errors.As(err, &e) {
		return err
	}
	hinted := *e
	hinted.Hint = hint
	return &hinted
}

// serveFetch serves one request that reads: decided, on record, from a mirror
// that is in step with its upstream. Before a push it need not be: the mirror
// itself is the home of the one branch that may be pushed.
func (g *Gateway) serveFetch(c *gateway.Caller, w http.ResponseWriter, r *http.Request, step string, answer func(context.Context, repo.Place, io.Writer) error) {
	out := &counter{w: flushing(w)}
	err := gateway.Handle(r.Context(), c, gateway.Request{
		Source: "git", Kind: cofferdam.EventFetch, Resource: c.Repo.Name, Query: policy.Query{Action: policy.Fetch, Repo: c.Repo.ID},
		Fields: map[string]string{"step": step}, Durable: !local(c.Repo), // asking an https upstream uses the credential
	}, func(ctx context.Context) (gateway.Outcome, error) {
		if step == "list" || !g.repos.Has(c.Repo.ID) {
			if err := g.using(ctx, c, func(ctx context.Context) error { return g.Sync(ctx, c.Repo) }); err != nil {
				return gateway.Outcome{Fields: lasting(err)}, err
			}
		}
		at, err := g.repos.Mirror(c.Repo.ID, c.Branch)
		if err != nil {
			return gateway.Outcome{}, err
		}
		o := gateway.Outcome{Fields: map[string]string{}}
		if err = answer(ctx, at, out); err == nil {
			o.Status = gateway.OK // all of it was sent: a client that has it may be gone
		}
		o.Fields["bytes"] = strconv.FormatInt(out.n, 10)
		return o, err
	})
	switch {
	case err == nil || out.n > 0: // an answer that has begun lacks its end, and git finds that
	case step != "pack":
		gateway.WriteRefusal(w, err) // git shows its text
	default:
		reason, hint := gateway.Explain(err)
		var b bytes.Buffer
		packet(&b, "ERR cofferdam: "+repo.OneLine(reason+"; hint: "+hint))
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = w.Write(b.Bytes())
	}
}

// using runs do, which asks the upstream with its credential, if there is one and
// policy lets the session use it.
func (g *Gateway) using(ctx context.Context, c *gateway.Caller, do func(context.Context) error) error {
	if local(c.Repo) || g.credential == nil {
		return do(ctx)
	}
	_, there, err := g.credential(ctx, c.Repo)
	if err != nil {
		return err
	}
	if !there {
		return do(ctx)
	}
	return gateway.Use(ctx, c, gateway.RepoSecret+c.Repo.Name, do)
}

// answerFetch has git answer what r asks for.
func (g *Gateway) answerFetch(ctx context.Context, c *gateway.Caller, r *http.Request, at repo.Place, out io.Writer) error {
	asked, err := inflate(r, r.Body, maxWants)
	if err != nil {
		return err
	}
	var body io.Reader = asked
	protocol := r.Header.Get("Git-Protocol")
	if protocol == "version=2" {
		if body, err = g.checkWants(ctx, c, body); err != nil {
			return tooLarge(asked, err)
		}
	}
	err = tooLarge(asked, g.repos.Answer(ctx, at, repo.UploadPack, protocol, body, out))
	if x := (*repo.ExitError)(nil); errors.As(err, &x) && strings.Contains(x.Stderr, "protocol error") {
		return badFetch("git does not understand it")
	}
	return err
}

// tooLarge returns errTooLarge if that is why err is one.
func tooLarge(b *bounded, err error) error {
	if err != nil && b.over.Load() {
		return errTooLarge
	}
	return err
}

// startAdvertisement begins the answer to GET info/refs.
func startAdvertisement(h http.Header, out io.Writer, s repo.Service, protocol string) {
	h.Set("Content-Type", "application/x-"+string(s)+"-advertisement")
	h.Set("Cache-Control", "no-cache")
	if protocol != "version=2" || s == repo.ReceivePack {
		var b bytes.Buffer
		packet(&b, "# service="+string(s)+"\n")
		b.WriteString("0000")
		_, _ = out.Write(b.Bytes()) // an error shows at the next write
	}
}

// servePush takes a push. All of its body is read before it is answered, also
// when it is refused: a client that still sends would not hear the answer.
func (g *Gateway) servePush(c *gateway.Caller, w http.ResponseWriter, r *http.Request) {
	body, err := inflate(r, r.Body, maxPush)
	if err != nil {
		gateway.WriteRefusal(w, err)
		return
	}
	in := bufio.NewReaderSize(body, maxPacket)
	p, err := readPush(in)
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
	switch {
	case errors.Is(err, errProbe):
		return // 200 and nothing: the client goes on with the real one
	case err != nil:
		err = g.refuseUnread(r.Context(), c, err)
		_, _ = io.Copy(io.Discard, in)
		gateway.WriteRefusal(w, err)
		return
	}
	err = g.push(r.Context(), c, p, in)
	_, _ = io.Copy(io.Discard, in)
	_, _ = w.Write(p.answer(err)) // the client may be gone; the record says what happened
}

// refuseUnread refuses a push that cannot be read, on record.
func (g *Gateway) refuseUnread(ctx context.Context, c *gateway.Caller, why error) error {
	err := gateway.Handle(ctx, c, gateway.Request{
		Source: "git", Kind: cofferdam.EventPush, Resource: c.Repo.Name, Query: policy.Query{Action: policy.Push, Repo: c.Repo.ID, Ref: "(unreadable)"},
		Fields: map[string]string{"unreadable": repo.OneLine(why.Error())}, Durable: true,
	}, func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, why })
	var e *cofferdam.Error
	if errors.As(err, &e) {
		told := *e
		told.Reason = "the push cannot be read: " + repo.OneLine(why.Error())
		return &told
	}
	return err
}

// push decides about p as a whole and, if it may happen, makes it happen:
// first upstream, then in the mirror.
func (g *Gateway) push(ctx context.Context, c *gateway.Caller, p push, pack io.Reader) error {
	query, clean := p.query(c)
	req := gateway.Request{
		Source: "git", Kind: cofferdam.EventPush, Resource: p.resource(), Query: query, Fields: p.fields(), Durable: true,
		Show: p.show,
	}
	verdict := c.Policy.Decide(query).Verdict
	if !clean || verdict == cofferdam.Refused {
		return gateway.Handle(ctx, c, req, func(context.Context) (gateway.Outcome, error) {
			return gateway.Outcome{}, fmt.Errorf("push %s: a push of this shape is never carried", req.Resource)
		})
	}
	failed := func(err error, fields map[string]string) error {
		if verdict == cofferdam.Asked { // nobody is asked about what cannot happen
			reason, hint := gateway.Explain(err)
			return gateway.Reject(ctx, c, req, ruleNotTaken, reason, hint)
		}
		return gateway.Handle(ctx, c, req, func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{Fields: fields}, err })
	}
	if err := g.roomLeft(); err != nil {
		return failed(err, nil)
	}
	u := p.updates[0]
	judged := false
	err := g.repos.Receive(ctx, c.Repo.ID, u, p.shallow, pack, func(ctx context.Context, got repo.Received) error {
		judged = true
		req.Query.Force = got.Force
		if err := g.keep(ctx, c, &req, u, got); err != nil {
			return err
		}
		return gateway.Handle(ctx, c, req, func(ctx context.Context) (gateway.Outcome, error) {
			if err := g.using(ctx, c, func(ctx context.Context) error { return g.carry(ctx, c.Repo, u, got.Quarantine) }); err != nil {
				return gateway.Outcome{Fields: lasting(err)}, err
			}
			return gateway.Outcome{}, got.Finish()
		})
	})
	if judged || err == nil {
		return err
	}
	// git did not take the objects: what was asked for was allowed, and failed.
	return failed(err, lasting(err))
}

// ruleNotTaken refuses a push that a person would have been asked about, and that
// git does not take.
const ruleNotTaken = "not-taken"

// show is what a person sees of a push: what each ref is at, and what it would be
// at. The commits are received by then, so that these are what is carried.
func (p push) show(context.Context) (gateway.Shown, error) {
	return gateway.Show([]byte(p.fields()["updates"]), string(p.updates[0].Old)), nil
}

// lasting says on record that trying a push again will not help: for what is in
// it, because fsck found a fault in an object, and no disk was full; or for its
// branch, which somebody else has written.
func lasting(err error) map[string]string {
	if err != nil && cofferdam.KindOf(err) == cofferdam.Denied { // of its credential; trying again is no use
		return map[string]string{"objects": "not allowed"}
	}
	if errors.Is(err, errTaken) {
		return map[string]string{"branch": "taken"}
	}
	if x := (*repo.RefusedError)(nil); errors.As(err, &x) && strings.Contains(x.Reason+x.Message, "fsck error") {
		return map[string]string{"objects": "refused"}
	}
	return nil
}

func (g *Gateway) roomLeft() error {
	free, err := g.repos.Free()
	if err != nil {
		return err
	}
	if free < minFree {
		return &cofferdam.Error{Op: "git.Push", Kind: cofferdam.Unavailable, Subject: "take push", Reason: "the server's disk is nearly full", Hint: "free some space on the disk of the state folder"}
	}
	return nil
}

// query is what policy is asked about p: about its first update that policy
// refuses, else about its only one. Not clean if p has a shape that is never
// carried, whatever policy says.
func (p push) query(c *gateway.Caller) (q policy.Query, clean bool) {
	seen := map[cofferdam.Ref]bool{}
	for _, u := range p.updates {
		q := policy.Query{Action: policy.Push, Repo: c.Repo.ID, Ref: u.Ref, Create: repo.ZeroCommit(u.Old), Delete: repo.ZeroCommit(u.New)}
		if seen[u.Ref] {
			q.Ref += " (named twice)"
		}
		seen[u.Ref] = true
		if c.Policy.Decide(q).Verdict == cofferdam.Refused {
			return q, false
		}
	}
	u := p.updates[0]
	return policy.Query{Action: policy.Push, Repo: c.Repo.ID, Ref: u.Ref, Create: repo.ZeroCommit(u.Old), Delete: repo.ZeroCommit(u.New)},
		len(p.updates) == 1 && !repo.ZeroCommit(u.New)
}

// resource names what p writes.
func (p push) resource() string {
	if len(p.updates) == 1 {
		return repo.OneLine(string(p.updates[0].Ref))
	}
	return fmt.Sprintf("%d refs", len(p.updates))
}

// fields put every update on record, up to a bound, and how many there are.
func (p push) fields() map[string]string {
	var b strings.Builder
	for i, u := range p.updates {
		if i == maxRecorded {
			break
		}
		fmt.Fprintf(&b, "%s %s %s\n", u.Old, u.New, repo.OneLine(string(u.Ref)))
	}
	return map[string]string{"updates": b.String(), "count": strconv.Itoa(len(p.updates))}
}

// answer is what the client is told: with an error, no ref was written.
func (p push) answer(err error) []byte {
	if err == nil {
		return p.report(nil, nil)
	}
	reason, hint := explainPush(err)
	d, refused := gateway.DecisionOf(err)
	verdicts := map[cofferdam.Ref]string{}
	for _, u := range p.updates {
		verdicts[u.Ref] = reason
	}
	message := "cofferdam: " + reason
	if refused {
		message += " (rule " + d.Rule + ")"
	}
	if len(p.updates) > 1 {
		message += "; nothing of this push was taken"
	}
	return p.report(verdicts, []string{message, "hint: " + hint})
}

// explainPush is gateway.Explain that knows git's own refusals.
func explainPush(err error) (reason, hint string) {
	if x := (*repo.RefusedError)(nil); errors.As(err, &x) && cofferdam.KindOf(err) == cofferdam.Internal {
		reason = "git refuses it: " + x.Reason
		if x.Message != "" {
			reason += "; " + x.Message
		}
		return repo.OneLine(reason), "fetch, and push again what git fsck finds whole"
	}
	return gateway.Explain(err)
}

// inflate returns the body without its encoding. More than limit bytes of it
// are an error, and not an end.
func inflate(r *http.Request, body io.Reader, limit int64) (*bounded, error) {
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
		return &bounded{r: body, left: limit}, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, &cofferdam.Error{Op: "git.Serve", Kind: cofferdam.Invalid, Reason: "the request says it is compressed with gzip and is not", Hint: "send it as git does", Err: err}
		}
		return &bounded{r: z, left: limit}, nil
	}
	return nil, &cofferdam.Error{Op: "git.Serve", Kind: cofferdam.Invalid, Reason: "the request has an unknown encoding", Hint: "send it plain or with gzip"}
}

// errTooLarge is what a body with more bytes than its limit ends with.
var errTooLarge = &cofferdam.Error{Op: "git.Serve", Kind: cofferdam.Exhausted, Reason: "the request is too large, or becomes so when it is unpacked", Hint: "ask for less at a time"}

// bounded reads at most so many bytes, and then says that there are more.
type bounded struct {
	r    io.Reader
	left int64
	over atomic.Bool // there were more; read beside who reads
}

// Read returns errTooLarge in the place of what is beyond the limit.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 && len(p) > 0 {
		n, err := b.r.Read(p[:1])
		if n == 0 {
			return 0, err
		}
		b.over.Store(true)
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int64
}

// Write passes p on.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// flushing returns w so that each write goes out at once: git shows progress,
// and a fetch's negotiation waits for single lines.
func flushing(w http.ResponseWriter) io.Writer {
	return flusher{w, http.NewResponseController(w)}
}

type flusher struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// Write passes p on and flushes.
func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}
