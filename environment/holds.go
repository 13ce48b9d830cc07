package environment

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// What is read at a time, and how much of it again with the next: more than the
// longest secret of a setup in its longest spelling.
const (
	holdsPiece   = 4 << 20
	holdsOverlap = 256 << 10
	// maxAttributes is what Linux gives an extended attribute, and all their names, at most.
	maxAttributes = 64 << 10
)

// Holds says whether found finds something in the result of a setup: in the
// bytes of its image, or below a folder, in names, links and attributes too. An
// image is read as it lies on the disk, so that a file that was removed again may
// count too.
func Holds(path string, found func([]byte) bool) (bool, error) {
	s := search{found: found, names: make([]byte, maxAttributes), value: make([]byte, maxAttributes)}
	has := false
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err != nil || has {
			return err
		}
		if has = found([]byte(strings.TrimPrefix(name, path))); has {
			return nil
		}
		if has, err = s.attributes(name); err != nil || has {
			return err
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			has = found([]byte(target))
			return err
		case e.Type().IsRegular():
			has, err = s.file(name)
		}
		return err
	})
	return has, tooLong(err)
}

// tooLong says of a result whose paths are longer than the kernel takes what to do. It
// can neither be looked through nor told from one that was changed.
func tooLong(err error) error {
	if !errors.Is(err, unix.ENAMETOOLONG) {
		return err
	}
	return &cofferdam.Error{
		Op: "environment.Ensure", Kind: cofferdam.Invalid, Subject: "what setup made", Reason: "it has paths of more than 4096 bytes",
		Hint: "have the setup leave folders that nest less, or have shorter names", Err: ErrTooLarge,
	}
}

// search is a search under way, with the memory that it needs.
type search struct {
	found               func([]byte) bool
	piece, names, value []byte
}

// attributes looks through the names and values of extended attributes.
func (s *search) attributes(path string) (bool, error) {
	n, err := unix.Llistxattr(path, s.names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "listing attributes of", Path: path, Err: err}
	}
	if s.found(s.names[:n]) {
		return true, nil
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(s.names[:n]), "\x00"), "\x00") {
		n, err := unix.Lgetxattr(path, name, s.value)
		if err != nil {
			return false, &fs.PathError{Op: "reading attribute " + name + " of", Path: path, Err: err}
		}
		if s.found(s.value[:n]) {
			return true, nil
		}
	}
	return false, nil
}

// file looks through the bytes of a file.
func (s *search) file(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if s.piece == nil {
		s.piece = make([]byte, holdsPiece)
	}
	for at := int64(0); ; {
		begin, err := f.Seek(at, unix.SEEK_DATA) // images are sparse
		if errors.Is(err, unix.ENXIO) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		begin = max(begin-holdsOverlap, 0)
		n, err := f.ReadAt(s.piece, begin)
		if s.found(s.piece[:n]) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		at = begin + int64(n)
	}
}
