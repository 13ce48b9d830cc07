package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// report adds the middle and the slow end of the times of one step: on a loaded
// host the mean says little.
func report(b *testing.B, step string, times []time.Duration) {
	slices.Sort(times)
	for name, at := range map[string]int{"p50": len(times) / 2, "p95": len(times) * 95 / 100} {
		b.ReportMetric(float64(times[at].Microseconds())/1000, step+"-"+name+"-ms")
	}
}

// errFirstByte ends an attachment once something was printed.
var errFirstByte = errors.New("first byte is here")

// firstByte starts a command and returns once its first output arrived.
func firstByte(b sandbox.Box) error {
	ctx := context.Background()
	id := cofferdam.ExecID(cofferdam.NewID("e"))
	if err := b.Start(ctx, sandbox.Command{ID: id, Argv: []string{"/usr/bin/echo", "x"}}); err != nil {
		return err
	}
	_, err := b.Attach(ctx, id, sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return errFirstByte })
	if errors.Is(err, errFirstByte) {
		return nil
	}
	return err
}

// BenchmarkColdStart is a box from nothing to the first byte of a command:
// network, workspace with a size, limits and pid 1 included.
func BenchmarkColdStart(b *testing.B) {
	d := newDriver(b)
	newBox(b, d) // proves the platform once, as a keeper does when it starts
	var start, end []time.Duration
	for b.Loop() {
		began := time.Now()
		box, err := d.Create(context.Background(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: HostImage})
		if err != nil {
			b.Fatal(err)
		}
		if err := firstByte(box); err != nil {
			b.Fatal(err)
		}
		start = append(start, time.Since(began))
		began = time.Now()
		if err := box.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		end = append(end, time.Since(began))
	}
	report(b, "first-byte", start)
	report(b, "destroy", end)
}

// BenchmarkRawRunsc is what BenchmarkColdStart is compared with: runsc run of
// the same program on the same host root, without any limit, network or record.
func BenchmarkRawRunsc(b *testing.B) {
	o := options(b)
	dir := filepath.Join(o.Root, "raw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	data, err := json.Marshal(specs.Spec{
		Version: specs.Version, Root: &specs.Root{Path: "/", Readonly: true},
		Process: &specs.Process{Args: []string{"/usr/bin/echo", "x"}, Cwd: "/", Env: []string{"PATH=/usr/bin"}},
		Linux:   &specs.Linux{},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		b.Fatal(err)
	}
	var first []time.Duration
	for b.Loop() {
		began := time.Now()
		cmd := exec.Command(o.Runsc, "--root="+filepath.Join(o.Root, "raw-state"), "--platform=systrap", "--network=none",
			"--ignore-cgroups", "--overlay2=none", "--host-settings=ignore", "run", "--bundle="+dir, cofferdam.NewID("raw"))
		cmd.Env = []string{"PATH=/usr/bin"}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		first = append(first, time.Since(began))
		_, _ = new(bytes.Buffer).ReadFrom(out)
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	report(b, "first-byte", first)
}

// BenchmarkExecFirstByte is one more command in a box that runs.
func BenchmarkExecFirstByte(b *testing.B) {
	box := newBox(b, newDriver(b))
	var first []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := firstByte(box); err != nil {
			b.Fatal(err)
		}
		first = append(first, time.Since(began))
	}
	report(b, "first-byte", first)
}

// BenchmarkHostExecFirstByte is the same command on the host.
func BenchmarkHostExecFirstByte(b *testing.B) {
	var first []time.Duration
	for b.Loop() {
		began := time.Now()
		cmd := exec.Command("/usr/bin/echo", "x")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		first = append(first, time.Since(began))
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	report(b, "first-byte", first)
}
