package scripttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// diskSize is how large a script's own disk seems: a box's workspace and what
// the git gateway keeps free fit on it. Its file holds only what is written.
const diskSize = 8 << 30

// cmdDisk makes the state folder a disk of its own, and then full, empty again,
// read-only and writable.
func cmdDisk(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "disk make|fill|empty|read-only|writable")
	b := of(ts)
	ballast := filepath.Join(b.state, "ballast")
	switch args[0] {
	case "make":
		ts.Check(b.makeDisk())
	case "fill":
		ts.Check(fill(ballast))
	case "empty":
		ts.Check(os.Remove(ballast))
	case "read-only":
		ts.Check(unix.Mount("", b.state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	case "writable":
		ts.Check(unix.Mount("", b.state, "", unix.MS_REMOUNT, ""))
	default:
		ts.Fatalf("a disk cannot %s", args[0])
	}
}

// makeDisk puts a file system of its own at the state folder, until the end of
// the script; the loop device goes with its mount.
func (b *bench) makeDisk() error {
	image := filepath.Join(b.work, "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(image, diskSize); err != nil {
		return err
	}
	for _, c := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, b.state}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return errors.Join(err, errors.New(string(out)))
		}
	}
	b.disk = true
	return errors.Join(os.Chmod(b.state, 0o700), os.Remove(filepath.Join(b.state, "lost+found")))
}

// fill takes every block that is left, without writing to it.
func fill(ballast string) error {
	f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(0)
	for piece := int64(1 << 30); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, piece); {
		case err == nil:
			at += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}
