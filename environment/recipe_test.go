package environment

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

func TestRecipe(t *testing.T) {
	got, err := ParseRecipe([]byte(`
image = "debian"
packages = ["ripgrep", "g++", "libc6-dev"]
setup = ["a", "b"]
allow = ["preset:npm"]
maintenance = ["npm ci"]
ready = ["rg --version"]
env = { A = "1", P = "${containerEnv:PATH}:/x", Q = "${containerEnv:NONE:d}" }
max_age = "3h"
timeout = "59m"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Recipe{
		Path: RecipePath, Image: "debian", Packages: []string{"ripgrep", "g++", "libc6-dev"}, Setup: []string{"a", "b"}, Allow: []string{"preset:npm"},
		Maintenance: []Step{{Name: "maintenance 1", Shell: "npm ci"}}, Ready: []Step{{Name: "ready 1", Shell: "rg --version"}},
		Env:    map[string]string{"A": "1", "P": "${containerEnv:PATH}:/x", "Q": "${containerEnv:NONE:d}"},
		MaxAge: 3 * time.Hour, Timeout: MaxTimeout,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	t.Setenv("NONE", "of the host")
	if d := cmp.Diff([]string{"A=1", "P=/bin:/x", "Q=d"}, got.Variables([]string{"PATH=/bin"})); d != "" {
		t.Error(d)
	}
	if empty, err := ParseRecipe(nil); err != nil || empty.MaxAge != DefaultAge || empty.Timeout != DefaultTimeout {
		t.Errorf("an empty file: %+v %v", empty, err)
	}
}

// Whatever is wrong is refused with its place, and nothing is taken by halves.
func TestBadRecipes(t *testing.T) {
	for text, want := range map[string]string{
		"setup = [\"a\"]\n\nsetpu = 1\nx.y = 2":           `line 3: unknown key "setpu"; line 4: unknown key "x.y"`,
		"setup = \"a\"":                                   `line 1: key "setup": wrong type of value: text needs quotes, a number has none, a list has [ ]`,
		"env = 1":                                         `line 1: key "env": wrong type of value`,
		"setup = [\"\"]":                                  "setup 1",
		"setup = [1]":                                     "line 1",
		"image = \"/etc\"":                                "a folder of the server is for its operator to name",
		"image = \"-x\"":                                  "no image",
		"image = \"a b\"":                                 "no image",
		"packages = [\"x1\"]":                             "debian",
		"image = \"debian\"":                              "debian",
		"image = \"debian\"\npackages = [\"--x\"]":        "--x",
		"image = \"debian\"\npackages = [\"a;b\"]":        "a;b",
		"timeout = \"60m\"":                               "59m",
		"timeout = \"0s\"":                                "1s",
		"timeout = \"-1h\"":                               "1s",
		"max_age = \"721h\"":                              "720h",
		"max_age = \"soon\"":                              "soon",
		"env = { COFFERDAM_X = \"1\" }":                   "COFFERDAM_X",
		"env = { \"A=B\" = \"1\" }":                       "A=B",
		"secret = \"x\"":                                  "secret",
		"a\x00":                                           "zero byte",
		"\xff":                                            "UTF-8",
		"setup = [\"a\\u0000b\"]":                         "setup 1: it contains a zero byte",
		"ready = [\"a\\u0000b\"]":                         "ready 1: it contains a zero byte",
		strings.Repeat("#", MaxRecipe+1):                  "larger than 65536",
		"ready = [" + strings.Repeat(`"x",`, 65) + "]":    "at most 64",
		"ready = [\"" + strings.Repeat("x", 16385) + `"]`: "16384",
	} {
		_, err := ParseRecipe([]byte(text))
		if err == nil || cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), want) || cofferdam.HintOf(err) == "" {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestWhereARecipeMayBe(t *testing.T) {
	for name, want := range map[string]int{"": 3, "none": 0, "web": 1} {
		if got, err := Paths(name); err != nil || len(got) != want {
			t.Errorf("%q: %v %v", name, got, err)
		}
	}
	for _, name := range []string{"..", "../x", "a/b", ".", "-x", "a\x00", strings.Repeat("a", 64)} {
		if got, err := Paths(name); err == nil {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestDevcontainer(t *testing.T) {
	t.Setenv("HOME", "/secret/of/the/host")
	got, err := ParseDevcontainer(".devcontainer.json", []byte("\ufeff"+`// a comment
{
	"name": "x", /* another
	over two lines */
	"image": "registry.test/web:1", // "features": {}
	"postCreateCommand": ["npm", "ci", "--prefix=${containerWorkspaceFolder}",],
	"onCreateCommand": "echo \"${localEnv:HOME}\" // no comment",
	"updateContentCommand": {
		"one": "sleep 1",
		"two": ["echo", "a b"],
	},
	"containerEnv": {"H": "<${localEnv:HOME}>", "D": "${localEnv:HOME:/default}", "B": "container"},
	"remoteEnv": {"P": "${containerEnv:PATH}:${containerWorkspaceFolder}/bin", "B": "remote"},
	"customizations": {"vscode": {"extensions": [1, 2.5e3, null, true]}, "cofferdam": {"allow": ["preset:npm"], "ready": ["true"]}},
	"forwardPorts": [3000],
}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Recipe{
		Path: ".devcontainer.json", Image: "registry.test/web:1", Allow: []string{"preset:npm"}, Ready: []Step{{Name: "ready 1", Shell: "true"}},
		Maintenance: []Step{
			{Name: "onCreateCommand", Shell: `echo "" // no comment`},
			{Name: "updateContentCommand.one", Shell: "sleep 1"},
			{Name: "updateContentCommand.two", Argv: []string{"echo", "a b"}, Beside: true},
			{Name: "postCreateCommand", Argv: []string{"npm", "ci", "--prefix=/work"}},
		},
		Env:    map[string]string{"H": "<>", "D": "/default", "B": "remote", "P": "${containerEnv:PATH}:/work/bin"},
		MaxAge: DefaultAge, Timeout: DefaultTimeout, Ignored: []string{"name", "customizations.vscode", "forwardPorts"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// BR-34: what is refused is named all at once with line and reason, and apart
// from it what nobody knows.
func TestDevcontainerRefusesAllAtOnceBR34(t *testing.T) {
	_, err := ParseDevcontainer("d", []byte(`{
  "features": {"ghcr.io/x": {}},
  "mounts": [{"source": "/", "target": "/host", "type": "bind"}],
  "runArgs": ["--privileged"],
  "dockerComposeFile": "x.yml",
  "build": {"dockerfile": "D"},
  "initializeCommand": "touch /pwned",
  "imagee": "x",
  "postCreateCommand": 3,
}`))
	if err == nil {
		t.Fatal("taken")
	}
	before, after, ok := strings.Cut(err.Error(), "unknown: ")
	if !ok || !strings.Contains(after, `line 8, "imagee"`) || !strings.Contains(after, "line 9, postCreateCommand") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"line 2, features: ", "line 3, mounts: nothing of the host", "line 4, runArgs: ", "line 5, dockerComposeFile: ", "line 6, build: ", "line 7, initializeCommand: it would run on the host",
	} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is missing in %v", want, before)
		}
	}
}

func TestBadDevcontainers(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "line 1",
		"[]":                                     "object",
		"{":                                      "line 1",
		"{\n\"image\": ":                         "line 2",
		"{\"image\": \"a\" \"b\"}":               "comma",
		"{\"image\" \"a\"}":                      "colon",
		"{image: 1}":                             "quotes",
		"{} x":                                   "after the end",
		"{/* }":                                  "does not end",
		"{\"a":                                   "does not end",
		"{\"image\": \"a\", \n\"image\": \"b\"}": "line 2: key \"image\" is there twice",
		"{\"image\": \"\\x\"}":                   "text",
		"{\"image\": 01}":                        "value",
		"{\"image\": NaN}":                       "value",
		"{\"image\": {}}":                        "text is expected",
		"{\"containerEnv\": []}":                 "object",
		"{\"containerEnv\": {\"A\": null}}":      "text is expected",
		"{\"containerEnv\": {\"A=B\": \"\"}}":    "A=B",
		"{\"postCreateCommand\": [1]}":           "quotes",
		"{\"postCreateCommand\": {\"a\": {}}}":   "text or a list",
		"{\"customizations\": {\"cofferdam\": {\"x\": 1}}}": "unknown: line 1, \"customizations.cofferdam.x\"",
		"{\"image\": \"/etc\"}":                             "operator",
		strings.Repeat("[", 64):                             "deeper",
	} {
		_, err := ParseDevcontainer("d", []byte(text))
		if err == nil || cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// Whatever the bytes: read or refused with a reason, and no variable of this
// process is in what was read.
func FuzzDevcontainer(f *testing.F) {
	for _, s := range []string{"{}", "{\"image\":\"a\",}", "// x\n{/**/}", "{\"postCreateCommand\":{\"a\":[\"b\"]}}", "{\"containerEnv\":{\"A\":\"${localEnv:CANARY:x}\"}}", "\ufeff{", "{\"a\":[1,[2,{\"b\":\"\\u0000\"}]]}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		t.Setenv("CANARY", "canary-of-the-host")
		r, err := ParseDevcontainer("d", []byte(text))
		if err != nil {
			if err.Error() == "" || cofferdam.KindOf(err) != cofferdam.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		if strings.Contains(strings.Join(r.Variables(nil), " "), "canary-of-the-host") && !strings.Contains(text, "canary-of-the-host") {
			t.Error("a variable of the host got in")
		}
	})
}
