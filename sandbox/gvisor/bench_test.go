package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"

	"golang.org/x/sys/unix"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// report adds the least, the middle and the slow end of the times of one step: on
// a loaded host the mean says little.
func report(b *testing.B, step string, times []time.Duration) {
	slices.Sort(times)
	for name, at := range map[string]int{"min": 0, "p50": len(times) / 2, "p95": len(times) * 95 / 100} {
		b.ReportMetric(float64(times[at].Microseconds())/1000, step+"-"+name+"-ms")
	}
}

// errFirstByte ends an attachment once something was printed.
var errFirstByte = errors.New("first byte is here")

// firstByte starts a command and returns once its first output arrived.
func firstByte(b sandbox.Box) error {
	return firstByteOf(b, sandbox.Command{Argv: []string{"/usr/bin/echo", "x"}})
}

func firstByteOf(b sandbox.Box, c sandbox.Command) error {
	ctx := context.Background()
	c.ID = cofferdam.ExecID(cofferdam.NewID("e"))
	if err := b.Start(ctx, c); err != nil {
		return err
	}
	_, err := b.Attach(ctx, c.ID, sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return errFirstByte })
	if errors.Is(err, errFirstByte) {
		return nil
	}
	return err
}

// BenchmarkStart is the first byte of a shell command, in turn: of raw runsc run,
// of a box from nothing, with network, workspace with a size, limits and pid 1,
// and of one that was made ahead. The pool is full again before each.
func BenchmarkStart(b *testing.B) {
	ctx, raw := context.Background(), rawRunsc(b)
	d, pooled := newDriver(b), newPooled(b, 1)
	newBox(b, d) // proves the platform once, as a keeper does when it starts
	newBox(b, pooled)
	var runsc, cold, claim, end []time.Duration
	start := func(d *Driver) (sandbox.Box, time.Duration) {
		began := time.Now()
		box := newBox(b, d, func(s *sandbox.Spec) { s.Hostname = "t-42" }) // as a session asks for it
		if err := firstByteOf(box, sandbox.Command{Shell: "echo x"}); err != nil {
			b.Fatal(err)
		}
		return box, time.Since(began)
	}
	for b.Loop() {
		waiting(b, pooled, 1)
		runsc = append(runsc, raw())
		box, took := start(d)
		cold = append(cold, took)
		began := time.Now()
		if err := box.Destroy(ctx); err != nil {
			b.Fatal(err)
		}
		end = append(end, time.Since(began))
		box, took = start(pooled)
		claim = append(claim, took)
		if nameOf(box) == box.ID() {
			b.Fatal("it was not made ahead")
		}
		if err := box.Destroy(ctx); err != nil {
			b.Fatal(err)
		}
	}
	report(b, "runsc", runsc)
	report(b, "cold", cold)
	report(b, "claim", claim)
	report(b, "destroy", end)
}

// rawRunsc returns what runs the same command with runsc run on the host's root,
// without any limit, network or record, and says when its first byte came.
func rawRunsc(b *testing.B) func() time.Duration {
	o := options(b)
	dir := filepath.Join(o.Root, "raw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	data, err := json.Marshal(specs.Spec{
		Version: specs.Version, Root: &specs.Root{Path: "/", Readonly: true},
		Process: &specs.Process{Args: []string{"/bin/sh", "-c", "echo x"}, Cwd: "/", Env: []string{"PATH=/usr/bin"}},
		Linux:   &specs.Linux{},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	return func() time.Duration {
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
		took := time.Since(began)
		_, _ = new(bytes.Buffer).ReadFrom(out)
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		return took
	}
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

// hold64 is a command that holds 64 MiB that do not compress.
const hold64 = `exec python3 -c "
import os, sys
keep = os.urandom(64 << 20)
print(len(keep), flush=True)
sys.stdin.read()"`

// BenchmarkSuspend is a box of 64 MiB to disk and back, to the first byte of a
// command in it.
func BenchmarkSuspend(b *testing.B) {
	box := newBox(b, newDriver(b))
	ctx := context.Background()
	if err := firstByteOf(box, sandbox.Command{Shell: hold64, Stdin: true}); err != nil {
		b.Fatal(err)
	}
	var out, back []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := box.Suspend(ctx); err != nil {
			b.Fatal(err)
		}
		out = append(out, time.Since(began))
		began = time.Now()
		if err := box.Resume(ctx); err != nil {
			b.Fatal(err)
		}
		if err := firstByte(box); err != nil {
			b.Fatal(err)
		}
		back = append(back, time.Since(began))
	}
	report(b, "suspend", out)
	report(b, "resume", back)
}

// BenchmarkFork is a box of 64 MiB with 5,000 files: how long it stands still,
// and when five copies of it have run a command.
func BenchmarkFork(b *testing.B) {
	d := newDriver(b)
	spec := func(s *sandbox.Spec) { s.Limits.Disk = 256 << 20 }
	box := newBox(b, d, spec)
	ctx := context.Background()
	if _, r := sh(b, box, "for i in $(seq 50); do mkdir d$i; for j in $(seq 100); do echo $i $j >d$i/$j; done; done"); r.Exit != 0 {
		b.Fatalf("%+v", r)
	}
	if err := firstByteOf(box, sandbox.Command{Shell: hold64, Stdin: true}); err != nil {
		b.Fatal(err)
	}
	var still, five []time.Duration
	for b.Loop() {
		began := time.Now()
		s, err := box.Snapshot(ctx, sandbox.Take{ID: newSnapshotID(), Memory: true})
		if err != nil {
			b.Fatal(err)
		}
		still = append(still, s.Paused)
		var making sync.WaitGroup
		clones := make([]sandbox.Box, 5)
		for i := range clones {
			making.Go(func() {
				clones[i] = newBox(b, d, spec, func(c *sandbox.Spec) { c.Snapshot = s.ID })
				if err := firstByte(clones[i]); err != nil {
					b.Error(err)
				}
			})
		}
		making.Wait()
		five = append(five, time.Since(began))
		b.StopTimer()
		for _, c := range clones {
			if err := c.Destroy(ctx); err != nil {
				b.Fatal(err)
			}
		}
		if err := d.RemoveSnapshot(ctx, s.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, "stands-still", still)
	report(b, "five-ready", five)
}

// BenchmarkPoolIdle is what boxes in the pool cost while they wait: processor
// time per second of each, and memory that is theirs or their share of it.
func BenchmarkPoolIdle(b *testing.B) {
	const kinds, each, look = 4, 15, 2 * time.Second
	const boxes = kinds * each
	d := newPooled(b, each)
	for i := range kinds {
		newBox(b, d, func(s *sandbox.Spec) { s.Limits.PIDs += int64(i) })
	}
	all := waiting(b, d, boxes)
	for b.Loop() {
		before, began := int64(0), time.Now()
		for _, x := range all {
			before += int64(cpuTime(b, x))
		}
		time.Sleep(look)
		after, pss := int64(0), int64(0)
		for _, x := range all {
			after += int64(cpuTime(b, x))
			pss += pssOf(b, x)
		}
		b.ReportMetric(float64(after-before)/float64(time.Millisecond)/time.Since(began).Seconds()/boxes, "cpu-ms/s/box")
		b.ReportMetric(float64(pss)/boxes/(1<<20), "pss-MiB/box")
	}
}

// pssOf is what the processes of a box hold in memory; what several share counts
// in parts. Those of one program in a box are several processes of one address
// space: it counts once.
func pssOf(b *testing.B, box sandbox.Box) (sum int64) {
	var seen []string
	for _, pid := range processes(b, box) {
		if slices.ContainsFunc(seen, func(other string) bool { return oneSpace(pid, other) }) {
			continue
		}
		seen = append(seen, pid)
		data, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			var kib int64
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
				sum += kib << 10
			}
		}
	}
	return sum
}

// oneSpace says whether two processes have the same memory, not only equal parts of it.
func oneSpace(a, b string) bool {
	const kcmpVM = 1 // linux/kcmp.h
	one, _ := strconv.Atoi(a)
	two, _ := strconv.Atoi(b)
	differ, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(one), uintptr(two), kcmpVM, 0, 0, 0)
	return differ == 0 && errno == 0
}

// nameOf is what a box is called on the host.
func nameOf(b sandbox.Box) cofferdam.BoxID { return b.(*box).name }
