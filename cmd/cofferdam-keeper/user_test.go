package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
	"cofferdam/sandbox/sandboxtest"
)

// userPlace is a place whose keeper an ordinary user runs.
func userPlace(t *testing.T) place {
	t.Helper()
	p := newPlace(t)
	if err := os.Chmod(p.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := sandboxtest.OpenFolder(t)
	p.state, p.socket = filepath.Join(dir, "k"), filepath.Join(dir, "k.sock")
	return p
}

func (p place) asUser(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return sandboxtest.AsUser(t, append([]string{filepath.Join(p.bin, "cofferdam-keeper")}, append(args, "--state", p.state, "--socket", p.socket)...)...)
}

// A keeper of an ordinary user makes boxes, says what bounds them, and its end
// is theirs, however it ends.
func TestUserKeeper(t *testing.T) {
	p := userPlace(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self = sandboxtest.OpenCopy(t, self)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		if out, err := p.asUser(t, "--detach", "--pool", "0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		pid := p.holder(t)
		t.Cleanup(func() { p.end(t, pid, syscall.SIGKILL) })
		info, err := os.Stat(p.socket)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != sandboxtest.UserID || info.Mode().Perm() != 0o600 {
			t.Errorf("socket: %v, %v", info, err)
		}
		// Root does not take a user's keeper for its own.
		if _, err := keeper.Dial(context.Background(), p.socket); cofferdam.KindOf(err) != cofferdam.Forbidden {
			t.Errorf("root's call: %v", err)
		}
		left := "98765." + pidText(pid) // for how long two processes sleep that the keeper's end is to end
		client := sandboxtest.AsUser(t, self, "-test.v", "-test.run=^TestUserKeeperMakesBoxes$")
		client.Env = append(client.Env, socketVariable+"="+p.socket, leftVariable+"="+left)
		if out, err := client.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("as its user: %v: %s", err, out)
		}
		if n := sleepers(left); n != 2 {
			t.Errorf("control: %d processes of its box", n)
		}
		p.end(t, pid, sig)
		for deadline := time.Now().Add(30 * time.Second); sleepers(left) > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after signal %v %d processes of its box go on", sig, sleepers(left))
			}
		}
	}
	log, err := os.ReadFile(filepath.Join(p.state, "keeper.log"))
	if err != nil || !strings.Contains(string(log), "every box with it") {
		t.Errorf("its log: %v: %s", err, log)
	}
}

// sleepers counts the host's processes that are "sleep" for so long.
func sleepers(long string) (n int) {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, path := range list {
		if data, err := os.ReadFile(path); err == nil && string(data) == "sleep\x00"+long+"\x00" {
			n++
		}
	}
	return n
}

// socketVariable is where TestUserKeeperMakesBoxes finds a keeper.
const socketVariable = "COFFERDAM_TEST_SOCKET"

// leftVariable says for how long what it leaves behind sleeps.
const leftVariable = "COFFERDAM_TEST_LEFT"

func TestUserKeeperMakesBoxes(t *testing.T) {
	socket := os.Getenv(socketVariable)
	if socket == "" {
		t.Skip("TestUserKeeper runs it")
	}
	ctx := context.Background()
	c, err := keeper.Dial(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process} {
		b := createOf(t, c, tier)
		var out bytes.Buffer
		r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "one", Shell: "id -u; exit 7"}, &out, nil)
		if err != nil || r.Exit != 7 || out.String() != "1000\n" {
			t.Errorf("%s: %q, %+v, %v", tier, out.String(), r, err)
		}
		s, err := b.Status(ctx)
		if err != nil || s.Tier != tier || !slices.Contains(s.Flags, "limits=watched") || !slices.Contains(s.Flags, "workspace=memory") {
			t.Errorf("status %+v, %v", s, err)
		}
		q, err := b.Wire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		q.Close()
		if err := b.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	userKeeps(t, c, sandbox.GVisor)
	userKeeps(t, c, sandbox.Process)
	// One is left for the keeper to end.
	b, left := createOf(t, c, sandbox.Process), os.Getenv(leftVariable)
	if err := b.Start(ctx, sandbox.Command{ID: "left", Shell: "setsid sleep " + left + " & sleep " + left}); err != nil {
		t.Fatal(err)
	}
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "seen", Shell: "until pgrep -c -f '^sleep " + left + "$' | grep -q 2; do sleep 0.05; done"}, nil, nil)
	if err != nil || r.Exit != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// userKeeps finds in a second box what a first one wrote to its workspace, and in
// a copy of that, if the tier has any, what it had in memory.
func userKeeps(t *testing.T, c *keeper.Client, tier sandbox.Tier) {
	t.Helper()
	ctx, id, snapshot := context.Background(), sandbox.WorkspaceID(cofferdam.NewID("w")), sandbox.SnapshotID(cofferdam.NewID("s"))
	for i, say := range []string{"echo kept >/work/f", "cat /work/f; echo memory >/tmp/f", "cat /work/f /tmp/f"} {
		if i == 2 && tier == sandbox.Process {
			break
		}
		spec := sandbox.Spec{
			ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: tier, Image: "host", Workspace: id, Epoch: int64(i),
			Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, PIDs: 128},
		}
		want := []string{"", "kept\n", "kept\nmemory\n"}[i]
		if i == 2 {
			spec.Workspace, spec.Epoch, spec.Snapshot = "", 0, snapshot
		}
		b, err := c.Create(ctx, spec)
		if err != nil {
			t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
		}
		var out bytes.Buffer
		if r, err := sandbox.Run(ctx, b, sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("x")), Shell: say}, &out, nil); err != nil || r.Exit != 0 || out.String() != want {
			t.Errorf("box %d: %q, %+v, %v", i, out.String(), r, err)
		}
		if s, err := b.Status(ctx); err != nil || slices.Contains(s.Flags, "workspace=watched") != (i < 2) {
			t.Errorf("box %d: %+v, %v", i, s, err)
		}
		if i == 1 && tier != sandbox.Process {
			if _, err := b.Snapshot(ctx, sandbox.Take{ID: snapshot, Memory: true}); err != nil {
				t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
			}
		}
		if err := b.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	err := c.RemoveWorkspace(ctx, id)
	if tier != sandbox.Process {
		err = errors.Join(err, c.RemoveSnapshot(ctx, snapshot))
	}
	if err != nil {
		t.Error(err)
	}
}

// In the foreground a keeper ends with who started it.
func TestUserKeeperEndsWithItsStarter(t *testing.T) {
	p := userPlace(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cmd := p.asUser(t, "--pool", "0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if _, err := os.Stat(p.socket); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no socket")
			}
		}
		pid := p.holder(t)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if exe, err := os.Readlink("/proc/" + pidText(pid) + "/exe"); err != nil || exe == "" {
				break
			}
			if time.Now().After(deadline) {
				p.end(t, pid, syscall.SIGKILL)
				t.Fatalf("after signal %v the keeper goes on", sig)
			}
		}
		if err := os.Remove(p.socket); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// What a user lacks is named with its fix, and nothing weaker is made instead.
func TestUserChecks(t *testing.T) {
	p := userPlace(t)
	out, err := p.asUser(t, "--check").Output()
	if err != nil {
		t.Errorf("check: %v: %s", err, out)
	}
	list := surveys(t, out)
	s := list[sandbox.GVisor]
	if !s.Usable || !s.EnvFolder || !slices.Contains(s.Can, sandbox.CanSetup) || !slices.Contains(s.Can, sandbox.CanKeep) || !slices.Contains(s.Can, sandbox.CanSnapshot) {
		t.Errorf("%+v", s)
	}
	if !slices.ContainsFunc(s.Findings, func(f sandbox.Finding) bool {
		return f.Name == "control-groups" && f.Level == sandbox.Warn && strings.Contains(f.Detail, "watched") && f.Fix != ""
	}) {
		t.Errorf("control groups: %+v", s.Findings)
	}
	plain := list[sandbox.Process]
	if !plain.Usable || slices.Contains(plain.Can, sandbox.CanPause) || !slices.Contains(plain.Can, sandbox.CanKeep) || !slices.Contains(plain.Can, sandbox.CanImage) {
		t.Errorf("%+v", plain)
	}
	if !slices.ContainsFunc(plain.Findings, func(f sandbox.Finding) bool {
		return f.Name == "process-control-groups" && f.Level == sandbox.Warn && strings.Contains(f.Detail, "watched") && strings.Contains(f.Fix, "Delegate=")
	}) {
		t.Errorf("control groups: %+v", plain.Findings)
	}
	// Limits that are watched are not what it lacks: to delegate them would not help.
	if f, missing := list[sandbox.MicroVM].Missing(); !missing || f.Fix == "" || f.Name == "microvm-control-groups" || list[sandbox.MicroVM].Usable {
		t.Errorf("a machine on hardware: %+v", list[sandbox.MicroVM])
	}
	emulated := list[sandbox.Emulated]
	if f, missing := emulated.Missing(); missing { // bin/kernel is not beside these programs
		t.Logf("emulated machines: %s: %s", f.Name, f.Detail)
	}
	if !slices.ContainsFunc(emulated.Findings, func(f sandbox.Finding) bool {
		return f.Name == "microvm-control-groups" && f.Level == sandbox.Warn && strings.Contains(f.Detail, "not bounded") && strings.Contains(f.Fix, "Delegate=")
	}) {
		t.Errorf("emulated machines: %+v", emulated.Findings)
	}
	// Who demands limits has no tier.
	out, err = p.asUser(t, "--check", "--limits", "required").Output()
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process, sandbox.Emulated} {
		if s := surveys(t, out)[tier]; err == nil || s.Usable || !slices.ContainsFunc(s.Findings, func(f sandbox.Finding) bool {
			return f.Level == sandbox.Fail && strings.HasSuffix(f.Name, "control-groups")
		}) {
			t.Errorf("%s with limits: %v, %+v", tier, err, s)
		}
	}
	// Without a range of ids there is none either.
	cmd := exec.Command(filepath.Join(p.bin, "cofferdam-keeper"), "--check", "--state", p.state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err = cmd.Output()
	if f, missing := surveys(t, out)[sandbox.GVisor].Missing(); err == nil || !missing || f.Name != "user-namespace" || !strings.Contains(f.Fix, "usermod --add-subuids") {
		t.Errorf("without a range: %v, %+v", err, f)
	}
}
