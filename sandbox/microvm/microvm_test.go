package microvm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// programs builds cofferdam-init once for all tests.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "cofferdam-programs-"); err != nil {
		return "", err
	}
	built = dir
	return dir, sandboxtest.Build(dir, "cofferdam-init")
})

var built string // where programs has put them; "" if no test asked

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// testKernel is a folder with a kernel for tests, where none is installed.
func testKernel() string { return os.Getenv("COFFERDAM_TEST_KERNEL") }

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
	cache := filepath.Join(os.TempDir(), "cofferdam-test-cache") // roots are large: kept between runs
	d, err := New(Options{Root: root, Cache: cache, Init: filepath.Join(bin, "cofferdam-init"), Kernel: testKernel()})
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
	if f := d.checker.tierLacks(context.Background(), sandbox.Emulated); f != nil {
		t.Skipf("needs %s: %s; %s", f.Name, f.Detail, f.Fix)
	}
	return d
}

// newBox makes an emulated box with small limits that the test's end destroys.
func newBox(t testing.TB, d *Driver, change ...func(*sandbox.Spec)) sandbox.Box {
	t.Helper()
	spec := sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Emulated, Image: smallImage(t),
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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	id := cofferdam.ExecID(cofferdam.NewID("e"))
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: id, Shell: text, Timeout: time.Minute}, &out, &errs)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if errs.Len() > 0 {
		t.Logf("%s: stderr: %.2000s", text, errs.String())
	}
	return strings.TrimSpace(out.String()), r
}

func TestBoot(t *testing.T) {
	d := newDriver(t)
	began := time.Now()
	b := newBox(t, d)
	t.Logf("made after %s", time.Since(began))
	for _, c := range []string{"id", "uname -a", "mount", "ls -la / /dev /etc", "cat /proc/meminfo | head -3", "ip a; ip r", "hostname; cat /etc/hosts"} {
		out, r := sh(t, b, c)
		t.Logf("%s: %+v\n%s", c, r.Exit, out)
	}
}
