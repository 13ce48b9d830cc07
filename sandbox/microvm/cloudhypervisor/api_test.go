package cloudhypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/microvm/vmmtest"
)

func newAPI(t *testing.T, faults map[string]string) (*vmm.API, *vmmtest.Stub, *vmmtest.CloudHypervisor) {
	t.Helper()
	d, err := vmmtest.Read("testdata/api.json")
	if err != nil {
		t.Fatal(err)
	}
	a := new(vmmtest.CloudHypervisor)
	stub := &vmmtest.Stub{Description: d, Act: a.Act, Faults: faults}
	return vmm.NewAPI("Cloud Hypervisor", prefix, vmmtest.Serve(t, stub), func(string) {}), stub, a
}

func testMachine(t *testing.T) vmm.Machine {
	t.Helper()
	disks := vmmtest.Drives(t, t.TempDir(), "machine", "root", "work")
	return vmm.Machine{ID: "b-1", KVM: true, Size: 512 << 20, CPUs: 3, Disks: disks}
}

// TestCalls wants each call and its body to be as the published API has them, in
// an order that it takes.
func TestCalls(t *testing.T) {
	ctx, m := context.Background(), testMachine(t)
	api, stub, a := newAPI(t, nil)
	if err := api.Ask(ctx, boot(m)...); err != nil {
		t.Fatal(err)
	}
	if got, want := stub.Asked(), []string{"PUT /api/v1/vm.create", "PUT /api/v1/vm.boot"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	body := a.Bodies["/vm.create"]
	if body["landlock_enable"] != true || len(body["landlock_rules"].([]any)) != 3 {
		t.Errorf("Landlock: %v", body)
	}
	for i, d := range body["disks"].([]any) {
		d := d.(map[string]any)
		if d["image_type"] != "Raw" || d["readonly"] != !m.Disks[i].Writable || d["serial"] != m.Disks[i].Serial || d["rate_limiter_config"] == nil {
			t.Errorf("disk %d: %v", i, d)
		}
	}
	if n := body["net"].([]any)[0].(map[string]any); n["tap"] != vmm.TAP || n["offload_tso"] != false || n["offload_csum"] != false || n["rate_limiter_config"] == nil {
		t.Errorf("network: %v", n)
	}
	if s := body["serial"].(map[string]any); s["mode"] != "Socket" {
		t.Errorf("serial console: %v", s)
	}
	for _, step := range []struct {
		list  []vmm.Request
		state string
	}{{nil, "Running"}, {[]vmm.Request{pause}, "Paused"}, {[]vmm.Request{save}, "Paused"}, {[]vmm.Request{resume}, "Running"}} {
		if err := errors.Join(api.Ask(ctx, step.list...), api.StateIs(ctx, "/vm.info", step.state)); err != nil {
			t.Error(err)
		}
	}
	if err := api.Ask(ctx, save); cofferdam.KindOf(err) != cofferdam.Invalid { // control of the stub
		t.Errorf("a running machine was saved: %v", err)
	}
	api, _, a = newAPI(t, nil)
	if err := errors.Join(api.Ask(ctx, load, resume), api.StateIs(ctx, "/vm.info", "Running")); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(a.Bodies["/vm.restore"]); got != "map[resume:false source_url:file:///load]" {
		t.Errorf("restore: %s", got)
	}
	if got := strings.Join(arguments(), " "); got != "--api-socket path=/run/api.socket --seccomp true" {
		t.Errorf("arguments: %s", got)
	}
}

// TestBrokenAPI has each call of a start fail in each way.
func TestBrokenAPI(t *testing.T) {
	ctx, m := context.Background(), testMachine(t)
	calls := []string{"GET " + prefix + "/vm.info"}
	for _, r := range boot(m) {
		calls = append(calls, r.Method+" "+prefix+r.Path)
	}
	vmmtest.Broken(t, prefix, calls, func(faults map[string]string) (*vmmtest.Stub, error) {
		api, stub, _ := newAPI(t, faults)
		if err := api.Ask(ctx, boot(m)...); err != nil {
			return stub, err
		}
		return stub, api.StateIs(ctx, "/vm.info", "Running")
	})
}

const goodConfig = `{"landlock_enable": true, "net": [{"tap": "vm0"}], "disks": [{"path": "/vm/disk-work", "serial": "work", "image_type": "Raw"}]}`

// saved lays out what a monitor has left.
func saved(t *testing.T, config string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{configFile: config, stateFile: `{"state": 1}`, memoryFile: "memory"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSaved packs and unpacks what a monitor saves, and refuses what a hostile one
// may leave instead.
func TestSaved(t *testing.T) {
	to := func() vmm.Saved {
		dir := t.TempDir()
		return vmm.Saved{State: filepath.Join(dir, "state"), Memory: filepath.Join(dir, "memory")}
	}
	good, back := to(), t.TempDir()
	if err := errors.Join(pack(saved(t, goodConfig), good), unpack(good.State, back)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(back, configFile): goodConfig, filepath.Join(back, stateFile): `{"state": 1}`, good.Memory: "memory",
	} {
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%s: %q, %v", filepath.Base(path), got, err)
		}
	}
	for _, config := range []string{
		strings.Replace(goodConfig, "true", "false", 1), strings.Replace(goodConfig, "vm0", "eth0", 1), strings.Replace(goodConfig, "/vm/disk-work", "/usr/bin/env", 1),
		strings.Replace(goodConfig, "Raw", "Qcow2", 1), strings.Replace(goodConfig, `"net"`, `"fs": [{}], "net"`, 1), `{}`, `[]`, ``, goodConfig + goodConfig,
		`{"landlock_enable": true, "net": [{"tap": "vm0"}, {"tap": "vm0"}]}`, strings.Repeat(" ", maxConfig) + goodConfig,
	} {
		if err := pack(saved(t, config), to()); err == nil {
			t.Errorf("the configuration %.90s is taken", config)
		}
	}
	for name, spoil := range map[string]func(path string) error{
		"nothing": func(string) error { return nil }, "a link": func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) }, "a pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		for _, file := range []string{configFile, stateFile, memoryFile} {
			dir := saved(t, goodConfig)
			path := filepath.Join(dir, file)
			if err := errors.Join(os.Remove(path), spoil(path)); err != nil {
				t.Fatal(err)
			}
			if err := pack(dir, to()); err == nil {
				t.Errorf("%s in the place of %s is taken", name, file)
			}
			if err := empty(dir); err != nil {
				t.Error(err)
			}
		}
	}
	for _, state := range []string{"", "short", "\x00\x00\x00\x00\x00\x00\x00\xff{}", "\xff\xff\xff\xff\xff\xff\xff\xff{}"} {
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unpack(path, t.TempDir()); err == nil {
			t.Errorf("a saved machine %q is taken", state)
		}
	}
}

// TestVersions wants one that is new enough.
func TestVersions(t *testing.T) {
	for said, want := range map[string]string{
		"cloud-hypervisor v53.0\nMigration Protocol Versions: 1": "Cloud Hypervisor 53.0", "cloud-hypervisor v60.1.0": "Cloud Hypervisor 60.1",
		"cloud-hypervisor v52.0": "", "QEMU 7.2": "", "": "", "cloud-hypervisor v99999999999999999999.0": "",
	} {
		m := &Monitor{Program: vmmtest.Script(t, filepath.Join(t.TempDir(), "cloud-hypervisor"), said)}
		got, err := m.Version(context.Background())
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", said, got, err)
		}
	}
}
