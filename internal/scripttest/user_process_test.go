package scripttest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox/sandboxtest"
)

// reaching looks for what a box of tier process must not reach: files and processes
// of the user whose server made it, rights, namespaces. What it finds it says.
const reaching = `cat "$CANARY" 2>/dev/null
grep -l CANARY_OF_THE_SERVER /proc/[0-9]*/environ 2>/dev/null
unshare --user true 2>/dev/null && echo namespace
:`

// inside is what more an agent tries that has no twin outside.
const inside = `{ ` + reaching + `
chown 0 n 2>/dev/null && echo chown
grep Cap[EPIA] /proc/self/status | grep -v 0000000000000000
touch /etc/x /usr/x 2>/dev/null && echo etc
grep : /proc/net/dev | grep -v -e lo: -e eth0:
timeout 5 bash -c "echo > /dev/tcp/198.51.100.1/80" 2>/dev/null && echo network
} > found; id -u > who; cat /proc/self/uid_map > map; kill -9 -1 2>/dev/null; :`

// TestTaskOfProcessAsUser runs tasks of tier process on the server of an ordinary
// user, one of which searches for what is that user's; and what the user itself sees
// beside it is the control.
func TestTaskOfProcessAsUser(t *testing.T) {
	bin, home := openPrograms(t), sandboxtest.OpenFolder(t)
	canary := filepath.Join(home, "canary")
	shop := filepath.Join(home, "shop.git")
	prepare := `set -e; echo canary >"$1"; chmod 0644 "$1"; git init -q -b main "$2.work"; cd "$2.work"; echo 1 >n; git add n
		git -c user.name=p -c user.email=p@example.com commit -qm one; git clone -q --bare "$2.work" "$2"`
	for _, argv := range [][]string{{"sh", "-c", prepare, "sh", canary, shop}, {"chown", "-R", fmt.Sprint(sandboxtest.UserID), home}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	asUser := func(name string, args ...string) *exec.Cmd {
		cmd := sandboxtest.AsUser(t, append([]string{name}, args...)...)
		cmd.Env = append(userEnv(home), "CANARY_OF_THE_SERVER=1")
		return cmd
	}
	said := func(name string, args ...string) string {
		t.Helper()
		out, err := asUser(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", filepath.Base(name), args, err, out)
		}
		return string(out)
	}
	if got := said("/bin/sh", "-c", "export CANARY="+canary+"; "+reaching); !strings.Contains(got, "canary\n") || !strings.Contains(got, "/environ\n") || !strings.Contains(got, "namespace\n") {
		t.Fatalf("control: the user itself finds %q", got)
	}
	program := filepath.Join(bin, "cofferdam")
	server := asUser(program, "serve", "--listen", "off", "--tier", "process")
	p := &process{cmd: server, log: &syncBuffer{}, done: make(chan struct{})}
	server.Stdout, server.Stderr, server.WaitDelay = p.log, p.log, time.Second
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = server.Wait() // how it ended is in its log
		close(p.done)
	}()
	state := filepath.Join(home, ".local", "state", "cofferdam")
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		endKeeper(filepath.Join(state, "keeper"))
		if t.Failed() {
			t.Logf("server:\n%s", p.log)
		}
	})
	if err := p.ready(filepath.Join(state, "run", "cofferdam.sock")); err != nil {
		t.Fatal(err)
	}
	said(program, "repo", "add", "shop", shop)
	said(program, "task", "run", "make it two", "--agent", "command", "--command", "echo 2 > n", "--check", "grep -q 2 n")
	said(program, "task", "run", "search", "--agent", "command", "--command", "export CANARY="+canary+"; "+inside, "--keep", "true")
	for file, want := range map[string]string{"t-1-1:n": "2", "t-2-1:who": "1000", "t-2-1:found": "", "t-2-1:map": "0 0 1 1000 1000 1"} {
		got := strings.Join(strings.Fields(said("/usr/bin/git", "-C", shop, "show", "cofferdam/"+file)), " ")
		if got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	var list struct{ Items []cofferdam.Session }
	if err := json.Unmarshal([]byte(said(program, "session", "list", "--json")), &list); err != nil || len(list.Items) < 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, s := range list.Items {
		trace := said(program, "trace", "view", string(s.ID), "--json")
		workspace := "workspace=memory" // of a check; what an agent works in is kept
		if s.Phase == "work" {
			workspace = "workspace=watched"
		}
		for _, want := range []string{"limits=watched", workspace} {
			if s.Tier != "process" || !strings.Contains(trace, want) {
				t.Errorf("%+v: the trace does not say %s:\n%.4000s", s, want, trace)
			}
		}
	}
	if log, err := os.ReadFile(filepath.Join(state, "keeper", "keeper.log")); err != nil || strings.Contains(string(log), "ERROR") {
		t.Errorf("%v\n%s", err, log)
	}
}
