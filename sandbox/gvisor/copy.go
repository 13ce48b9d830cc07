package gvisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/shelf"
)

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
