package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// programs builds cofferdam-init once for all tests, where every user may run it.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir := sandboxtest.UserPrograms(); dir != "" {
		return dir, nil
	}
	if dir, err = os.MkdirTemp("", "cofferdam-programs-"); err != nil {
		return "", err
	}
	built = dir
	return dir, errors.Join(os.Chmod(dir, 0o755), sandboxtest.Build(dir, "cofferdam-init"))
})

var built string // where programs has put it; "" if no test asked

func TestMain(m *testing.M) {
	if err := sandboxtest.Settle(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	switch {
	case os.Getenv(runsAs) != "":
		oneOffOfUser()
		return
	case os.Getenv(isJob) != "":
		os.Exit(job())
	case os.Getenv(confines) != "":
		insideConfinement(os.Getenv(confines))
		return
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

func initProgram(t testing.TB) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "cofferdam-init")
}

// person makes a home folder with a credential, a program and a project, as a
// laptop has them; it is not below /tmp, which is another one in a box.
func person(t testing.TB) (home, project string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a home folder outside of /tmp")
	}
	home, err := os.MkdirTemp("/srv", "cofferdam-test-")
	if err != nil {
		t.Skip("needs a folder outside of /tmp: " + err.Error())
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		".ssh/id_ed25519": "canary", ".aws/credentials": "canary", ".config/gh/hosts.yml": "canary", ".claude/.credentials.json": "canary",
		".netrc": "canary", ".docker/config.json": "canary", ".unheard-of-agent/token": "canary", "notes.txt": "plain", "project/main.go": "package main",
		".cargo/bin/tool": "#!/bin/sh\necho tool\n",
	} {
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return home, filepath.Join(home, "project")
}

// run runs shell text in a one-off box and returns what it printed.
func run(t testing.TB, o OneOff, text string) (string, sandbox.Result) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	done := make(chan struct{})
	go func() { defer close(done); out.ReadFrom(r) }()
	o.Argv = []string{"bash", "-c", text}
	o.Env = append(o.Env, "PATH=/usr/bin:/bin", "HOME="+o.Home)
	o.Stdout, o.Stderr = w, w
	res, err := o.Run(t.Context())
	w.Close()
	<-done
	r.Close()
	if err != nil {
		t.Fatalf("%v (%s)\n%s", err, cofferdam.HintOf(err), out.String())
	}
	return out.String(), res
}

// TestOneOffHidesCredentials is R71 and U-12 from inside: no canary is found by
// any path, what a build needs is there, and only the workspace changes.
func TestOneOffHidesCredentials(t *testing.T) {
	home, project := person(t)
	if out, err := exec.Command("grep", "-rl", "canary", home).Output(); err != nil || bytes.Count(out, []byte("\n")) != 7 {
		t.Fatalf("control: %v, %s", err, out)
	}
	leaked, err := syscall.Open("/root", syscall.O_RDONLY, 0) // as a careless caller leaves it: not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leaked)
	o := OneOff{Init: initProgram(t), Home: home, Workspace: project}
	for text, want := range map[string]string{
		"grep -rl canary " + home + " 2>/dev/null":                                                             "",
		"ls -A " + home + " | sort | tr '\\n' ' '":                                                             ".cargo notes.txt project ",
		"cat ~/notes.txt; ~/.cargo/bin/tool":                                                                   "plaintool\n",
		"ls -A .; pwd":                                                                                         "main.go\n" + project + "\n",
		"cat /etc/shadow /etc/gshadow 2>/dev/null | wc -l":                                                     "0\n",
		"ls /run/*.sock /run/*/*.sock /var/run/docker.sock /run/user 2>/dev/null | wc -l":                      "0\n",
		"echo x >~/notes.txt || touch ~/project/../notes.txt; cat ~/notes.txt | head -1":                       "plain",
		`python3 -c 'import os; print([n for n in range(3, 1024) if os.path.exists("/proc/self/fd/%d" % n)])'`: "[]\n",
		"touch /etc/x /usr/x /opt/x /x /var/x 2>/dev/null; ls /etc/x /usr/x /opt/x /x /var/x 2>/dev/null":      "",
	} {
		got, _ := run(t, o, text)
		if !strings.HasPrefix(got[strings.LastIndex(got, "denied\n")+1:], want) && !strings.HasSuffix(got, want) || want == "" && got != "" {
			t.Errorf("%s:\ngot  %q\nwant %q", text, got, want)
		}
	}
	if got, r := run(t, o, "echo made >made; mkdir d; mv made d/made; ln d/made again; cat again"); r.Exit != 0 || got != "made\n" {
		t.Errorf("workspace: %+v, %q", r, got)
	}
	if data, err := os.ReadFile(filepath.Join(project, "again")); err != nil || string(data) != "made\n" {
		t.Errorf("on the host: %q, %v", data, err)
	}
	// No placeholder of ours is left on the host.
	entries, err := os.ReadDir(project)
	if err != nil || len(entries) != 3 {
		t.Errorf("workspace afterwards: %v, %v", entries, err)
	}
}

func TestOneOffHasNoRights(t *testing.T) {
	_, project := person(t)
	got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, `grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\t' | tr '\n' ' '; ls /proc | grep -c '^[0-9]'`)
	want := "CapInh:0000000000000000 CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 CapAmb:0000000000000000 NoNewPrivs:1 Seccomp:2 "
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %q", got)
	}
	for _, text := range []string{
		"echo core >/proc/sys/kernel/core_pattern", "echo b >/proc/sysrq-trigger", "cat /proc/1/environ", "ls /proc/1/root/", "readlink /proc/1/fd/3", "cat /proc/1/mem | head -c 1 | grep .", "kill -9 1; sleep 0.2; test ! -d /proc/1",
		"mount -t tmpfs none /mnt", "unshare --user true", "unshare --mount true", "cat /proc/kcore", "mknod /tmp/disk b 8 0", "hostname other", "ip link set lo down", "dmesg",
	} {
		if out, r := run(t, OneOff{Init: initProgram(t), Workspace: project}, text); r.Exit == 0 {
			t.Errorf("%s: it works: %q", text, out)
		}
	}
}

// TestOneOffNetwork has the caller hold the only way out before the command runs.
func TestOneOffNetwork(t *testing.T) {
	_, project := person(t)
	if _, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		t.Skip("needs TAP devices: " + err.Error())
	}
	heard, over := make(chan int, 1), make(chan struct{})
	defer close(over)
	o := OneOff{Init: initProgram(t), Workspace: project}
	o.Wire = func(tap *os.File, _ int) error {
		if _, err := os.Stat(filepath.Join(project, "began")); err == nil {
			t.Error("the command runs before its wire is there")
		}
		go func() {
			defer tap.Close() // the device goes with it
			frame := make([]byte, 1<<16)
			_ = tap.SetReadDeadline(time.Now().Add(20 * time.Second)) // a Read that hangs would say as little
			n, _ := tap.Read(frame)
			heard <- n
			<-over
		}()
		return nil
	}
	got, _ := run(t, o, "touch began; echo x >/dev/udp/10.99.0.1/53; ip -o -4 addr show eth0; ip route; cat /etc/resolv.conf; ls /sys/class/net 2>/dev/null; getent ahosts box")
	if !strings.Contains(got, "10.99.0.2/24") || !strings.Contains(got, "default via 10.99.0.1 dev eth0") || !strings.Contains(got, "nameserver 10.99.0.1") || !strings.Contains(got, "127.0.1.1") {
		t.Errorf("got %q", got)
	}
	if n := <-heard; n < 14 {
		t.Errorf("the wire gave %d bytes", n)
	}
	o.Wire = func(tap *os.File, _ int) error { return errors.Join(errors.New("no record"), tap.Close()) }
	o.Argv = []string{"touch", "ran"}
	if _, err := o.Run(t.Context()); err == nil || err.Error() != "no record" {
		t.Errorf("a wire that is refused: %v", err)
	}
	if _, err := os.Stat(filepath.Join(project, "ran")); err == nil {
		t.Error("the command ran without its wire")
	}
	o.Wire = nil
	if got, _ := run(t, o, "ip -o link | grep -v 'lo:'; curl -sm 2 http://10.99.0.1 || echo nothing"); !strings.HasSuffix(got, "nothing\n") || strings.Contains(got, "eth0") {
		t.Errorf("without a wire: %q", got)
	}
}

func TestOneOffResults(t *testing.T) {
	_, project := person(t)
	o := OneOff{Init: initProgram(t), Workspace: project}
	for text, want := range map[string]int{"exit 7": 7, "kill -TERM $$": 143, "exec no-such-program": 127, "true": 0} {
		if _, r := run(t, o, text); r.Exit != want {
			t.Errorf("%s: %+v, want %d", text, r, want)
		}
	}
	for _, c := range []struct {
		argv []string
		dir  string
		exit int
	}{{[]string{"no-such-program"}, "", 127}, {[]string{"/etc/passwd"}, "", 126}, {[]string{"true"}, "/no/such", 126}} {
		o.Argv, o.Dir, o.Env = c.argv, c.dir, []string{"PATH=/usr/bin"}
		r, err := o.Run(t.Context())
		if err != nil || r.Exit != c.exit || r.Reason == "" {
			t.Errorf("%q: %+v, %v", c.argv, r, err)
		}
	}
	o.Dir = ""
	// What it left ends with it, and its end does not wait for that.
	began, left := time.Now(), longSleep()
	if _, r := run(t, o, "setsid "+left+" >/dev/null 2>&1 & disown; exit 3"); r.Exit != 3 || time.Since(began) > 200*time.Second {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
	wantNone(t, left)
}

// longSleep is a command that sleeps for long, and that no other test has.
func longSleep() string { return fmt.Sprintf("sleep 300.%d%d", os.Getpid(), time.Now().UnixNano()) }

// wantNone fails if a process of that command line is on the machine.
func wantNone(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("pgrep", "-f", "^"+command+"$").Output(); err == nil {
		t.Errorf("%s lives on: %s", command, out)
	}
}

func TestOneOffSignalsAndCancel(t *testing.T) {
	_, project := person(t)
	signals := make(chan os.Signal, 1)
	o := OneOff{Init: initProgram(t), Workspace: project, Signals: signals}
	go func() {
		for range 12000 {
			if _, err := os.Stat(filepath.Join(project, "ready")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		signals <- syscall.SIGTERM
	}()
	if got, r := run(t, o, "trap 'echo caught; exit 9' TERM; touch ready; while :; do sleep 0.05; done"); r.Exit != 9 || got != "caught\n" {
		t.Errorf("%+v, %q", r, got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	left := longSleep()
	o.Argv, o.Env, o.Signals = []string{"sh", "-c", "trap '' TERM; setsid " + left + " & " + left}, []string{"PATH=/usr/bin"}, nil
	if _, err := o.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	wantNone(t, left)
}

// A signal that comes while the box is built ends it, and is no fault of the box.
func TestOneOffInterruptedBeforeItsCommand(t *testing.T) {
	_, project := person(t)
	signals := make(chan os.Signal)
	o := OneOff{
		Init: initProgram(t), Workspace: project, Signals: signals, Argv: []string{"touch", "ran"}, Env: []string{"PATH=/usr/bin:/bin"},
		Ended: func(sandbox.Result) { t.Error("a command that never began has ended") },
		Wire: func(tap *os.File, _ int) error {
			defer tap.Close()
			signals <- syscall.SIGINT
			return errors.New("it does not begin in any case")
		},
	}
	r, err := o.Run(context.Background())
	if err != nil || r.Exit != 130 || r.Signal != int(syscall.SIGINT) || r.Reason != "interrupted before the command began" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(project, "ran")); err == nil {
		t.Error("the command ran")
	}
}

func TestOneOffRefusals(t *testing.T) {
	home, project := person(t)
	link := filepath.Join(home, "link")
	if err := os.Symlink(project, link); err != nil {
		t.Fatal(err)
	}
	good := OneOff{Init: initProgram(t), Home: home, Workspace: project, Argv: []string{"/bin/true"}}
	if r, err := good.Run(t.Context()); err != nil || r.Exit != 0 {
		t.Fatalf("control: %+v, %v", r, err)
	}
	for name, change := range map[string]func(*OneOff){
		"no command":            func(o *OneOff) { o.Argv = nil },
		"zero byte":             func(o *OneOff) { o.Argv = []string{"a\x00b"} },
		"workspace is home":     func(o *OneOff) { o.Workspace = home },
		"workspace is above":    func(o *OneOff) { o.Workspace = filepath.Dir(home) },
		"workspace is root":     func(o *OneOff) { o.Workspace = "/" },
		"workspace is /etc":     func(o *OneOff) { o.Workspace = "/etc" },
		"workspace is a link":   func(o *OneOff) { o.Workspace = link },
		"workspace is a file":   func(o *OneOff) { o.Workspace = filepath.Join(home, "notes.txt") },
		"relative workspace":    func(o *OneOff) { o.Workspace = "." },
		"missing workspace":     func(o *OneOff) { o.Workspace = "/no/such" },
		"writable is home":      func(o *OneOff) { o.Writable = []string{home} },
		"copy without original": func(o *OneOff) { o.From, o.Workspace = project, "" },
		"show of the home":      func(o *OneOff) { o.Show = []string{home} },
		"show outside":          func(o *OneOff) { o.Show = []string{"/root/.ssh"} },
		"hostname":              func(o *OneOff) { o.Hostname = "a b" },
		"memory":                func(o *OneOff) { o.Limits.Memory = 1 << 30 },
		"negative limit":        func(o *OneOff) { o.Limits.Temp = -1 },
		"file in /proc":         func(o *OneOff) { o.Files = []sandbox.File{{Path: "/proc/x"}} },
		"file that climbs":      func(o *OneOff) { o.Files = []sandbox.File{{Path: "/etc/../x"}} },
		"too many files":        func(o *OneOff) { o.Files = make([]sandbox.File, sandbox.MaxFiles+1) },
		"file too large": func(o *OneOff) {
			o.Files = []sandbox.File{{Path: "/run/x", Data: make([]byte, sandbox.MaxFileBytes+1)}}
		},
		"too many folders": func(o *OneOff) { o.Writable = make([]string, maxWritable+1) },
		"link":             func(o *OneOff) { o.Files = []sandbox.File{{Path: "/etc/x", Link: "/y"}} },
	} {
		o := good
		change(&o)
		if _, err := o.Run(t.Context()); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	missing := good
	missing.Init += "-missing"
	if _, err := missing.Run(t.Context()); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), layerInit) || !strings.Contains(cofferdam.HintOf(err), "make build") {
		t.Errorf("missing init: %v", err)
	}
}

// runsAs has the test program be an ordinary user's.
const runsAs = "COFFERDAM_TEST_ONE_OFF"

// oneOffOfUser is the inside of TestOneOffOfUser.
func oneOffOfUser() {
	home := os.Getenv(runsAs)
	o := OneOff{
		Init: os.Getenv("COFFERDAM_TEST_INIT"), Home: home, Workspace: filepath.Join(home, "project"), Stdout: os.Stdout, Stderr: os.Stderr,
		Env: []string{"PATH=/usr/bin", "HOME=" + home}, Argv: []string{"sh", "-c", os.Getenv("COFFERDAM_TEST_TEXT")},
	}
	r, err := o.Run(context.Background())
	fmt.Printf("exit %d %v\n", r.Exit, err)
}

// TestOneOffOfUser runs one as an ordinary user, who has no subordinate ids.
func TestOneOffOfUser(t *testing.T) {
	home, _ := person(t)
	if err := exec.Command("chown", "-R", "4321:4321", home).Run(); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(filepath.Dir(initProgram(t)), "self.test")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, data, 0o755); err != nil {
		t.Fatal(err)
	}
	as := func(text string) string {
		cmd := exec.Command(self)
		cmd.Env = []string{runsAs + "=" + home, "COFFERDAM_TEST_INIT=" + initProgram(t), "COFFERDAM_TEST_TEXT=" + text}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4321, Gid: 4321}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	got := as(`id -u; grep -E '^Cap(Eff|Bnd)' /proc/self/status | tr -d '\t'; ls -A ~ | tr '\n' ' '; cat ~/.ssh/* 2>/dev/null; echo made >made; stat -c %u made; touch /usr/x ~/notes.txt 2>/dev/null; unshare --user true 2>/dev/null && echo nested`)
	want := "4321\nCapEff:0000000000000000\nCapBnd:0000000000000000\n.cargo notes.txt project 4321\nexit 1 <nil>\n"
	if strings.Contains(got, layerUser) {
		t.Skip("this host refuses user namespaces to ordinary users: " + got)
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if data, err := os.ReadFile(filepath.Join(home, "project", "made")); err != nil || string(data) != "made\n" {
		t.Errorf("on the host: %q, %v", data, err)
	}
}

// TestOneOffBytes: arguments and variables reach the command as they are.
func TestOneOffBytes(t *testing.T) {
	_, project := person(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	o := OneOff{
		Init: initProgram(t), Workspace: project, Stdout: out, Env: []string{"PATH=/usr/bin", "A=\xfe☕"},
		Argv: []string{"sh", "-c", `printf '%s|%s|%s' "$1" "$2" "$A"`, "sh", "\xff\x80 b", ""},
	}
	if r, err := o.Run(t.Context()); err != nil || r.Exit != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if data, err := os.ReadFile(out.Name()); err != nil || string(data) != "\xff\x80 b||\xfe☕" {
		t.Errorf("%q, %v", data, err)
	}
}
