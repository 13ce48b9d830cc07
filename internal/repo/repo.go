// Package repo runs git safely on bare repositories that hold hostile objects.
// Every mirror lies in a folder of its own, owned by a user id of its own, and
// every git process runs in a cage: that user id, no capabilities, no new
// privileges, a root folder with nothing but /usr and the one repository, no
// network (or a loopback with nothing but the carrier's port), a clean
// environment, limits and a deadline.
//
// It never decides what is allowed, never holds a credential and never opens a
// connection: what a git process says to an upstream goes to an http.Handler
// of the caller. The invariant: whatever a git process can be made to do by
// what it reads, it reaches one mirror and nothing else.
//
// On disk, below the folder given to Open:
//
//	<RepoID>.git/   the mirror; owned by its user id, mode 0700
//	config          the configuration of every mirror; mounted read-only over theirs
//	hooks/          the hook that asks for the verdict of a push
//	view/           where each cage's root is mounted, in a mount namespace of its own
package repo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"cofferdam"
	"cofferdam/internal/userns"
)

// FirstUser is the user id of the first mirror; each further one gets the next.
// It lies above the ranges that Debian, systemd (up to 1,879,048,191) and
// container tools hand out, and below 2³¹.
const FirstUser = 2_000_000_000

// FirstOfUser is FirstUser where the server runs in the user namespace of an
// ordinary user, whose range has some 65,000 ids.
const FirstOfUser = 10_000

// nobody is the id that a user namespace shows for every owner it does not know.
const nobody = 65_534

// MaxRepos is how many mirrors one installation may have: it bounds user ids
// and locks. Ten times what a large organisation keeps on one host.
const MaxRepos = 10_000

// level sorts git processes by what they wait for: one that serves a box may
// wait for one that speaks to an upstream, and that for the upstream's own.
// Each level has slots of its own, so that no two wait for each other.
type level int

const (
	serving  level = iota // answers a box
	carrying              // speaks to an upstream
	leaf                  // waits for nobody
	levels
)

// maxChildren is how many git processes of one level run at once. Each holds a
// thread; a burst of tasks waits.
const maxChildren = 128

// MaxPush is the largest push in bytes, receive.maxInputSize in the
// configuration of every mirror: what the largest forges take.
// Source: docs/SPECIFICATION.md, "Repository".
const MaxPush = 2 << 30

//go:embed config
var mirrorConfig []byte

//go:embed pre-receive.sh
var receiveHook []byte

// Repos is the folder of mirrors. Safe for concurrent use.
type Repos struct {
	dir, viewDir, hookDir, configFile string

	git    string                // absolute, below /usr
	first  uint32                // FirstUser, or FirstOfUser
	inside bool                  // a user namespace that does not know every user of the host
	slots  [levels]chan struct{} // one per running git process

	mu     sync.Mutex
	locks  map[cofferdam.RepoID]chan struct{} // guarded by mu; one per mirror, so at most MaxRepos
	owners map[cofferdam.RepoID]uint32        // guarded by mu
}

// Open opens the folder of mirrors, making it if it is missing. It must be
// called by root, or by uid 0 of a namespace of an ordinary user, because every
// git process gets a user id of its own.
func Open(dir string) (*Repos, error) {
	if os.Geteuid() != 0 {
		return nil, unavailable("open repositories", "git runs under a user id of its own, and only root can give it one", "run cofferdam serve, which enters a user namespace where it has to")
	}
	git, err := findGit()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("open repositories: %w", err)
	}
	r := &Repos{
		dir: dir, viewDir: filepath.Join(dir, "view"), hookDir: filepath.Join(dir, "hooks"), configFile: filepath.Join(dir, "config"),
		git: git, first: FirstUser, locks: map[cofferdam.RepoID]chan struct{}{}, owners: map[cofferdam.RepoID]uint32{},
	}
	if userns.Inside() {
		r.first, r.inside = FirstOfUser, true
	}
	for l := range r.slots {
		r.slots[l] = make(chan struct{}, maxChildren)
	}
	for _, d := range []string{dir, r.viewDir, r.hookDir} {
		// Chmod, because a server may run with any umask and git has to get in.
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			return nil, fmt.Errorf("open repositories: %w", err)
		}
	}
	for _, f := range []struct {
		path string
		data []byte
		mode fs.FileMode
	}{{r.configFile, mirrorConfig, 0o644}, {filepath.Join(r.hookDir, "pre-receive"), receiveHook, 0o755}} {
		if err := writeWhole(f.path, f.data, f.mode); err != nil {
			return nil, fmt.Errorf("open repositories: %w", err)
		}
	}
	if err := errors.Join(sweep(dir), r.readOwners()); err != nil {
		return nil, fmt.Errorf("open repositories: %w", err)
	}
	if err := r.checkCage(); err != nil {
		return nil, err
	}
	for id := range r.owners {
		if err := r.unlock(id, 0); err != nil {
			return nil, fmt.Errorf("open repositories: %w", err)
		}
	}
	return r, nil
}

// findGit finds git below /usr, the only host folder a cage sees.
func findGit() (string, error) {
	for _, p := range []string{"/usr/bin/git", "/usr/local/bin/git"} {
		if _, err := os.Stat(p); err == nil {
			if _, err := os.Stat(limiter); err != nil {
				return "", unavailable("run git", limiter+" is missing", "install util-linux: apt-get install util-linux")
			}
			return p, nil
		}
	}
	return "", unavailable("run git", "there is no git in /usr/bin or /usr/local/bin", "install it: apt-get install git")
}

// checkCage makes sure that cages can be built here, and that git is new enough.
func (r *Repos) checkCage() error {
	ctx, cancel := context.WithTimeout(context.Background(), shortWork) // opening takes no context: nothing else waits for it
	defer cancel()
	out := &head{max: 64}
	if err := r.run(ctx, child{uid: r.first, gid: r.first, level: leaf, args: []string{"version"}, stdout: out}); err != nil {
		return &cofferdam.Error{Op: "repo.Open", Kind: cofferdam.Unavailable, Subject: "run git", Reason: "no namespaces can be made for it: " + OneLine(err.Error()), Hint: "run the server on the host itself or in a container with CAP_SYS_ADMIN", Err: err}
	}
	return checkVersion(out.String())
}

// checkVersion refuses a git that is older than the options it is given: 2.34
// has --http-backend-info-refs, the newest of them.
func checkVersion(said string) error {
	var major, minor int
	if _, err := fmt.Sscanf(said, "git version %d.%d", &major, &minor); err != nil || major < 2 || major == 2 && minor < 34 {
		return unavailable("run git", OneLine(said)+" is too old", "install git 2.34 or newer: apt-get install git")
	}
	return nil
}

// writeWhole puts data at path so that a reader sees the old or the new file.
func writeWhole(path string, data []byte, mode fs.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	if err := os.Chmod(tmp, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// readOwners learns which user id owns which mirror from the folder itself.
func (r *Repos) readOwners() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		id := cofferdam.RepoID(strings.TrimSuffix(name, ".git"))
		if !e.IsDir() || string(id) == name || checkID(id) != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid >= r.first {
			r.owners[id] = uid
		}
	}
	return nil
}

var idPattern = regexp.MustCompile(`^r-[0-9a-z][0-9a-z-]{0,62}$`)

// checkID keeps an id from being anything but the name of a folder.
func checkID(id cofferdam.RepoID) error {
	if !idPattern.MatchString(string(id)) {
		return &cofferdam.Error{Op: "repo.Mirror", Kind: cofferdam.Invalid, Subject: "open repository", Reason: fmt.Sprintf("%q is no repository id", id)}
	}
	return nil
}

func (r *Repos) path(id cofferdam.RepoID) string { return filepath.Join(r.dir, string(id)+".git") }

// Ensure makes the mirror of id unless it is there, with base as its HEAD.
func (r *Repos) Ensure(ctx context.Context, id cofferdam.RepoID, base cofferdam.Ref) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := CheckRef(base); err != nil {
		return err
	}
	unlock, err := r.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	_, have := r.owners[id]
	r.mu.Unlock()
	if have {
		return nil
	}
	uid, release, err := r.reserveUser()
	if err != nil {
		return err
	}
	defer release()
	// Made under another name and renamed when it is whole, so that a crash
	// never leaves half a mirror under the real name.
	tmp := r.path(id) + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("make mirror: %w", err)
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("make mirror: %w", err)
	}
	if err := os.Chown(tmp, int(uid), int(uid)); err != nil {
		return fmt.Errorf("make mirror: %w", err)
	}
	init := child{
		uid: uid, gid: uid, binds: []bind{{host: tmp, inside: "/repo", write: true}},
		args: []string{"init", "--quiet", "--bare", "--template=", "--initial-branch=" + strings.TrimPrefix(string(base), headPrefix), "/repo"},
	}
	if err := r.run(ctx, init); err != nil {
		return fmt.Errorf("make mirror: %w", err)
	}
	if err := os.Rename(tmp, r.path(id)); err != nil {
		return fmt.Errorf("make mirror: %w", err)
	}
	r.mu.Lock()
	r.owners[id] = uid
	r.mu.Unlock()
	return nil
}

// reserveUser returns a user id that no mirror has, kept from others until the
// release is called.
func (r *Repos) reserveUser() (uint32, func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.owners) >= MaxRepos {
		return 0, nil, &cofferdam.Error{Op: "repo.Ensure", Kind: cofferdam.Exhausted, Subject: "make mirror", Reason: fmt.Sprintf("there are %d repositories already", MaxRepos), Hint: "remove one that is no longer used: cofferdam repo remove"}
	}
	taken := map[uint32]bool{}
	for _, uid := range r.owners {
		taken[uid] = true
	}
	uid := r.first
	for taken[uid] {
		uid++
	}
	mark := cofferdam.RepoID(fmt.Sprintf("reserved %d", uid)) // no id has a space
	r.owners[mark] = uid
	return uid, func() {
		r.mu.Lock()
		delete(r.owners, mark)
		r.mu.Unlock()
	}, nil
}

// Has says whether there is a mirror of id.
func (r *Repos) Has(id cofferdam.RepoID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.owners[id]
	return ok
}

// Remove deletes the mirror of id. Removing what is not there is no error.
func (r *Repos) Remove(ctx context.Context, id cofferdam.RepoID) error {
	if err := checkID(id); err != nil {
		return err
	}
	unlock, err := r.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(r.path(id)); err != nil {
		return fmt.Errorf("remove mirror: %w", err)
	}
	r.mu.Lock()
	delete(r.owners, id)
	r.mu.Unlock()
	return nil
}

// Lock takes the lock of one mirror, which whoever moves its base branch or
// packs it holds, and returns its release. Pushes to agents' branches do not
// take it: git's own locks guard single refs, and a slow push must not hold up
// the others.
func (r *Repos) Lock(ctx context.Context, id cofferdam.RepoID) (func(), error) {
	r.mu.Lock()
	l := r.locks[id]
	if l == nil {
		l = make(chan struct{}, 1)
		r.locks[id] = l
	}
	r.mu.Unlock()
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for repository: %w", ctx.Err())
	}
}

// Free says how many bytes are left for mirrors.
func (r *Repos) Free() (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(r.dir, &s); err != nil {
		return 0, fmt.Errorf("look at the disk of the repositories: %w", err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

func unavailable(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "repo.Open", Kind: cofferdam.Unavailable, Subject: subject, Reason: reason, Hint: hint}
}

// isExit says whether err is git ending with the given code.
func isExit(err error, code int) bool {
	var e *ExitError
	return errors.As(err, &e) && e.Code == code
}
