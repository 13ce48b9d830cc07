// Package difference compares two workspaces that are at rest: folders, or images of
// an ext4 file system, which it reads itself.
//
// It mounts nothing, starts nothing and follows no link: what is in a workspace was
// written by an agent, and an image perhaps by a kernel of its own. The invariant:
// whatever the bytes are, Of ends with an answer or an error, in memory that the
// bounds below hold.
//
// An image was copied while a kernel used it and had just written all of it: what its
// journal holds is in its place as well, and is not read. Features of ext4 that
// mkfs.ext4 does not switch on for workspaces are refused.
package difference

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"cofferdam/sandbox"
)

// Bounds of one side of a comparison. Source: docs/SPECIFICATION.md, "Checkpoints".
const (
	// MaxEntries is how many files and folders it may have.
	MaxEntries = 1 << 20
	// MaxDepth is how deep its folders may nest.
	MaxDepth = 1000
	// MaxTime is how long it may take: a file of an image can be made of one block
	// billions of times.
	MaxTime = 5 * time.Minute
)

// entry is one name in a folder.
type entry struct {
	name string
	sandbox.Found
	at any // of its side
}

// side is one of the two workspaces.
type side interface {
	// root is the folder of everything.
	root() (entry, error)
	// list returns what is in a folder, in order of the names.
	list(ctx context.Context, dir entry) ([]entry, error)
	// target is where a link leads.
	target(e entry) (string, error)
	// open returns what is in a file.
	open(e entry) (content, error)
	close() error
}

// content is what is in a file: parts that hold something, and holes.
type content interface {
	// next returns the first part that holds something at or after off, and where
	// it ends; off at or beyond the end of the file if there is none.
	next(off int64) (from, to int64, err error)
	// ReadAt reads holes as zero.
	ReadAt(p []byte, off int64) (int, error)
	Close() error
}

// Of compares the workspaces at two paths. What differs is told from the first one's
// view: added is what only the second has.
func Of(ctx context.Context, from, to string) (d sandbox.Differences, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, MaxTime, fmt.Errorf("%w: it takes more than %v", ErrTooMuch, MaxTime))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	was, err := open(from)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, was.close()) }()
	is, err := open(to)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, is.close()) }()
	w := walk{ctx: ctx, was: was, is: is}
	a, err := was.root()
	if err != nil {
		return d, err
	}
	b, err := is.root()
	if err != nil {
		return d, err
	}
	err = w.folders("", &a, &b, 0)
	return w.found, err
}

// open opens a folder or an image.
func open(path string) (side, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return folder(path), nil
	case info.Mode().IsRegular():
		return openImage(path)
	}
	return nil, &fs.PathError{Op: "reading workspace", Path: path, Err: errors.New("it is neither a folder nor an image")}
}

var (
	// ErrBroken is of an image that is no whole file system.
	ErrBroken = errors.New("the file system of the workspace is broken")
	// ErrTooMuch is of a workspace beyond the bounds.
	ErrTooMuch = errors.New("the workspace is too large to be compared")
)

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}
