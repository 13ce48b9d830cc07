package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A folder is one writer's or many readers', whatever it is called meanwhile; a
// link is none, and what was moved away is not held by its old path.
func TestShare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, dir+".link"), os.WriteFile(dir+".file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	one, err := Share(dir)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Share(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Alone(dir); !errors.Is(err, ErrHeld) {
		t.Errorf("alone beside two: %v", err)
	}
	moved := dir + ".moved"
	if err := errors.Join(one.Close(), os.Rename(dir, moved), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Alone(moved); !errors.Is(err, ErrHeld) {
		t.Errorf("alone beside one, by another name: %v", err)
	}
	other, err := Alone(dir) // a folder of its own
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Share(dir); !errors.Is(err, ErrHeld) {
		t.Errorf("shared with one that has it alone: %v", err)
	}
	if err := errors.Join(two.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, moved} {
		f, err := Alone(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{dir + ".link", dir + ".file", dir + ".none"} {
		if _, err := Share(path); err == nil || errors.Is(err, ErrHeld) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
