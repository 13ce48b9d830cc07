package local

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/internal/local/gateways"
)

// standIn takes the place of sandbox-exec: it keeps what it was given and runs
// the command without any wall. What the kernel of a Mac makes of the profile is
// `not run here`.
const standIn = `#!/bin/sh
: >"$GIVEN"
while [ "$1" != -- ]; do printf '%s\n' "$1" >>"$GIVEN"; shift; done
shift
exec "$@"
`

// onMac runs text as a Mac would, with a project of its own below home.
func onMac(t *testing.T, text string, change func(*Options)) (out, given, project string, res Result, err error) {
	t.Helper()
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err != nil && runtime.GOOS == "linux" {
		t.Skip("needs ca-certificates")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	project = filepath.Join(home, "src", `a "b" (c)`)
	for _, dir := range []string{project, filepath.Join(home, ".ssh"), filepath.Join(home, "Library"), filepath.Join(home, "bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(home, "bin", "stand-in")
	if err := os.WriteFile(program, []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(home, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	vars := map[string]string{"HOME": home, "PATH": os.Getenv("PATH"), "XDG_STATE_HOME": filepath.Join(home, ".state"), "CANARY": "canary"}
	o := Options{
		Argv: []string{"sh", "-c", text}, Workspace: project, Getenv: func(n string) string { return vars[n] }, Environ: func() []string { return nil },
		Gateways: gateways.Here{}, Stdout: output, Stderr: output, Env: []string{"GIVEN=" + filepath.Join(home, "given")},
	}
	if change != nil {
		change(&o)
	}
	r := newRun(o)
	res, err = r.do(context.Background(), mac{run: r, program: program}.enclose)
	said, rerr := os.ReadFile(output.Name())
	if rerr != nil {
		t.Fatal(rerr)
	}
	args, _ := os.ReadFile(filepath.Join(home, "given")) // not there if nothing was started
	return string(said), string(args), project, res, err
}

// A run on a Mac: the profile names the project and no credentials, the command
// has folders of its own that are gone afterwards, and its end is on record.
func TestMacRun(t *testing.T) {
	out, given, project, res, err := onMac(t, `pwd; echo "$HOME" "$TMPDIR"; echo "[$CANARY$NO_PROXY]"; touch "$HOME/x" "$TMPDIR/y" z && exit 3`, nil)
	if err != nil || res.Exit != 3 {
		t.Fatalf("%+v %v", res, err)
	}
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || lines[2] != "[]" {
		t.Fatalf("%q", out)
	}
	if _, err := os.Stat(filepath.Join(project, "z")); err != nil {
		t.Error(err)
	}
	own, temp, _ := strings.Cut(lines[1], " ")
	for _, dir := range []string{own, temp, filepath.Dir(own)} {
		if _, err := os.Stat(dir); err == nil || !strings.HasPrefix(dir, "/tmp/cofferdam-") && !strings.HasPrefix(dir, "/private/tmp/cofferdam-") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if !strings.HasPrefix(given, "-p\n(version 1)\n(deny default)\n") || strings.Contains(given[:strings.Index(given, "\n-D\n")], project) {
		t.Errorf("the profile is %s", given)
	}
	home := filepath.Dir(filepath.Dir(project))
	for path, want := range map[string]bool{project: true, filepath.Join(home, "src"): true, filepath.Join(home, "Library"): false, filepath.Join(home, ".ssh"): false, filepath.Join(home, ".state", "cofferdam", "keys"): true} {
		if got := strings.Contains(given, "="+path+"\n"); got != want {
			t.Errorf("%s is a parameter: %v", path, got)
		}
	}
	trace, err := os.ReadFile(res.Trace)
	if err != nil || !strings.Contains(string(trace), `"exit":"3"`) || !strings.Contains(string(trace), `"walls":`) {
		t.Errorf("%v: %s", err, trace)
	}
}

// Its network is the proxy: what is allowed passes, what is not is refused by
// name and said at the end.
func TestMacNetwork(t *testing.T) {
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("from outside\n")) }))
	defer outside.Close()
	at := netip.MustParseAddrPort(outside.Listener.Addr().String())
	name := "inside.test:" + strings.Split(outside.Listener.Addr().String(), ":")[1]
	out, _, _, res, err := onMac(t, "curl -sS http://"+name+"/; curl -sS -o /dev/null -w '%{http_code}\n' http://evil.test/", func(o *Options) {
		o.Allow = []string{name}
		o.Config = config.Config{Hosts: map[cofferdam.Host]netip.Addr{"inside.test": at.Addr()}, AllowAddresses: []config.AddrAndPort{{Addr: at.Addr()}}}
	})
	if err != nil || res.Exit != 0 || out != "from outside\n403\n" {
		t.Errorf("%+v %v: %q", res, err, out)
	}
	if len(res.Refused) != 1 || res.Refused[0] != "evil.test" {
		t.Errorf("refused %q", res.Refused)
	}
}

func TestMacEnds(t *testing.T) {
	if _, _, _, res, err := onMac(t, "kill -TERM $$", nil); err != nil || res.Exit != 143 || res.Signal != 15 || res.Reason != "ended by signal SIGTERM" {
		t.Errorf("%+v %v", res, err)
	}
	for name, want := range map[string]int{"no-such-program": 127, "./src": 127, "/etc/passwd": 126, "/": 126} {
		_, given, _, res, err := onMac(t, "", func(o *Options) { o.Argv = []string{name} })
		if err != nil || res.Exit != want || res.Reason == "" || given != "" || res.Trace == "" {
			t.Errorf("%s: %+v %v", name, res, err)
		}
	}
	// What the command leaves behind ends with it.
	out, _, _, res, err := onMac(t, "sleep 1000 & echo $!", nil)
	if err != nil || res.Exit != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	for {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(out) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break // gone; or dead, and this machine's first process is slow to notice
		}
	}
	// What a Mac keeps there runs at the next login; and a name that no rule can have.
	_, given, _, res, err := onMac(t, "true", func(o *Options) { o.Workspace = filepath.Join(filepath.Dir(filepath.Dir(o.Workspace)), "Library") })
	if cofferdam.KindOf(err) != cofferdam.Invalid || given != "" || res.Trace != "" {
		t.Errorf("%+v %v", res, err)
	}
	_, given, _, _, err = onMac(t, "true", func(o *Options) {
		o.Workspace = filepath.Join(o.Workspace, "line\nbreak")
		if err := os.Mkdir(o.Workspace, 0o755); err != nil {
			t.Fatal(err)
		}
	})
	if cofferdam.KindOf(err) != cofferdam.Invalid || given != "" {
		t.Errorf("%v", err)
	}
}

// A name is the one that the disk has: here, where it knows only one spelling,
// that is the name itself, and of what is not there what was asked.
func TestDiskName(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "gone", "Away"), "/", ""} {
		if got := diskName(path); got != path {
			t.Errorf("%q became %q", path, got)
		}
	}
}
