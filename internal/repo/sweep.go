package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cofferdam"
)

// LookPrefix begins the id of a mirror that is made for one look at an
// upstream. What a crash left of those is removed by Open.
const LookPrefix = "r-look-"

// staleLock is the age at which a lock file of git has no owner any more: no
// git process of ours lives longer than longWork.
const staleLock = longWork + time.Minute

// sweep removes what a crash can leave beside the mirrors.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".git.new") || strings.HasPrefix(e.Name(), LookPrefix) || strings.HasPrefix(e.Name(), bundlePrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// unlock removes the lock files in the mirror of id that are older than age,
// and with age 0, when no git process runs, what a killed one left of its
// quarantine. The folder is a hostile one: nothing in it is followed.
func (r *Repos) unlock(id cofferdam.RepoID, age time.Duration) error {
	root, err := os.OpenRoot(r.path(id))
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // git was faster
		}
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if age == 0 && filepath.Dir(path) == "objects" && (strings.HasPrefix(name, "tmp_objdir-") || strings.HasPrefix(name, "incoming-")) {
				if err := root.RemoveAll(path); err != nil {
					return err
				}
				return fs.SkipDir
			}
			return nil
		}
		lock := strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_")
		if !lock {
			return nil
		}
		if info, err := d.Info(); err != nil || time.Since(info.ModTime()) < age {
			return nil // gone, or in use
		}
		if err := root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// unlocking does something with git and, if a lock that has no owner any more
// is in its way, removes that and does it again.
func (r *Repos) unlocking(id cofferdam.RepoID, do func() error) error {
	err := do()
	x := (*ExitError)(nil)
	if !errors.As(err, &x) || !strings.Contains(x.Stderr, ".lock': File exists") {
		return err
	}
	if uerr := r.unlock(id, staleLock); uerr != nil {
		return errors.Join(err, fmt.Errorf("remove stale locks: %w", uerr))
	}
	return do()
}
