package environment

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What is read at a time, and how much of it again with the next: more than the
// longest secret of a setup in its longest spelling.
const (
	holdsPiece   = 4 << 20
	holdsOverlap = 256 << 10
)

// Holds says whether found finds something in the result of a setup: in the
// bytes of its image, or below a folder. An image is read as it lies on the disk,
// so that a file that was removed again may count too.
func Holds(path string, found func([]byte) bool) (bool, error) {
	has := false
	err := filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || has {
			return err
		}
		has, err = fileHolds(path, found)
		return err
	})
	return has, err
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
