package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// folder is one of the image. All that is done in it by a plain name costs the
// same, however deep it is.
type folder struct {
	asked string   // its path as a layer has it
	name  string   // what that leads to, below the root
	root  *os.Root // nil: there is none
}

// in returns the folder that an entry is in. What is missing of it is made, as
// part of the entry, unless that only takes something away.
func (t *tree) in(dir string, h *tar.Header, make bool) (folder, error) {
	if t.last.root != nil && t.last.asked == dir {
		return t.last, nil
	}
	w := walk{roots: []*os.Root{t.root}}
	defer w.close()
	if err := w.to(dir); err != nil {
		return folder{}, err
	}
	f := folder{asked: dir, name: path.Join(slices.Concat(w.names, w.missing)...)}
	if top, _, _ := strings.Cut(f.name, "/"); within(top) || len(w.missing) > 0 && !make {
		return f, nil
	}
	if n := len(w.missing); n > 0 {
		if err := t.count(n, h); err != nil {
			return f, err
		}
	}
	for _, part := range w.missing {
		if err := w.top().Mkdir(part, 0o755); err != nil {
			return f, err
		}
		if err := w.enter(part); err != nil {
			return f, err
		}
	}
	t.leave()
	f.root = w.take(t.root)
	t.last = f
	return f, nil
}

// leave closes the folder of the last entry. It has to be done whenever its path
// could come to lead elsewhere: when anything but a plain file was taken away.
func (t *tree) leave() {
	if t.last.root != nil && t.last.root != t.root {
		t.last.root.Close() // it was only looked through
	}
	t.last = folder{}
}

// walk follows a path and its links as a box would, with the image as its root:
// absolute links begin there, and .. ends there. Each folder on the way is open,
// so that a path costs no more than its length.
type walk struct {
	roots   []*os.Root // the first is the image
	names   []string   // of all but the first
	missing []string   // what of the path is not there
}

func (w *walk) top() *os.Root { return w.roots[len(w.roots)-1] }

func (w *walk) enter(part string) error {
	next, err := w.top().OpenRoot(part)
	if err != nil {
		return err
	}
	w.roots, w.names = append(w.roots, next), append(w.names, part)
	return nil
}

func (w *walk) up() {
	switch n := len(w.names); {
	case len(w.missing) > 0:
		w.missing = w.missing[:len(w.missing)-1]
	case n > 0:
		w.top().Close() // it was only looked through
		w.roots, w.names = w.roots[:n], w.names[:n-1]
	}
}

func (w *walk) close() {
	for len(w.names) > 0 {
		w.missing = nil
		w.up()
	}
}

// take returns the folder that was reached; it is the caller's to close, unless
// it is the image itself.
func (w *walk) take(image *os.Root) *os.Root {
	n := len(w.names)
	if n == 0 {
		return image
	}
	reached := w.top()
	w.roots, w.names = w.roots[:n], w.names[:n-1]
	return reached
}

// to follows a path.
func (w *walk) to(dir string) error {
	rest, links := strings.Split(dir, "/"), 0
	for steps := 1; len(rest) > 0; steps++ {
		if steps > maxSteps || len(w.names)+len(w.missing) > maxDepth {
			return fmt.Errorf("more than %d folders in its path, or %d with those of links", maxDepth, maxSteps)
		}
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			w.up()
			continue
		case len(w.missing) > 0:
			w.missing = append(w.missing, part)
			continue
		}
		info, err := w.top().Lstat(part)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			w.missing = append(w.missing, part)
			continue
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink == 0:
			if err := w.enter(part); err != nil {
				return err
			}
			continue
		}
		if links++; links > maxLinks {
			return fmt.Errorf("more than %d links in its path", maxLinks)
		}
		target, err := w.top().Readlink(part)
		if err != nil {
			return err
		}
		if path.IsAbs(target) {
			w.close()
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return nil
}
