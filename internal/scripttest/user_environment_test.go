package scripttest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam/sandbox/sandboxtest"
)

// ordinary is an ordinary user with a home folder, who starts servers.
type ordinary struct {
	t                *testing.T
	bin, home, state string
	env              []string // of its server, besides userEnv
	server           *process
}

func newOrdinary(t *testing.T) *ordinary {
	t.Helper()
	u := &ordinary{t: t, bin: openPrograms(t), home: sandboxtest.OpenFolder(t)}
	u.state = filepath.Join(u.home, ".local", "state", "cofferdam")
	t.Cleanup(func() {
		u.server.end(syscall.SIGTERM)
		endKeeper(filepath.Join(u.state, "keeper"))
		if t.Failed() && u.server != nil {
			t.Logf("server:\n%s", u.server.log)
		}
	})
	return u
}

// command is one that the user starts.
func (u *ordinary) command(name string, args ...string) *exec.Cmd {
	cmd := sandboxtest.AsUser(u.t, append([]string{name}, args...)...)
	cmd.Env = userEnv(u.home)
	return cmd
}

// cofferdam is what the program says to the user, who wants it to end well or not.
func (u *ordinary) cofferdam(well bool, args ...string) string {
	u.t.Helper()
	out, err := u.command(filepath.Join(u.bin, "cofferdam"), args...).CombinedOutput()
	if (err == nil) != well {
		u.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (u *ordinary) serve(args ...string) {
	u.t.Helper()
	cmd := u.command(filepath.Join(u.bin, "cofferdam"), append([]string{"serve", "--listen", "off"}, args...)...)
	cmd.Env = append(cmd.Env, u.env...)
	u.server = &process{cmd: cmd, log: &syncBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = u.server.log, u.server.log, time.Second
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func(p *process) {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}(u.server)
	if err := u.server.ready(filepath.Join(u.state, "run", "cofferdam.sock")); err != nil {
		u.t.Fatal(err)
	}
}

// kill ends the server in its user namespace at once, and waits for its starter.
func (u *ordinary) kill() {
	u.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", u.server.cmd.Process.Pid))
	if err != nil {
		u.t.Fatal(err)
	}
	var all, killed []string
	for _, list := range lists {
		children, _ := os.ReadFile(list) // a thread may have ended
		for _, child := range strings.Fields(string(children)) {
			all = append(all, child)
			if id, err := strconv.Atoi(child); err == nil && syscall.Kill(id, syscall.SIGKILL) == nil {
				killed = append(killed, child)
			}
		}
	}
	if len(killed) != 1 {
		u.t.Fatalf("of the children %q of the server's starter %q were killed", all, killed)
	}
	<-u.server.done
}

// write puts a file into the user's home folder, which only the user may read.
func (u *ordinary) write(name, text string) string {
	u.t.Helper()
	path := filepath.Join(u.home, name)
	for _, err := range []error{os.WriteFile(path, []byte(text), 0o600), os.Chown(path, sandboxtest.UserID, sandboxtest.UserID)} {
		if err != nil {
			u.t.Fatal(err)
		}
	}
	return path
}

// upstream makes a repository with an environment, or gives the one that is there another.
func (u *ordinary) upstream(name, recipe string) string {
	u.t.Helper()
	path := filepath.Join(u.home, name+".git")
	const script = `set -e; umask 022; test -d "$1" || git init -q --bare -b main "$1"; rm -rf "$1.work"; git clone -q "$1" "$1.work" 2>/dev/null; cd "$1.work"
		mkdir -p .cofferdam; printf %s "$2" > .cofferdam/environment.toml; echo shop > README; git add .
		git -c user.name=p -c user.email=p@example.com commit -qm environment; git push -q origin HEAD:main`
	if out, err := u.command("/bin/sh", "-c", script, "sh", path, recipe).CombinedOutput(); err != nil {
		u.t.Fatalf("%v: %s", err, out)
	}
	return path
}

// kept are the names of what the server keeps of setups.
func (u *ordinary) kept() (names []string) {
	u.t.Helper()
	list, err := os.ReadDir(filepath.Join(u.state, "environments"))
	if err != nil {
		u.t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// waitFor waits until something is there.
func (u *ordinary) waitFor(pattern string) {
	u.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
			return
		}
		if time.Now().After(end) {
			u.t.Fatalf("%s does not come\n%s", pattern, u.server.log)
		}
	}
}

// search is what an agent tries with the environment that it has.
const search = `{ cat /env/wanted /env/used
part='[t]oken-of-a-setup' # a pattern, so that it does not find itself
echo "found: $( (grep -rls "$part" /env /tmp /home /run /dev/shm; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -e "$part") | wc -l)"
for f in /env/x /env/wanted /env; do (echo x > $f) 2>/dev/null && echo "wrote $f"; done
rm -rf /env/* 2>/dev/null; chmod 777 /env/wanted 2>/dev/null && echo chmod; mv /env/used /env/un 2>/dev/null && echo moved
cat /env/stolen | head -1
} > report 2>&1; cp local.txt copy`

// TestEnvironmentAsUser has an ordinary user's server set up what a repository
// wants: by one that is killed in the middle, and by the next. What setup was given
// and could not reach is not there, no agent changes what it made, and a second task
// finds it.
func TestEnvironmentAsUser(t *testing.T) {
	u := newOrdinary(t)
	good, other := &lab{}, &lab{}
	ports := map[*lab]string{}
	for l, name := range map[*lab]string{good: "good", other: "other"} {
		addr, err := l.web(name, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.stop()
		_, ports[l], _ = net.SplitHostPort(addr)
	}
	token := u.write("token", "slow-token-of-a-setup")
	config := u.write("operator.toml", fmt.Sprintf(`[egress]
allow_addresses = ["127.0.0.1"]
[egress.hosts]
"good.test" = "127.0.0.1"
"other.test" = "127.0.0.1"
[environments.secrets.TOKEN]
file = %q
repos = ["shop"]
`, token))
	shop := u.upstream("shop", fmt.Sprintf(`secrets = ["TOKEN"]
setup = [
  "case $TOKEN in slow*) touch begun; exec sleep 3600;; esac",
  "curl -sS http://good.test:%s/wanted > wanted",
  "curl -sS http://other.test:%s/stolen > stolen || true",
  "test ${#TOKEN} = 21 && echo used: $(echo $TOKEN | wc -c) > used; echo $TOKEN > $HOME/.token",
]
allow = ["good.test:%s"]
maintenance = ["cp /env/wanted local.txt"]
ready = ["test -s local.txt"]
`, ports[good], ports[other], ports[good]))
	u.serve("--config", config)
	u.cofferdam(true, "repo", "add", "shop", shop)
	run := func(text, agent string, more ...string) []string {
		return append([]string{"task", "run", text, "--repo", "shop", "--agent", "command", "--command", agent, "--keep", "true", "--allow", "good.test:" + ports[good], "--allow", "other.test:" + ports[other]}, more...)
	}
	first := u.command(filepath.Join(u.bin, "cofferdam"), run("search", search)...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	u.waitFor(filepath.Join(u.state, "environments", "*.building", "files", "begun"))
	u.kill()
	_ = first.Process.Kill() // it waits for a server
	_ = first.Wait()
	if len(u.kept()) != 1 {
		t.Fatalf("control: what is half made is %q", u.kept())
	}
	u.write("token", "fast-token-of-a-setup")
	u.serve("--config", config)
	if out, err := u.command(filepath.Join(u.bin, "cofferdam"), "task", "wait", "t-1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, u.cofferdam(true, "task", "view", "t-1"))
	}
	show := func(file string) string {
		t.Helper()
		out, err := u.command("/usr/bin/git", "-C", shop, "show", "cofferdam/"+file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, out, u.cofferdam(true, "task", "view", "t-1"))
		}
		return string(out)
	}
	report := show("t-1-1:report")
	for _, want := range []string{`(?m)^lab good here: GET /wanted$`, `(?m)^used: 22$`, `(?m)^found: 0$`} {
		if !regexp.MustCompile(want).MatchString(report) {
			t.Errorf("the report has no %s:\n%s", want, report)
		}
	}
	if regexp.MustCompile(`(?m)^(wrote|chmod|moved|lab other)`).MatchString(report) || show("t-1-1:copy") != "lab good here: GET /wanted\n" {
		t.Errorf("the report:\n%s", report)
	}
	if good.contacts.Load() != 1 || other.contacts.Load() != 0 {
		t.Errorf("contacts: %d and %d", good.contacts.Load(), other.contacts.Load())
	}
	if names := strings.Join(u.kept(), " "); !regexp.MustCompile(`^[0-9a-f]{64}\.img [0-9a-f]{64}\.json$`).MatchString(names) {
		t.Errorf("kept: %s", names)
	}
	trace := ""
	for _, id := range strings.Fields(u.cofferdam(true, "session", "list", "--task", "t-1", "-q")) {
		trace += u.cofferdam(true, "trace", "view", id, "--json")
	}
	for _, want := range []string{"environment=folder", `"gone": "files"`, `"gone": "variables, processes"`} {
		if !strings.Contains(trace, want) {
			t.Errorf("the trace does not say %s, of %d bytes", want, len(trace))
		}
	}
	if strings.Contains(trace, "token-of-a-setup") {
		t.Error("the trace has the secret")
	}
	u.cofferdam(true, run("again", "cat /env/used > again")...)
	view := u.cofferdam(true, "task", "view", "t-2")
	if !strings.Contains(view, "hit: made ") || strings.Contains(view, "miss") {
		t.Errorf("a second task:\n%s", view)
	}
	// Who gave it is the user, whatever passwd calls uid 0 of the server's namespace.
	if !regexp.MustCompile(`(?m)^by: +person:nobody$`).MatchString(view) {
		t.Errorf("the task is not the user's:\n%s", view)
	}
	// Too much is not kept, whether it is seen while it is written or after.
	for i, setup := range []string{"cat /dev/zero > big", "fallocate -l 300M big"} {
		u.upstream("shop", fmt.Sprintf("setup = [%q]\n", setup))
		if said := u.cofferdam(false, run(fmt.Sprint("big ", i), "true", "--disk", "128MiB")...); !regexp.MustCompile(`/env holds \d+ MiB|it left \d+ MiB`).MatchString(said) {
			t.Errorf("%s: %s", setup, said)
		}
	}
	if len(u.kept()) != 2 {
		t.Errorf("kept: %q", u.kept())
	}
}
