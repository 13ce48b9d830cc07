package process

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Suite(t, func(t *testing.T) sandbox.Driver { return newDriver(t) })
}

// options returns the options of a driver with a state folder of its own.
func options(t testing.TB) Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts, control groups and network namespaces")
	}
	root, err := os.MkdirTemp("", "cd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return Options{Root: root, Init: initProgram(t), User: isUser(), Watched: isUser()}
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

// newBox makes a box with small limits that the test's end destroys.
func newBox(t testing.TB, d *Driver, change ...func(*sandbox.Spec)) sandbox.Box {
	t.Helper()
	spec := sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: sandbox.HostImage,
		Limits: cofferdam.Limits{Memory: 256 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 2, PIDs: 128, OpenFiles: 256},
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

// sh runs shell text in b and returns its trimmed output and result.
func sh(t testing.TB, b sandbox.Box, text string) (string, sandbox.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	c := sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("e")), Shell: text, Timeout: time.Minute}
	r, err := sandbox.Run(ctx, b, c, &out, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.TrimSpace(out.String()), r
}
