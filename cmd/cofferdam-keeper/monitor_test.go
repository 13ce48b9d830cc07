package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
	"cofferdam/sandbox/sandboxtest"
)

// TestMonitorSetting wants the monitor that an operator named to be examined, its
// absence said with its fix, and the tier refused that it does not have. A keeper's
// choice is remembered for who examines the host.
func TestMonitorSetting(t *testing.T) {
	p := newPlace(t)
	surveys := func(args ...string) map[sandbox.Tier]sandbox.Survey {
		t.Helper()
		out, err := p.command(append([]string{"--check"}, args...)...).Output()
		var found struct {
			Tiers []sandbox.Survey `json:"tiers"`
		}
		if e := json.Unmarshal(out, &found); e != nil {
			t.Fatalf("%v: %v: %s", e, err, out)
		}
		list := map[sandbox.Tier]sandbox.Survey{}
		for _, s := range found.Tiers {
			list[s.Tier] = s
		}
		return list
	}
	finding := func(s sandbox.Survey, name string) sandbox.Finding {
		for _, f := range s.Findings {
			if f.Name == name {
				return f
			}
		}
		return sandbox.Finding{}
	}
	for _, name := range []string{"firecracker", "cloud-hypervisor"} {
		if paths, _ := filepath.Glob("/usr/*bin/" + name); len(paths) > 0 {
			t.Skip("this host has " + name)
		}
		if paths, _ := filepath.Glob("/usr/local/*bin/" + name); len(paths) > 0 {
			t.Skip("this host has " + name)
		}
	}
	for _, name := range []string{"firecracker", "cloud-hypervisor"} {
		list := surveys("--monitor", name)
		f := finding(list[sandbox.MicroVM], "microvm-monitor")
		if f.Level != sandbox.Fail || !strings.Contains(f.Detail, "not run on this host") || !strings.Contains(f.Fix, "install "+name) || list[sandbox.MicroVM].Usable {
			t.Errorf("%s: %+v", name, f)
		}
		if f := finding(list[sandbox.Emulated], "microvm-emulation"); f.Level != sandbox.Fail || list[sandbox.Emulated].Usable {
			t.Errorf("%s, emulated: %+v", name, f)
		}
	}
	if out, err := p.command("--detach", "--monitor", "firecracker").CombinedOutput(); err != nil {
		t.Fatalf("a keeper serves the other tiers: %v: %s", err, out)
	}
	p.end(t, p.holder(t), syscall.SIGTERM)
	remembered := settings{state: p.state}
	if got := remembered.chosenMonitor(); got != "firecracker" {
		t.Errorf("a keeper with --monitor firecracker is remembered as %q", got)
	}
	for _, c := range []struct{ flag, file, want string }{{"", "firecracker", "firecracker"}, {"qemu", "firecracker", "qemu"}, {"", "x", ""}, {"", "", ""}} {
		if err := os.WriteFile(remembered.monitorFile(), []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		s := remembered
		if s.monitor = c.flag; s.chosenMonitor() != c.want {
			t.Errorf("flag %q, file %q: %q", c.flag, c.file, s.chosenMonitor())
		}
	}
	if _, err := parse([]string{"--monitor", "vmware"}, io.Discard); err == nil || !strings.Contains(err.Error(), "qemu, firecracker, cloud-hypervisor") {
		t.Errorf("a monitor that there is not: %v", err)
	}
}

// TestUserKeeperMakesMachines: a keeper of an ordinary user makes an emulated machine,
// and its end is the machine's.
func TestUserKeeperMakesMachines(t *testing.T) {
	if socket := os.Getenv(socketVariable); socket != "" {
		makeMachine(t, socket)
		return
	}
	kernel, err := filepath.Abs("../../bin/kernel")
	if err != nil || os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("not run here: it starts an emulated machine with the host's programs; COFFERDAM_SOAK=1 runs it")
	}
	if _, err := os.Stat(kernel); err != nil {
		t.Skipf("not run here: %v; make build", err)
	}
	p := userPlace(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.asUser(t, "--detach", "--pool", "0", "--kernel", kernel).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid := p.holder(t)
	t.Cleanup(func() { p.end(t, pid, syscall.SIGKILL) })
	client := sandboxtest.AsUser(t, sandboxtest.OpenCopy(t, self), "-test.v", "-test.run=^"+t.Name()+"$")
	client.Env = append(client.Env, socketVariable+"="+p.socket)
	out, err := client.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("as its user: %v: %s", err, out)
	}
	_, id, _ := strings.Cut(string(out), "left ")
	if id, _, _ = strings.Cut(id, "\n"); monitors(id) != 1 {
		t.Errorf("control: the machine that was left is not there: %q", id)
	}
	p.end(t, pid, syscall.SIGKILL)
	until(t, "its machine ends", func() bool { return monitors(id) == 0 })
}

// makeMachine makes a machine, uses it and leaves it.
func makeMachine(t *testing.T, socket string) {
	t.Helper()
	ctx := context.Background()
	c, err := keeper.Dial(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	b := createOf(t, c, sandbox.Emulated)
	fmt.Printf("left %s\n", b.ID())
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "one", Shell: "test $(id -u) = 1000 && exit 7"}, nil, nil)
	if err != nil || r.Exit != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	if s, err := b.Status(ctx); err != nil || s.Tier != sandbox.Emulated || !slices.Contains(s.Flags, "limits=own") || !slices.Contains(s.Flags, "workspace=disk") {
		t.Errorf("status %+v, %v", s, err)
	}
	if _, err := c.Create(ctx, sandbox.Spec{ID: "b-" + cofferdam.BoxID(strings.Repeat("0", 32)), Tier: sandbox.MicroVM, Image: "host"}); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(cofferdam.HintOf(err), "as root") {
		t.Errorf("a machine on hardware: %v (%s)", err, cofferdam.HintOf(err))
	}
}

// monitors counts the processes that see the memory of a box's machine.
func monitors(id string) (n int) {
	list, _ := filepath.Glob("/proc/[0-9]*/mountinfo") // the pattern is good
	for _, path := range list {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "/"+id+"/memory /vm/memory") {
			n++
		}
	}
	return n
}
