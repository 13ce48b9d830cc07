package repo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cofferdam"
)

// Bounds of a bundle. Source: docs/SPECIFICATION.md, "Workspaces".
const (
	MaxBundle     = MaxPush // bytes of its pack
	MaxBundleRefs = 1000
	maxHeader     = 1 << 20 // bytes before the pack
)

// Bundled is what a bundle of ours holds.
type Bundled struct {
	Commits int             // that no ref of the mirror has; 0: nothing was written
	Refs    []cofferdam.Ref // by which they are fetched from it
}

// bundleHeader is the part of a bundle before its pack; gitformat-bundle(5).
type bundleHeader struct {
	sha256 bool
	needs  []cofferdam.Commit // that whoever reads it must have
	refs   []cofferdam.Ref
	tips   map[cofferdam.Ref]cofferdam.Commit
}

// Bundle makes a git bundle of a machine's words: from is what claims to be one,
// for the mirror of id. Its objects are read in a cage, apart from the mirror's,
// and must be whole; what is written to to is made anew of them.
func Bundle(ctx context.Context, r *Repos, id cofferdam.RepoID, from io.Reader, to io.Writer) (Bundled, error) {
	p, err := r.mirror(id)
	if err != nil {
		return Bundled{}, err
	}
	in := bufio.NewReader(from)
	h, err := readBundle(in)
	if err != nil {
		return Bundled{}, badBundle(err.Error(), err)
	}
	if err := haveAll(ctx, r, p, h.needs); err != nil {
		return Bundled{}, err
	}
	dir, err := os.MkdirTemp(r.dir, bundlePrefix)
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.MkdirAll(filepath.Join(dir, "pack"), 0o700), os.Chown(filepath.Join(dir, "pack"), int(p.uid), int(p.gid)),
			os.Chown(dir, int(p.uid), int(p.gid)))
	}
	if err != nil {
		return Bundled{}, fmt.Errorf("make bundle: %w", err)
	}
	p.binds = append(append([]bind{}, p.binds...), bind{host: dir, inside: "/bundle", write: true})
	git := func(stdin io.Reader, stdout io.Writer, args ...string) error {
		c := p.child(args...)
		c.env = append(c.env, p.quarantined("/bundle")...)
		c.stdin, c.stdout, c.timeout = stdin, stdout, longWork
		return r.run(ctx, c)
	}
	if err := git(in, io.Discard, "index-pack", "--stdin", "--fix-thin", "--strict", "--max-input-size="+strconv.Itoa(MaxBundle)); err != nil {
		return Bundled{}, notTaken(ctx, err)
	}
	if err := git(h.revisions(), io.Discard, "rev-list", "--objects", "--quiet", "--stdin"); err != nil {
		return Bundled{}, notTaken(ctx, err)
	}
	out := &head{max: 64}
	if err := git(h.tipsOnly(), out, "rev-list", "--count", "--stdin", "--not", "--all"); err != nil {
		return Bundled{}, notTaken(ctx, err)
	}
	b := Bundled{Refs: h.refs}
	if b.Commits, err = strconv.Atoi(strings.TrimSpace(out.String())); err != nil || b.Commits == 0 {
		return Bundled{}, err
	}
	if _, err := io.WriteString(to, h.text()); err != nil {
		return Bundled{}, fmt.Errorf("write bundle: %w", err)
	}
	return b, git(h.revisions(), to, "pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "--quiet")
}

// bundlePrefix begins the names of folders that are made for one bundle. What a
// crash left of those is removed by Open.
const bundlePrefix = "bundle-"

func badBundle(reason string, err error) error {
	return &cofferdam.Error{Op: "repo.Bundle", Kind: cofferdam.Invalid, Subject: "read bundle", Reason: OneLine(reason), Err: err}
}

// notTaken is the error of a git that did not take what it was given.
func notTaken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return badBundle(err.Error(), err)
}

// haveAll says whether the mirror has commits that somebody names.
func haveAll(ctx context.Context, r *Repos, p Place, all []cofferdam.Commit) error {
	if len(all) == 0 {
		return nil
	}
	var ask strings.Builder
	for _, c := range all {
		fmt.Fprintln(&ask, c)
	}
	out := &head{max: maxHeader}
	c := p.child("cat-file", "--batch-check=%(objecttype)")
	c.stdin, c.stdout = strings.NewReader(ask.String()), out
	if err := r.run(ctx, c); err != nil {
		return fmt.Errorf("look up commits: %w", err)
	}
	if out.String() != strings.Repeat("commit\n", len(all)) {
		return badBundle("it builds on commits that the repository does not have", nil)
	}
	return nil
}

// readBundle reads up to the pack, and nothing of it.
func readBundle(in *bufio.Reader) (bundleHeader, error) {
	h := bundleHeader{tips: map[cofferdam.Ref]cofferdam.Commit{}}
	digits := 40
	for n, size := 0, 0; ; n++ {
		line, err := in.ReadSlice('\n')
		if size += len(line); err != nil || size > maxHeader {
			return h, errors.Join(errors.New("its header has no end"), err)
		}
		text := string(bytes.TrimSuffix(line, []byte("\n")))
		need, isNeed := strings.CutPrefix(text, "-")
		switch {
		case n == 0:
			if text != "# v2 git bundle" && text != "# v3 git bundle" {
				return h, errors.New("it is none")
			}
		case text == "" && len(h.refs) > 0:
			return h, nil
		case text == "@object-format=sha256":
			h.sha256, digits = true, 64
		case text == "@object-format=sha1":
		case isNeed:
			id, _, _ := strings.Cut(need, " ")
			if CheckCommit(cofferdam.Commit(id)) != nil || len(id) != digits || len(h.needs) >= MaxBundleRefs {
				return h, fmt.Errorf("it names too many commits that it needs, or one that is none: %.80q", need)
			}
			h.needs = append(h.needs, cofferdam.Commit(id))
		default:
			id, name, _ := strings.Cut(text, " ")
			ref := cofferdam.Ref(name)
			_, twice := h.tips[ref]
			if CheckCommit(cofferdam.Commit(id)) != nil || len(id) != digits || CheckRef(ref) != nil || twice || len(h.refs) >= MaxBundleRefs {
				return h, fmt.Errorf("it has too many refs, or one that is none: %.80q", text)
			}
			h.refs, h.tips[ref] = append(h.refs, ref), cofferdam.Commit(id)
		}
	}
}

// text is the header as we write it.
func (h bundleHeader) text() string {
	var b strings.Builder
	if h.sha256 {
		b.WriteString("# v3 git bundle\n@object-format=sha256\n")
	} else {
		b.WriteString("# v2 git bundle\n")
	}
	for _, c := range h.needs {
		fmt.Fprintf(&b, "-%s \n", c)
	}
	for _, ref := range h.refs {
		fmt.Fprintf(&b, "%s %s\n", h.tips[ref], ref)
	}
	b.WriteString("\n")
	return b.String()
}

// tipsOnly lists what the refs name, for a git that reads revisions.
func (h bundleHeader) tipsOnly() io.Reader {
	var b strings.Builder
	for _, ref := range h.refs {
		fmt.Fprintln(&b, h.tips[ref])
	}
	return strings.NewReader(b.String())
}

// revisions is tipsOnly without what the needed commits reach.
func (h bundleHeader) revisions() io.Reader {
	var b strings.Builder
	for _, c := range h.needs {
		fmt.Fprintf(&b, "^%s\n", c)
	}
	return io.MultiReader(h.tipsOnly(), strings.NewReader(b.String()))
}
