package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
	"cofferdam/sandbox/sandboxtest"
)

// programs builds the programs that belong together, once.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "ck-programs-"); err != nil {
		return "", err
	}
	built = dir
	return dir, sandboxtest.Build(dir, "cofferdam-keeper", "cofferdam-runsc", "cofferdam-init")
})

var built string // where programs has put them; "" if no test asked

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// place is one state folder with its socket.
type place struct {
	bin, state, socket string
	patience           time.Duration // of a server with a keeper that begins or ends; 0: as it is
}

func newPlace(t *testing.T) place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the keeper runs as root in this version")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return place{bin: bin, state: filepath.Join(dir, "state"), socket: filepath.Join(dir, "k.sock")}
}

func (p place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, "cofferdam-keeper"), append(args, "--state", p.state, "--socket", p.socket)...)
	cmd.Env = append(os.Environ(), "COFFERDAM_TEST_SECRET=canary")
	return cmd
}

// start starts a keeper in the background and returns its process id.
func (p place) start(t *testing.T) int {
	t.Helper()
	if out, err := p.command("--detach").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid := p.holder(t)
	t.Cleanup(func() { p.end(t, pid, syscall.SIGTERM) })
	return pid
}

// holder is the process that holds the state folder.
func (p place) holder(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.state, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscanf(string(data), "process %d", &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func pidText(pid int) string { return fmt.Sprint(pid) }

// end ends a keeper and waits until it is gone.
func (p place) end(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if !strings.HasPrefix(exe, p.bin) {
		return // it is gone
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Error(err)
	}
	gone(t, p.bin, pid)
}

// gone waits for the end of a keeper.
func gone(t *testing.T, bin string, pid int) {
	t.Helper()
	until(t, fmt.Sprintf("keeper %d ends", pid), func() bool {
		exe, err := os.Readlink("/proc/" + pidText(pid) + "/exe")
		return err != nil || !strings.HasPrefix(exe, bin)
	})
}

// until waits for a state.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within two minutes: " + what)
		}
	}
}

func (p place) dial(t *testing.T) *keeper.Client {
	t.Helper()
	c, err := keeper.Dial(context.Background(), p.socket)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c *keeper.Client) sandbox.Box {
	t.Helper()
	return createOf(t, c, sandbox.GVisor)
}

func createOf(t *testing.T, c *keeper.Client, tier sandbox.Tier) sandbox.Box {
	t.Helper()
	b, err := c.Create(context.Background(), sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: tier, Image: "host",
		Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, PIDs: 128},
	})
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
	}
	return b
}

func TestKeeperServesAndOutlivesItsClients(t *testing.T) {
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process} {
		t.Run(string(tier), func(t *testing.T) { outlive(t, tier) })
	}
}

func outlive(t *testing.T, tier sandbox.Tier) {
	p := newPlace(t)
	pid := p.start(t)
	b := createOf(t, p.dial(t), tier)
	if err := b.Start(context.Background(), sandbox.Command{ID: "one", Shell: "for i in 1 2 3; do echo $i; sleep 0.2; done"}); err != nil {
		t.Fatal(err)
	}
	// Another client finds box and command.
	again, err := p.dial(t).Open(context.Background(), b.ID())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := again.Attach(context.Background(), "one", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error {
		_, err := out.Write(p)
		return err
	})
	if err != nil || r.Exit != 0 || out.String() != "1\n2\n3\n" {
		t.Errorf("%q, %+v, %v", out.String(), r, err)
	}
	q, err := again.Wire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	q.Close()

	// No mount of a box shows on the host, and nothing of the starter's
	// environment is in any process of it.
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(p.state)) {
		t.Errorf("the host sees mounts of the keeper: %v", err)
	}
	if own, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)); err != nil || !bytes.Contains(own, []byte(p.state)) {
		t.Errorf("control: the keeper sees none either: %v", err)
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		line, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
		if env, _ := os.ReadFile(path); bytes.Contains(line, []byte(b.ID())) && bytes.Contains(env, []byte("canary")) {
			t.Errorf("%q has the starter's environment", line)
		}
	}
	if err := again.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestOneKeeperForEachFolder(t *testing.T) {
	p := newPlace(t)
	p.start(t)
	second := p
	second.socket += "2"
	out, err := second.command().CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("another keeper (process ")) || !bytes.Contains(out, []byte("\nhint: ")) {
		t.Errorf("second keeper: %v: %s", err, out)
	}
	out, err = second.command("--detach").CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("another keeper (process ")) || !bytes.Contains(out, []byte("\nhint: ")) {
		t.Errorf("second keeper in the background: %v: %s", err, out)
	}
	other := p
	other.state += "2"
	out, err = other.command().CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("answers on")) {
		t.Errorf("keeper on the same socket: %v: %s", err, out)
	}
	b := create(t, p.dial(t)) // the first one still works
	if err := b.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestKilledKeeperLeavesNothing(t *testing.T) {
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process} {
		t.Run(string(tier), func(t *testing.T) { killKeeper(t, tier) })
	}
}

func killKeeper(t *testing.T, tier sandbox.Tier) {
	p := newPlace(t)
	pid := p.start(t)
	b := createOf(t, p.dial(t), tier)
	// A box that is a process of the host shows by what runs in it.
	mark := fmt.Sprintf("sleep %d.%d", 100_000+os.Getpid(), time.Now().UnixNano())
	if err := b.Start(context.Background(), sandbox.Command{ID: "runs", Argv: strings.Fields(mark)}); err != nil {
		t.Fatal(err)
	}
	asleep := []byte(strings.ReplaceAll(mark, " ", "\x00"))
	sandboxes := func() int {
		n := 0
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			if line, _ := os.ReadFile(path); bytes.Contains(line, []byte(b.ID())) || bytes.Contains(line, asleep) {
				n++
			}
		}
		return n
	}
	until(t, "control: a process of the box is seen", func() bool { return sandboxes() > 0 })
	p.end(t, pid, syscall.SIGKILL)
	until(t, "the box ends with its keeper", func() bool { return sandboxes() == 0 })
	p.start(t) // the socket of the dead one does not stand in the way
	c := p.dial(t)
	if _, err := c.Open(context.Background(), b.ID()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("box of the dead keeper: %v", err)
	}
	if list, err := c.List(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("boxes: %v, %v", list, err)
	}
	if left, err := os.ReadDir(filepath.Join(p.state, "boxes")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := createOf(t, c, tier).Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestCheckPrintsFindings(t *testing.T) {
	p := newPlace(t)
	out, err := p.command("--check").Output()
	if err != nil {
		t.Errorf("check of this host: %v: %s", err, out)
	}
	list := surveys(t, out)
	for _, tier := range sandbox.Tiers() {
		if s := list[tier]; len(s.Findings) < 8 || len(s.Can) == 0 {
			t.Errorf("%s: %+v", tier, s)
		}
		for _, f := range list[tier].Findings {
			if f.Name == "" || f.Detail == "" || f.Level != sandbox.OK && f.Fix == "" {
				t.Errorf("%s: finding %+v", tier, f)
			}
		}
	}
	for _, f := range list[sandbox.GVisor].Findings {
		if f.Level != sandbox.OK {
			t.Errorf("finding %+v", f)
		}
	}
	// A machine without hardware is never taken for one with it.
	if s := list[sandbox.MicroVM]; s.Usable {
		if !slices.ContainsFunc(s.Findings, func(f sandbox.Finding) bool { return f.Name == "microvm-kvm" && f.Level == sandbox.OK }) {
			t.Errorf("usable without a proof: %+v", s)
		}
	} else if _, missing := s.Missing(); !missing {
		t.Errorf("not usable, and nothing is missing: %+v", s)
	}
	if _, err := os.Stat(p.state); err == nil {
		t.Error("a check made the state folder")
	}
	// Without its sister it says so and fails.
	for _, tier := range sandbox.Tiers() {
		out, _ := p.command("--check", "--tier", string(tier)).Output() // fails where this host lacks the tier
		if one := surveys(t, out); len(one) != 1 || len(one[tier].Findings) < 8 || one[tier].Usable != list[tier].Usable {
			t.Errorf("asked for %s alone: %+v", tier, one)
		}
	}
	lonely := p
	lonely.bin = t.TempDir()
	if err := os.Link(filepath.Join(p.bin, "cofferdam-keeper"), filepath.Join(lonely.bin, "cofferdam-keeper")); err != nil {
		t.Fatal(err)
	}
	out, err = lonely.command("--check").Output()
	if err == nil || !bytes.Contains(out, []byte(`"fix"`)) {
		t.Errorf("check without programs: %v: %s", err, out)
	}
}

func surveys(t *testing.T, out []byte) map[sandbox.Tier]sandbox.Survey {
	t.Helper()
	var all struct {
		Schema string           `json:"schema"`
		Tiers  []sandbox.Survey `json:"tiers"`
	}
	if err := json.Unmarshal(out, &all); err != nil || all.Schema != "cofferdam/tiers/v1" {
		t.Fatalf("%v: %s", err, out)
	}
	list := map[sandbox.Tier]sandbox.Survey{}
	for _, s := range all.Tiers {
		list[s.Tier] = s
	}
	return list
}

func TestWrongUsage(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		exit int
		text string
	}{
		{[]string{"--unknown"}, 2, "unknown"},
		{[]string{"extra"}, 2, "extra"},
		{[]string{"--limits", "none"}, 2, "--limits"},
		{[]string{"--pool", "17"}, 2, "--pool is 0 to 16"},
		{[]string{"--tier", "gvisor"}, 2, "--tier is for --check"},
		{[]string{"--check", "--tier", "none"}, 2, "--tier is for --check"},
		{[]string{"--pool", "-1"}, 2, "--pool is 0 to 16"},
		{[]string{"--state", file, "--inside"}, 1, "state folder"},
		{[]string{"--socket", file, "--state", filepath.Join(t.TempDir(), "s"), "--inside"}, 1, "no socket"},
	} {
		cmd := exec.Command(filepath.Join(p.bin, "cofferdam-keeper"), c.args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.exit || !bytes.Contains(out, []byte(c.text)) || !bytes.Contains(out, []byte("\nhint: ")) {
			t.Errorf("%q: %v: %s", c.args, err, out)
		}
	}
	help, err := exec.Command(filepath.Join(p.bin, "cofferdam-keeper"), "--help").Output()
	if err != nil || !bytes.Contains(help, []byte("example:")) {
		t.Errorf("help: %v: %s", err, help)
	}
}

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	line := bytes.Repeat([]byte("x"), 1<<20)
	for range 30 {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".1"} {
		if info, err := os.Stat(p); err != nil || info.Size() > maxLog {
			t.Errorf("%s: %v, %v", p, info, err)
		}
	}
}
