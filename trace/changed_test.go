package trace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"cofferdam"
	"cofferdam/proof"
)

// changes are what somebody with the files at hand may do to a log.
func changes() map[string]func(p []byte) []byte {
	lines := func(p []byte) [][]byte { return bytes.SplitAfter(p, []byte("\n")) }
	return map[string]func(p []byte) []byte{
		"last record": func(p []byte) []byte { l := lines(p); return bytes.Join(l[:len(l)-2], nil) },
		"last 10":     func(p []byte) []byte { l := lines(p); return bytes.Join(l[:max(0, len(l)-11)], nil) },
		"first":       func(p []byte) []byte { return bytes.Join(lines(p)[1:], nil) },
		"middle":      func(p []byte) []byte { l := lines(p); return bytes.Join(append(l[:4:4], l[5:]...), nil) },
		"all":         func([]byte) []byte { return nil },
		"one letter":  func(p []byte) []byte { return bytes.Replace(p, []byte("p-1"), []byte("p-2"), 1) },
	}
}

func changeFile(t *testing.T, path string, change func(p []byte) []byte) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(p), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestChangedOnDisk is TRC-01 on the files themselves: whoever cuts or replaces
// a log is found out when it is opened or exported.
func TestChangedOnDisk(t *testing.T) {
	key := testKey(t)
	for name, change := range changes() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, key)
			story(t, s, "s-1")
			changeFile(t, filepath.Join(dir, "sessions", "s-1.jsonl"), change)
			if _, err := s.Session(testScope, "s-1"); cofferdam.KindOf(err) != cofferdam.Tampered {
				t.Errorf("open: %v, want tampered", err)
			}
			var b bytes.Buffer
			err := s.Export(context.Background(), &b, []cofferdam.SessionID{"s-1"}, "t-1", nil)
			if err == nil {
				_, err = proof.Verify(&b, key.Public())
			}
			if cofferdam.KindOf(err) != cofferdam.Tampered {
				t.Errorf("export and verify: %v, want tampered", err)
			}
		})
	}
	t.Run("valid empty chain", func(t *testing.T) {
		dir := t.TempDir()
		s := openStore(t, dir, key)
		story(t, s, "s-1")
		remove(t, filepath.Join(dir, "sessions", "s-1.jsonl"))
		remove(t, filepath.Join(dir, "sessions", "s-1.seal"))
		seal(t, openSession(t, s, "s-1")) // the program itself signs the new one
		_, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public())
		if cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("verify: %v, want tampered", err)
		}
	})
}

// TestHostChangedOnDisk: a host's log that does not hold what was signed last is
// not gone on with.
func TestHostChangedOnDisk(t *testing.T) {
	key := testKey(t)
	for name, change := range changes() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, key)
			for i := range 4 {
				story(t, s, cofferdam.SessionID(fmt.Sprint("s-", i)))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			changeFile(t, filepath.Join(dir, "host.jsonl"), change)
			if _, err := Open(dir, key, nil); cofferdam.KindOf(err) != cofferdam.Tampered {
				t.Errorf("Open = %v, want tampered", err)
			}
		})
	}
	t.Run("other key", func(t *testing.T) {
		dir := t.TempDir()
		s := openStore(t, dir, key)
		story(t, s, "s-1")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, testKey(t), nil); cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("Open = %v, want tampered", err)
		}
	})
}

func TestOpenKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "trace")
	first, err := OpenKey(path, "cofferdam/test")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("key file: %v, %v", info, err)
	}
	if err := os.WriteFile(path+".pub", []byte("of another"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := OpenKey(path, "other/name")
	if err != nil || again.Public() != first.Public() {
		t.Errorf("opened again: %s, %v, want %s", again, err, first)
	}
	if p, err := os.ReadFile(path + ".pub"); err != nil || string(p) != first.Public()+"\n" {
		t.Errorf("public key file: %q, %v", p, err)
	}
	if _, err := OpenKey(filepath.Join(t.TempDir(), "k"), "a name"); err == nil {
		t.Error("a name with a space was taken")
	}
	for want, harm := range map[cofferdam.Kind]func() error{
		cofferdam.Unavailable: func() error { return os.Chmod(path, 0o640) },
		cofferdam.Invalid:     func() error { return os.WriteFile(path, []byte("PRIVATE+KEY+x"), 0o600) },
	} {
		p, _ := os.ReadFile(path)
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKey(path, "x"); cofferdam.KindOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
		os.Remove(path)
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
