package gvisor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/quota"

	"golang.org/x/sys/unix"
)

// quotaDisks are the file systems whose project quotas are used.
var quotaDisks = []struct {
	name string
	mkfs []string
}{
	{"ext4", []string{"mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota"}},
	{"xfs", []string{"mkfs.xfs", "-q", "-f"}},
}

// quotaDisk mounts a file system with project quotas.
func quotaDisk(t *testing.T, name string, mkfs []string) (string, error) {
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "q")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(image, 512<<20); err != nil {
		return "", err
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return "", err
	}
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", mkfs[0], err, out)
	}
	loop, err := mount.AttachLoop(image, false)
	if err != nil {
		return "", err
	}
	defer loop.Close()
	if err := unix.Mount(loop.Name(), at, name, 0, "prjquota"); err != nil {
		return "", fmt.Errorf("mounting %s with prjquota: %w: the kernel has no project quotas (ext4: CONFIG_QFMT_V2, xfs: CONFIG_XFS_QUOTA)", name, err)
	}
	t.Cleanup(func() {
		if err := mount.Unmount(at); err != nil {
			t.Error(err)
		}
	})
	return at, nil
}

// onQuotaDisks runs f with TMPDIR, and so the state folder of its drivers, on
// each file system with project quotas that this kernel can mount.
func onQuotaDisks(t *testing.T, f func(t *testing.T, disk string)) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	if _, err := programs(); err != nil { // not on one of the disks
		t.Fatal(err)
	}
	var why []string
	for _, d := range quotaDisks {
		at, err := quotaDisk(t, d.name, d.mkfs)
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Setenv("TMPDIR", at)
			f(t, at)
		})
	}
	if len(why) == len(quotaDisks) {
		t.Skip("not run here: " + strings.Join(why, "; "))
	}
	for _, w := range why {
		t.Log("not run here: " + w)
	}
}

func projectOf(t *testing.T, path string) uint32 {
	t.Helper()
	id, err := quota.ProjectOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func useOf(t *testing.T, dir string, id uint32) quota.Use {
	t.Helper()
	u, err := quota.Read(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// leaveProject tries everything that would take a file out of its project, or
// what is made in a folder. It prints what worked.
const leaveProject = `cd /work && mkdir -p in && touch in/f && python3 - <<'END'
import fcntl, os, struct
def attempt(name, f):
    try: f(); print("worked:", name)
    except OSError: pass
for path in ("/work", "/work/in", "/work/in/f"):
    fd = os.open(path, os.O_RDONLY)
    for project in (0, 1):
        attempt("project of " + path, lambda: fcntl.ioctl(fd, 0x401c5820, struct.pack("5I8x", 0, 0, 0, project, 0)))
    attempt("flags of " + path, lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("Q", 0)))
for to in ("/tmp/l", "/home/agent/l", "/usr/l", "/run/l"):
    attempt("link to " + to, lambda: os.link("/work/in/f", to))
    attempt("rename to " + to, lambda: os.rename("/work/in", to))
attempt("link from the image", lambda: os.link("/usr/bin/env", "/work/l"))
END
chattr -p 0 -P /work/in >/dev/null 2>&1 && echo worked: chattr; true`

// TestProjectQuota is a workspace bounded by project quota: it is full at its
// size and at its number of files, nothing inside can leave it, and its limits
// are gone with it.
func TestProjectQuota(t *testing.T) {
	onQuotaDisks(t, func(t *testing.T, disk string) {
		d := newDriver(t)
		b, other := newBox(t, d), newBox(t, d)
		s, err := b.Status(context.Background())
		if err != nil || !slices.Contains(s.Flags, sandbox.WorkspaceQuota) || slices.Contains(s.Flags, sandbox.WorkspaceImage) {
			t.Errorf("flags %q, %v", s.Flags, err)
		}
		work := filepath.Join(d.boxDir(b.ID()), "work")
		id := projectOf(t, work)
		if id>>24 != quota.Base>>24 || id == projectOf(t, filepath.Join(d.boxDir(other.ID()), "work")) {
			t.Errorf("project %#x is not its own", id)
		}
		if out, _ := sh(t, b, "df -k --output=size,itotal /work | tail -n 1 | tr -s ' '"); strings.TrimSpace(out) != "65536 16384" {
			t.Errorf("size seen inside: %q", out)
		}
		if out, _ := sh(t, b, leaveProject); out != "" {
			t.Errorf("an agent may %s", out)
		}
		for _, c := range []struct {
			name, text string
			want       []sandbox.Exhaustion
		}{
			{"blocks", "head -c 100M /dev/zero > /work/in/big; find /work -mindepth 1 -size +1M -exec du -m {} +", []sandbox.Exhaustion{sandbox.ExhaustedDisk}},
			{"freed", "rm /work/in/big", nil},
			{"nothing", "true", []sandbox.Exhaustion{}},
			{"removed but open", "exec 5>/work/o && rm /work/o && head -c 100M /dev/zero >&5", []sandbox.Exhaustion{sandbox.ExhaustedDisk}},
			{"files", "python3 -c 'import os\nfor i in range(60000):\n  try: os.mknod(\"/work/%d\" % i)\n  except OSError as e: print(i, e); break'", []sandbox.Exhaustion{sandbox.ExhaustedDisk}},
		} {
			out, r := shAndKill(t, b, c.text)
			if c.want != nil && !slices.Equal(r.Exhausted, c.want) && len(r.Exhausted)+len(c.want) > 0 {
				t.Errorf("%s: exhausted %q, want %q: %.200s", c.name, r.Exhausted, c.want, out)
			}
			if l := useOf(t, disk, id); l.Bytes > 64<<20 || l.Inodes > 16384 {
				t.Errorf("%s: it holds %d bytes in %d files", c.name, l.Bytes, l.Inodes)
			}
		}
		if out, r := sh(t, other, "head -c 30M /dev/zero > /work/a && echo ok"); out != "ok" || len(r.Exhausted) > 0 {
			t.Errorf("the other box is bounded too: %q, %q", out, r.Exhausted)
		}
		err = filepath.WalkDir(work, func(path string, e fs.DirEntry, err error) error {
			if err == nil && (e.IsDir() || e.Type().IsRegular()) && projectOf(t, path) != id {
				t.Errorf("%s left the project", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
		if l := useOf(t, disk, id); l.MaxBytes != 0 || l.MaxInodes != 0 {
			t.Errorf("limits are left: %+v", l)
		}
	})
}

// TestProjectIDs are never shared, not with what an earlier process left, and
// limits without a file are removed at the start.
func TestProjectIDs(t *testing.T) {
	onQuotaDisks(t, func(t *testing.T, disk string) {
		const size = 16 << 20
		folder := func(name string) string {
			dir := filepath.Join(disk, name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			return dir
		}
		begin := func(q *quota.Projects, dir string) uint32 {
			id, err := q.Begin(dir, size, 100)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := quota.New([]byte{1, 2})
		kept, gone := begin(first, folder("kept")), begin(first, folder("gone"))
		if err := os.Remove(filepath.Join(disk, "gone")); err != nil {
			t.Fatal(err)
		}
		unix.Sync() // xfs removes files when it has time
		second := quota.New([]byte{1, 2})
		if err := second.EndLeftovers(disk); err != nil {
			t.Fatal(err)
		}
		if l := useOf(t, disk, kept); l.MaxBytes != size {
			t.Errorf("limits of a folder that is there are gone: %+v", l)
		}
		if l := useOf(t, disk, gone); l.MaxBytes != 0 {
			t.Errorf("limits are left: %+v", l)
		}
		if next := begin(second, folder("next")); next == kept {
			t.Error("the project of another folder was taken")
		}
		if other := begin(quota.New([]byte{1, 4}), folder("other")); other>>9 == kept>>9 {
			t.Error("two state folders have the same ids")
		}
	})
}

// TestSizedByImage is the other way: the state folder is on a file system
// without project quotas.
func TestSizedByImage(t *testing.T) {
	if quota.Enforced(os.TempDir()) {
		t.Skip("the folder for temporary files has project quotas")
	}
	d := newDriver(t)
	b := newBox(t, d)
	s, err := b.Status(context.Background())
	if err != nil || !slices.Contains(s.Flags, sandbox.WorkspaceImage) || slices.Contains(s.Flags, sandbox.WorkspaceQuota) {
		t.Errorf("flags %q, %v", s.Flags, err)
	}
	if out, _ := sh(t, b, leaveProject); out != "" {
		t.Errorf("an agent may %s", out)
	}
	if out, _ := sh(t, b, "df --output=itotal /work | tail -n 1 | tr -d ' '"); out != "16384" {
		t.Errorf("files that fit: %s", out)
	}
}
