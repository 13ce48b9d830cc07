package environment

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
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
	has := false
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err != nil || has {
			return err
		}
		if has = found([]byte(strings.TrimPrefix(name, path))); has {
			return nil
		}
		if has, err = attributesHold(name, found); err != nil || has {
			return err
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			has = found([]byte(target))
			return err
		case e.Type().IsRegular():
			has, err = fileHolds(name, found)
		}
		return err
	})
	return has, err
}

// attributesHold looks through the names and values of extended attributes.
func attributesHold(path string, found func([]byte) bool) (bool, error) {
	names := make([]byte, maxAttributes)
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "listing attributes of", Path: path, Err: err}
	}
	if found(names[:n]) {
		return true, nil
	}
	value := make([]byte, maxAttributes)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return false, &fs.PathError{Op: "reading attribute " + name + " of", Path: path, Err: err}
		}
		if found(value[:n]) {
			return true, nil
		}
	}
	return false, nil
}

func fileHolds(path string, found func([]byte) bool) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	buf := make([]byte, holdsPiece)
	for at := int64(0); ; {
		begin, err := f.Seek(at, unix.SEEK_DATA) // images are sparse
		if errors.Is(err, unix.ENXIO) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		begin = max(begin-holdsOverlap, 0)
		n, err := f.ReadAt(buf, begin)
		if found(buf[:n]) {
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
