package environment

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Holds finds what it looks for wherever it lies in a file: between two pieces,
// behind a hole, at the end, below a folder; and nothing where it is not.
func TestHolds(t *testing.T) {
	secret := []byte("a-secret-of-the-setup")
	found := func(p []byte) bool { return bytes.Contains(p, secret) }
	for name, at := range map[string]int64{
		"begin": 0, "between two pieces": holdsPiece - 10, "between the next": 2*holdsPiece - holdsOverlap - 5, "behind a hole": 64 << 20, "end": 100<<20 - int64(len(secret)),
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "below", "x.img")
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(100 << 20); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte("x"), 3*holdsPiece), 0); err != nil {
			t.Fatal(err)
		}
		if has, err := Holds(path, found); has || err != nil {
			t.Errorf("%s: the control has it: %v", name, err)
		}
		if _, err := f.WriteAt(secret, at); err != nil {
			t.Fatal(err)
		}
		f.Close()
		for _, p := range []string{path, dir} {
			if has, err := Holds(p, found); !has || err != nil {
				t.Errorf("%s in %s: %v %v", name, p, has, err)
			}
		}
	}
	for name, hide := range map[string]func(dir string) error{
		"a name":       func(dir string) error { return os.WriteFile(filepath.Join(dir, string(secret)), nil, 0o600) },
		"a folder":     func(dir string) error { return os.Mkdir(filepath.Join(dir, "x-"+string(secret)), 0o700) },
		"a link":       func(dir string) error { return os.Symlink("/"+string(secret), filepath.Join(dir, "link")) },
		"a pipe":       func(dir string) error { return unix.Mkfifo(filepath.Join(dir, string(secret)), 0o600) },
		"an attribute": func(dir string) error { return unix.Setxattr(dir, "user.x", secret, 0) },
		"a name of an attribute": func(dir string) error {
			file := filepath.Join(dir, "file")
			return errors.Join(os.WriteFile(file, nil, 0o600), unix.Setxattr(file, "user."+string(secret), nil, 0))
		},
	} {
		dir := filepath.Join(t.TempDir(), "folder")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if has, err := Holds(dir, found); has || err != nil {
			t.Errorf("%s: the control has it: %v", name, err)
		}
		if err := hide(dir); errors.Is(err, unix.ENOTSUP) {
			t.Logf("%s: not run here: %v", name, err)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if has, err := Holds(dir, found); !has || err != nil {
			t.Errorf("%s: %v %v", name, has, err)
		}
	}
	if _, err := Holds(filepath.Join(t.TempDir(), "gone"), found); err == nil {
		t.Error("what is not there holds nothing")
	}
}
