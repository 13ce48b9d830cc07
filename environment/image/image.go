// Package image keeps what boxes have at "/" where that is not the host's:
// images of the Open Container Initiative from a layout folder, a tarball or a
// registry, and Debian's packages. Each is unpacked once into a folder named by
// its digest.
//
// It runs nothing of an image, and believes nothing of it: every layer is
// checked against the digest that the manifest pins, and no name, link or
// device leads out of the folder. The invariant: a path that Find returns holds
// a whole image, and it never changes again.
package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/environment"
)

// Options is what a Store is made from.
type Options struct {
	Dir string // of the store; only root's
	// Names are the operator's own images: a folder, layout:FOLDER, tarball:FILE
	// or the name of one in a registry.
	Names map[string]string
	// Registries are HOST[:PORT] that images may come from; those of the blobs too.
	Registries []string
	Packages   bool              // Debian's packages may be installed from the machine's apt sources
	Transport  http.RoundTripper // dials registries
	Program    string            // mmdebstrap; "" looks for it
	MaxBytes   int64             // of all images of all projects together; 0: DefaultMaxBytes
	// Used returns the paths of images that are at "/" of a box, also of one at rest,
	// or were when an agent last worked in a workspace that is kept. Those stay,
	// and so do all while it returns an error. Optional.
	Used func() ([]string, error)
}

// Store is a folder of images. Safe for concurrent use; one process at a time.
type Store struct {
	o      Options
	mu     sync.Mutex    // held while what is there is looked at or removed
	making chan struct{} // holds one while an image is made: one at a time
}

// makingTime bounds the making of an image, whatever its source takes: others
// wait for it.
const makingTime = 30 * time.Minute

// Open returns the store in o.Dir, less what an earlier process left half made.
func Open(o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, unavailable(o.Dir, err)
	}
	half, err := filepath.Glob(filepath.Join(o.Dir, "*", "*.building"))
	if err != nil {
		return nil, unavailable(o.Dir, err)
	}
	for _, path := range half {
		if err := os.RemoveAll(path); err != nil {
			return nil, unavailable(o.Dir, err)
		}
	}
	s := &Store{o: o, making: make(chan struct{}, 1)}
	if _, err := s.makeRoom(time.Now()); err != nil {
		return nil, err
	}
	return s, nil
}

func unavailable(what string, err error) error {
	return &cofferdam.Error{Op: "image.Find", Kind: cofferdam.Unavailable, Subject: "images in " + what, Hint: "free disk space, and make the folder writable", Err: err}
}

func refused(name, reason string, err error) error {
	return &cofferdam.Error{
		Op: "image.Find", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("image %.200q", name), Reason: reason, Err: err,
		Hint: "name another image, or leave it away for the host's programs",
	}
}

// Record is what is kept beside an image.
type Record struct {
	Name   string           `json:"name"`   // as it was asked for first
	Source string           `json:"source"` // where it came from
	Digest cofferdam.Digest `json:"digest"`
	Size   int64            `json:"size"` // bytes of its files
	Made   time.Time        `json:"made"`
}

// Find returns the image that w names, and makes it if it is not there. A tag
// is looked up once: what it named then is what it names until the image is
// removed. An operator's name hides a registry's.
func (s *Store) Find(ctx context.Context, scope cofferdam.Scope, w environment.ImageWant) (environment.Image, error) {
	source, named := s.o.Names[w.Name]
	switch {
	case named && filepath.IsAbs(source):
		i, err := environment.LocalImage(environment.ImageWant{Name: source, Operator: true})
		i.Name = w.Name
		return i, err
	case !named && (w.Name == "" || w.Name == "host" || filepath.IsAbs(w.Name)):
		return environment.LocalImage(w)
	case !named:
		source = w.Name
		if err := s.Check(source); err != nil && source != environment.DebianImage {
			return environment.Image{}, err
		}
	}
	dir := filepath.Join(s.o.Dir, string(scope.Project))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return environment.Image{}, unavailable(dir, err)
	}
	found := environment.Image{Name: w.Name}
	debian := !named && w.Name == environment.DebianImage
	if !debian && s.known(dir, source, &found) {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, makingTime)
	defer cancel()
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return found, &cofferdam.Error{
			Op: "image.Find", Kind: cofferdam.Unavailable, Subject: fmt.Sprintf("image %.200q", w.Name), Reason: "others are being made, one at a time",
			Hint: "try again later", Err: context.Cause(ctx),
		}
	}
	if debian {
		r, err := s.debian(ctx, dir, w.Packages)
		found.Path, found.Digest = rootOf(dir, r.Digest), r.Digest
		return found, err
	}
	if s.known(dir, source, &found) { // made while this one waited
		return found, nil
	}
	return s.find(ctx, dir, source, named, found)
}

// make makes an image where all together leave room for one, and lets those go
// that do not fit beside it.
func (s *Store) make(dir string, r Record, fill func(root string) (int64, error)) error {
	left, err := s.makeRoom(time.Now())
	if err == nil && left <= 0 {
		err = &cofferdam.Error{
			Op: "image.Find", Kind: cofferdam.Exhausted, Subject: fmt.Sprintf("image %.200q", r.Name),
			Reason: fmt.Sprintf("all images together have reached %d GiB, and each was used within a day, or is of a box or a workspace", s.o.max()>>30),
			Hint:   "remove workspaces that nobody needs (cofferdam workspace list), or let the operator raise max_images in the table [environments]",
		}
	}
	if err == nil {
		err = place(dir, r, fill)
	}
	if err == nil {
		_, err = s.makeRoom(time.Now())
	}
	return err
}

// known looks whether a source is there, and marks it as used.
func (s *Store) known(dir, source string, found *environment.Image) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.resolved(dir, source)
	if !ok {
		return false
	}
	if _, err := read(dir, d); err != nil {
		return false
	}
	found.Path, found.Digest = rootOf(dir, d), d
	now := time.Now()
	return os.Chtimes(filepath.Dir(found.Path), now, now) == nil
}

// find asks a source, and makes the image if it is not there under another name.
func (s *Store) find(ctx context.Context, dir, source string, named bool, found environment.Image) (environment.Image, error) {
	img, digest, err := s.open(ctx, source, named)
	if err != nil {
		return found, err
	}
	found.Path, found.Digest = rootOf(dir, digest), digest
	if _, err := read(dir, digest); err != nil {
		if err := s.unpack(ctx, dir, Record{Name: found.Name, Source: source, Digest: digest}, img); err != nil {
			return found, err
		}
	}
	if err := s.resolve(dir, source, digest); err != nil {
		return found, err
	}
	if !s.known(dir, source, &found) {
		return found, unavailable(dir, errors.New("it was removed meanwhile"))
	}
	return found, nil
}

// Check says whether an image can have that name here, without asking anybody.
func (s *Store) Check(name string) error {
	host, _, found := strings.Cut(name, "/")
	if _, named := s.o.Names[name]; named || found && slices.Contains(s.o.Registries, host) {
		return nil
	}
	return refused(name, "this server has no image of that name, and takes none from such a registry", nil)
}

func hexOf(d cofferdam.Digest) string { return d.Hex() }

func rootOf(dir string, d cofferdam.Digest) string { return filepath.Join(dir, hexOf(d), "root") }

func read(dir string, d cofferdam.Digest) (r Record, err error) {
	text, err := os.ReadFile(filepath.Join(dir, hexOf(d), "image.json"))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// tagFile keeps what a source was resolved to.
func tagFile(dir, source string) string {
	sum := sha256.Sum256([]byte(source))
	return filepath.Join(dir, "tag-"+hex.EncodeToString(sum[:]))
}

func (s *Store) resolved(dir, source string) (cofferdam.Digest, bool) {
	text, err := os.ReadFile(tagFile(dir, source))
	d := cofferdam.Digest(text)
	return d, err == nil && checkDigest(d)
}

func (s *Store) resolve(dir, source string, d cofferdam.Digest) error {
	if err := os.WriteFile(tagFile(dir, source), []byte(d), 0o600); err != nil {
		return unavailable(dir, err)
	}
	return nil
}

func checkDigest(d cofferdam.Digest) bool {
	raw, err := hex.DecodeString(hexOf(d))
	return err == nil && len(raw) == sha256.Size && strings.HasPrefix(string(d), "sha256:")
}

// place makes an image beside its final path and moves it there when it is whole.
func place(dir string, r Record, fill func(root string) (int64, error)) error {
	half, final := filepath.Join(dir, hexOf(r.Digest)+".building"), filepath.Join(dir, hexOf(r.Digest))
	if err := errors.Join(os.RemoveAll(half), os.RemoveAll(final), os.MkdirAll(filepath.Join(half, "root"), 0o755)); err != nil {
		return unavailable(dir, err)
	}
	var err error
	if r.Size, err = fill(filepath.Join(half, "root")); err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	r.Made = time.Now().UTC()
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(half, "image.json"), text, 0o600)
	}
	if err == nil {
		err = os.Rename(half, final)
	}
	if err != nil {
		return errors.Join(unavailable(dir, err), os.RemoveAll(half))
	}
	return nil
}

// unpack puts the layers of an image over each other.
func (s *Store) unpack(ctx context.Context, dir string, r Record, img v1.Image) error {
	config, err := img.ConfigFile()
	if err != nil {
		return refused(r.Name, "its configuration cannot be read", err)
	}
	layers, err := img.Layers()
	if err != nil {
		return refused(r.Name, "its layers cannot be read", err)
	}
	if len(layers) > MaxLayers || len(layers) != len(config.RootFS.DiffIDs) {
		return refused(r.Name, fmt.Sprintf("it has %d layers and names %d; at most %d are taken", len(layers), len(config.RootFS.DiffIDs), MaxLayers), nil)
	}
	return s.make(dir, r, func(root string) (int64, error) {
		into, err := os.OpenRoot(root)
		if err != nil {
			return 0, unavailable(dir, err)
		}
		defer into.Close()
		t := &tree{root: into, free: func() (int64, int64, error) { return space(root) }}
		for i, l := range layers {
			if err := t.checked(ctx, l, config.RootFS.DiffIDs[i]); err != nil {
				return 0, refused(r.Name, fmt.Sprintf("layer %d: %s", i+1, err), err)
			}
		}
		return t.bytes, nil
	})
}

// space is what is free on the disk of a folder: bytes, and files where the file
// system counts them.
func space(dir string) (bytes, files int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "looking at", Path: dir, Err: err}
	}
	if files = int64(st.Ffree); st.Files == 0 {
		files = math.MaxInt64
	}
	return int64(st.Bavail) * st.Bsize, files, nil
}

// checked unpacks a layer and compares what was read with the digest that the
// image's configuration has of it.
func (t *tree) checked(ctx context.Context, l v1.Layer, want v1.Hash) error {
	r, err := l.Uncompressed()
	if err != nil {
		return err
	}
	sum := sha256.New()
	bounded := &bound{ctx: ctx, r: r, left: MaxBytes + MaxEntries*4096}
	read := io.TeeReader(bounded, sum)
	err = t.layer(read)
	if err == nil {
		_, err = io.Copy(io.Discard, read) // what follows the end of the archive counts as well
	}
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return fmt.Errorf("it is sha256:%s, and the image says %s", got, want)
	}
	return nil
}

// bound ends a stream that is longer than any image, or that nobody waits for.
type bound struct {
	ctx  context.Context
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bound) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		return 0, errors.New("it unpacks to more than is taken")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// List returns the images of a project, the newest first.
func (s *Store) List(scope cofferdam.Scope) (all []Record, used map[cofferdam.Digest]time.Time) {
	used = map[cofferdam.Digest]time.Time{}
	dir := filepath.Join(s.o.Dir, string(scope.Project))
	found, _ := filepath.Glob(filepath.Join(dir, "*", "image.json")) // the pattern is well formed
	for _, path := range found {
		r, err := read(dir, cofferdam.Digest("sha256:"+filepath.Base(filepath.Dir(path))))
		if err != nil || hexOf(r.Digest) != filepath.Base(filepath.Dir(path)) {
			continue
		}
		if info, err := os.Stat(filepath.Dir(path)); err == nil {
			used[r.Digest] = info.ModTime()
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return b.Made.Compare(a.Made) })
	return all, used
}

// InUse is how long after its last use an image may not be removed: it is found
// before the box that sees its folder is made, and a box is made within a day.
const InUse = 24 * time.Hour

// Remove removes an image of a project and forgets the tags that named it.
func (s *Store) Remove(scope cofferdam.Scope, d cofferdam.Digest, now time.Time) error {
	if err := s.removable(scope, d, now); err != nil {
		return err
	}
	dir := filepath.Join(s.o.Dir, string(scope.Project))
	switch held, err := s.held(); {
	case err != nil:
		return &cofferdam.Error{
			Op: "image.Remove", Kind: cofferdam.Unavailable, Subject: "image " + string(d), Reason: "whether a box has it cannot be known now",
			Hint: cmp.Or(cofferdam.HintOf(err), "cofferdam doctor looks at the keeper"), Err: err,
		}
	case held[whose(rootOf(dir, d))]:
		return &cofferdam.Error{
			Op: "image.Remove", Kind: cofferdam.Conflict, Subject: "image " + string(d), Reason: "a box has it, or a workspace that is kept was last worked in with it",
			Hint: "cofferdam workspace list shows those that are kept; cofferdam task list, what runs and waits",
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.removable(scope, d, now); err != nil { // it may have been looked up meanwhile
		return err
	}
	return s.remove(dir, d)
}

// removable refuses to remove an image that is not there, or that was just used.
func (s *Store) removable(scope cofferdam.Scope, d cofferdam.Digest, now time.Time) error {
	all, used := s.List(scope)
	if !slices.ContainsFunc(all, func(r Record) bool { return r.Digest == d }) {
		return &cofferdam.Error{Op: "image.Remove", Kind: cofferdam.NotFound, Subject: "image " + string(d), Reason: "there is none of this digest", Hint: "cofferdam environment list"}
	}
	if now.Sub(used[d]) < InUse {
		return &cofferdam.Error{
			Op: "image.Remove", Kind: cofferdam.Conflict, Subject: "image " + string(d), Reason: "a box may use it: it was last used within a day",
			Hint: fmt.Sprintf("try again after %s", used[d].Add(InUse).UTC().Format(time.RFC3339)),
		}
	}
	return nil
}

// remove takes an image out of a project's folder. s.mu is held.
func (s *Store) remove(dir string, d cofferdam.Digest) error {
	gone := filepath.Join(dir, hexOf(d)+".building") // so that half of it is never found
	if err := errors.Join(os.Rename(filepath.Join(dir, hexOf(d)), gone), os.RemoveAll(gone)); err != nil {
		return unavailable(dir, err)
	}
	tags, _ := filepath.Glob(filepath.Join(dir, "tag-*")) // the pattern is well formed
	for _, tag := range tags {
		if text, err := os.ReadFile(tag); err == nil && cofferdam.Digest(text) == d {
			if err := os.Remove(tag); err != nil {
				return unavailable(dir, err)
			}
		}
	}
	return nil
}
