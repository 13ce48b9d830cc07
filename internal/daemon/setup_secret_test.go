package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cofferdam"
	"cofferdam/internal/config"
)

// A secret of setups comes from a file that nobody else can read, or not at all,
// and the refusal holds neither its path nor what is in it. The control, which is
// granted, is attacks/CRD-setup.
func TestSetupSecretsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "a-good-value", 0o600)
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	shop := []string{"shop"}
	s := &server{Config: config.Config{Environments: config.Environments{Secrets: map[string]config.SetupSecret{
		"GONE": {File: filepath.Join(dir, "gone"), Repos: shop}, "LINK": {File: link, Repos: shop}, "PIPE": {File: pipe, Repos: shop}, "FOLDER": {File: dir, Repos: shop},
		"OPEN": {File: file("open", "a-good-value", 0o644), Repos: shop}, "GROUP": {File: file("group", "a-good-value", 0o640), Repos: shop},
		"EMPTY": {File: file("empty", "", 0o600), Repos: shop}, "SHORT": {File: file("short", "1234567\n", 0o600), Repos: shop},
		"LONG": {File: file("long", strings.Repeat("x", maxSetupSecret+1), 0o600), Repos: shop}, "ZERO": {File: file("zero", "a-good\x00value", 0o600), Repos: shop},
		"OTHERS": {File: good, Repos: []string{"other"}},
	}}}}
	for name := range s.Environments.Secrets {
		_, err := s.rawSecret(t.Context(), cofferdam.Repo{Name: "shop"}, name)
		if cofferdam.KindOf(err) != cofferdam.Forbidden || cofferdam.HintOf(err) == "" || strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "value") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.rawSecret(t.Context(), cofferdam.Repo{Name: "shop"}, "NONE"); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("one that nobody named: %v", err)
	}
}
