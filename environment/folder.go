package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"
)

// Folder is the Form of a result that is a folder of files.
const Folder = "folder"

// Names in what is kept of a folder. It has a folder of its own around it, which
// is closed to all but the server, and which moves as a whole.
const (
	filesDir  = "files"
	aboutFile = "about.json"
)

// about is what is known of the files when their setup was over.
type about struct {
	Stamp string `json:"stamp"` // of their names, sizes and times; the kernel alone sets one of those
	Bytes int64  `json:"bytes"` // of disk
}

// in is where a result of this form is, in what is kept of it.
func (d Definition) in(path string) string {
	if d.Form == Folder {
		return filepath.Join(path, filesDir)
	}
	return path
}

// seal counts what a setup left and writes down how it is. What is larger than its
// definition says is refused: a folder has no size that would have held it.
func seal(ctx context.Context, half string, d Definition) error {
	files := filepath.Join(half, filesDir)
	if _, err := os.Lstat(files); err != nil {
		return err
	}
	used, err := watch.Measure(ctx, files, volume.Allowed(d.Disk))
	if err == nil && used.Exceeds(volume.Allowed(d.Disk)) || errors.Is(err, watch.ErrUncounted) {
		reason := fmt.Sprintf("it left %d MiB in %d files, and %d MiB in %d files may be", used.Bytes>>20, used.Files, d.Disk>>20, volume.Allowed(d.Disk).Files)
		if err != nil {
			reason = err.Error()
		}
		return &cofferdam.Error{
			Op: "environment.Ensure", Kind: cofferdam.Invalid, Subject: "what setup made", Reason: reason,
			Hint: "have the setup leave less, or give the task a larger limit of disk", Err: errors.Join(ErrTooLarge, err),
		}
	}
	a := about{Bytes: used.Bytes}
	if err == nil {
		a.Stamp, err = snapshot.Touched(files)
	}
	if err != nil {
		return tooLong(err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(half, aboutFile), text, 0o600)
}

// sealed returns what was written down of a folder.
func sealed(dir string) (a about, err error) {
	text, err := os.ReadFile(filepath.Join(dir, aboutFile))
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// untouched says whether the files of a folder are as their setup left them. They
// are not read for that: whoever writes to one changes a time that nobody can set.
func untouched(dir string) bool {
	a, err := sealed(dir)
	if err != nil || a.Stamp == "" {
		return false
	}
	now, err := snapshot.Touched(filepath.Join(dir, filesDir))
	return err == nil && now == a.Stamp
}

// discard takes away what is at path, if there is something. A file goes with its
// last user. A folder is moved aside, so that no box gets it any more, and is
// removed once no box has it.
func (c *Cache) discard(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return os.Remove(path)
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if err := os.Rename(path, filepath.Join(c.dir, fmt.Sprintf("%s.gone-%d", name, time.Now().UnixNano()))); err != nil {
		return err
	}
	return c.sweep()
}

// move puts something in the place of another, if there is one. A file takes its
// place at once, a folder after the other has gone.
func (c *Cache) move(from, to string) error {
	if info, err := os.Lstat(from); err == nil && info.IsDir() {
		if err := c.discard(to); err != nil {
			return err
		}
	}
	return os.Rename(from, to)
}

// sweep removes what was moved aside and no box has any more. What cannot be removed
// is in nobody's way.
func (c *Cache) sweep() error {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	gone, err := filepath.Glob(filepath.Join(c.dir, "*.gone-*"))
	if err != nil {
		return err
	}
	for _, path := range gone {
		held, err := volume.Alone(filepath.Join(path, filesDir))
		if errors.Is(err, volume.ErrHeld) {
			continue
		}
		if err == nil {
			err = held.Close() // nobody can get at it by this name
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			err = watch.Remove(path)
		}
		if err != nil {
			c.keeps(path, err)
		}
	}
	return nil
}

// keeps says once of each path that it could not be removed, and what to do. sweeping
// is held, or nobody else has the cache yet.
func (c *Cache) keeps(path string, err error) {
	if c.stuck[path] {
		return
	}
	c.stuck[path] = true
	c.log.Warn("what is left of an environment cannot be removed and takes room", slog.String("path", path), slog.Any("error", err),
		slog.String("hint", "see what keeps it (lsattr, findmnt), then remove it: rm -rf "+path))
}
