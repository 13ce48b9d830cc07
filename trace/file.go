package trace

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// file is the part of *os.File that a log appends through; tests put faults
// behind it.
type file interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// dataFile is an *os.File whose Sync leaves out metadata that no reader needs.
type dataFile struct{ *os.File }

// quickFile is an *os.File that is not synced: what was written survives the
// end of this process, and no loss of power.
type quickFile struct{ *os.File }

// Sync does nothing.
func (quickFile) Sync() error { return nil }

// openLog opens path for appending and locks it for this process; fresh says
// that it was made just now.
func openLog(path string) (f *os.File, fresh bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, unavailable("open trace "+filepath.Base(path), err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, false, &cofferdam.Error{
			Op: "trace.Open", Kind: cofferdam.Conflict, Subject: "open trace " + filepath.Base(path),
			Reason: "another process has it open", Hint: "stop the other server on this state folder", Err: err,
		}
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, false, unavailable("open trace "+filepath.Base(path), err)
	}
	return f, info.Size() == 0, nil
}

// writeFile puts data at path so that after a crash there is the old file or
// the whole new one: write and sync another name, rename, sync the folder.
func writeFile(path string, data []byte) error {
	if err := replace(path, data, (*os.File).Sync); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// replace writes another name, syncs it by sync, and renames it.
func replace(path string, data []byte, sync func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, werr := f.Write(data)
	err = errors.Join(werr, sync(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// put is writeFile, as far as s is synced at all.
func (s *Store) put(path string, data []byte) error {
	if s.brief {
		return replace(path, data, func(*os.File) error { return nil })
	}
	return writeFile(path, data)
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// unavailable says for people why the record cannot be kept.
func unavailable(subject string, err error) *cofferdam.Error {
	e := &cofferdam.Error{Op: "trace.Record", Kind: cofferdam.Unavailable, Subject: subject, Err: err}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		e.Kind = cofferdam.Exhausted
		e.Reason, e.Hint = "the disk that holds the trace is full", "free space there; recording goes on by itself"
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Reason, e.Hint = "the folder that holds the trace cannot be written", "mount it writable, or give it to the server's user"
	default:
		e.Reason, e.Hint = "the disk that holds the trace gave an error: "+err.Error(), "look into the kernel's log, and at the disk"
	}
	return e
}
