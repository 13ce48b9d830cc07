package environment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"cofferdam"
)

// maxGone bounds the entries that are kept of images which are no more, so that
// a miss can say why.
const maxGone = 256

// Entry is what the cache knows of one environment.
type Entry struct {
	Digest     cofferdam.Digest `json:"digest"`
	Name       string           `json:"name"`
	Definition Definition       `json:"definition"`
	Created    time.Time        `json:"created"`
	Why        string           `json:"why"`             // it was made
	Gone       string           `json:"gone,omitempty"`  // why it was removed; "" if it is there
	Before     time.Time        `json:"before,omitzero"` // when the one was made whose place it took, if that is kept
	Kept       time.Time        `json:"kept,omitzero"`   // since then its age counts, if not since Created
	Used       time.Time        `json:"-"`               // last
	Size       int64            `json:"-"`               // bytes on disk
}

func (c *Cache) path(d cofferdam.Digest, suffix string) string {
	return filepath.Join(c.dir, d.Hex()+suffix)
}

func digestOf(path string) cofferdam.Digest {
	name := filepath.Base(path)
	return cofferdam.Digest("sha256:" + strings.TrimSuffix(name, filepath.Ext(name)))
}

// look says whether the image of a definition may be used, and why.
func (c *Cache) look(w Want, d cofferdam.Digest, now time.Time) (hit bool, why string, err error) {
	oldest := w.MaxAge
	if oldest <= 0 {
		oldest = MaxAge
	}
	e, known := c.read(d)
	info, err := os.Stat(c.path(d, ".img"))
	switch {
	case err == nil && !known: // of a version that kept no entries
		e = Entry{Digest: d, Name: w.Name, Definition: w.Definition, Created: info.ModTime()}
		if err := c.write(e); err != nil {
			return false, "", err
		}
	case errors.Is(err, fs.ErrNotExist):
		return false, c.missed(w, e, known), nil
	case err != nil:
		return false, "", unavailable(c.dir, err)
	}
	if age := now.Sub(later(e.Created, e.Kept)); age > oldest {
		return false, fmt.Sprintf("the one there was is older than %s", oldest), nil
	}
	if w.Form == Folder && !untouched(c.path(d, ".img")) {
		return false, "the one there was is not as its setup left it", c.drop(d, "it was not as its setup left it")
	}
	// The image itself stays as it is: boxes that were made ahead of it are good
	// for as long as nobody touches it.
	if err := os.Chtimes(c.path(d, ".json"), now, now); err != nil {
		return false, "", unavailable(c.dir, err)
	}
	return true, "made " + e.Created.UTC().Format(time.RFC3339), nil
}

// missed says why there is no image of a definition.
func (c *Cache) missed(w Want, e Entry, known bool) string {
	if known {
		return "the one there was is gone: " + cmp.Or(e.Gone, "its file is missing")
	}
	var last Entry
	for _, e := range c.entries() {
		if e.Name == w.Name && e.Definition.Scope == w.Scope && e.Created.After(last.Created) {
			last = e
		}
	}
	if last.Digest == "" {
		return "the first for " + w.Name
	}
	return "changed since the last: " + strings.Join(differences(last.Definition, w.Definition), ", ")
}

// differences names the inputs that are not the same.
func differences(a, b Definition) (names []string) {
	for _, d := range []struct {
		name string
		same bool
	}{
		{"image", a.Image == b.Image},
		{"what the image holds", a.Image != b.Image || a.ImageDigest == b.ImageDigest},
		{"setup", slices.Equal(a.Setup, b.Setup)},
		{"allow", slices.Equal(a.Allow, b.Allow)},
		{"env", slices.Equal(a.Env, b.Env)},
		{"disk", a.Disk == b.Disk},
		{"secrets", slices.Equal(a.Secrets, b.Secrets)},
		{"form", a.Form == b.Form},
	} {
		if !d.same {
			names = append(names, d.name)
		}
	}
	return names
}

// read returns what is known of an environment. An entry that cannot be read is
// none: it only says why, and the image is found by its name.
func (c *Cache) read(d cofferdam.Digest) (e Entry, ok bool) {
	text, err := os.ReadFile(c.path(d, ".json"))
	if err != nil || json.Unmarshal(text, &e) != nil || e.Digest != d {
		return Entry{}, false
	}
	return e, true
}

func (c *Cache) write(e Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return unavailable(c.dir, err)
	}
	half := c.path(e.Digest, ".building.json")
	if err = os.WriteFile(half, text, 0o600); err == nil {
		err = os.Rename(half, c.path(e.Digest, ".json"))
	}
	if err != nil {
		_ = os.Remove(half) // it may not have been made
		return unavailable(c.dir, err)
	}
	return nil
}

// entries returns all that is known, also of what is gone, oldest first.
func (c *Cache) entries() (all []Entry) {
	names, _ := filepath.Glob(filepath.Join(c.dir, "*.json")) // the pattern is well formed
	for _, name := range names {
		if e, ok := c.read(digestOf(name)); ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Created.Compare(b.Created) })
	return all
}

// List returns the environments of a project that are there, or that could be
// rolled back to, newest first.
func (c *Cache) List(scope cofferdam.Scope) []Entry {
	var all []Entry
	for _, e := range c.entries() {
		if e.Definition.Scope != scope {
			continue
		}
		there := false
		for _, suffix := range []string{".img", ".before"} {
			info, err := os.Stat(c.path(e.Digest, suffix))
			if err != nil {
				continue
			}
			there = true
			e.Used = c.used(e.Digest)
			if e.Definition.Form == Folder {
				a, _ := sealed(c.path(e.Digest, suffix)) // 0 of one that will not be used
				e.Size += a.Bytes
			} else if st, ok := info.Sys().(*syscall.Stat_t); ok {
				e.Size += st.Blocks * 512 // images are sparse
			}
		}
		if there {
			all = append(all, e)
		}
	}
	slices.Reverse(all)
	return all
}

// used returns when an environment was used last: the time of its entry's file.
func (c *Cache) used(d cofferdam.Digest) time.Time {
	info, err := os.Stat(c.path(d, ".json"))
	if err != nil { // of a version that kept no entries
		if info, err = os.Stat(c.path(d, ".img")); err != nil {
			return time.Time{}
		}
	}
	return info.ModTime()
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// forget removes an image, with the one before it, and keeps why. A box that uses
// it keeps it until it ends.
func (c *Cache) forget(d cofferdam.Digest, why string) error {
	if err := c.discard(c.path(d, ".before")); err != nil {
		return err
	}
	return c.drop(d, why)
}

// drop removes an image and keeps why, and the one before it.
func (c *Cache) drop(d cofferdam.Digest, why string) error {
	if err := c.discard(c.path(d, ".img")); err != nil {
		return err
	}
	if e, ok := c.read(d); ok {
		e.Gone = why
		if _, err := os.Stat(c.path(d, ".before")); err != nil {
			e.Before = time.Time{}
		}
		if err := c.write(e); err != nil {
			return err
		}
	}
	gone := slices.DeleteFunc(c.entries(), func(e Entry) bool { return e.Gone == "" || !e.Before.IsZero() })
	for _, e := range gone[:max(0, len(gone)-maxGone)] {
		if err := os.Remove(c.path(e.Digest, ".json")); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes an environment of a project, so that the next task that wants
// it makes it anew; NotFound if it is not there. why is what the miss will say.
func (c *Cache) Remove(scope cofferdam.Scope, d cofferdam.Digest, why string) error {
	for _, e := range c.List(scope) {
		if e.Digest == d {
			if err := c.forget(d, why); err != nil {
				return unavailable(c.dir, err)
			}
			return nil
		}
	}
	return &cofferdam.Error{Op: "environment.Remove", Kind: cofferdam.NotFound, Subject: "environment " + string(d), Reason: "there is none of this digest", Hint: "cofferdam environment list"}
}

// Prune removes what is older than oldest, then what was unused for longest
// until at most size bytes are left. 0 bounds nothing. It returns what it removed.
func (c *Cache) Prune(scope cofferdam.Scope, oldest time.Duration, size int64, now time.Time) ([]Entry, error) {
	all := c.List(scope)
	slices.SortFunc(all, func(a, b Entry) int { return b.Used.Compare(a.Used) }) // the last used first
	var removed []Entry
	left := int64(0)
	for _, e := range all {
		why := ""
		switch {
		case oldest > 0 && now.Sub(e.Created) > oldest:
			why = fmt.Sprintf("it was older than %s", oldest)
		case size > 0 && left+e.Size > size:
			why = fmt.Sprintf("all together were larger than %d bytes", size)
		default:
			left += e.Size
			continue
		}
		if err := c.forget(e.Digest, why); err != nil {
			return removed, unavailable(c.dir, err)
		}
		removed = append(removed, e)
	}
	return removed, nil
}
