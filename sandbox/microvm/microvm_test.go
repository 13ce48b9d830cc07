package microvm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/sandboxtest"
)

// programs builds cofferdam-init once for all tests.
var programs = sync.OnceValues(func() (dir string, err error) {
	if sandboxtest.IsUser() {
		return sandboxtest.UserPrograms(), nil
	}
	if dir, err = os.MkdirTemp("", "cofferdam-programs-"); err != nil {
		return "", err
	}
	built = dir
	return dir, sandboxtest.Build(dir, "cofferdam-init")
})

var built string // where programs has put them; "" if no test asked

func TestMain(m *testing.M) {
	if err := sandboxtest.Settle(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// testKernel is the kernel that make build unpacks; "" for what is installed.
func testKernel() string {
	if dir, err := filepath.Abs("../../bin/kernel"); err == nil && exists(dir) {
		return dir
	}
	return ""
}

// testCache is kept between runs, since roots are large; "" as an ordinary user.
func testCache() string {
	if sandboxtest.IsUser() {
		return ""
	}
	return filepath.Join(os.TempDir(), "cofferdam-test-cache")
}

// newDriver returns a driver that the test's end closes, or skips the test and
// says which layer is missing.
func newDriver(t testing.TB) *Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces and users of monitors")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "cm-")
	if err != nil {
		t.Fatal(err)
	}
	user := sandboxtest.IsUser()
	d, err := New(Options{Root: root, Cache: testCache(), Proof: filepath.Join(testCache(), "kvm.json"), Init: filepath.Join(bin, "cofferdam-init"), Kernel: testKernel(), User: user, Watched: user})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if list := d.checker.tierLacks(context.Background(), sandbox.Emulated); len(list) > 0 {
		t.Skipf("needs %s: %s; %s", list[0].Name, list[0].Detail, list[0].Fix)
	}
	return d
}

// newBox makes an emulated box with small limits that the test's end destroys.
func newBox(t testing.TB, d *Driver, change ...func(*sandbox.Spec)) sandbox.Box {
	t.Helper()
	spec := sandbox.Spec{
		ID: newID(), Tier: sandbox.Emulated, Image: smallImage(t),
		Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 1, PIDs: 128, OpenFiles: 256},
	}
	for _, c := range change {
		c(&spec)
	}
	b, err := d.Create(context.Background(), spec)
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// smallImage is a root with busybox alone.
func smallImage(t testing.TB) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox-static: " + err.Error())
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sh runs shell text in b and returns its trimmed output and result.
func sh(t testing.TB, b sandbox.Box, text string) (string, sandbox.Result) {
	t.Helper()
	return shFor(t, b, text, time.Minute)
}

// shFor is sh with a time limit of its own.
func shFor(t testing.TB, b sandbox.Box, text string, limit time.Duration) (string, sandbox.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	id := cofferdam.ExecID(cofferdam.NewID("e"))
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: id, Shell: text, Timeout: limit}, &out, &errs)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if errs.Len() > 0 {
		t.Logf("%s: stderr: %.2000s", text, errs.String())
	}
	return strings.TrimSpace(out.String()), r
}

func newID() cofferdam.BoxID { return cofferdam.BoxID(cofferdam.NewID("b")) }

// TestMachine starts one emulated machine and asks all of it that one can show.
func TestMachine(t *testing.T) {
	began := time.Now()
	d := newDriver(t)
	t.Logf("driver and kernel after %s", time.Since(began))
	image := smallImage(t)
	if _, err := d.root(context.Background(), image); err != nil {
		t.Fatal(err)
	}
	env := filepath.Join(d.o.Root, "env.img")
	if err := makeEnv(env, "the first"); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	b := newBox(t, d, func(s *sandbox.Spec) {
		s.Image, s.Hostname, s.Env = image, "machine", env
		s.Files = []sandbox.File{{Path: "/etc/extra/file", Data: []byte("extra\n")}, {Path: "/etc/link", Link: "/etc/extra/file"}}
	}).(*box)
	t.Logf("box made after %s", time.Since(began))
	sh(t, b, "true")
	t.Logf("first command ended after %s", time.Since(began))
	for _, part := range []struct {
		name string
		test func(*testing.T, *box)
	}{
		{"commands", testCommands},
		{"monitor", testMonitor},
		{"wire", testWire},
		{"gateway", testGateway},
		{"exhaustion", testExhaustion},
		{"stands still", testStandStill},
		{"gateway after that", testGateway},
		{"copies", testCopies},
		{"environment", testEnvironmentAtRest},
		{"changed at rest", testChangedAtRest},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, b) }) {
			t.Logf("its console: %s", b.console.last())
		}
	}
}

func testCommands(t *testing.T, b *box) {
	for _, c := range []struct{ text, want string }{
		{"id -u; id -g; whoami; echo $HOME; pwd", "1000\n1000\nagent\n/home/agent\n/work"},
		{"stat -c %u:%g:%a /work /home/agent /tmp", "1000:1000:755\n1000:1000:700\n0:0:1777"},
		{"ls -A /work; hostname; cat /etc/hostname", "machine\nmachine"},
		{"cat /etc/extra/file /etc/link", "extra\nextra"},
		{"grep -E '^Cap(Inh|Prm|Eff)' /proc/self/status | awk '{print $2}' | sort -u; grep NoNewPrivs /proc/self/status", "0000000000000000\nNoNewPrivs:\t1"},
		{"for f in /x /etc/x /bin/x /.cofferdam/x /sys/fs/cgroup/x /sys/fs/cgroup/commands/x /sys/kernel/x; do touch $f 2>/dev/null && echo wrote $f; done; echo none", "none"},
		{"ls /dev/vd* /dev/vport* /dev/mem /dev/kmsg 2>/dev/null; cat /proc/1/environ 2>/dev/null; kill -9 1 2>/dev/null; echo none", "none"},
		{"ip -6 addr | grep inet6; ip route | head -1", "default via 10.99.0.1 dev eth0"},
	} {
		if got, r := sh(t, b, c.text); got != c.want || r.Exit != 0 {
			t.Errorf("%s:\ngot  %q, exit %d\nwant %q", c.text, got, r.Exit, c.want)
		}
	}
	st, err := b.Status(context.Background())
	if err != nil || st.Tier != sandbox.Emulated || !slices.Contains(st.Flags, "monitor=qemu") || !strings.Contains(st.Kernel, "no security boundary") {
		t.Errorf("%+v, %v", st, err)
	}
	kernel, _ := sh(t, b, "uname -r")
	if !strings.Contains(st.Kernel, kernel) || strings.Contains(st.Kernel, hostKernel()) {
		t.Errorf("the box's kernel is %q, its status says %q", kernel, st.Kernel)
	}
}

func hostKernel() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// testMonitor looks at the monitor from the host: what it can reach, should a
// guest take it over.
func testMonitor(t *testing.T, b *box) {
	pid := b.machine().Process().PID
	if err := vmm.Confined(pid, b.user); err != nil {
		t.Error(err)
	}
	if err := vmm.Confined(os.Getpid(), b.user); err == nil {
		t.Error("control: this test passes for a confined monitor")
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil || theirs == ours {
			t.Errorf("namespace %s: %s, %v", ns, theirs, err)
		}
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	list, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if !slices.Contains([]string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "dev", "vm"}, e.Name()) {
			t.Errorf("the monitor sees /%s", e.Name())
		}
	}
	for _, path := range []string{"/x", "/usr/x", "/vm/x", "/dev/x"} { // as root, whom modes do not stop
		if err := os.WriteFile(root+path, nil, 0o600); err == nil {
			t.Errorf("%s could be written", path)
		}
	}
	devices, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil || strings.Count(string(devices), "\n") > 3 || strings.Contains(string(devices), "eth") {
		t.Errorf("its network: %s, %v", devices, err)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(group), string(b.spec.ID)) {
		t.Errorf("its control groups: %s, %v", group, err)
	}
}

// testWire wants a frame of the box at the wire that was lent last, and nothing
// at the one before.
func testWire(t *testing.T, b *box) {
	ctx := context.Background()
	first, err := b.Wire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := b.Wire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := b.Start(ctx, sandbox.Command{ID: "send", Shell: "while :; do nc -w 1 10.99.0.1 53; done"}); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, vmm.MaxFrame)
	if err := second.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Read(frame); err != nil || n < 42 || frame[11] != 2 {
		t.Errorf("the wire gave %d bytes, %v: % x", n, err, frame[:min(n, 42)])
	}
	if n, err := first.Read(frame); n > 0 || err == nil {
		t.Errorf("the wire lent before gave %d bytes, %v", n, err)
	}
	if err := b.Kill(ctx, "send"); err != nil {
		t.Error(err)
	}
}
