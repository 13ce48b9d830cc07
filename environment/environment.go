// Package environment keeps what boxes start from: for each definition (image,
// setup commands, what they could reach) a file-system image with the result of
// the setup phase, made once and then found by its digest. Where boxes are an
// ordinary user's, who can mount none, it is a folder.
//
// It never runs a command itself: whoever calls Ensure does, in a box of its
// own. The invariant: a path that Ensure returns holds the whole result of a
// setup that succeeded, and it never changes again. A setup that failed or was
// cut leaves nothing behind.
//
// On disk, below the folder given to Open, HEX is the digest of a definition:
//
//	HEX.img        the result: an image; or a folder with the files and how they were
//	HEX.before     the one that it took the place of
//	HEX.json       what is known of it, also when it is gone
//	HEX.building   half made; the next Open removes it
//	HEX.gone-N     a folder that a box still had when it was removed
package environment

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox/watch"
)

// MaxImages bounds the images of all projects together. One of Claude Code
// takes about 300 MB of disk, so a full cache takes some 10 GB, and as much again
// if each has one before it; see Rollback.
const MaxImages = 32

// idle is how long an image must have been unused before it is removed to make
// room: longer than a box takes from finding its image to having it mounted.
const idle = time.Hour

// Definition says what an environment is made from. All of it is in the digest.
type Definition struct {
	cofferdam.Scope                  // nothing of one project's cache is used by another
	Image           string           `json:"image"`
	ImageDigest     cofferdam.Digest `json:"image_digest"`      // of what the image is now
	Setup           []string         `json:"setup"`             // shell commands, in order
	Allow           []string         `json:"allow"`             // what the setup phase may reach
	Env             []string         `json:"env"`               // of the setup commands
	Disk            int64            `json:"disk"`              // bytes the result may have
	Secrets         []string         `json:"secrets,omitempty"` // names of what setup is given and the result does not hold
	Form            string           `json:"form,omitempty"`    // Folder; "" is an image
}

// Digest names the definition.
func (d Definition) Digest() cofferdam.Digest {
	text, err := json.Marshal(d)
	if err != nil {
		panic("encoding a definition: " + err.Error()) // cannot happen: it holds strings and numbers
	}
	return cofferdam.DigestOfSum(sha256.Sum256(text))
}

// Cache is a folder of images. Safe for concurrent use; one process at a time.
type Cache struct {
	dir string
	log *slog.Logger

	sweeping sync.Mutex      // held while what was moved aside is removed
	stuck    map[string]bool // what could not be, and is on the log; guarded by sweeping

	mu       sync.Mutex
	building map[cofferdam.Digest]chan struct{} // guarded by mu; closed when the build ends
}

// ErrTooLarge is of a result that is larger than its definition says.
var ErrTooLarge = errors.New("more than the limit of disk")

// ErrFull is of a setup during which the disk of the cache got full.
var ErrFull = errors.New("the disk is full")

// Open returns the cache in dir, less what an earlier process left half made. What
// cannot be removed is said to log, which may be nil, with what to do.
func Open(dir string, log *slog.Logger) (*Cache, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unavailable(dir, err)
	}
	half, err := filepath.Glob(filepath.Join(dir, "*.building*"))
	if err != nil {
		return nil, unavailable(dir, err)
	}
	c := &Cache{dir: dir, log: log, stuck: map[string]bool{}, building: map[cofferdam.Digest]chan struct{}{}}
	for _, path := range half { // a box of an earlier server may still write to a folder
		if err := c.discard(path); err != nil {
			c.keeps(path, err)
		}
	}
	if err := c.sweep(); err != nil {
		return nil, unavailable(dir, err)
	}
	return c, nil
}

func unavailable(dir string, err error) error {
	return &cofferdam.Error{
		Op: "environment.Open", Kind: cofferdam.Unavailable, Subject: "environments in " + dir,
		Hint: "free disk space, and make the folder writable", Err: err,
	}
}

// Found is an environment that is ready.
type Found struct {
	Path   string // of the image or folder; "" if there is no setup
	Digest cofferdam.Digest
	Hit    bool   // it was there already
	Why    string // it was there or not, for people
}

// String says for people whether it was there.
func (f Found) String() string {
	switch {
	case f.Path == "":
		return f.Why
	case f.Hit:
		return "hit: " + f.Why
	}
	return "miss: " + f.Why
}

// Want is a definition and how it may be found.
type Want struct {
	Definition
	Name   string        // of what it is for, such as repository and agent; a change is one against the last of that name
	MaxAge time.Duration // an older one is made anew; 0: MaxAge
}

// Ensure returns the environment for w, and has it made by build if it is not
// there: build is given the path where the image has to be when it returns nil.
// One build at a time is under way for a definition; whoever asks meanwhile
// waits for it. An error of build is returned as it is, unless the disk got full.
func (c *Cache) Ensure(ctx context.Context, w Want, build func(ctx context.Context, path string) error) (Found, error) {
	f := Found{Digest: w.Digest(), Why: "there is nothing to set up"}
	if len(w.Setup) == 0 {
		return f, nil
	}
	release, err := c.turn(ctx, f.Digest)
	if err != nil {
		return f, err
	}
	defer release()
	f.Path = w.in(c.path(f.Digest, ".img"))
	now := time.Now()
	if f.Hit, f.Why, err = c.look(w, f.Digest, now); err != nil || f.Hit {
		return f, err
	}
	if err := c.makeRoom(now); err != nil {
		return f, unavailable(c.dir, err)
	}
	before, err := c.make(ctx, w.Definition, build)
	if err != nil {
		return f, err
	}
	return f, c.write(Entry{Digest: f.Digest, Name: w.Name, Definition: w.Definition, Created: now, Why: f.Why, Before: before})
}

// make builds beside the final path and moves the result there when it is whole. An
// error of build is one of the disk if that is full by then.
// It returns when the one was made whose place it took, if there was one.
func (c *Cache) make(ctx context.Context, w Definition, build func(context.Context, string) error) (before time.Time, err error) {
	d := w.Digest()
	half := c.path(d, ".building")
	if err := c.discard(half); err != nil {
		return before, unavailable(c.dir, err)
	}
	if w.Form == Folder {
		if err := os.Mkdir(half, 0o700); err != nil {
			return before, unavailable(c.dir, err)
		}
	}
	err = build(ctx, w.in(half))
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		before, err = c.settle(ctx, w, d, half)
		if known := (*cofferdam.Error)(nil); err != nil && !errors.As(err, &known) {
			err = unavailable(c.dir, err)
		}
	}
	if err == nil {
		return before, nil
	}
	if ctx.Err() == nil && watch.Full(c.dir) { // whatever else it says: that is why
		err = full(c.dir, err)
	}
	return before, errors.Join(err, c.discard(half))
}

// full is of a setup during which the disk got full. It is none of its own: the same
// may pass when there is room.
func full(dir string, err error) error {
	return &cofferdam.Error{
		Op: "environment.Ensure", Kind: cofferdam.Unavailable, Subject: "setup, whose result is kept in " + dir,
		Reason: "the disk of that folder is full; it ended with: " + err.Error(),
		Hint:   "free disk space there (cofferdam environment prune removes what nobody uses), then try again", Err: ErrFull,
	}
}

// settle moves what was built into its place.
func (c *Cache) settle(ctx context.Context, w Definition, d cofferdam.Digest, half string) (before time.Time, err error) {
	if w.Form == Folder {
		if err := seal(ctx, half, w); err != nil {
			return before, err
		}
	}
	if err := c.sweep(); err != nil { // boxes have ended meanwhile
		return before, err
	}
	if before, err = c.keep(d); err != nil {
		return before, err
	}
	return before, c.move(half, c.path(d, ".img"))
}

// turn waits until nobody builds that definition, and takes the turn.
func (c *Cache) turn(ctx context.Context, d cofferdam.Digest) (release func(), err error) {
	for {
		c.mu.Lock()
		busy, ok := c.building[d]
		if !ok {
			done := make(chan struct{})
			c.building[d] = done
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.building, d)
				c.mu.Unlock()
				close(done)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// makeRoom removes the images that were unused for longest, so that one more
// fits. An image in a box's use stays readable until that box ends; see discard.
func (c *Cache) makeRoom(now time.Time) error {
	if err := c.sweep(); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(c.dir, "*.img"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, path := range images {
		used[path] = c.used(digestOf(path))
	}
	slices.SortFunc(images, func(a, b string) int { return used[a].Compare(used[b]) })
	left := len(images)
	for _, path := range images {
		if left < MaxImages || now.Sub(used[path]) <= idle {
			break
		}
		if err := c.forget(digestOf(path), "room was needed"); err != nil {
			c.sweeping.Lock()
			c.keeps(path, err)
			c.sweeping.Unlock()
			continue
		}
		left--
	}
	if left >= MaxImages {
		return fmt.Errorf("there are %d, all in use within the last hour or not to be removed; the limit is %d", left, MaxImages)
	}
	return nil
}
