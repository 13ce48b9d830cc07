package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/internal/store"
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

// A secret of setups is for the repository that the operator means, and not for one
// that somebody gives its name in a project or an organisation of theirs.
func TestSetupSecretsAreForOneProject(t *testing.T) {
	ctx := t.Context()
	st, err := store.Open(ctx, filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	own, err := st.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	web := cofferdam.Scope{Organization: own.Organization, Project: cofferdam.ProjectID(cofferdam.NewID("p"))}
	if err := st.AddProject(ctx, cofferdam.Project{Scope: web, Name: "web", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	rival := cofferdam.Scope{Organization: "o-rival", Project: "p-rival"}
	for name, c := range map[string]struct {
		scope cofferdam.Scope
		list  []string
		want  bool
	}{
		"the server's own":                 {own, []string{"shop"}, true},
		"another name there":               {own, []string{"site"}, false},
		"the name in another project":      {web, []string{"shop"}, false},
		"another project's, named":         {web, []string{"web/shop"}, true},
		"another project's name":           {web, []string{"default/shop"}, false},
		"the name in another organisation": {rival, []string{"shop", "default/shop", "web/shop"}, false},
		"a project of that id elsewhere":   {cofferdam.Scope{Organization: "o-rival", Project: own.Project}, []string{"shop"}, false},
	} {
		if got, err := grants(ctx, st, own, c.list, cofferdam.Repo{Scope: c.scope, Name: "shop"}); err != nil || got != c.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}
