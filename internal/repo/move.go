package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"cofferdam"
)

// Carrier is what a git process says to an upstream: a smart HTTP server at
// the path /upstream.git. It decides what goes on, and adds the credential that
// git never sees.
type Carrier = http.Handler

// carrierTimeout bounds the header of a request to a carrier. The body has the
// deadline of the git process.
const carrierTimeout = 30 * time.Second

// carried connects c to a carrier and returns the URL it has inside the cage.
// The listener is on the loopback of the cage's own network namespace.
func carried(c *child, to Carrier) {
	c.level = carrying
	c.listening = func(l net.Listener) func() {
		srv := &http.Server{Handler: to, ReadHeaderTimeout: carrierTimeout, ErrorLog: log.New(io.Discard, "", 0)}
		done := make(chan struct{})
		go func() { // ended by the function returned, which waits for it
			defer close(done)
			_ = srv.Serve(l) // until it is closed
		}()
		url := "http://" + l.Addr().String() + "/upstream.git"
		for i, a := range c.args {
			if a == carrierURL {
				c.args[i] = url
			}
		}
		return func() {
			srv.Close()
			<-done
		}
	}
}

// carrierURL stands for the carrier's URL in arguments until its port is known.
const carrierURL = "carrier:"

// Fetch brings the branches and tags of an upstream into the mirror of id and
// // drops those that are gone. The agents' branches are left alone: the mirror
// itself is their home. Preconditions: the lock of id is held.
func (r *Repos) Fetch(ctx context.Context, id cofferdam.RepoID, from Carrier) error {
	p, err := r.mirror(id)
	if err != nil {
		return err
	}
	return r.unlocking(id, func() error {
		c := p.child("fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--atomic", "--no-auto-maintenance",
			carrierURL, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "^"+AgentRefs+"*")
		c.timeout = longWork
		carried(&c, from)
		return r.run(ctx, c)
	})
}

// Tidy packs what many pushes have left, if it is much. Preconditions: the
// lock of id is held.
func (r *Repos) Tidy(ctx context.Context, id cofferdam.RepoID) error {
	p, err := r.mirror(id)
	if err != nil {
		return err
	}
	c := p.child("gc", "--auto", "--quiet") // gc.autoDetach is off, so it ends before git does
	c.timeout = longWork
	return r.run(ctx, c)
}

// UpstreamRefs lists the refs of an upstream that match patterns (none: all)
// and the branch that its HEAD names, "" if it names none.
func (r *Repos) UpstreamRefs(ctx context.Context, id cofferdam.RepoID, from Carrier, patterns ...cofferdam.Ref) (refs map[cofferdam.Ref]cofferdam.Commit, headRef cofferdam.Ref, err error) {
	p, err := r.mirror(id)
	if err != nil {
		return nil, "", err
	}
	args := []string{"ls-remote", "--quiet", "--symref", carrierURL}
	for _, pat := range patterns {
		args = append(args, string(pat))
	}
	out := &head{max: maxRefs}
	c := p.child(args...)
	c.stdout = out
	carried(&c, from)
	if err := r.run(ctx, c); err != nil {
		return nil, "", err
	}
	refs = map[cofferdam.Ref]cofferdam.Commit{}
	for line := range strings.Lines(out.String()) {
		is, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if target, sym := strings.CutPrefix(is, "ref: "); ok && sym && ref == "HEAD" {
			headRef = cofferdam.Ref(target)
		} else if ok && !sym && ref != "HEAD" {
			refs[cofferdam.Ref(ref)] = cofferdam.Commit(is)
		}
	}
	return refs, headRef, nil
}

// Update is one change of one ref. Old or New is zero where the ref does not
// exist before or after.
type Update struct {
	Ref      cofferdam.Ref
	Old, New cofferdam.Commit
}

// ZeroCommit says whether c stands for no commit.
func ZeroCommit(c cofferdam.Commit) bool { return strings.Trim(string(c), "0") == "" }

// RefusedError is a ref update that the other side did not take.
type RefusedError struct {
	Ref     cofferdam.Ref
	Reason  string // hostile text, one line, bounded
	Stale   bool   // the ref was not where it was expected
	Message string // what the other side said beside it
}

// Error returns the reason.
func (e *RefusedError) Error() string { return string(e.Ref) + ": " + e.Reason }

// Push carries u from the mirror of id to an upstream, which takes it only if
// the ref is at u.Old there. quarantine is where new objects are that the
// mirror itself does not have yet, "" for none. Preconditions: CheckRef(u.Ref).
func (r *Repos) Push(ctx context.Context, id cofferdam.RepoID, u Update, quarantine string, to Carrier) error {
	p, err := r.mirror(id)
	if err != nil {
		return err
	}
	if err := errors.Join(CheckRef(u.Ref), CheckCommit(u.New)); err != nil {
		return err
	}
	old := string(u.Old)
	if ZeroCommit(u.Old) {
		old = "" // must not exist
	}
	c := p.child("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no",
		"--force-with-lease="+string(u.Ref)+":"+old, carrierURL, string(u.New)+":"+string(u.Ref))
	c.timeout = longWork
	if quarantine != "" {
		c.env = append(c.env, p.quarantined(quarantine)...)
	}
	out := &head{max: maxStderr}
	c.stdout = out
	carried(&c, to)
	err = r.run(ctx, c)
	if err == nil {
		return nil
	}
	if reason, stale, ok := parsePorcelain(out.String()); ok {
		said := ""
		if x := (*ExitError)(nil); errors.As(err, &x) {
			said = remoteLines(x.Stderr)
		}
		return &RefusedError{Ref: u.Ref, Reason: reason, Stale: stale, Message: said}
	}
	return err
}

// Follows says whether new follows old, where new objects are in quarantine.
// What cannot be told does not follow.
func (r *Repos) Follows(ctx context.Context, id cofferdam.RepoID, old, new cofferdam.Commit, quarantine string) bool {
	p, err := r.mirror(id)
	if err != nil || CheckCommit(old) != nil || CheckCommit(new) != nil {
		return false
	}
	c := p.child("merge-base", "--is-ancestor", string(old), string(new))
	c.env = append(c.env, p.quarantined(quarantine)...)
	return r.run(ctx, c) == nil
}

// quarantined lets git read new objects that the mirror does not have yet.
func (p Place) quarantined(at string) []string {
	return []string{"GIT_OBJECT_DIRECTORY=" + at, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + p.dir + "/objects"}
}

// parsePorcelain finds the refusal in what git push --porcelain prints:
// "!\tfrom:to\t[remote rejected] (reason)".
func parsePorcelain(out string) (reason string, stale, ok bool) {
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(f) != 3 || f[0] != "!" {
			continue
		}
		reason = f[2]
		stale = strings.HasPrefix(reason, "[rejected]") || strings.Contains(reason, "failed to update ref") || strings.Contains(reason, "incorrect old value") || strings.Contains(reason, "fetch first")
		if _, in, found := strings.Cut(reason, "("); found {
			reason = strings.TrimSuffix(in, ")")
		}
		return OneLine(reason), stale, true
	}
	return "", false, false
}

// remoteLines keeps what the other side said, from git's "remote: " lines.
func remoteLines(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(line, "remote: "); ok {
			said = append(said, strings.TrimSpace(text))
		}
	}
	return OneLine(strings.Join(said, " "))
}

// maxLine bounds a reason that comes from elsewhere.
const maxLine = 300

// OneLine makes one printable line of s, at most 300 bytes long.
func OneLine(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' || c > 0x7e && c < 0xa0 {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, " "))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxLine {
		s = strings.ToValidUTF8(s[:maxLine], "") + "…"
	}
	return s
}

// Received is a push whose objects are in quarantine, checked and whole.
type Received struct {
	Force      bool   // the update is no fast-forward, or it cannot be told
	Quarantine string // for Push
	// Finish lets the update happen and says what came of it.
	Finish func() error
}

var quarantinePattern = regexp.MustCompile(`^/repo/(\./)?objects/[A-Za-z0-9_-]{1,64}$`)

// Receive takes a pack for the one update u into the mirror of id. When the
// objects are in quarantine, whole and checked, it calls judge, which may let
// the update happen by Finish; without it nothing of the push remains. judge's
// error comes back as it is. shallow are the boundaries of a shallow client.
// The error is a RefusedError if git did not even get that far.
func (r *Repos) Receive(ctx context.Context, id cofferdam.RepoID, u Update, shallow []cofferdam.Commit, pack io.Reader, judge func(context.Context, Received) error) error {
	p, err := r.Mirror(id, u.Ref)
	if err != nil {
		return err
	}
	var pipes [4]*os.File // question read and write, answer read and write
	for i := 0; i < 4; i += 2 {
		if pipes[i], pipes[i+1], err = os.Pipe(); err != nil {
			closeAll(pipes[:])
			return fmt.Errorf("receive push: %w", err)
		}
	}
	defer closeAll(pipes[:])
	c := p.child("-c", "core.hooksPath=/hooks", "receive-pack", "--stateless-rpc", p.dir)
	c.binds = append(append([]bind{}, c.binds...), bind{host: r.hookDir, inside: "/hooks", exec: true})
	out := &head{max: maxStderr}
	c.stdin, c.stdout, c.timeout = io.MultiReader(receiveRequest(u, shallow), pack), out, longWork
	c.extra, c.level = []*os.File{pipes[1], pipes[2]}, serving
	c.said = &head{max: maxStderr}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { // waited for below, whatever judge does
		err := r.run(ctx, c)
		pipes[1].Close() // the last writer: an unasked question ends here
		ended <- err
	}()
	report := func() error {
		err := <-ended // out is written until then
		return readReport(u, out.String(), OneLine(c.said.String()), err)
	}
	asked, ok, err := readQuestion(pipes[0])
	if !ok || err != nil {
		cancel()
		return errors.Join(err, report())
	}
	finished := false
	asked.Finish = func() error {
		finished = true
		if _, err := io.WriteString(pipes[3], "go\n"); err != nil {
			cancel()
		}
		return report()
	}
	err = judge(ctx, asked)
	if !finished {
		pipes[3].Close() // the hook reads the end of file and refuses
		_ = report()     // it was refused, and git says no more than that
	}
	return err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close() // closing twice is harmless
		}
	}
}

// receiveRequest is the body of a push of u, up to its pack.
func receiveRequest(u Update, shallow []cofferdam.Commit) io.Reader {
	var b bytes.Buffer
	for _, s := range shallow {
		fmt.Fprintf(&b, "%04xshallow %s", 4+8+len(s), s)
	}
	line := fmt.Sprintf("%s %s %s\x00 report-status object-format=sha1", u.Old, u.New, u.Ref)
	fmt.Fprintf(&b, "%04x%s0000", 4+len(line), line)
	return &b
}

// readQuestion reads the one line that the hook writes; not ok if git ended
// before it.
func readQuestion(ask io.Reader) (q Received, ok bool, err error) {
	line := make([]byte, 256)
	n := 0
	for n < len(line) && !bytes.ContainsRune(line[:n], '\n') {
		k, err := ask.Read(line[n:])
		if n += k; err != nil {
			return q, false, nil // its report says why
		}
	}
	force, quarantine, _ := strings.Cut(strings.TrimSuffix(string(line[:n]), "\n"), " ")
	if quarantine != "" && !strings.HasPrefix(quarantine, "/") {
		quarantine = "/repo/" + quarantine
	}
	if !quarantinePattern.MatchString(quarantine) {
		return q, false, fmt.Errorf("receive push: the quarantine %q is not where it should be", quarantine)
	}
	return Received{Force: force != "0", Quarantine: quarantine}, true, nil
}

// readReport reads what receive-pack says of u: "unpack ok", "ok REF" or
// "ng REF reason", each in a packet. said is what git said beside it.
func readReport(u Update, report, said string, runErr error) error {
	for len(report) >= 4 {
		var n int
		if _, err := fmt.Sscanf(report[:4], "%04x", &n); err != nil || n > len(report) {
			break
		}
		if n < 4 {
			break
		}
		line := strings.TrimSuffix(report[4:n], "\n")
		report = report[n:]
		switch {
		case line == "ok "+string(u.Ref):
			return nil
		case strings.HasPrefix(line, "ng "+string(u.Ref)+" "):
			return &RefusedError{Ref: u.Ref, Reason: OneLine(strings.TrimPrefix(line, "ng "+string(u.Ref)+" ")), Message: said}
		case strings.HasPrefix(line, "unpack ") && line != "unpack ok":
			return &RefusedError{Ref: u.Ref, Reason: OneLine(line), Message: said}
		}
	}
	if runErr != nil {
		return runErr
	}
	return &RefusedError{Ref: u.Ref, Reason: "git gave no report", Message: said}
}
