package cloudhypervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/microvm/vmmtest"
)

// stub builds what stands for Cloud Hypervisor.
var stub = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "cofferdam-stub-"); err != nil {
		return "", err
	}
	path = filepath.Join(built, "cloud-hypervisor")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/stub")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

var built string // where stub has put it; "" if no test asked

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// start starts a machine of the stub, which finds its orders in the kernel.
func start(t *testing.T, orders map[string]any, from *vmm.Saved) (r *machine, console *os.File, v vmm.Machine, err error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not run on this host: needs root")
	}
	for _, device := range []string{"/dev/net/tun", vmm.KVM} {
		if _, err := os.Stat(device); err != nil {
			t.Skip("not run on this host: " + err.Error())
		}
	}
	path, err := stub()
	if err != nil {
		t.Fatal(err)
	}
	description, err := os.ReadFile("testdata/api.json")
	if err != nil {
		t.Fatal(err)
	}
	orders["description"] = json.RawMessage(description)
	kernel, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	v = testMachine(t)
	v.UID, v.Dir, v.Kernel, v.Initrd, v.Incoming = 0x5D000001, filepath.Join(dir, "m"), filepath.Join(dir, "kernel"), filepath.Join(dir, "initrd"), from
	err = errors.Join(os.Mkdir(v.Dir, 0o700), os.WriteFile(v.Kernel, kernel, 0o444), os.WriteFile(v.Initrd, nil, 0o444))
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs [2]*os.File
	for i := range ours {
		if ours[i], theirs[i], err = vmm.SocketPair(); err != nil {
			t.Fatal(err)
		}
		defer theirs[i].Close()
		t.Cleanup(func() { ours[i].Close() })
	}
	v.Console, v.Network = theirs[0], theirs[1]
	running, err := (&Monitor{Program: path}).Start(context.Background(), v)
	if err != nil {
		return nil, nil, v, err
	}
	r = running.(*machine)
	t.Cleanup(r.End)
	return r, ours[0], v, nil
}

// TestProcess starts what stands for Cloud Hypervisor: all but the program is as
// with the real one. It says nothing of that one.
func TestProcess(t *testing.T) {
	r, console, v, err := start(t, map[string]any{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := vmm.Confined(r.Program.PID, v.UID); err != nil {
		t.Error(err)
	}
	vmmtest.Prints(t, console, "the guest's kernel prints")
	vmmtest.Echo(t, r)
	if got, err := os.ReadFile(v.Disks[2].File.Name()); string(got) != "written by the guest" {
		t.Errorf("its disk: %q, %v", got, err)
	}
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", r.Program.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if !strings.Contains(" usr bin sbin lib lib32 lib64 libx32 dev vm run save load ", " "+e.Name()+" ") {
			t.Errorf("the monitor sees /%s", e.Name())
		}
	}

	ctx, dir := context.Background(), t.TempDir()
	to := vmm.Saved{State: filepath.Join(dir, "state"), Memory: filepath.Join(dir, "memory")}
	if err := errors.Join(r.Pause(ctx), r.Save(ctx, to), r.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(r.folder("save")); len(left) > 0 || err != nil {
		t.Errorf("left of what was saved: %v, %v", left, err)
	}
	pid := r.Program.PID
	r.End()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("its process goes on after its end")
	}
	r, _, _, err = start(t, map[string]any{}, &to)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Load(ctx), r.Resume(ctx)); err != nil {
		t.Errorf("%v; it printed %s", err, r.Program.Words())
	}
}

// TestProcessRefusals wants no machine of a monitor that is not as it should be,
// and nothing taken of a hostile one that saves.
func TestProcessRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		orders map[string]any
		says   string
	}{
		"no filter":        {map[string]any{"unfiltered": true}, "Seccomp is 0"},
		"ends at once":     {map[string]any{"exit": true}, "it ends"},
		"refuses":          {map[string]any{"faults": map[string]string{"PUT /api/v1/vm.create": "refuse"}}, "PUT /vm.create"},
		"closes the start": {map[string]any{"faults": map[string]string{"PUT /api/v1/vm.boot": "close"}}, "PUT /vm.boot"},
	} {
		r, _, _, err := start(t, c.orders, nil)
		if err == nil {
			r.End()
			t.Errorf("%s: there is a machine", name)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, _, _, err := start(t, map[string]any{"config": `{"landlock_enable": false}`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to := vmm.Saved{State: filepath.Join(dir, "state"), Memory: filepath.Join(dir, "memory")}
	if err := r.Pause(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := r.Save(context.Background(), to); err == nil || !strings.Contains(err.Error(), "Landlock off") {
		t.Errorf("a configuration without Landlock: %v", err)
	}
}
