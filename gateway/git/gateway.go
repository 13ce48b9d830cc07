// Package git is the way out of a box to its one repository. It speaks git's
// smart HTTP protocol at git.cofferdam.internal, serves fetches from a mirror
// that it keeps in step with the upstream, and takes a push of the one ref that
// the session may write, which it carries upstream before it tells the client
// that the push is done.
//
// It never hands a git process a credential or a network: what git says to an
// upstream goes through a carrier in this process, which lets nothing through
// but the very exchange that was decided. The invariant: the update that was
// judged, one ref from one commit to another, is the only one that happens,
// here and upstream; a push with anything else in it changes nothing anywhere.
//
// The upstream is the truth for its own branches and tags; the mirror is the
// truth for agents' branches (refs/heads/cofferdam/), and a session sees its
// own of these and no other.
package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/repo"
	"cofferdam/secret"
)

// Bounds of what goes to an upstream over the network.
const (
	upstreamHeader = 60 * time.Second // for the header of an answer: a push is checked before it
	handshake      = 10 * time.Second
	idleConns      = 8 // kept open to one upstream
	idleTime       = 90 * time.Second
)

// minFree is how much room the disk of the mirrors must have for a push to be
// taken: half of the largest push (2 GiB) on top of what a server needs to go on.
const minFree = 1 << 30

// tidyEvery is after how many syncs git is asked whether the mirror wants
// packing. It says no until some thousand small pushes have come together.
const tidyEvery = 64

// Options say what a Gateway works with. Repos is needed; the rest may be zero.
type Options struct {
	Repos  *repo.Repos
	Dialer *gateway.Dialer // to https upstreams
	// Credential returns the credential of a repository's upstream; false if
	// there is none.
	Credential func(context.Context, cofferdam.Repo) (secret.Value, bool, error)
	Roots      *x509.CertPool // of https upstreams; nil: the machine's own
}

// Gateway serves boxes and the platform. Safe for concurrent use.
type Gateway struct {
	repos      *repo.Repos
	credential func(context.Context, cofferdam.Repo) (secret.Value, bool, error)
	clients    *transports

	mu    sync.Mutex
	syncs map[cofferdam.RepoID]*turns      // guarded by mu; one per mirror, so at most repo.MaxRepos
	seats map[cofferdam.SessionID]*seating // guarded by mu; one per session that has a request open
}

// New returns a Gateway.
func New(o Options) *Gateway {
	d := o.Dialer
	if d == nil {
		d = &gateway.Dialer{}
	}
	return &Gateway{
		repos: o.Repos, credential: o.Credential, syncs: map[cofferdam.RepoID]*turns{}, seats: map[cofferdam.SessionID]*seating{},
		clients: &transports{of: map[cofferdam.OrganizationID]*http.Transport{}, like: &http.Transport{
			DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: handshake, ResponseHeaderTimeout: upstreamHeader, ExpectContinueTimeout: time.Second,
			MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime, DisableCompression: true, ForceAttemptHTTP2: true,
		}},
	}
}

// CloneURL is where a box finds its repository.
func CloneURL(r cofferdam.Repo) string {
	return "http://" + string(gateway.GitHost) + "/" + r.Name + ".git"
}

// maxExchanges is how many requests of one session are served at once; more
// wait. git itself makes one after the other, and a session that holds its
// seats with slow uploads holds up only itself.
const maxExchanges = 4

type seating struct {
	taken chan struct{}
	users int // guarded by Gateway.mu; who sits or waits
}

// sit waits for one of the session's seats and returns how to leave it.
func (g *Gateway) sit(ctx context.Context, id cofferdam.SessionID) (func(), error) {
	g.mu.Lock()
	s := g.seats[id]
	if s == nil {
		s = &seating{taken: make(chan struct{}, maxExchanges)}
		g.seats[id] = s
	}
	s.users++
	g.mu.Unlock()
	leave := func() {
		g.mu.Lock()
		if s.users--; s.users == 0 {
			delete(g.seats, id)
		}
		g.mu.Unlock()
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Serve serves one connection of a box. It owns conn.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	gateway.ServeHTTP(c, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serveHTTP(c, to, w, r) }))
}

// local says whether the upstream of r is a folder of this machine.
func local(r cofferdam.Repo) bool { return strings.HasPrefix(r.Upstream, "/") }

// parseUpstream returns the URL of an upstream on the network. Only https
// without a user, a query or dots is one.
func parseUpstream(r cofferdam.Repo) (*url.URL, error) {
	bad := func(reason, hint string) (*url.URL, error) {
		return nil, &cofferdam.Error{Op: "git.Upstream", Kind: cofferdam.Invalid, Subject: "use upstream of " + r.Name, Reason: reason, Hint: hint}
	}
	u, err := url.Parse(r.Upstream)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return bad("it is neither an absolute path nor an https URL", "write https://HOST/PATH.git, or a path that begins with /")
	case u.User != nil:
		return bad("its URL holds a user name or a password", "leave it out of the URL: cofferdam repo add --user NAME reads the credential from stdin")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return bad("its URL has a query or a fragment", "write https://HOST/PATH.git")
	case strings.Contains(u.Path, "/../") || strings.HasSuffix(u.Path, "/.."):
		return bad("its path has dots", "write the path as the forge shows it")
	}
	return u, nil
}

// turns let callers who want a fresh copy share one fetch, but never one that
// began before they asked.
type turns struct {
	running, next *turn
	done          int // how many there were; touched by who leads alone
}

type turn struct {
	done chan struct{}
	err  error // set before done is closed
}

// Sync brings the mirror of r in step with its upstream. Callers at the same
// time share the work.
func (g *Gateway) Sync(ctx context.Context, r cofferdam.Repo) error {
	for {
		g.mu.Lock()
		t := g.syncs[r.ID]
		if t == nil {
			t = &turns{}
			g.syncs[r.ID] = t
		}
		if t.next == nil {
			t.next = &turn{done: make(chan struct{})}
		}
		mine, before := t.next, t.running
		if before == nil {
			t.running, t.next = mine, nil
			g.mu.Unlock()
			return g.lead(ctx, r, t, mine)
		}
		g.mu.Unlock()
		if err := wait(ctx, before); err != nil {
			return err
		}
		// One of those who waited does it, for all of them.
		g.mu.Lock()
		lead := t.running == nil && t.next == mine
		if lead {
			t.running, t.next = mine, nil
		}
		g.mu.Unlock()
		if lead {
			return g.lead(ctx, r, t, mine)
		}
		if err := wait(ctx, mine); err != nil {
			return err
		}
		if !cancelled(mine.err) {
			return mine.err
		}
		// Who did the work went away before it was done: try again.
	}
}

func wait(ctx context.Context, t *turn) error {
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lead does the work of a turn for everybody who waits for it.
func (g *Gateway) lead(ctx context.Context, r cofferdam.Repo, t *turns, mine *turn) error {
	mine.err = g.sync(ctx, r, t.done%tidyEvery == 0)
	g.mu.Lock()
	t.running = nil
	t.done++
	g.mu.Unlock()
	close(mine.done)
	return mine.err
}

func (g *Gateway) sync(ctx context.Context, r cofferdam.Repo, tidy bool) error {
	if err := g.repos.Ensure(ctx, r.ID, r.Base); err != nil {
		return err
	}
	unlock, err := g.repos.Lock(ctx, r.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := g.fetch(ctx, r); err != nil {
		return err
	}
	if !tidy {
		return nil
	}
	return g.repos.Tidy(ctx, r.ID)
}

// fetch brings the mirror in step. Preconditions: the mirror's lock is held.
func (g *Gateway) fetch(ctx context.Context, r cofferdam.Repo) error {
	c := &carrier{g: g, repo: r}
	if err := g.repos.Fetch(ctx, r.ID, c); err != nil {
		return c.explain("fetch "+r.Name, err)
	}
	return nil
}

// Resolve returns the commit that ref names in the mirror of r.
func (g *Gateway) Resolve(ctx context.Context, r cofferdam.Repo, ref cofferdam.Ref) (cofferdam.Commit, error) {
	return g.repos.Resolve(ctx, r.ID, ref)
}

// IsAncestor says whether old is part of the history of new in the mirror of r.
func (g *Gateway) IsAncestor(ctx context.Context, r cofferdam.Repo, old, new cofferdam.Commit) (bool, error) {
	return g.repos.IsAncestor(ctx, r.ID, old, new)
}

// Land moves base in the upstream of r from old to new, which must follow old.
// It is no error if new is there already, so that landing can be repeated.
func (g *Gateway) Land(ctx context.Context, r cofferdam.Repo, base cofferdam.Ref, old, new cofferdam.Commit) error {
	if err := repo.CheckRef(base); err != nil {
		return err
	}
	unlock, err := g.repos.Lock(ctx, r.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := g.fetch(ctx, r); err != nil {
		return err
	}
	there, err := g.repos.Resolve(ctx, r.ID, base)
	if err != nil {
		return err
	}
	if landed, err := g.repos.IsAncestor(ctx, r.ID, new, there); err != nil || landed {
		return err
	}
	if there != old {
		return moved(base, old, there)
	}
	if follows, err := g.repos.IsAncestor(ctx, r.ID, old, new); err != nil {
		return err
	} else if !follows {
		return &cofferdam.Error{Op: "git.Land", Kind: cofferdam.Conflict, Subject: "land on " + string(base), Reason: fmt.Sprintf("%s does not follow %s", new, old), Hint: "run the task again from the current base: cofferdam task retry"}
	}
	if err := g.carry(ctx, r, repo.Update{Ref: base, Old: old, New: new}, ""); err != nil {
		return err
	}
	return g.fetch(ctx, r)
}

func moved(base cofferdam.Ref, old, there cofferdam.Commit) error {
	return &cofferdam.Error{
		Op: "git.Land", Kind: cofferdam.Conflict, Subject: "land on " + string(base),
		Reason: fmt.Sprintf("it has moved from %.12s to %.12s since the work began", old, there), Hint: "run the task again from the current base: cofferdam task retry",
	}
}

// carry moves one ref in the upstream, from u.Old to u.New and no other way.
func (g *Gateway) carry(ctx context.Context, r cofferdam.Repo, u repo.Update, quarantine string) error {
	c := &carrier{g: g, repo: r, only: &u}
	err := g.repos.Push(ctx, r.ID, u, quarantine, c)
	if err == nil {
		return nil
	}
	if there, ok := g.upstreamAt(ctx, r, u.Ref); ok && there == u.New {
		return nil // an earlier try got there and could not say so
	} else if ok && quarantine != "" && there != "" && g.repos.Follows(ctx, r.ID, there, u.New, quarantine) {
		// An earlier push of this session got there and could not say so.
		again := &carrier{g: g, repo: r, only: &repo.Update{Ref: u.Ref, Old: there, New: u.New}}
		if err := g.repos.Push(ctx, r.ID, *again.only, quarantine, again); err != nil {
			return again.explain("write "+string(u.Ref), err)
		}
		return nil
	} else if ok && there != u.Old && !(there == "" && repo.ZeroCommit(u.Old)) {
		at := fmt.Sprintf("is at %.12s", there)
		if there == "" {
			at = "does not exist"
		}
		return &cofferdam.Error{
			Op: "git.Carry", Kind: cofferdam.Conflict, Subject: "write " + string(u.Ref), Reason: fmt.Sprintf("the upstream's %s %s, which is not what this push builds on", u.Ref, at),
			Hint: "somebody else wrote that branch; a person has to look at it, and cofferdam task retry takes another", Err: errors.Join(errTaken, err),
		}
	}
	return c.explain("write "+string(u.Ref), err)
}

// upstreamAt says where ref is in the upstream now, "" for nowhere; not ok if
// that cannot be told.
func (g *Gateway) upstreamAt(ctx context.Context, r cofferdam.Repo, ref cofferdam.Ref) (cofferdam.Commit, bool) {
	refs, _, err := g.repos.UpstreamRefs(ctx, r.ID, &carrier{g: g, repo: r}, ref)
	return refs[ref], err == nil
}
