package microvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// fakeHost is a host's files, all of them good.
type fakeHost struct {
	t    *testing.T
	root string
}

func newFakeHost(t *testing.T) fakeHost {
	h := fakeHost{t, t.TempDir()}
	for _, w := range weaknesses {
		h.set(w.path, w.good)
	}
	return h
}

func (h fakeHost) set(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(h.root, path)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.root, path), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// weaknesses are one file each, good and bad.
var weaknesses = []struct{ name, path, good, bad string }{
	{"host-swap", "proc/swaps", "Filename Type\n", "Filename Type\n/dev/sda2 partition\n"},
	{"host-smt", "sys/devices/system/cpu/smt/active", "0\n", "1\n"},
	{"host-ksm", "sys/kernel/mm/ksm/run", "0\n", "1\n"},
	{"host-nx-huge-pages", "sys/module/kvm/parameters/nx_huge_pages", "Y\n", "N\n"},
	{"host-mitigations", "sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers\n", "Vulnerable: no microcode\n"},
	{"host-cgroup-v2", "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n", ""},
	{"host-seccomp", "proc/sys/kernel/seccomp/actions_avail", "kill_process kill_thread trap errno\n", ""},
	{"host-aslr", "proc/sys/kernel/randomize_va_space", "2\n", "1\n"},
	{"host-own-users", "etc/passwd", "root:x:0:0::/:/bin/sh\n", fmt.Sprintf("root:x:0:0::/:/bin/sh\nx:x:%d:5::/:/bin/sh\n", firstUser+3)},
	{"host-own-users", "etc/subuid", "agent:100000:65536\n", fmt.Sprintf("agent:100000:%d\n", firstUser)},
}

func failingOn(t *testing.T, root string) (names []string) {
	t.Helper()
	for _, f := range hostFindings(root) {
		if f.Level == sandbox.Fail {
			names = append(names, f.Name)
			if f.Fix == "" || f.Detail == "" || strings.Contains(f.Detail+f.Fix, "\n") {
				t.Errorf("%+v", f)
			}
		}
	}
	return names
}

// TestUnhardenedHost makes each weakness of a host in turn, and wants it named
// alone, with its fix.
func TestUnhardenedHost(t *testing.T) {
	h := newFakeHost(t)
	for _, c := range weaknesses {
		if got := failingOn(t, h.root); len(got) != 0 {
			t.Errorf("%s, good: %q fails", c.name, got)
		}
		h.set(c.path, c.bad)
		if got := failingOn(t, h.root); !slices.Equal(got, []string{c.name}) {
			t.Errorf("%s, bad: %q fails", c.name, got)
		}
		h.set(c.path, c.good)
	}
	for _, junk := range []string{"x:x:notanumber:5\n", ":::::\n", "x\n", "agent:1:99999999999999999999\n"} {
		h.set("etc/passwd", junk)
		h.set("etc/subuid", junk)
		if got := failingOn(t, h.root); len(got) != 0 {
			t.Errorf("%q: %q fails", junk, got)
		}
	}
	// A host that says nothing at all is not taken for a hardened one.
	if got := failingOn(t, t.TempDir()); !slices.Equal(got, []string{"host-cgroup-v2", "host-seccomp", "host-aslr"}) {
		t.Errorf("an empty host: %q fails", got)
	}
}

// TestRefusalListsAll wants every missing thing in one refusal of tier microvm,
// and none of the host's weaknesses in the way of an emulated machine.
func TestRefusalListsAll(t *testing.T) {
	h := newFakeHost(t)
	for _, c := range weaknesses {
		h.set(c.path, c.bad)
	}
	d := &Driver{o: Options{Root: t.TempDir(), Cache: t.TempDir(), Init: "/nonexistent"}, monitor: &brokenMonitor{}}
	d.checker.d, d.checker.host = d, h.root
	err := d.checker.refuse(context.Background(), sandbox.MicroVM)
	if cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Fatal(err)
	}
	for _, c := range weaknesses {
		if !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s is not in the refusal: %v", c.name, err)
		}
	}
	if hint := cofferdam.HintOf(err); !strings.Contains(hint, "swapoff -a") || !strings.Contains(hint, "nosmt") {
		t.Errorf("its hint: %s", hint)
	}
	for _, f := range d.checker.tierLacks(context.Background(), sandbox.Emulated) {
		if strings.HasPrefix(f.Name, "host-") {
			t.Errorf("an emulated machine is refused for %s", f.Name)
		}
	}
}
