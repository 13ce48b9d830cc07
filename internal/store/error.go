package store

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"cofferdam"
)

func notFound(op, subject string) error {
	e := &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: subject, Reason: "there is none"}
	switch noun, _, _ := strings.Cut(subject, " "); noun {
	case "task", "session", "model":
		e.Hint = "cofferdam " + noun + " list shows what there is"
	case "repository":
		e.Hint = "cofferdam repo list shows what there is"
	}
	return e
}

func conflict(op, subject, reason string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: subject, Reason: reason}
}

// broken turns what SQLite and the system say into errors for people. Errors
// that are ours already pass unchanged.
func broken(op, path string, err error) error {
	var ours *cofferdam.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	e := &cofferdam.Error{Op: op, Kind: cofferdam.Internal, Subject: "database " + path, Err: err}
	var lite *sqlite.Error
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Reason, e.Hint = cofferdam.Unavailable, "its folder is read-only", "give the server a state folder it may write to"
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Reason, e.Hint = cofferdam.Unavailable, "its folder does not exist", "make the folder, or give another state folder"
	case errors.Is(err, syscall.ENOSPC):
		full(e)
	case errors.As(err, &lite):
		fromSQLite(e, lite)
	}
	return e
}

func full(e *cofferdam.Error) {
	e.Kind, e.Reason, e.Hint = cofferdam.Unavailable, "the disk is full; nothing was changed", "free space on the disk of the state folder"
}

func fromSQLite(e *cofferdam.Error, err *sqlite.Error) {
	switch err.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		full(e)
	case sqlite3.SQLITE_IOERR: // SQLite reports a full disk so when it cannot grow its shared memory
		full(e)
		if space(strings.TrimPrefix(e.Subject, "database ")) {
			e.Reason, e.Hint = "reading or writing its file went wrong", "see the system's log about the disk"
		}
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		e.Kind, e.Reason, e.Hint = cofferdam.Unavailable, "its folder is read-only", "give the server a state folder it may write to"
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		e.Reason, e.Hint = "the file is damaged", "put a copy of it from before back, or move it away to begin anew"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		e.Kind, e.Reason, e.Hint = cofferdam.Unavailable, "another program holds it", "end the other program that uses the state folder"
	case sqlite3.SQLITE_CONSTRAINT:
		e.Kind, e.Subject, e.Reason = cofferdam.Conflict, "store", reasonOf(err)
	}
}

// reasonOf returns the text that a trigger raised, without SQLite's frame.
func reasonOf(err *sqlite.Error) string {
	s := strings.TrimPrefix(err.Error(), "constraint failed: ")
	if i := strings.LastIndex(s, " ("); i > 0 {
		s = s[:i]
	}
	return s
}

// space says whether the disk of path has room for a few pages.
func space(path string) bool {
	var st syscall.Statfs_t
	if syscall.Statfs(path, &st) != nil {
		return true
	}
	return st.Bavail*uint64(st.Bsize) > uint64(16*os.Getpagesize())
}
