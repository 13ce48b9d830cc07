package difference

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/mount"
)

var t0 = time.Unix(1, 0)

// disk is an image that is mounted.
type disk struct{ image, dir string }

// newDisk makes and mounts an image of a size in bytes; with options, as mkfs.ext4 is
// told by them.
func newDisk(t *testing.T, size int64, options ...string) disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount images")
	}
	d := disk{filepath.Join(t.TempDir(), "image"), t.TempDir()}
	if len(options) == 0 {
		must(t, mount.Make(t.Context(), d.image, size, true))
	} else {
		must(t, write(d.image, ""), os.Truncate(d.image, size))
		mkfs, err := mount.FindProgram(mount.Mkfs)
		must(t, err)
		if out, err := exec.Command(mkfs, append(append([]string{"-q", "-F"}, options...), d.image)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	must(t, mount.Image(d.image, d.dir, false))
	t.Cleanup(func() { must(t, mount.Unmount(d.dir)) })
	must(t, os.RemoveAll(d.dir+"/lost+found"))
	return d
}

// copied copies the image as it is while it is mounted, as a snapshot does.
func (d disk) copied(t *testing.T) string {
	t.Helper()
	f, err := os.Open(d.dir)
	must(t, err)
	must(t, unix.Syncfs(int(f.Fd())), f.Close())
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "--sparse=always", d.image, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// fill makes what file systems have trouble with.
func fill(dir string) error {
	many := dir + "/many"
	errs := []error{
		write(dir+"/empty", ""), write(dir+"/odd\xff\nname", "x"), write(dir+"/"+strings.Repeat("n", 255), "long"),
		os.Symlink("short", dir+"/link"), os.Symlink(strings.Repeat("l", 59), dir+"/link59"), os.Symlink(strings.Repeat("l", 60), dir+"/link60"),
		os.Symlink(strings.Repeat("t", 1000), dir+"/longlink"), unix.Mkfifo(dir+"/pipe", 0o600), os.MkdirAll(dir+"/deep/er/est", 0o700),
		write(dir+"/deep/er/est/f", "deep"), os.Link(dir+"/deep/er/est/f", dir+"/hard"), os.Mkdir(many, 0o755),
		write(dir+"/block", strings.Repeat("b", 4096)), write(dir+"/odd", strings.Repeat("o", 10_001)), unix.Chmod(dir+"/odd", 0o6711),
		write(dir+"/hole", ""), os.Truncate(dir+"/hole", 1<<33),
	}
	for i := range 1500 { // enough for an index
		errs = append(errs, write(fmt.Sprintf("%s/name-of-a-file-%d", many, i), fmt.Sprint(i)))
	}
	f, err := os.Create(dir + "/pieces") // more than an inode holds: each part is one extent
	errs = append(errs, err)
	for i := range int64(600) {
		_, err := f.WriteAt([]byte{byte(i), 1}, i*12_288)
		errs = append(errs, err)
	}
	errs = append(errs, f.Close())
	g, err := os.Create(dir + "/reserved") // that reads as zero
	if err == nil {
		err = unix.Fallocate(int(g.Fd()), 0, 0, 1<<20)
		if errors.Is(err, unix.EOPNOTSUPP) { // a file without extents has none
			err = nil
		}
		errs = append(errs, g.Truncate(1<<20))
	}
	return errors.Join(append(errs, err, g.Close())...)
}

// TestImage: an image that is in use holds, as it is read here, what its kernel shows,
// whichever way its blocks are named; and each difference is found.
func TestImage(t *testing.T) {
	for name, how := range map[string]struct {
		size    int64
		options []string
	}{
		"small":           {64 << 20, nil}, // blocks of 1 KiB
		"of some size":    {1 << 30, nil},  // of 4 KiB
		"without extents": {64 << 20, []string{"-O", "^extents,^64bit"}},
		"without journal": {64 << 20, []string{"-O", "^has_journal,^resize_inode"}},
		"of 32 bits":      {64 << 20, []string{"-O", "^64bit,^metadata_csum"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, how.size, how.options...)
			must(t, fill(d.dir))
			before := d.copied(t)
			if got := lines(of(t, before, d.dir)); len(got) != 0 {
				t.Fatalf("what is read of it is not what its kernel shows: %.2000q", got)
			}
			if got := of(t, t.TempDir(), before); got.Added < 1500 || got.Removed != 0 {
				t.Fatalf("control: it is found empty: %+v", got)
			}
			must(t,
				os.Remove(d.dir+"/block"), write(d.dir+"/odd", strings.Repeat("o", 10_000)+"p"), os.Chmod(d.dir+"/empty", 0o600),
				os.Remove(d.dir+"/longlink"), os.Symlink(strings.Repeat("t", 999)+"u", d.dir+"/longlink"),
				os.Rename(d.dir+"/many/name-of-a-file-700", d.dir+"/many/renamed"), os.RemoveAll(d.dir+"/deep"),
			)
			f, err := os.OpenFile(d.dir+"/pieces", os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte{99}, 599*12_288)
			must(t, err, f.Close())
			for i := range 100 { // blocks of names that are given up, and used for what is in files
				must(t, os.Mkdir(fmt.Sprintf("%s/deep%d", d.dir, i), 0o755))
			}
			d.copied(t)
			for i := range 100 {
				must(t, os.Remove(fmt.Sprintf("%s/deep%d", d.dir, i)))
			}
			must(t, write(d.dir+"/block2", strings.Repeat("fill", 1<<18)))
			after := d.copied(t)
			if got := lines(of(t, after, d.dir)); len(got) != 0 {
				t.Fatalf("afterwards: %.2000q", got)
			}
			var names []string
			for _, x := range of(t, before, after).List {
				names = append(names, string(x.Path))
			}
			want := "block block2 deep deep/er deep/er/est deep/er/est/f empty longlink many/name-of-a-file-700 many/renamed odd pieces"
			if got := strings.Join(names, " "); got != want {
				t.Errorf("found %s\nwant  %s", got, want)
			}
		})
	}
}

// TestBrokenImages: whatever bytes are changed, there is an answer or an error, in
// time.
func TestBrokenImages(t *testing.T) {
	d := newDisk(t, 16<<20)
	must(t, fill(d.dir))
	image := d.copied(t)
	good, err := os.ReadFile(image)
	must(t, err)
	var used []int // parts that hold something
	zero := make([]byte, 1024)
	for at := 0; at < len(good); at += len(zero) {
		if !bytes.Equal(good[at:at+len(zero)], zero) {
			used = append(used, at)
		}
	}
	path, empty := filepath.Join(t.TempDir(), "broken"), t.TempDir()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	refused := 0
	began := time.Now()
	for round := 0; round < 200 && time.Since(began) < 5*time.Second; round++ {
		p := bytes.Clone(good)
		for range 1 + r.IntN(20) {
			at := used[r.IntN(len(used))] + r.IntN(len(zero))
			if round%3 == 0 {
				at = 1024 + r.IntN(8<<10) // superblock and groups
			}
			p[at] = byte(r.Uint32())
		}
		if round%7 == 0 {
			p = p[:r.IntN(len(p))]
		}
		must(t, os.WriteFile(path, p, 0o600))
		asked := time.Now()
		if _, err := Of(t.Context(), path, empty); err != nil {
			refused++
		}
		if took := time.Since(asked); took > time.Minute {
			t.Fatalf("seed %d, round %d took %v", seed, round, took)
		}
	}
	if refused == 0 {
		t.Errorf("control: none was refused, seed %d", seed)
	}
	for name, text := range map[string]string{"nothing": "", "zeros": string(make([]byte, 1<<20)), "text": strings.Repeat("x", 1<<20)} {
		must(t, write(path, text))
		if _, err := Of(t.Context(), path, empty); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.Remove(path), os.Symlink(image, path))
	if _, err := Of(t.Context(), path, empty); err == nil {
		t.Error("a link to an image was followed")
	}
}
