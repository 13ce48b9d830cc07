package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// maxEarlier is how many bundles of earlier exports are kept of one workspace,
// beside the last. Source: docs/SPECIFICATION.md, "Workspaces".
const maxEarlier = 15

func hexOf(d cofferdam.Digest) string { return d.Hex() }

// newPath is where a bundle is put: one that was exported later never takes the
// place of one that holds something else.
func (k *Keeper) newPath(id sandbox.WorkspaceID, d cofferdam.Digest) string {
	return filepath.Join(k.o.Dir, fmt.Sprintf("%s-%.32s.bundle", id, hexOf(d)))
}

// bundlePath is where a bundle lies. A release that kept one of each workspace
// called it by that alone.
func (k *Keeper) bundlePath(id sandbox.WorkspaceID, d cofferdam.Digest) string {
	path := k.newPath(id, d)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if old := filepath.Join(k.o.Dir, string(id)+".bundle"); exists(old) {
			return old
		}
	}
	return path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// bundles are all that are kept of a workspace, the last one first.
func (r Record) bundles() (all []cofferdam.Bundle) {
	if r.Bundle != nil {
		all = append(all, *r.Bundle)
	}
	return append(all, r.Earlier...)
}

// keepBundles makes all the bundles of a workspace, the last one first.
func (r *Record) keepBundles(all []cofferdam.Bundle) {
	r.Bundle, r.Earlier = nil, nil
	if len(all) > 0 {
		r.Bundle, r.Earlier = &all[0], all[1:]
	}
	for d := range r.Told {
		if !r.has(d) {
			delete(r.Told, d)
		}
	}
}

func (r Record) has(d cofferdam.Digest) bool {
	for _, b := range r.bundles() {
		if b.Digest == d {
			return true
		}
	}
	return false
}

// tendBundles gives notice of bundles whose time will be over, and removes those
// that had theirs. It is on record either way.
func (k *Keeper) tendBundles(ctx context.Context, r Record, now time.Time) error {
	for _, b := range r.bundles() {
		told, had := r.Told[b.Digest]
		fields := map[string]string{"bundle": string(b.Digest), "until": b.Until.UTC().Format(time.RFC3339)}
		switch {
		case now.Before(b.Until.Add(-Notice)):
			continue
		case !had || told > k.running():
			if err := k.put(ctx, r, cofferdam.EventWorkspaceNotice, fields); err != nil {
				return err
			}
			_, err := k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
				if r.Told == nil {
					r.Told = map[cofferdam.Digest]time.Duration{}
				}
				r.Told[b.Digest] = k.running()
				return nil
			})
			if err != nil {
				return err
			}
		case !now.Before(b.Until) && k.rest(told) == 0:
			if err := k.dropBundle(ctx, r, platform(), b, "its export is too old"); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropBundle removes a bundle, on record first.
func (k *Keeper) dropBundle(ctx context.Context, r Record, by cofferdam.Principal, b cofferdam.Bundle, why string) error {
	if err := k.putBy(ctx, r, by, cofferdam.EventWorkspaceRemove, map[string]string{"bundle": string(b.Digest), "why": why}); err != nil {
		return err
	}
	path := k.newPath(r.ID, b.Digest)
	if all := r.bundles(); all[len(all)-1].Digest == b.Digest { // only the first that there was can be of an earlier release
		path = k.bundlePath(r.ID, b.Digest)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
		var rest []cofferdam.Bundle
		for _, other := range r.bundles() {
			if other.Digest != b.Digest {
				rest = append(rest, other)
			}
		}
		r.keepBundles(rest)
		return nil
	})
	return err
}

// add keeps a bundle that was made, and removes the oldest where there are more
// than are kept.
func (k *Keeper) add(ctx context.Context, r Record, b *cofferdam.Bundle, looked time.Time) (Record, error) {
	r, err := k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
		r.Looked, r.Note, r.Tried = looked, "", time.Time{} // of a later session nothing is in it
		if b == nil {
			return nil
		}
		all := []cofferdam.Bundle{*b}
		for _, other := range r.bundles() {
			if other.Digest != b.Digest {
				all = append(all, other)
			}
		}
		r.keepBundles(all)
		return nil
	})
	for err == nil && len(r.Earlier) > maxEarlier {
		last := r.Earlier[len(r.Earlier)-1]
		if err = k.dropBundle(ctx, r, platform(), last, fmt.Sprintf("%d later ones are kept", maxEarlier+1)); err == nil {
			r.Earlier = r.Earlier[:len(r.Earlier)-1]
		}
	}
	return r, err
}

// choose returns the record with the bundle as its last whose digest begins so.
func (r Record) choose(prefix string) (Record, error) {
	for _, b := range r.bundles() {
		if len(prefix) >= 8 && strings.HasPrefix(hexOf(b.Digest), prefix) {
			r.Bundle, r.Earlier = &b, nil
			return r, nil
		}
	}
	return r, &cofferdam.Error{
		Op: "workspace.find", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("bundle %.80q of %s", prefix, short(r)), Reason: "none whose digest begins so is kept",
		Hint: "give 8 digits or more of one that cofferdam workspace view " + short(r) + " shows",
	}
}
