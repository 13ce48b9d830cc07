package repo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"cofferdam"
)

// headPrefix begins the name of every branch.
const headPrefix = "refs/heads/"

// AgentRefs is where agents' branches are. A session sees its own and no other.
const AgentRefs = "refs/heads/cofferdam/"

// Place is a repository that git can be run on: a mirror or a local upstream.
type Place struct {
	uid, gid uint32
	binds    []bind
	dir      string   // inside the cage
	level    level    // of serving it
	config   []string // git options: -c key=value
}

// Mirror returns the mirror of id as a session sees it that may see, of the
// agents' branches, only own. With own "" it sees none; All shows every ref.
func (r *Repos) Mirror(id cofferdam.RepoID, own cofferdam.Ref) (Place, error) {
	p, err := r.mirror(id)
	if err != nil {
		return Place{}, err
	}
	p.level, p.config = serving, []string{"-c", "transfer.hideRefs=" + AgentRefs}
	if own != "" {
		if err := CheckRef(own); err != nil {
			return Place{}, err
		}
		p.config = append(p.config, "-c", "transfer.hideRefs=!"+string(own))
	}
	return p, nil
}

// mirror returns the mirror of id with every ref to be seen.
func (r *Repos) mirror(id cofferdam.RepoID) (Place, error) {
	if err := checkID(id); err != nil {
		return Place{}, err
	}
	r.mu.Lock()
	uid, ok := r.owners[id]
	r.mu.Unlock()
	if !ok {
		return Place{}, &cofferdam.Error{Op: "repo.Mirror", Kind: cofferdam.NotFound, Subject: "open repository " + string(id), Reason: "it was removed here, and its mirror with it", Hint: "cofferdam repo list shows what there is"}
	}
	return Place{uid: uid, gid: uid, dir: "/repo", binds: []bind{
		{host: r.path(id), inside: "/repo", write: true},
		{host: r.configFile, inside: "/repo/config", over: true},
	}}, nil
}

// Upstream returns the local repository at path: git works there as its owner
// and runs its own hooks, which are the word of whoever owns it.
func (r *Repos) Upstream(path string) (Place, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Place{}, &cofferdam.Error{Op: "repo.Upstream", Kind: cofferdam.Unavailable, Subject: "open upstream", Reason: "there is nothing at " + path, Hint: "check the path: it is one on the machine of the server", Err: err}
	}
	info, err := os.Stat(real)
	if err != nil || !info.IsDir() {
		return Place{}, &cofferdam.Error{Op: "repo.Upstream", Kind: cofferdam.Unavailable, Subject: "open upstream", Reason: path + " is not a folder", Err: err}
	}
	dir := "/upstream"
	if info, err := os.Lstat(filepath.Join(real, ".git")); err == nil && info.IsDir() {
		dir += "/.git"
	}
	st := info.Sys().(*syscall.Stat_t)
	if r.inside && st.Uid == nobody {
		return Place{}, &cofferdam.Error{
			Op: "repo.Upstream", Kind: cofferdam.Unavailable, Subject: "open upstream",
			Reason: path + " belongs to another user, and git works in an upstream as its owner", Hint: "use a repository of the server's own user, or run the server as root",
		}
	}
	gid := st.Gid
	if r.inside && gid == nobody {
		gid = 0 // the user's own: it cannot take another of its groups along
	}
	return Place{
		uid: st.Uid, gid: gid, dir: dir, level: leaf,
		binds:  []bind{{host: real, inside: "/upstream", write: true, exec: true}},
		config: []string{"-c", "safe.directory=*", "-c", "gc.autoDetach=false", "-c", "receive.autogc=false", "-c", "core.fsmonitor=false"},
	}, nil
}

// child returns git with args on p.
func (p Place) child(args ...string) child {
	return child{
		level: leaf, uid: p.uid, gid: p.gid, binds: p.binds,
		args: append(append([]string{}, p.config...), args...),
		env:  []string{"GIT_DIR=" + p.dir},
	}
}

// output runs git on p and returns what it prints, at most limit bytes.
func (r *Repos) output(ctx context.Context, p Place, limit int, args ...string) (text []byte, truncated bool, err error) {
	out := &head{max: limit + 1}
	c := p.child(args...)
	c.stdout = &stopper{head: out, limit: limit}
	err = r.run(ctx, c)
	if out.buf.Len() > limit {
		return out.buf.Bytes()[:limit], true, nil // ended by us: the rest was not wanted
	}
	return out.buf.Bytes(), false, err
}

// stopper ends the copying once it has more than it wants.
type stopper struct {
	head  *head
	limit int
}

// Write takes p, or says that it is enough.
func (s *stopper) Write(p []byte) (int, error) {
	_, _ = s.head.Write(p) // never fails
	if s.head.buf.Len() > s.limit {
		return 0, io.ErrShortBuffer
	}
	return len(p), nil
}

var (
	commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	refPattern    = regexp.MustCompile(`^refs/(heads|tags)/[A-Za-z0-9._/@+=-]+$`)
)

// CheckCommit says whether c is a full object id: nothing else is ever given
// to git where a commit is meant.
func CheckCommit(c cofferdam.Commit) error {
	if !commitPattern.MatchString(string(c)) {
		return &cofferdam.Error{Op: "repo.Commit", Kind: cofferdam.Invalid, Subject: "look up commit", Reason: fmt.Sprintf("%q is not a full commit id", string(c)), Hint: "give all 40 hexadecimal digits"}
	}
	return nil
}

// CheckRef says whether ref is the full name of a branch or tag that git would
// take, of plain ASCII letters.
func CheckRef(ref cofferdam.Ref) error {
	s := string(ref)
	bad := len(s) > 250 || !refPattern.MatchString(s) || strings.Contains(s, "..") || strings.Contains(s, "@{") ||
		strings.HasSuffix(s, "/") || strings.HasSuffix(s, ".")
	for part := range strings.SplitSeq(s, "/") {
		bad = bad || part == "" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return &cofferdam.Error{Op: "repo.Ref", Kind: cofferdam.Invalid, Subject: "look up ref", Reason: fmt.Sprintf("%q is not the full name of a branch or tag", s), Hint: "write it as refs/heads/NAME, in letters, digits and . _ / @ + = -"}
	}
	return nil
}

// Service is one half of git's smart protocol, seen from the serving side.
type Service string

// The two services.
const (
	UploadPack  Service = "git-upload-pack"  // for clone and fetch
	ReceivePack Service = "git-receive-pack" // for push
)

// Advertise writes what p offers for s: the answer to GET info/refs, without
// the service line. protocol is what the client asked for: version=1, version=2 or "".
func (r *Repos) Advertise(ctx context.Context, p Place, s Service, protocol string, out io.Writer) error {
	c := p.child(strings.TrimPrefix(string(s), "git-"), "--stateless-rpc", "--http-backend-info-refs", p.dir)
	c.stdout, c.level = out, p.level
	c.env = append(c.env, protocolEnv(protocol)...)
	return r.run(ctx, c)
}

// Answer serves one request of s: in is the body that the client sent.
func (r *Repos) Answer(ctx context.Context, p Place, s Service, protocol string, in io.Reader, out io.Writer) error {
	c := p.child(strings.TrimPrefix(string(s), "git-"), "--stateless-rpc", p.dir)
	c.stdin, c.stdout, c.timeout, c.level = in, out, longWork, p.level
	c.outlives = p.level == leaf && s == ReceivePack
	c.env = append(c.env, protocolEnv(protocol)...)
	return r.run(ctx, c)
}

func protocolEnv(protocol string) []string {
	switch protocol {
	case "version=1", "version=2":
		return []string{"GIT_PROTOCOL=" + protocol}
	}
	return nil
}

// maxHidden is how many bytes of a listing of hidden objects are read: a
// million objects. Beyond it nothing but the tips of visible refs is served.
const maxHidden = 64 << 20

// Hidden returns every object of the mirror of id that agents' branches other
// than own reach and no other ref does.
func (r *Repos) Hidden(ctx context.Context, id cofferdam.RepoID, own cofferdam.Ref) (map[cofferdam.Commit]bool, error) {
	p, err := r.mirror(id)
	if err != nil {
		return nil, err
	}
	args := []string{"rev-list", "--objects", "--no-object-names"}
	if own != "" {
		args = append(args, "--exclude="+string(own))
	}
	args = append(args, "--glob="+AgentRefs+"*", "--not", "--exclude="+AgentRefs+"*", "--all")
	if own != "" {
		// A pattern without a wildcard would mean everything below it.
		last := len(own) - 1
		args = append(args, "--glob="+string(own[:last])+"["+string(own[last:])+"]")
	}
	out, truncated, err := r.output(ctx, p, maxHidden, args...)
	if err != nil {
		return nil, fmt.Errorf("list hidden objects: %w", err)
	}
	if truncated {
		return nil, &cofferdam.Error{Op: "repo.Hidden", Kind: cofferdam.Unavailable, Subject: "serve single objects", Reason: "other tasks' branches hold too many objects to tell which are whose", Hint: "remove branches below cofferdam/ that are no longer needed"}
	}
	hidden := map[cofferdam.Commit]bool{}
	for line := range strings.Lines(string(out)) {
		hidden[cofferdam.Commit(strings.TrimSuffix(line, "\n"))] = true
	}
	return hidden, nil
}
