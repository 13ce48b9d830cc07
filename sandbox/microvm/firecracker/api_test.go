package firecracker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/microvm/vmmtest"
)

// newAPI serves the description with faults, and returns who speaks to it.
func newAPI(t *testing.T, faults map[string]string) (*vmm.API, *vmmtest.Stub, *vmmtest.Firecracker) {
	t.Helper()
	d, err := vmmtest.Read("testdata/api.json")
	if err != nil {
		t.Fatal(err)
	}
	a := new(vmmtest.Firecracker)
	stub := &vmmtest.Stub{Description: d, Act: a.Act, Faults: faults, Fail: vmmtest.Fault}
	return vmm.NewAPI("Firecracker", "", vmmtest.Serve(t, stub), func(string) {}), stub, a
}

// testMachine has the four disks that a box has.
func testMachine(t *testing.T) vmm.Machine {
	t.Helper()
	dir := t.TempDir()
	m := vmm.Machine{
		ID: "b-0123456789abcdef0123456789abcdef", KVM: true, UID: 0x5D000001, Dir: filepath.Join(dir, "m"), Size: 512 << 20, CPUs: 3,
		Kernel: filepath.Join(dir, "kernel"), Initrd: filepath.Join(dir, "initrd"),
		Group: vmm.Group{V2: true, Parent: "cofferdam-vm-1", Settings: map[string]string{"memory.max": "805306368", "memory.swap.max": "0", "pids.max": "256", "cpu.max": "200000 100000"}},
	}
	for _, name := range []string{m.Kernel, m.Initrd} {
		if err := os.WriteFile(name, []byte("{}"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(m.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.Disks = vmmtest.Drives(t, dir, "machine", "root", "work", "env")
	return m
}

// TestCalls wants each call and its body to be as the published API has them, in
// an order that it takes.
func TestCalls(t *testing.T) {
	ctx, m := context.Background(), testMachine(t)
	api, stub, a := newAPI(t, nil)
	if err := api.Ask(ctx, boot(m)...); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PUT /logger", "PUT /serial", "PUT /machine-config", "PUT /boot-source", "PUT /drives/machine", "PUT /drives/root", "PUT /drives/work", "PUT /drives/env",
		"PUT /network-interfaces/net", "PUT /vsock", "PUT /entropy", "PUT /actions",
	}
	if got := stub.Asked(); !slices.Equal(got, want) {
		t.Errorf("asked %q,\nwant %q", got, want)
	}
	if got := fmt.Sprint(a.Bodies["PUT /machine-config"]); got != "map[mem_size_mib:512 smt:false track_dirty_pages:false vcpu_count:4]" {
		t.Errorf("machine: %s", got)
	}
	for _, d := range m.Disks {
		body := a.Bodies["PUT /drives/"+d.Serial]
		if body["is_read_only"] != !d.Writable || body["is_root_device"] != false || body["rate_limiter"] == nil {
			t.Errorf("disk %s: %v", d.Serial, body)
		}
	}
	if args := fmt.Sprint(a.Bodies["PUT /boot-source"]["boot_args"]); !strings.Contains(args, "cofferdam.disks=machine,root,work,env") || !strings.Contains(args, "cofferdam.port=vsock") {
		t.Errorf("command line: %s", args)
	}
	if net := a.Bodies["PUT /network-interfaces/net"]; net["rx_rate_limiter"] == nil || net["tx_rate_limiter"] == nil {
		t.Errorf("network: %v", net)
	}
	for _, step := range []struct {
		list  []vmm.Request
		state string
	}{{nil, "Running"}, {[]vmm.Request{pause}, "Paused"}, {[]vmm.Request{save}, "Paused"}, {[]vmm.Request{resume}, "Running"}} {
		if err := errors.Join(api.Ask(ctx, step.list...), api.StateIs(ctx, "/", step.state)); err != nil {
			t.Error(err)
		}
	}
	if err := api.Ask(ctx, save); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "not paused") { // control of the stub
		t.Errorf("a running machine was saved: %v", err)
	}
	if slices.ContainsFunc(stub.Asked(), func(call string) bool { return strings.Contains(call, "mmds") }) {
		t.Error("the metadata service was configured")
	}

	api, _, _ = newAPI(t, nil)
	if err := errors.Join(api.Ask(ctx, load()...), api.StateIs(ctx, "/", "Paused"), api.Ask(ctx, resume), api.StateIs(ctx, "/", "Running")); err != nil {
		t.Error(err)
	}
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 4, 31: 32, 64: 32} {
		if got := processors(n); got != want {
			t.Errorf("%d processors become %d, want %d", n, got, want)
		}
	}
}

// TestBrokenAPI has each call of a start fail in each way: the error names the
// call, and nothing is asked after it.
func TestBrokenAPI(t *testing.T) {
	ctx, m := context.Background(), testMachine(t)
	var calls []string
	for _, r := range boot(m) {
		calls = append(calls, r.Method+" "+r.Path)
	}
	vmmtest.Broken(t, "", calls, func(faults map[string]string) (*vmmtest.Stub, error) {
		api, stub, _ := newAPI(t, faults)
		return stub, api.Ask(ctx, boot(m)...)
	})
	for _, fault := range []string{vmmtest.Junk, vmmtest.Close} {
		api, _, _ := newAPI(t, map[string]string{"GET /": fault})
		if err := api.StateIs(ctx, "/", "Running"); cofferdam.KindOf(err) != cofferdam.Unavailable {
			t.Errorf("its state, %s: %v", fault, err)
		}
	}
}

// TestJailer wants the jailer's whole command line.
func TestJailer(t *testing.T) {
	m := &Monitor{Program: "/usr/local/bin/firecracker", Jailer: "/usr/local/bin/jailer"}
	v := testMachine(t)
	want := "--id b-0123456789abcdef0123456789abcdef --exec-file /usr/local/bin/firecracker --uid 1560281089 --gid 1560281089" +
		" --chroot-base-dir " + v.Dir + " --netns /proc/7/fd/9 --new-pid-ns --cgroup-version 2 --parent-cgroup cofferdam-vm-1" +
		" --cgroup cpu.max=200000 100000 --cgroup memory.max=805306368 --cgroup memory.swap.max=0 --cgroup pids.max=256" +
		" --resource-limit fsize=536870912 --resource-limit no-file=256 -- --api-sock /run/api.socket"
	if got := strings.Join(m.arguments(v, "/proc/7/fd/9"), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	v.Group = vmm.Group{Parent: "p", Settings: map[string]string{"memory.limit_in_bytes": "1"}}
	if got := strings.Join(m.arguments(v, "n"), " "); !strings.Contains(got, "--cgroup-version 1 --parent-cgroup p --cgroup memory.limit_in_bytes=1 --resource") {
		t.Errorf("version 1: %s", got)
	}
	if got, want := m.root(v), v.Dir+"/firecracker/"+v.ID+"/root"; got != want {
		t.Errorf("its root is %s, want %s", got, want)
	}
}

// TestVersions wants both programs of one release that is new enough.
func TestVersions(t *testing.T) {
	for _, c := range []struct{ firecracker, jailer, want string }{
		{"Firecracker v1.16.1\n\n", "Jailer v1.16.1\n", "Firecracker 1.16.1"},
		{"Firecracker v1.20.0\n", "Jailer v1.20.0\n", "Firecracker 1.20.0"},
		{"Firecracker v1.16.1\n", "Jailer v1.16.0\n", ""},
		{"Firecracker v1.15.9\n", "Jailer v1.15.9\n", ""},
		{"Firecracker v2.0.0\n", "Jailer v2.0.0\n", ""},
		{"", "Jailer v1.16.1\n", ""},
		{"Firecracker v1.99999999999999999999.0\n", "Jailer v1.16.1\n", ""},
	} {
		dir := t.TempDir()
		m := &Monitor{Program: vmmtest.Script(t, filepath.Join(dir, "firecracker"), c.firecracker), Jailer: vmmtest.Script(t, filepath.Join(dir, "jailer"), c.jailer)}
		got, err := m.Version(context.Background())
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q and %q: %q, %v", c.firecracker, c.jailer, got, err)
		}
	}
	dir := t.TempDir()
	linked := &Monitor{Program: filepath.Join(dir, "firecracker"), Jailer: vmmtest.Script(t, filepath.Join(dir, "jailer"), "Jailer v1.16.1")}
	release := vmmtest.Script(t, filepath.Join(dir, "firecracker-v1.16.1-x86_64"), "Firecracker v1.16.1")
	if err := os.Symlink(release, linked.Program); err != nil {
		t.Fatal(err)
	}
	if _, err := linked.Version(context.Background()); err != nil || linked.root(vmm.Machine{Dir: "/m", ID: "x"}) != "/m/firecracker-v1.16.1-x86_64/x/root" {
		t.Errorf("a link: %v, the jail is %s", err, linked.root(vmm.Machine{Dir: "/m", ID: "x"}))
	}
	none := &Monitor{Program: "/nonexistent/firecracker"}
	if _, err := none.Version(context.Background()); err == nil {
		t.Error("a program that is not there has a version")
	}
}
