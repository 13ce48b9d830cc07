package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cofferdam/sandbox"
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
