package mount

import (
	"fmt"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"

	"golang.org/x/sys/unix"
)

// Room refuses a workspace of a size in bytes that the disk of dir has no room for:
// it would be out of space long before it is full.
func Room(op, dir string, size int64) error {
	free, _, err := watch.Space(dir)
	if err != nil || free >= size {
		return err
	}
	return tooLarge(op, size, free, "on the disk of the state folder", "free space there, or give a smaller limit of disk")
}

func tooLarge(op string, size, free int64, where, hint string) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Exhausted, Subject: "workspace", Hint: hint,
		Reason: fmt.Sprintf("it may grow to %d MiB, and %d MiB are free %s", size>>20, free>>20, where),
	}
}

// Sized mounts at dir a workspace in memory of a size in bytes and as many files
// as an image has: an ordinary user can mount nothing else of a size.
func Sized(op, dir string, size int64) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	if free := watch.Kilobytes(text, "MemAvailable"); free < size {
		return tooLarge(op, size, free, "in memory, where an ordinary user's workspaces are", "give a smaller limit of disk, or run the keeper as root")
	}
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d,uid=%d,gid=%d", size, size/BytesPerInode(size), sandbox.UserID, sandbox.UserID)
	if err := unix.Mount("cofferdam", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: "workspace with a size", Reason: err.Error(), Err: err,
			Hint: "the kernel must let users mount tmpfs in their namespaces (Linux 5.4 or later)",
		}
	}
	return nil
}
