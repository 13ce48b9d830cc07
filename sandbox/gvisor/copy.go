package gvisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/snapshot"
)

// syncAll writes what the file system at dir still has in memory.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// used is what the workspace takes, in bytes: its image, the folder that it is, or
// the file system.
func used(b *box) int64 {
	if w := work(b); w != nil {
		return w.Held()
	}
	if n, err := snapshot.Blocks(b.disk()); err == nil {
		return n
	}
	var f unix.Statfs_t
	if unix.Statfs(b.path("work"), &f) != nil {
		return 0
	}
	return int64(f.Blocks-f.Bfree) * f.Bsize
}
