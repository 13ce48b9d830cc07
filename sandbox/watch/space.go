package watch

import (
	"os"

	"golang.org/x/sys/unix"
)

// Space says what is left on the file system of dir, in bytes, and whether it is
// full: without a free block or without a free inode.
func Space(dir string) (free int64, full bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false, &os.PathError{Op: "looking at", Path: dir, Err: err}
	}
	free = int64(st.Bavail) * st.Bsize
	// The last of it does not count: ext4 keeps some for itself, and a
	// file that grows by whole buffers stops short of the rest.
	return free, free < 1<<20 || st.Bavail <= st.Blocks/500 || st.Ffree == 0 && st.Files > 0, nil
}

// Full says whether the file system of dir is full; one that is gone is not.
func Full(dir string) bool {
	_, full, err := Space(dir)
	return full && err == nil
}
