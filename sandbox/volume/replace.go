package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"
)

const opReplace = "volume.Replace"

// Replace puts another content in the place of a workspace that no box has. fill makes
// it at a path that is not there yet, an image of a size in bytes or a folder, as
// Make does, and takes about need bytes for it.
//
// What was there and what comes change places in one step of the file system, so that
// a crash at any moment leaves one or the other, each whole and with its description;
// what is left of the other goes with the next Open.
func (s *Store) Replace(ctx context.Context, id sandbox.WorkspaceID, epoch, need int64, fill func(path string, size int64) error) error {
	if !id.Valid() || epoch < 0 {
		return &cofferdam.Error{Op: opReplace, Kind: cofferdam.Invalid, Subject: fmt.Sprintf("workspace %.64q", string(id)), Reason: `not "w-" and 32 hexadecimal digits, or an epoch below zero`}
	}
	if !s.Has(id) {
		return none(id)
	}
	l, box, err := s.lock(id, "")
	if err != nil {
		return wrap(opReplace, id, err)
	}
	if l == nil {
		return held(opReplace, id, box)
	}
	if err := s.replace(ctx, id, epoch, need, fill); err != nil {
		if !s.Has(id) { // no more than a lock is left of it
			err = errors.Join(err, os.Remove(l.Name()))
		}
		return wrap(opReplace, id, errors.Join(err, l.Close()))
	}
	return l.Close()
}

func none(id sandbox.WorkspaceID) error {
	return &cofferdam.Error{
		Op: opReplace, Kind: cofferdam.NotFound, Subject: "workspace " + string(id), Reason: "there is no such workspace", Hint: "look at cofferdam workspace list",
	}
}

// replace is Replace for who has the lock.
func (s *Store) replace(ctx context.Context, id sandbox.WorkspaceID, epoch, need int64, fill func(path string, size int64) error) error {
	a, err := s.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return none(id)
	}
	if err != nil {
		return err
	}
	if epoch < a.Epoch {
		return late(opReplace, id, epoch, a.Epoch)
	}
	if err := errors.Join(s.room(need), idle(ctx, s.image(id))); err != nil {
		return err
	}
	half := s.folder(id) + ".new"
	err = errors.Join(watch.Remove(half), os.Mkdir(half, 0o700))
	if err == nil {
		err = s.prepare(ctx, half, a, epoch, fill)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, half, unix.AT_FDCWD, s.folder(id), unix.RENAME_EXCHANGE)
	}
	if err == nil {
		err = syncFile(s.dir)
	}
	if err != nil {
		return errors.Join(err, watch.Remove(half)) // half is what came, or, if it is in place but not yet on disk, what was
	}
	_ = watch.Remove(half) // of what was there; what cannot go now goes with the next Open
	return nil
}

// prepare makes all that comes in the place of a workspace, on disk.
func (s *Store) prepare(ctx context.Context, half string, a sandbox.Workspace, epoch int64, fill func(path string, size int64) error) error {
	path := filepath.Join(half, imageFile)
	if err := fill(path, a.Size); err != nil {
		return err
	}
	was, err := os.Lstat(s.image(a.ID))
	if err != nil {
		return err
	}
	is, err := os.Lstat(path)
	if err != nil {
		return err
	}
	a.Epoch, a.Left = epoch, time.Now().UTC()
	switch {
	case is.Mode().Type() != was.Mode().Type(), is.Mode().IsRegular() && is.Size() != was.Size():
		return &cofferdam.Error{
			Op: opReplace, Kind: cofferdam.Invalid, Subject: "workspace " + string(a.ID), Reason: "it has another size, or another kind of disk, than what would be put in its place",
			Hint: "start with a fresh workspace",
		}
	case is.IsDir():
		u, err := watch.Measure(ctx, path, Allowed(a.Size))
		if a.Used = u.Bytes; err != nil {
			return err
		}
		if err := flush(path); err != nil {
			return err
		}
	default:
		if err := s.sync(path); err != nil {
			return err
		}
	}
	return errors.Join(s.write(half, a), s.note(half, a))
}

// late refuses who comes with an epoch below one that was seen.
func late(op string, id sandbox.WorkspaceID, epoch, seen int64) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: "workspace " + string(id),
		Reason: fmt.Sprintf("it was asked for with epoch %d, and epoch %d has had it", epoch, seen),
		Hint:   "a later session goes on with it; this one is over",
	}
}
