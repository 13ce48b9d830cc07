package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
)

const added = `name = "mine"
title = "My agent"
version = "1"
providers = ["openai"]
argv = ["{{.EnvDir}}/bin/mine", "-"]
stdin = "{{.Prompt}}"
reader = "codex-json"
`

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAddingAnAgentIsAddingAFile(t *testing.T) {
	own := strings.Replace(added, `"mine"`, `"command"`, 1)
	s, err := Read(folder(t, map[string]string{"mine.toml": added, "command.toml": own, "README": "not one"}))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := s.Load("mine"); err != nil || a.Title != "My agent" {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := s.Load("command"); err != nil || a.Version != "1" {
		t.Errorf("one of the folder does not take the place of its namesake: %+v %v", a, err)
	}
	if a, err := s.Load("claude"); err != nil || a.Name != "claude" {
		t.Errorf("%+v %v", a, err)
	}
	if names := s.Names(); !slices.IsSorted(names) || len(names) != len((Set{}).Names())+1 || !slices.Contains(names, "mine") {
		t.Errorf("%v", names)
	}
	if _, err := (Set{}).Load("mine"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestBadAdaptersNameFileAndLine(t *testing.T) {
	change := func(old, text string) string { return strings.Replace(added, old, text, 1) }
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":     {added + "colour = 1\n", "line 8: colour"},
		"no TOML":         {"name = \n", "line 1"},
		"wrong type":      {change(`["openai"]`, `7`), "line 4"},
		"no name":         {change(`"mine"`, `""`), "line 1: name"},
		"bad name":        {change(`"mine"`, `"Mine/../x"`), "line 1: name"},
		"other name":      {change(`"mine"`, `"yours"`), "line 1: it holds"},
		"no title":        {change(`"My agent"`, `""`), "line 2: title"},
		"bad version":     {change(`"1"`, `"1; rm"`), "line 3: version"},
		"bad provider":    {change(`"openai"`, `"telepathy"`), "line 4: providers"},
		"both":            {added + "shell = \"true\"\n", "argv: it needs one of argv and shell"},
		"unknown reader":  {change(`"codex-json"`, `"tea leaves"`), "line 7: reader"},
		"bad template":    {change(`{{.Prompt}}`, `{{.Nothing}}`), "Nothing"},
		"broken template": {change(`{{.Prompt}}`, `{{`), "mine.toml"},
		"bad variable":    {added + `env = ["no value"]`, "env"},
		"bad allow":       {added + `allow = ["https://x/"]`, "line 8: allow"},
		"brain with argv": {added + "brain = true\n", "line 8: brain"},
		"resume by lines": {change(`"codex-json"`, `"lines"`) + `resume = ["x"]`, "line 8: resume"},
		"file outside":    {added + "[[file]]\npath = \"/etc/passwd\"\ntext = \"\"\n", "line 9: path"},
		"file above":      {added + "[[file]]\npath = \"~/../x\"\ntext = \"\"\n", "line 9: path"},
		"empty contact":   {added + "[[contact]]\nhost = \"x\"\n", "line 8: contact"},
		"many entries":    {added + "setup = [" + strings.Repeat(`"true",`, maxEntries+1) + "]\n", "line 8: setup"},
		"too large":       {added + "#" + strings.Repeat("x", maxAdapterFile), "larger than"},
	} {
		dir := folder(t, map[string]string{"mine.toml": c.text})
		_, err := Read(dir)
		if cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), filepath.Join(dir, "mine.toml")) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
}

func TestFoldersThatAreNone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "x.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range maxAdapters + 1 {
		name := "a" + strings.Repeat("x", i%8) + string(rune('a'+i/8))
		many[name+".toml"] = strings.Replace(added, "mine", name, 1)
	}
	for name, dir := range map[string]string{"missing": dir + "/none", "a folder in place of a file": dir, "too many": folder(t, many)} {
		if _, err := Read(dir); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
