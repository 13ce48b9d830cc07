package gvisor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/shelf"
)

// freeze makes the file system at dir write all it has and change nothing until
// the returned function is called.
func freeze(dir string) (thaw func() error, err error) {
	const fiFreeze, fiThaw = 0xC0045877, 0xC0045878 // linux/fs.h
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if _, err := unix.IoctlRetInt(int(f.Fd()), fiFreeze); err != nil {
		return nil, errors.Join(fmt.Errorf("freezing workspace: %w", err), f.Close())
	}
	return func() error {
		_, err := unix.IoctlRetInt(int(f.Fd()), fiThaw)
		return errors.Join(err, f.Close())
	}, nil
}

// syncAll writes what the file system at dir still has in memory.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// usedBytes is what a workspace takes: its image, or the folder that it is.
func usedBytes(image, folder string) int64 {
	if n, err := shelf.Blocks(image); err == nil {
		return n
	}
	var f unix.Statfs_t
	if unix.Statfs(folder, &f) != nil {
		return 0
	}
	return int64(f.Blocks-f.Bfree) * f.Bsize
}
