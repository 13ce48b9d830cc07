package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// programs builds cofferdam-runsc and cofferdam-init once for all tests: the
// sandbox cannot be the test's own program.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir := sandboxtest.UserPrograms(); dir != "" {
		return dir, nil
	}
	if dir, err = os.MkdirTemp("", "cofferdam-programs-"); err != nil {
		return "", err
	}
	built = dir
	return dir, sandboxtest.Build(dir, "cofferdam-runsc", "cofferdam-init")
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

// options returns the options of a driver with a state folder of its own.
func options(t testing.TB) Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts, control groups and network namespaces")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "cd-") // short: there are sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return Options{
		Root: root, Runsc: filepath.Join(bin, "cofferdam-runsc"), Init: filepath.Join(bin, "cofferdam-init"),
		User: isUser(), Watched: isUser(),
	}
}

// newDriver returns a driver that the test's end closes.
func newDriver(t testing.TB) *Driver {
	t.Helper()
	d, err := New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// small are limits for boxes of tests.
func small() cofferdam.Limits {
	return cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 2, PIDs: 128, OpenFiles: 256}
}

// newBox makes a box with small limits that the test's end destroys.
func newBox(t testing.TB, d *Driver, change ...func(*sandbox.Spec)) sandbox.Box {
	t.Helper()
	spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()}
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
		t.Logf("stderr: %.2000s", errs.String())
	}
	return strings.TrimSpace(out.String()), r
}

func TestBoxRunsCommandsAsItsUser(t *testing.T) {
	b := newBox(t, newDriver(t))
	for _, c := range []struct{ text, want string }{
		{"id -u; id -g", "1000\n1000"},
		{"whoami; echo $HOME; pwd", "agent\n/home/agent\n/work"},
		{"stat -c %u:%g:%a /work /home/agent /tmp", "1000:1000:755\n1000:1000:700\n0:0:1777"},
		{"ls -A /work", ""},
		{"echo hi > /work/a && cat /work/a", "hi"},
		{"hostname", "box"},
		{"uname -r", "4.4.0"}, // gVisor's own kernel, not the host's
		{"grep -E '^Cap(Inh|Prm|Eff)' /proc/self/status | awk '{print $2}' | sort -u", "0000000000000000"},
	} {
		got, r := sh(t, b, c.text)
		if got != c.want || r.Exit != 0 {
			t.Errorf("%s:\ngot  %q, exit %d\nwant %q", c.text, got, r.Exit, c.want)
		}
	}
	if _, r := sh(t, b, "exit 7"); r.Exit != 7 {
		t.Errorf("exit code: %+v", r)
	}
}
