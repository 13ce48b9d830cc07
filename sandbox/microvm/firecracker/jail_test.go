package firecracker

import (
	"bytes"
	"context"
	"encoding/json"
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

	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/microvm/vmmtest"
	"cofferdam/sandbox/sandboxtest"
)

// programs builds cofferdam-init, and what stands for jailer and firecracker.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "cofferdam-jail-"); err != nil {
		return "", err
	}
	built = dir
	if err := sandboxtest.Build(dir, "cofferdam-init"); err != nil {
		return "", err
	}
	for _, name := range []string{"jailer", "firecracker"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "./testdata/stub")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
	}
	return dir, nil
})

var built string // where programs has put them; "" if no test asked

// helper makes this program start a machine and wait to be killed.
const helper = "COFFERDAM_TEST_JAIL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helper); dir != "" {
		help(dir)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// started is a machine with the driver's ends of its sockets.
type started struct {
	*machine
	console *os.File
	v       vmm.Machine
}

// orders are what the stub reads in the place of a kernel.
type orders map[string]any

// start starts a machine of the stubs in dir.
func start(m *Monitor, v vmm.Machine) (s started, err error) {
	var network, theirs [2]*os.File
	for i := range theirs {
		if network[i], theirs[i], err = vmm.SocketPair(); err != nil {
			return s, err
		}
		defer theirs[i].Close()
	}
	v.Console, v.Network = theirs[0], theirs[1]
	r, err := m.Start(context.Background(), v)
	if err != nil {
		return s, errors.Join(err, network[0].Close(), network[1].Close())
	}
	return started{r.(*machine), network[0], v}, nil
}

// newMachine describes a machine to the stubs.
func newMachine(t *testing.T, o orders) (*Monitor, vmm.Machine) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not run on this host: needs root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("not run on this host: " + err.Error())
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	description, err := os.ReadFile("testdata/api.json")
	if err != nil {
		t.Fatal(err)
	}
	if o["description"] = json.RawMessage(description); o["log"] == nil {
		o["log"] = "all is well"
	}
	kernel, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	v := testMachine(t)
	v.Group.V2 = false
	if err := errors.Join(os.Remove(v.Kernel), os.WriteFile(v.Kernel, kernel, 0o444)); err != nil {
		t.Fatal(err)
	}
	return &Monitor{Init: filepath.Join(dir, "cofferdam-init"), Jailer: filepath.Join(dir, "jailer"), Program: filepath.Join(dir, "firecracker")}, v
}

func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(data, []byte(") Z "))
}

// within waits for a state.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestJail starts what stands for Firecracker by what stands for its jailer: all
// but the two programs is as with the real ones. It says nothing of those.
func TestJail(t *testing.T) {
	m, v := newMachine(t, orders{})
	r, err := start(m, v)
	if err != nil {
		t.Fatal(err)
	}
	defer r.End()
	if err := vmm.Confined(r.PID, v.UID); err != nil {
		t.Error(err)
	}
	vmmtest.Prints(t, r.console, "the guest's kernel prints")
	within(t, "its log: "+r.Program.Words(), func() bool { return strings.Contains(r.Program.Words(), "all is well") })
	vmmtest.Echo(t, r)
	if got, err := os.ReadFile(v.Disks[2].File.Name()); string(got) != "written by the guest" {
		t.Errorf("its disk: %q, %v", got, err)
	}
	looksOut(t, r.PID)

	ctx, dir := context.Background(), t.TempDir()
	to := vmm.Saved{State: filepath.Join(dir, "state"), Memory: filepath.Join(dir, "memory")}
	if err := errors.Join(r.Pause(ctx), r.Save(ctx, to), r.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	vmmtest.Echo(t, r)
	for path, want := range map[string]string{to.State: "state", to.Memory: "memory"} {
		got, err := os.ReadFile(path)
		if info, e := os.Stat(path); string(got) != want || e != nil || info.Mode().Perm() != 0o444 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: %q, %v, %v", filepath.Base(path), got, info.Mode(), errors.Join(err, e))
		}
	}
	pids := r.PIDs()
	r.End()
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d goes on after its end", pid)
		}
	}

	_, again := newMachine(t, orders{})
	again.Incoming = &to
	r, err = start(m, again)
	if err != nil {
		t.Fatal(err)
	}
	defer r.End()
	if err := errors.Join(r.Load(ctx), r.Resume(ctx)); err != nil {
		t.Errorf("%v; it printed %s", err, r.Program.Words())
	}
}

// looksOut looks at what the monitor sees, as root would who broke out of it.
func looksOut(t *testing.T, pid int) {
	t.Helper()
	root := fmt.Sprintf("/proc/%d/root", pid)
	list, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if name := e.Name(); !strings.Contains(" dev run vm save firecracker firecracker.pid ", " "+name+" ") {
			t.Errorf("the monitor sees /%s", name)
		}
	}
	for _, path := range []string{"/vm/kernel", "/vm/initrd", "/vm/disk-root", "/vm/disk-machine"} { // as root, whom modes do not stop
		if f, err := os.OpenFile(root+path, os.O_WRONLY, 0); err == nil {
			f.Close()
			t.Errorf("%s can be written", path)
		}
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		ours, err1 := os.Readlink("/proc/self/ns/" + ns)
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err := errors.Join(err1, err2); err != nil || ours == theirs {
			t.Errorf("namespace %s: %s, %v", ns, theirs, err)
		}
	}
}

// TestJailRefusals wants no machine of a monitor that is not as it should be, soon,
// and nothing left of it.
func TestJailRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		orders orders
		says   string
	}{
		"no filter":        {orders{"unfiltered": true}, "Seccomp is 0"},
		"ends at once":     {orders{"exit": true}, "it ends"},
		"refuses a disk":   {orders{"faults": map[string]string{"PUT /drives/work": "refuse"}}, "PUT /drives/work"},
		"never runs":       {orders{"faults": map[string]string{"GET /": "junk"}}, "GET /"},
		"closes the start": {orders{"faults": map[string]string{"PUT /actions": "close"}}, "PUT /actions"},
		"hangs":            {orders{"faults": map[string]string{"PUT /actions": "hang"}}, "it did not answer PUT /actions within"},
	} {
		if name == "hangs" && os.Getenv("COFFERDAM_SOAK") == "" {
			continue // it takes as long as a call may
		}
		m, v := newMachine(t, c.orders)
		r, err := start(m, v)
		if err == nil {
			r.End()
			t.Errorf("%s: there is a machine", name)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: %v", name, err)
		}
		within(t, name+": its processes", func() bool { return len(processesOf(t, v.ID)) == 0 })
	}
	m, v := newMachine(t, orders{})
	v.KVM = false
	if _, err := start(m, v); err == nil || !strings.Contains(err.Error(), "emulates no processor") {
		t.Errorf("without KVM: %v", err)
	}
}

// processesOf are those with a machine's name on their command line.
func processesOf(t *testing.T, id string) (list []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(id)) {
			list = append(list, path)
		}
	}
	return list
}

// TestJailEndsWithItsKeeper kills the process that has a machine: the kernel ends
// what the jailer left behind.
func TestJailEndsWithItsKeeper(t *testing.T) {
	m, v := newMachine(t, orders{})
	dir := t.TempDir()
	for _, name := range []string{"kernel", "initrd"} {
		if err := os.Link(filepath.Join(filepath.Dir(v.Kernel), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"="+dir, "PROGRAMS="+filepath.Dir(m.Program))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanln(out, &pid); err != nil || gone(pid) {
		t.Errorf("the monitor is process %d, %v", pid, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if pid > 0 {
		within(t, "the end of the monitor", func() bool { return gone(pid) })
	}
}

// help is the process that is killed.
func help(dir string) {
	programs := os.Getenv("PROGRAMS")
	v := vmm.Machine{
		ID: "b-helper", KVM: true, UID: 0x5D000001, Dir: filepath.Join(dir, "m"), Size: 64 << 20, CPUs: 1,
		Kernel: filepath.Join(dir, "kernel"), Initrd: filepath.Join(dir, "initrd"), Group: vmm.Group{Parent: "p"},
	}
	err := os.Mkdir(v.Dir, 0o700)
	if err == nil {
		var r started
		r, err = start(&Monitor{Init: filepath.Join(programs, "cofferdam-init"), Jailer: filepath.Join(programs, "jailer"), Program: filepath.Join(programs, "firecracker")}, v)
		if err == nil {
			fmt.Println(r.PID)
			select {}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
