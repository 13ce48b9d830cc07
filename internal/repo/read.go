package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cofferdam"
)

// Bounds of what is read for people.
const (
	maxRefs      = 64 << 20 // bytes of a listing of refs
	MaxLog       = 1000     // commits of one change that are listed
	maxSubject   = 200      // bytes of a commit's subject line
	MaxDiff      = 1 << 20  // bytes of a diff that are shown
	maxFiles     = 4 << 20  // bytes of a listing of changed files
	MaxFileCount = 10_000   // changed files that are listed
	MaxFile      = 1 << 20  // bytes of one file that is read
	emptyTree    = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
)

// Resolve returns the commit that ref names in the mirror of id.
func (r *Repos) Resolve(ctx context.Context, id cofferdam.RepoID, ref cofferdam.Ref) (cofferdam.Commit, error) {
	if err := CheckRef(ref); err != nil {
		return "", err
	}
	return r.object(ctx, id, string(ref)+"^{commit}", "branch "+string(ref))
}

// Commit says whether the mirror of id has the commit c, and returns it.
func (r *Repos) Commit(ctx context.Context, id cofferdam.RepoID, c cofferdam.Commit) (cofferdam.Commit, error) {
	if err := CheckCommit(c); err != nil {
		return "", err
	}
	return r.object(ctx, id, string(c)+"^{commit}", "commit "+string(c))
}

func (r *Repos) object(ctx context.Context, id cofferdam.RepoID, rev, what string) (cofferdam.Commit, error) {
	p, err := r.mirror(id)
	if err != nil {
		return "", err
	}
	out, _, err := r.output(ctx, p, 128, "rev-parse", "--verify", "--quiet", "--end-of-options", rev)
	if isExit(err, 1) || isExit(err, 128) {
		return "", &cofferdam.Error{Op: "repo.Resolve", Kind: cofferdam.NotFound, Subject: "look up " + what, Reason: "the repository does not have it", Hint: "check the name, and that it was pushed upstream", Err: err}
	}
	if err != nil {
		return "", fmt.Errorf("look up %s: %w", what, err)
	}
	c := cofferdam.Commit(strings.TrimSpace(string(out)))
	return c, CheckCommit(c)
}

// Refs returns every ref of the mirror of id and what it names.
func (r *Repos) Refs(ctx context.Context, id cofferdam.RepoID) (map[cofferdam.Ref]cofferdam.Commit, error) {
	p, err := r.mirror(id)
	if err != nil {
		return nil, err
	}
	out, truncated, err := r.output(ctx, p, maxRefs, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	if truncated {
		return nil, errors.New("list refs: there are too many")
	}
	refs := map[cofferdam.Ref]cofferdam.Commit{}
	for line := range strings.Lines(string(out)) {
		if c, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			refs[cofferdam.Ref(ref)] = cofferdam.Commit(c)
		}
	}
	return refs, nil
}

// IsAncestor says whether old is part of the history of new (or is new).
func (r *Repos) IsAncestor(ctx context.Context, id cofferdam.RepoID, old, new cofferdam.Commit) (bool, error) {
	p, err := r.mirror(id)
	if err != nil {
		return false, err
	}
	if err := errors.Join(CheckCommit(old), CheckCommit(new)); err != nil {
		return false, err
	}
	err = r.run(ctx, p.child("merge-base", "--is-ancestor", string(old), string(new)))
	if isExit(err, 1) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("compare commits: %w", err)
	}
	return true, nil
}

// Log returns a line for each commit of head that base does not have, oldest
// first: short id and subject. At most MaxLog, the newest ones.
func (r *Repos) Log(ctx context.Context, id cofferdam.RepoID, base, head cofferdam.Commit) ([]string, error) {
	p, err := r.mirror(id)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(CheckCommit(base), CheckCommit(head)); err != nil {
		return nil, err
	}
	out, _, err := r.output(ctx, p, MaxLog*(maxSubject*4+64), "log", "--no-show-signature", "--no-notes", "--no-decorate", "--encoding=UTF-8",
		"-z", "--format=%h %<("+strconv.Itoa(maxSubject)+",trunc)%s", "--max-count="+strconv.Itoa(MaxLog), "--reverse", "--topo-order", string(head), "^"+string(base), "--")
	if err != nil {
		return nil, fmt.Errorf("list commits: %w", err)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if line = clean(strings.TrimRight(line, " ")); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// Diff is what changed between two commits. All of it is hostile text.
type Diff struct {
	Files     []cofferdam.FileChange
	Text      string // unified, at most MaxDiff bytes
	Truncated bool   // Text or Files is not all
}

// diffOptions keep git from running or believing anything that the repository
// says about how its files are to be shown: --text, so that an attribute
// cannot hide a change from the person who reviews it.
func diffOptions() []string {
	return []string{"diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=none", "--submodule=short"}
}

// Diff returns what head changes since it left base.
func (r *Repos) Diff(ctx context.Context, id cofferdam.RepoID, base, head cofferdam.Commit) (Diff, error) {
	p, err := r.mirror(id)
	if err != nil {
		return Diff{}, err
	}
	if err := errors.Join(CheckCommit(base), CheckCommit(head)); err != nil {
		return Diff{}, err
	}
	from := emptyTree
	out, _, err := r.output(ctx, p, 128, "merge-base", string(base), string(head))
	switch {
	case err == nil:
		from = strings.TrimSpace(string(out))
	case !isExit(err, 1): // 1: no common history, so everything is new
		return Diff{}, fmt.Errorf("compare commits: %w", err)
	}
	d := Diff{}
	status, cut1, err := r.output(ctx, p, maxFiles, append(diffOptions(), "-z", "--name-status", from, string(head))...)
	if err != nil {
		return d, fmt.Errorf("list changed files: %w", err)
	}
	counts, cut2, err := r.output(ctx, p, maxFiles, append(diffOptions(), "-z", "--numstat", from, string(head))...)
	if err != nil {
		return d, fmt.Errorf("count changed lines: %w", err)
	}
	text, cut3, err := r.patch(ctx, p, from, string(head))
	if err != nil {
		return d, fmt.Errorf("show changes: %w", err)
	}
	d.Files = parseFiles(status, counts)
	if len(d.Files) > MaxFileCount {
		d.Files, cut1 = d.Files[:MaxFileCount], true
	}
	d.Text, d.Truncated = strings.ToValidUTF8(string(text), "\uFFFD"), cut1 || cut2 || cut3
	return d, nil
}

// patch returns the change as text. A file that git cannot show as text, since
// it is larger than git takes, is only named, and so then is every binary one:
// one file must not keep a person from seeing the others.
func (r *Repos) patch(ctx context.Context, p Place, from, to string) (text []byte, cut bool, err error) {
	options := append(diffOptions(), "--patch", "--full-index")
	text, cut, err = r.output(ctx, p, MaxDiff, append(options, "--text", from, to)...)
	if x := (*ExitError)(nil); ctx.Err() != nil || !errors.As(err, &x) {
		return text, cut, err
	}
	text, _, err = r.output(ctx, p, MaxDiff, append(options, from, to)...)
	return text, true, err
}

// parseFiles reads diff-tree -z --name-status ("M\0path\0") and --numstat
// ("1\t2\tpath\0", "-" for binary files).
func parseFiles(status, counts []byte) []cofferdam.FileChange {
	lines := map[string][2]int{}
	for rec := range bytes.SplitSeq(counts, []byte{0}) {
		f := strings.SplitN(string(rec), "\t", 3)
		if len(f) == 3 {
			lines[f[2]] = [2]int{count(f[0]), count(f[1])}
		}
	}
	var files []cofferdam.FileChange
	fields := strings.Split(string(status), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		n := lines[fields[i+1]]
		files = append(files, cofferdam.FileChange{Path: clean(fields[i+1]), Status: fields[i], Added: n[0], Removed: n[1]})
	}
	return files
}

func count(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// ReadFile returns the file at path in commit c, at most limit bytes (0:
// MaxFile). A link, a folder and a larger file are errors, and so is no file.
func (r *Repos) ReadFile(ctx context.Context, id cofferdam.RepoID, c cofferdam.Commit, path string, limit int) ([]byte, error) {
	p, err := r.mirror(id)
	if err != nil {
		return nil, err
	}
	if err := CheckCommit(c); err != nil {
		return nil, err
	}
	if limit <= 0 || limit > MaxFile {
		limit = MaxFile
	}
	entry, _, err := r.output(ctx, p, 4096, "--literal-pathspecs", "ls-tree", "-z", "--full-tree", string(c), "--", path)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	meta, name, ok := strings.Cut(strings.TrimSuffix(string(entry), "\x00"), "\t")
	f := strings.Fields(meta)
	if !ok || name != path || len(f) != 3 {
		return nil, &cofferdam.Error{Op: "repo.ReadFile", Kind: cofferdam.NotFound, Subject: "read " + strconv.Quote(path), Reason: "commit " + string(c) + " does not have it"}
	}
	if f[1] != "blob" || f[0] == "120000" {
		return nil, &cofferdam.Error{Op: "repo.ReadFile", Kind: cofferdam.Invalid, Subject: "read " + strconv.Quote(path), Reason: "it is not a regular file", Hint: "links and folders are not followed"}
	}
	data, truncated, err := r.output(ctx, p, limit, "cat-file", "blob", f[2])
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	if truncated {
		return nil, &cofferdam.Error{Op: "repo.ReadFile", Kind: cofferdam.Invalid, Subject: "read " + strconv.Quote(path), Reason: fmt.Sprintf("it is larger than %d bytes", limit)}
	}
	return data, nil
}
