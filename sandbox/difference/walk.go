package difference

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"cofferdam/sandbox"
)

// walk goes through both sides at the same time, in order of the paths, so that it
// has two folders in memory for each level and nothing else.
type walk struct {
	ctx     context.Context
	was, is side
	found   sandbox.Differences
	bytes   int   // of the paths in found
	seen    int64 // entries of both sides
	buffers [2][chunk]byte
}

// chunk is how much of two files is compared at once.
const chunk = 64 << 10

// folders compares what is in two folders; nil for one that is not there.
func (w *walk) folders(path string, a, b *entry, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: folders nest more than %d deep", ErrTooMuch, MaxDepth)
	}
	left, err := w.list(w.was, a)
	if err != nil {
		return err
	}
	right, err := w.list(w.is, b)
	if err != nil {
		return err
	}
	for len(left) > 0 || len(right) > 0 {
		var x, y *entry
		switch {
		case len(right) == 0 || len(left) > 0 && left[0].name < right[0].name:
			x, left = &left[0], left[1:]
		case len(left) == 0 || right[0].name < left[0].name:
			y, right = &right[0], right[1:]
		default:
			x, left, y, right = &left[0], left[1:], &right[0], right[1:]
		}
		if err := w.pair(path, x, y, depth); err != nil {
			return err
		}
	}
	return nil
}

// list returns what is in a folder; nothing if there is none.
func (w *walk) list(s side, dir *entry) ([]entry, error) {
	if dir == nil || dir.Kind != sandbox.KindFolder {
		return nil, w.ctx.Err()
	}
	all, err := s.list(w.ctx, *dir)
	if w.seen += int64(len(all)); err == nil && w.seen > 2*MaxEntries {
		err = fmt.Errorf("%w: it has more than %d files", ErrTooMuch, MaxEntries)
	}
	return all, err
}

// pair compares what both sides have under one path, and all below it.
func (w *walk) pair(dir string, a, b *entry, depth int) error {
	name := cmp.Or(a, b).name
	path := name
	if dir != "" {
		path = dir + "/" + name
	}
	same, err := w.same(a, b)
	if err != nil {
		return fmt.Errorf("comparing %.200q: %w", path, err)
	}
	if !same {
		w.note(path, a, b)
	}
	if a != nil && a.Kind == sandbox.KindFolder || b != nil && b.Kind == sandbox.KindFolder {
		return w.folders(path, a, b, depth+1)
	}
	return nil
}

// note adds a difference to those that were found.
func (w *walk) note(path string, a, b *entry) {
	d := sandbox.Difference{Path: []byte(path)}
	switch {
	case a == nil:
		w.found.Added++
	case b == nil:
		w.found.Removed++
	default:
		w.found.Changed++
	}
	if len(w.found.List) >= sandbox.MaxDifferences || w.bytes+len(path) > sandbox.MaxPathBytes {
		w.found.More++
		return
	}
	if a != nil {
		d.Was = &a.Found
	}
	if b != nil {
		d.Is = &b.Found
	}
	w.bytes += len(path)
	w.found.List = append(w.found.List, d)
}

// same says whether both are alike: kind, mode, and what is in a file or where a link
// leads.
func (w *walk) same(a, b *entry) (bool, error) {
	if a == nil || b == nil || a.Found != b.Found {
		return false, nil
	}
	switch a.Kind {
	case sandbox.KindLink:
		x, err := w.was.target(*a)
		if err != nil {
			return false, err
		}
		y, err := w.is.target(*b)
		return x == y, err
	case sandbox.KindFile:
		return w.sameFiles(*a, *b)
	}
	return true, nil
}

// sameFiles compares two files of one size. Holes are not read: a file of 16 TiB that
// holds nothing costs nothing.
func (w *walk) sameFiles(a, b entry) (same bool, err error) {
	x, err := w.was.open(a)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	y, err := w.is.open(b)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	for off := int64(0); off < a.Size; {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		from, to, err := either(x, y, off, a.Size)
		if err != nil || from >= a.Size {
			return err == nil, err
		}
		for off = from; off < to; {
			n := min(int64(chunk), to-off)
			p, q := w.buffers[0][:n], w.buffers[1][:n]
			if err := errors.Join(readFull(x, p, off), readFull(y, q, off), w.ctx.Err()); err != nil {
				return false, err
			}
			if !bytes.Equal(p, q) {
				return false, nil
			}
			off += n
		}
	}
	return true, nil
}

// either returns the first part at or after off that one of two files of a size holds.
func either(x, y content, off, size int64) (from, to int64, err error) {
	from, to, err = x.next(off)
	if err != nil {
		return 0, 0, err
	}
	other, end, err := y.next(off)
	if err != nil {
		return 0, 0, err
	}
	if other < from || other == from && end > to {
		from, to = other, end
	}
	return from, min(to, size), nil
}

// readFull reads all of p, which ends within the file; what is shorter than it was
// said to be ends in zeros.
func readFull(c content, p []byte, off int64) error {
	n, err := c.ReadAt(p, off)
	if n == len(p) || errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	return err
}
