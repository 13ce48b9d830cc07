package mount

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"
)

// TestImageIsBounded: an image has its size, its owner and its restrictions, is
// seen to be full, and is gone after Unmount, with its device.
func TestImageIsBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not run here: needs root to mount")
	}
	const size = 64 << 20 // of less, what ext4 keeps for its own lists while it writes is more than a full one may have
	for name, journal := range map[string]bool{"without a journal": false, "with a journal": true} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir, image := filepath.Join(parent, "a b\t\\"), filepath.Join(parent, "image")
			if err := errors.Join(os.Mkdir(dir, 0o700), Make(t.Context(), image, size, journal)); err != nil {
				t.Fatal(err)
			}
			if err := Make(t.Context(), image, size, journal); err == nil {
				t.Error("it was made twice")
			}
			if err := Image(image, dir, false); err != nil {
				t.Skipf("not run here: %v", err)
			}
			t.Cleanup(func() {
				if err := Unmount(dir); err != nil {
					t.Error(err)
				}
			})
			var st unix.Stat_t
			var fs unix.Statfs_t
			if err := errors.Join(unix.Stat(dir, &st), unix.Statfs(dir, &fs)); err != nil || st.Uid != sandbox.UserID || st.Gid != sandbox.UserID {
				t.Errorf("owner %d:%d, %v", st.Uid, st.Gid, err)
			}
			if fs.Flags&(unix.ST_NOSUID|unix.ST_NODEV) != unix.ST_NOSUID|unix.ST_NODEV {
				t.Errorf("flags %x", fs.Flags)
			}
			if found, err := Under(parent); err != nil || !slices.Equal(found, []string{dir}) {
				t.Errorf("mounted: %q, %v", found, err)
			}
			if watch.Full(dir) {
				t.Error("an empty one is full")
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 2*size), 0o600); !errors.Is(err, unix.ENOSPC) || !watch.Full(dir) {
				t.Errorf("twice its size: %v, full %v", err, watch.Full(dir))
			}
			if err := errors.Join(Unmount(dir), Unmount(dir), Unmount(dir+"/none")); err != nil {
				t.Error(err)
			}
			if found, err := Under(parent); err != nil || len(found) > 0 || watch.Full(dir+"/none") {
				t.Errorf("still mounted: %q, %v", found, err)
			}
		})
	}
}

// TestRoom: a workspace that could never be full is refused with what is there.
func TestRoom(t *testing.T) {
	if err := Room("op", t.TempDir(), 1<<20); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	err := Room("op", t.TempDir(), 1<<60)
	if cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(err.Error(), "it may grow to 1099511627776 MiB") || !strings.Contains(cofferdam.HintOf(err), "smaller limit") {
		t.Errorf("an exbibyte on disk: %v (%s)", err, cofferdam.HintOf(err))
	}
	if err := Sized("op", t.TempDir(), 1<<60); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(cofferdam.HintOf(err), "as root") {
		t.Errorf("an exbibyte in memory: %v (%s)", err, cofferdam.HintOf(err))
	}
}
