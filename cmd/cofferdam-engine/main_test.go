package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/server/common/headers"
)

// TestSettingsRefused hands over what is no settings line: the program ends with
// a usage error and touches nothing.
func TestSettingsRefused(t *testing.T) {
	for name, in := range map[string]string{
		"nothing":  "",
		"no line":  `{"dir":"/nowhere"}`,
		"no JSON":  "hello\n",
		"too long": `{"dir":"` + strings.Repeat("x", maxSettings) + "\"}\n",
	} {
		if code, err := run(strings.NewReader(in), io.Discard); code != exitUsage || err == nil {
			t.Errorf("%s: exit %d, %v; want %d", name, code, err, exitUsage)
		}
	}
	if code, err := run(strings.NewReader(`{"dir":"relative"}`+"\n"), io.Discard); code != 1 || err == nil {
		t.Errorf("relative folder: exit %d, %v; want 1", code, err)
	}
	if _, err := os.Stat("relative"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a relative folder was made")
	}
}

func TestFolderIsTakenOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	first, err := takeDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeDir(dir); !errors.Is(err, errTaken) {
		t.Fatalf("a second engine: %v, want %v", err, errTaken)
	}
	first.Close()
	again, err := takeDir(dir)
	if err != nil {
		t.Fatalf("after the first is gone: %v", err)
	}
	again.Close()
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Fatalf("the folder's mode is %v, %v; want 0700", st.Mode(), err)
	}
}

// TestDatabaseIsMadeWhole asks for a fresh file in a folder full of leftovers:
// one is made, found again, and nothing old or half-made stays.
func TestDatabaseIsMadeWhole(t *testing.T) {
	s := Settings{Dir: t.TempDir(), Namespace: "test", Fresh: true}
	leftovers := []string{"temporal-0.1.db", "temporal-0.1.db-wal", "temporal-9.9.9.db.new"}
	broken := "temporal-" + headers.ServerVersion + ".db"
	for _, f := range append(leftovers, broken) {
		if err := os.WriteFile(filepath.Join(s.Dir, f), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := database(s)
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.Stat(cfg.DatabaseName)
	if err != nil || made.Mode().Perm() != 0o600 || made.Size() < 4096 || filepath.Base(cfg.DatabaseName) != broken {
		t.Fatalf("the file: %v, %v; want mode 0600 and content", made, err)
	}
	for _, f := range leftovers {
		if _, err := os.Stat(filepath.Join(s.Dir, f)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", f)
		}
	}
	s.Fresh = false
	if _, err := database(s); err != nil {
		t.Fatalf("opening it again: %v", err)
	}
	if again, _ := os.Stat(cfg.DatabaseName); !os.SameFile(made, again) {
		t.Fatal("opening it again made another file")
	}
}
