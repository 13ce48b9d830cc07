package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func none(string) string { return "" }

func env1(name, value string) func(string) string {
	return func(n string) string {
		if n == name {
			return value
		}
		return ""
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "c.toml", "state = \"/from/file\"\nlisten = \"127.0.0.1:1\"\nagent-timeout = \"5m\"\n", 0o600)
	c, err := Load(map[string]string{"config": file, "listen": "127.0.0.1:3"}, env1("COFFERDAM_LISTEN", "127.0.0.1:2"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.Sources["listen"] != "flag" {
		t.Errorf("listen %q from %s", c.Listen, c.Sources["listen"])
	}
	if c.State != "/from/file" || c.Sources["state"] != "file" || c.AgentTimeout.String() != "5m0s" {
		t.Errorf("state %q from %s, timeout %s", c.State, c.Sources["state"], c.AgentTimeout)
	}
	if c.Socket != "/from/file/run/cofferdam.sock" || c.Keeper != "/from/file/run/keeper.sock" || c.TokenFile != "/from/file/token" {
		t.Errorf("sockets do not follow the state folder: %q %q %q", c.Socket, c.Keeper, c.TokenFile)
	}
	c, err = Load(map[string]string{"config": file}, env1("COFFERDAM_LISTEN", "127.0.0.1:2"))
	if err != nil || c.Listen != "127.0.0.1:2" || c.Sources["listen"] != "environment" {
		t.Errorf("listen %q from %s: %v", c.Listen, c.Sources["listen"], err)
	}
	c, err = Load(map[string]string{}, env1("COFFERDAM_CONFIG", write(t, "e.toml", "", 0o600)))
	if err != nil || c.State != DefaultState || c.Socket != DefaultSocket || c.Keeper != DefaultKeeper || c.Listen != DefaultListen || c.Tier != "gvisor" {
		t.Errorf("defaults: %+v %v", c, err)
	}
	c, err = Load(map[string]string{"config": write(t, "t.toml", "tier = \"microvm\"\n", 0o600)}, env1("COFFERDAM_TIER", "process"))
	if err != nil || c.Tier != "process" || c.Sources["tier"] != "environment" {
		t.Errorf("tier %q from %s: %v", c.Tier, c.Sources["tier"], err)
	}
	for text, want := range map[string][2]string{
		"": {"15m0s", "8h0m0s"}, `idle-timeout = "5m"`: {"5m0s", "8h0m0s"}, `max-lifetime = "2h"`: {"15m0s", "2h0m0s"}, `max-lifetime = "10m"`: {"10m0s", "10m0s"},
		"idle-timeout = \"2h\"\nmax-lifetime = \"336h\"": {"2h0m0s", "336h0m0s"}, `idle-timeout = "59s"`: {}, `idle-timeout = "9h"`: {}, `max-lifetime = "59s"`: {},
		`max-lifetime = "337h"`: {}, "idle-timeout = \"11m\"\nmax-lifetime = \"10m\"": {},
	} {
		c, err := Load(map[string]string{"config": write(t, "r.toml", text+"\n", 0o600)}, none)
		if want[0] == "" {
			wantInvalid(t, text, err)
		} else if err != nil || c.IdleTimeout.String() != want[0] || c.MaxLifetime.String() != want[1] {
			t.Errorf("%s: %s, %s: %v", text, c.IdleTimeout, c.MaxLifetime, err)
		}
	}
	for text, want := range map[string]int{
		"": 8, "parallel = 1": 1, "parallel = 128": 128, `parallel = "3"`: 3, "parallel = 0": 0, "parallel = -1": 0, "parallel = 129": 0, "parallel = 1.5": 0,
		"parallel = true": 0, `parallel = ""`: 0, `parallel = "many"`: 0, "parallel = [2]": 0,
	} {
		c, err := Load(map[string]string{"config": write(t, "p.toml", text+"\n", 0o600)}, none)
		if want == 0 {
			wantInvalid(t, text, err)
		} else if err != nil || c.Parallel != want {
			t.Errorf("%s: %d: %v", text, c.Parallel, err)
		}
	}
	for text, want := range map[string][2]int{
		"": {}, "project-parallel = 1\ntasks-per-hour = 1": {1, 1}, "project-parallel = 128\ntasks-per-hour = 10000": {128, 10_000},
		"project-parallel = 0": {-1}, "project-parallel = 129": {-1}, "tasks-per-hour = 0": {-1}, "tasks-per-hour = 10001": {-1}, `tasks-per-hour = "many"`: {-1}, "tasks-per-hour = 1.5": {-1},
	} {
		c, err := Load(map[string]string{"config": write(t, "q.toml", text+"\n", 0o600)}, none)
		if want[0] < 0 {
			wantInvalid(t, text, err)
		} else if err != nil || c.ProjectParallel != want[0] || c.TasksPerHour != want[1] {
			t.Errorf("%s: %d, %d: %v", text, c.ProjectParallel, c.TasksPerHour, err)
		}
	}
	_, err = Load(map[string]string{"config": write(t, "n.toml", "tier = 1\n", 0o600)}, none)
	wantInvalid(t, "a number for a text", err)
	for _, bad := range []string{"none", "GVisor", "gvisor ", "gvisor,process", "\x00"} {
		_, err := Load(map[string]string{"tier": bad}, none)
		wantInvalid(t, "tier "+bad, err)
	}
}

// EGR-01: a missing, empty or comment-only allow list allows nothing; what is
// ambiguous or unreadable refuses the start.
func TestAllowListEGR01(t *testing.T) {
	for name, text := range map[string]string{
		"no list": "", "empty": "[egress]\nallow = []\n", "comment": "# allow = [\"a.test\"]\n", "only table": "[egress]\n",
	} {
		c, err := Load(map[string]string{"config": write(t, "c.toml", text, 0o600)}, none)
		if err != nil || len(c.Allow) != 0 {
			t.Errorf("%s: %v %v, want start with nothing allowed", name, c.Allow, err)
		}
	}
	for name, text := range map[string]string{
		"empty text": "[egress]\nallow = [\"\"]\n", "null": "[egress]\nallow = null\n", "text": "[egress]\nallow = \"a.test\"\n",
		"number": "[egress]\nallow = [1]\n", "blank": "[egress]\nallow = [\" \"]\n", "true": "[egress]\nallow = true\n",
		"misspelt": "[egress]\nalow = [\"a.test\"]\n", "twice": "[egress]\nallow = []\nallow = [\"a.test\"]\n", "binary": "\x00\x01\xff",
		"table": "[egress.allow]\nx = 1\n",
	} {
		_, err := Load(map[string]string{"config": write(t, "c.toml", text, 0o600)}, none)
		wantInvalid(t, name, err)
	}
	_, err := Load(map[string]string{"config": t.TempDir()}, none)
	wantInvalid(t, "folder in place of a file", err)
	_, err = Load(map[string]string{"config": "/nonexistent/c.toml"}, none)
	wantInvalid(t, "named file is missing", err)
	for size, ok := range map[int]bool{maxFile: true, maxFile + 1: false} {
		_, err = Load(map[string]string{"config": write(t, "c.toml", strings.Repeat("#", size), 0o600)}, none)
		if (err == nil) != ok {
			t.Errorf("a file of %d bytes: %v", size, err)
		}
	}
}

// TestEveryFaultIsNamed: who corrects a file is told all that is wrong in it, not
// one fault a start.
func TestEveryFaultIsNamed(t *testing.T) {
	const text = `tier = 1
colour = "red"
[egress]
allow = "a.test"
forbit = []
[budget]
cost = "much"
[[price]]
model = 7
`
	var wants []string
	for _, fault := range []string{`line 1: key "tier": wrong type`, `line 2: unknown key "colour"`, `line 4: key "egress.allow": wrong`, `line 5: unknown key "egress.forbit"`, `line 7: key "budget.cost": `, `line 9: key "price.model": `} {
		wants = append(wants, regexp.QuoteMeta(fault)+".*")
	}
	_, err := Load(map[string]string{"config": write(t, "c.toml", text, 0o600)}, none)
	if want := strings.Join(wants, "; "); err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("%v\nwant %s", err, want)
	}
	for _, text := range []string{"\n[colour.dark]\nred = 1\n", "\ncolour.dark.red = 1\n"} { // named only by what is in it
		_, err := Load(map[string]string{"config": write(t, "c.toml", text, 0o600)}, none)
		if want := `line 2: unknown key "colour`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	_, err = LoadClient(map[string]string{"config": write(t, "d.toml", "servr = \"x\"\ntoken_file = 1\n", 0o600)}, none)
	if want := `line 1: unknown key "servr"; line 2: key "token_file": wrong type`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
	values := "tier = \"strong\"\nparallel = 0\n[egress]\nallow = [\"\"]\nallow_addresses = [\"a.test\"]\n[agents]\ndir = \"here\"\n[budget]\ncost = -1.0\n[workspaces]\nkeep = \"1s\"\n"
	path := write(t, "v.toml", values, 0o600)
	_, err = Load(map[string]string{"config": path}, none)
	for _, want := range []string{"setting tier: ", "setting parallel: ", `"egress.allow": `, `"egress.allow_addresses": `, `"agents.dir": `, `"budget.cost": `, `"workspaces.keep": `} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("values: %v\nwant %s", err, want)
		}
	}
	if err != nil && (strings.Count(err.Error(), path) != 1 || cofferdam.HintOf(err) == "") {
		t.Errorf("values: %v; the file is named once, and there is a next step", err)
	}
	path = write(t, "w.toml", "tier = \"strong\"\nparallel = 0\n", 0o600)
	if _, err = Load(map[string]string{"config": path}, none); err == nil || !strings.Contains(cofferdam.HintOf(err), path) {
		t.Errorf("two settings: %v, hint %q; it names the file", err, cofferdam.HintOf(err))
	}
	for n, want := range map[int]string{maxFaults: fmt.Sprintf("line %d: ", maxFaults), maxFaults + 1: "and 1 more", 3 * maxFaults: fmt.Sprintf("and %d more", 2*maxFaults)} {
		for value, more := range map[string]bool{"x": false, "1": true} { // unknown keys, and values of a wrong type
			var b strings.Builder
			for i := range n {
				if name := fmt.Sprintf("k%d", i); more {
					fmt.Fprintf(&b, "presets.%s = %s\n", name, value)
				} else {
					fmt.Fprintf(&b, "%s = %q\n", name, value)
				}
			}
			_, err := Load(map[string]string{"config": write(t, "n.toml", b.String(), 0o600)}, none)
			if err == nil || len(err.Error()) > 5000 || !more && !strings.Contains(err.Error(), want) {
				t.Errorf("%d faults: %v", n, err)
			}
		}
	}
}

func TestUnknownKeyNamesItsLine(t *testing.T) {
	_, err := Load(map[string]string{"config": write(t, "c.toml", "state = \"/s\"\n\n[egress]\nallow = []\nforbit = []\n", 0o600)}, none)
	if err == nil || !strings.Contains(err.Error(), `line 5: unknown key "egress.forbit"`) {
		t.Errorf("got %v", err)
	}
	_, err = Load(map[string]string{"config": write(t, "c.toml", "debug-person = \"eve\"\n", 0o600)}, none)
	if err == nil || !strings.Contains(err.Error(), `line 1: unknown key "debug-person"`) {
		t.Errorf("a debug knob in the file: got %v", err)
	}
}

func TestBadValues(t *testing.T) {
	for _, c := range []map[string]string{
		{"listen": "0.0.0.0:80"},
		{"listen": "10.0.0.1:80"},
		{"listen": "localhost:80"},
		{"listen": "x"},
		{"listen": ":80"},
		{"listen": "127.0.0.1:70000"},
		{"state": "relative"},
		{"state": "/a/../b"},
		{"state": "/a\x00b"},
		{"state": "/" + strings.Repeat("a", 5000)},
		{"socket": "/" + strings.Repeat("a", 120)},
		{"socket": "/x", "keeper": "/x"},
		{"agent-timeout": "5"},
		{"agent-timeout": "-1s"},
		{"agent-timeout": "99999h"},
		{"debug": "maybe"},
		{"debug-person": "x"},
	} {
		_, err := Load(c, none)
		wantInvalid(t, strings.Join(mapText(c), " "), err)
	}
	for _, args := range [][]string{{"--nope"}, {"--listen", "off", "--listen", "off"}, {"extra"}, {"--state"}} {
		_, err := FromArgs(args, none)
		wantInvalid(t, strings.Join(args, " "), err)
	}
	c, err := FromArgs([]string{"--listen", "off", "--debug", "--state=/s"}, none)
	if err != nil || c.Listen != "" || !c.Debug || c.State != "/s" {
		t.Errorf("good arguments: %+v %v", c, err)
	}
}

func TestAllowAddresses(t *testing.T) {
	for in, want := range map[string]string{"10.0.0.1": "10.0.0.1", "10.0.0.1:443": "10.0.0.1:443", "::1": "::1", "[::1]:80": "[::1]:80", "::ffff:10.0.0.1": "10.0.0.1"} {
		got, err := ParseAddress(in)
		if err != nil || got.String() != want {
			t.Errorf("%s: %s %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "10.0.0.0/8", "host", "10.0.0.1:0", "10.0.0.1:", "fe80::1%eth0", "127.1", "0x7f000001"} {
		if got, err := ParseAddress(in); err == nil {
			t.Errorf("%q was read as %s", in, got)
		}
	}
}

// machine is one with these files, variables and installed programs.
func machine(t *testing.T, files, env map[string]string, programs ...string) Machine {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{
		Root: root, Getenv: func(n string) string { return env[n] },
		Find: func(p string) (string, error) {
			for _, have := range programs {
				if filepath.Base(have) == p {
					return have, nil
				}
			}
			return "", errors.New("not installed")
		},
		Run: func(_ context.Context, name string, _ ...string) ([]byte, error) {
			if out, ok := env["output of "+name]; ok {
				return []byte(out), nil
			}
			return nil, errors.New("not installed")
		},
	}
}

func TestPresets(t *testing.T) {
	m := machine(t, map[string]string{
		"etc/apt/sources.list":             "# deb http://no.test x\ndeb [signed-by=/k] http://Deb.Test/debian bookworm main\n",
		"etc/apt/sources.list.d/a.list":    "deb https://two.test:8443/x y z\n",
		"etc/apt/sources.list.d/b.sources": "Types: deb\nURIs: http://three.test/debian http://10.0.0.1/x\n",
		"etc/apt/sources.list.d/c.sources": "\xff\x00binary",
	}, map[string]string{"output of go": "https://proxy.test,http://other.test:3000|direct\nsum.test\n", "output of python3": "https://index.test/simple\nhttps://files.index.test\n"}, "/usr/bin/apt-get", "/usr/bin/npm", "/usr/bin/pip3")
	got := Presets(t.Context(), Config{Presets: map[string][]string{"own": {"packages.test"}, "npm": {"mirror.test"}}}, m)
	want := map[string][]string{
		"npm": {"mirror.test"}, "own": {"packages.test"}, "go": {"other.test:3000", "proxy.test", "sum.test"},
		"apt": {"deb.test", "three.test", "two.test:8443"}, "pip": {"files.index.test", "index.test"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := Presets(t.Context(), Config{}, Machine{}); len(got) != 0 {
		t.Errorf("a machine without tools has presets: %v", got)
	}
	if got := Presets(t.Context(), Config{}, machine(t, nil, nil)); len(got) != 0 {
		t.Errorf("a machine without tools has presets: %v", got)
	}
}

func TestNpmRegistry(t *testing.T) {
	all := map[string]string{
		"root/.npmrc": "# registry=https://no.test\n; x\nregistry = \"https://u:p@user.test/path/\"\n//user.test/:_authToken=canary\n", "usr/etc/npmrc": "registry=https://global.test:8443/\n",
		"usr/lib/node_modules/npm/npmrc": "registry=https://own.test\n", "env.npmrc": "registry=https://${SITE}.test/\n", "opt/etc/npmrc": "registry=https://prefix.test\n",
	}
	programs := []string{"/usr/bin/node", "/usr/lib/node_modules/npm/bin/npm"}
	for want, c := range map[string]struct {
		env  map[string]string
		drop []string
	}{
		"env.test":         {map[string]string{"HOME": "/root", "npm_config_registry": "https://env.test"}, nil},
		"upper.test":       {map[string]string{"HOME": "/root", "NPM_CONFIG_REGISTRY": "https://upper.test"}, nil},
		"user.test":        {map[string]string{"HOME": "/root"}, nil},
		"site.test":        {map[string]string{"HOME": "/root", "NPM_CONFIG_USERCONFIG": "/env.npmrc", "SITE": "site"}, nil},
		"global.test:8443": {map[string]string{"HOME": "/root"}, []string{"root/.npmrc"}},
		"prefix.test":      {map[string]string{"PREFIX": "/opt"}, nil},
		"own.test":         {map[string]string{"HOME": "/root"}, []string{"root/.npmrc", "usr/etc/npmrc"}},
		"default.test":     {map[string]string{"output of npm": "https://default.test/\n"}, []string{"root/.npmrc", "usr/etc/npmrc", "usr/lib/node_modules/npm/npmrc"}},
	} {
		files := map[string]string{}
		for name, text := range all {
			files[name] = text
		}
		for _, name := range c.drop {
			delete(files, name)
		}
		if got := Presets(t.Context(), Config{}, machine(t, files, c.env, programs...))["npm"]; len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is read from files is what npm itself says.
func TestNpmRegistryAsNpmSays(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	m := ThisMachine()
	want, err := m.Run(t.Context(), "npm", "config", "get", "registry")
	if err != nil {
		t.Skipf("npm does not answer: %v", err)
	}
	if got := m.npmRegistry(t.Context()); hostOf(got) != hostOf(string(want)) {
		t.Errorf("files say %q, npm says %q", got, want)
	}
}

func TestPipPreset(t *testing.T) {
	usual := []string{"files.index.test", "index.test"}
	for name, c := range map[string]struct {
		files, env map[string]string
		want       []string
	}{
		"nothing":      {nil, nil, usual},
		"certificates": {map[string]string{"etc/pip.conf": "[global]\ncert = /x\n"}, nil, usual},
		"index":        {map[string]string{"etc/pip.conf": "[global]\nindex-url = https://u:p@in.test/simple\n"}, nil, []string{"in.test"}},
		"colon":        {map[string]string{"etc/pip.conf": "[global]\nindex_url: https://in.test/simple\n"}, nil, []string{"in.test"}},
		"install wins": {map[string]string{"etc/pip.conf": "[install]\nindex-url=https://install.test\n[global]\nindex-url=https://global.test\n[list]\nindex-url=https://list.test\n"}, nil, []string{"install.test"}},
		"extra lines":  {map[string]string{"etc/pip.conf": "[global]\nextra-index-url =\n  https://a.test/\n  https://b.test:444/\n# x\n"}, nil, append([]string{"a.test", "b.test:444"}, usual...)},
		"user wins":    {map[string]string{"etc/pip.conf": "[global]\nindex-url=https://global.test\n", "h/.config/pip/pip.conf": "[global]\nindex-url=https://user.test\n"}, map[string]string{"HOME": "/h"}, []string{"user.test"}},
		"xdg":          {map[string]string{"etc/xdg/pip/pip.conf": "[global]\nindex-url=https://xdg.test\n"}, nil, []string{"xdg.test"}},
		"variable":     {map[string]string{"etc/pip.conf": "[global]\nindex-url=https://global.test\n"}, map[string]string{"PIP_INDEX_URL": "https://env.test"}, []string{"env.test"}},
		"file named":   {map[string]string{"x.conf": "[global]\nindex-url=https://named.test\n"}, map[string]string{"PIP_CONFIG_FILE": "/x.conf"}, []string{"named.test"}},
		"no file":      {map[string]string{"etc/pip.conf": "[global]\nindex-url=https://global.test\n"}, map[string]string{"PIP_CONFIG_FILE": "/dev/null"}, usual},
		"binary":       {map[string]string{"etc/pip.conf": "\xff\x00[global]\nindex-url=https://global.test\n"}, nil, usual},
	} {
		env := map[string]string{"output of python3": "https://index.test/simple\nhttps://files.index.test\n"}
		for k, v := range c.env {
			env[k] = v
		}
		got := Presets(t.Context(), Config{}, machine(t, c.files, env, "/usr/bin/pip"))["pip"]
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestClient(t *testing.T) {
	file := write(t, "c.toml", "server = \"http://127.0.0.1:9\"\n", 0o600)
	c, err := LoadClient(map[string]string{"config": file}, none)
	if err != nil || c.Server != "http://127.0.0.1:9" || c.Sources["server"] != "file" {
		t.Errorf("%+v %v", c, err)
	}
	c, err = LoadClient(nil, env1("COFFERDAM_SERVER", "unix:/x"))
	if err != nil || c.Server != "unix:/x" {
		t.Errorf("%+v %v", c, err)
	}
	_, err = LoadClient(map[string]string{"server": "ftp://x"}, none)
	wantInvalid(t, "scheme", err)
	_, err = LoadClient(map[string]string{"server": "unix:x"}, none)
	wantInvalid(t, "relative socket", err)
	_, err = LoadClient(map[string]string{"config": write(t, "c.toml", "servr = 1\n", 0o600)}, none)
	wantInvalid(t, "unknown key", err)
}

func TestReadToken(t *testing.T) {
	good := strings.Repeat("a", 64)
	if got, err := ReadToken(write(t, "t", good+"\n", 0o600)); err != nil || got != good {
		t.Errorf("%q %v", got, err)
	}
	for name, path := range map[string]string{
		"open": write(t, "t", good, 0o644), "short": write(t, "t", "abc", 0o600), "binary": write(t, "t", strings.Repeat("\x00", 64), 0o600),
		"missing": "/nonexistent", "huge": write(t, "t", strings.Repeat("a", maxFile+1), 0o600),
	} {
		_, err := ReadToken(path)
		wantInvalid(t, name, err)
	}
}

func wantInvalid(t *testing.T, name string, err error) {
	t.Helper()
	if err == nil || cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" {
		t.Errorf("%s: got %v, want a refusal with a hint", name, err)
	}
}

func mapText(m map[string]string) (out []string) {
	for k, v := range m {
		out = append(out, k+"="+v[:min(len(v), 40)])
	}
	return out
}

// Whatever a file holds: it is read or refused with a reason, and an allow list
// that was read holds no empty entry.
func FuzzOperatorFile(f *testing.F) {
	for _, s := range []string{"", "[egress]\nallow = [\"a.test\"]\n", "state = 1", "[presets]\nx = [\"y\"]", "debug = true\n[egress]\nallow_addresses = [\"::1\"]", "\x00", "[[egress]]", "a.b.c = {x = [1,2]}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseFile("f", data)
		if err != nil {
			if err.Error() == "" {
				t.Error("refused without a reason")
			}
			return
		}
		c := Config{}
		if err := file.fill(&c); err == nil {
			for _, a := range c.Allow {
				if strings.TrimSpace(a) == "" {
					t.Errorf("empty entry from %q", data)
				}
			}
		}
	})
}

func TestEnvironmentsTable(t *testing.T) {
	c, err := Load(map[string]string{"config": write(t, "c.toml", `
[environments]
registries = ["registry.test", "127.0.0.1:5000"]
packages = true
max_age = "336h"
max_size = "40GiB"
max_images = "50GiB"
[environments.images]
web = "layout:/srv/web"
old = "tarball:/srv/old.tar"
dir = "/srv/dir"
far = "registry.test/web:1"
[environments.secrets.NPM_TOKEN]
file = "/etc/cofferdam/npm-token"
repos = ["shop"]
`, 0o600)}, none)
	want := Environments{
		Images:     map[string]string{"web": "layout:/srv/web", "old": "tarball:/srv/old.tar", "dir": "/srv/dir", "far": "registry.test/web:1"},
		Registries: []string{"registry.test", "127.0.0.1:5000"}, Packages: true, MaxAge: 336 * time.Hour, MaxSize: 40 << 30, MaxImages: 50 << 30,
		Secrets: map[string]SetupSecret{"NPM_TOKEN": {File: "/etc/cofferdam/npm-token", Repos: []string{"shop"}}},
	}
	if d := cmp.Diff(want, c.Environments); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	for _, bad := range []string{
		"max_age = \"soon\"", "max_age = \"-1h\"", "max_size = \"0\"", "max_images = \"much\"", "max_size = \"9999999999GiB\"", "registries = [\"http://x\"]", "registries = [\"\"]",
		"packages = 1", "colour = 1", "[environments.images]\nhost = \"/x\"", "[environments.images]\ndebian = \"/x\"", "[environments.images]\n\"a b\" = \"/x\"",
		"[environments.images]\nx = \"layout:rel\"", "[environments.secrets.X]\nfile = \"rel\"\nrepos = [\"a\"]", "[environments.secrets.X]\nfile = \"/x\"", "[environments.secrets.\"a b\"]\nfile = \"/x\"\nrepos = [\"a\"]", "[environments.images]\nx = \"/a/../b\"", "[environments.images]\nx = \"\"",
	} {
		_, err := Load(map[string]string{"config": write(t, "c.toml", "[environments]\n"+bad+"\n", 0o600)}, none)
		wantInvalid(t, bad, err)
	}
}
