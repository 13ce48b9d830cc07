package gvisor

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
)

// packages is an archive of 3,000 small files in 300 folders: what a package
// manager unpacks. Their sizes, 200 bytes to 8 KiB, are those of JavaScript.
func packages(b *testing.B) []byte {
	const folders, each, least, most = 300, 10, 200, 8 << 10
	random := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := range folders {
		for j := range each {
			size := least + int(float64(most-least)*random.Float64()*random.Float64())
			head := &tar.Header{Name: fmt.Sprintf("node_modules/p%d/f%d.js", i, j), Mode: 0o644, Size: int64(size)}
			if err := w.WriteHeader(head); err != nil {
				b.Fatal(err)
			}
			if _, err := w.Write(bytes.Repeat([]byte("x"), size)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

// repository makes one of 5,000 files in 50 folders where it is run.
const repository = `set -e; mkdir repo; cd repo; git init -q .
for i in $(seq 50); do mkdir d$i; for j in $(seq 100); do echo $i $j >d$i/$j; done; done
git add .; git -c user.name=a -c user.email=a@b commit -q -m one; git status --porcelain`

// Texts that print how many nanoseconds what they are about took. The second
// unpacks into a folder that is not there before.
const (
	status  = `cd repo; a=$(date +%s%N); git status --porcelain; b=$(date +%s%N); echo $((b-a))`
	install = `rm -rf node_modules; a=$(date +%s%N); tar -xf /tmp/packages.tar; b=$(date +%s%N); echo $((b-a))`
)

// place is where the same work is done: on the host, or in a folder of a box.
type place struct {
	name string
	run  func(text string) string
	used func() time.Duration // processor time of all that was done there

	wall, cpu []time.Duration
}

// onHost is a folder of the host, on the disk of the state folder.
func onHost(b *testing.B, dir, tmp string) *place {
	var used time.Duration
	return &place{
		name: "native",
		run: func(text string) string {
			cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(text, "/tmp/", tmp+"/"))
			cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}
			out, err := cmd.CombinedOutput()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			used += time.Duration(u.Utime.Nano() + u.Stime.Nano())
			return strings.TrimSpace(string(out))
		},
		used: func() time.Duration { return used },
	}
}

// inBox is a folder of a box.
func inBox(b *testing.B, box sandbox.Box, name, dir string) *place {
	return &place{
		name: name,
		run: func(text string) string {
			out, r := sh(b, box, "cd "+dir+"; "+text)
			if r.Exit != 0 {
				b.Fatalf("%+v: %s", r, out)
			}
			return out
		},
		used: func() time.Duration { return groupTime(b, box) },
	}
}

// groupTime is the processor time of all that ever ran in a box, its kernel and
// file server included.
func groupTime(b *testing.B, of sandbox.Box) time.Duration {
	x := of.(*box)
	if x.d.groups.V2 {
		return time.Duration(cgroup.Counter(x.d.groups.Dir("cpu", string(x.name))+"/cpu.stat", "usage_usec")) * time.Microsecond
	}
	file := x.d.groups.Dir("cpu", string(x.name)) + "/cpuacct.usage"
	if _, err := os.Stat(file); err != nil {
		file = accounted(b, x)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// accounted is the file of a box's time where cpuacct is a tree of its own, in which
// boxes need no group: it is counted from the first call on.
func accounted(b *testing.B, x *box) string {
	own, err := cgroup.Find(cgroup.Root, "/cofferdam-bench", cgroup.Needs{V1: []string{"cpuacct"}})
	if err != nil {
		b.Fatal(err)
	}
	name := string(x.name)
	file := own.Dir("cpuacct", name) + "/cpuacct.usage"
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if err := own.Make(name); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := own.End(name); err != nil {
			b.Error(err)
		}
		own.Close()
	})
	for _, pid := range processes(b, x) {
		n, err := strconv.Atoi(pid)
		if err == nil {
			err = own.Add(name, n)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return file
}

// compare does text in every place in turn, and reports the least of each, which
// a loaded host disturbs least.
func compare(b *testing.B, text string, places []*place) {
	for b.Loop() {
		for _, p := range places {
			before := p.used()
			n, err := strconv.ParseInt(p.run(text), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			p.wall, p.cpu = append(p.wall, time.Duration(n)), append(p.cpu, p.used()-before)
		}
	}
	for _, p := range places {
		report(b, p.name, p.wall)
		report(b, p.name+"-cpu", p.cpu)
	}
}

// BenchmarkFiles is what programs with many small files pay in a box, in its
// workspace and in what it has in memory, beside the same on the host.
func BenchmarkFiles(b *testing.B) {
	o := options(b)
	box := newBox(b, newDriver(b), func(s *sandbox.Spec) {
		s.Limits = cofferdam.Limits{Memory: 1 << 30, Disk: 512 << 20, Temp: 128 << 20, CPU: 2, PIDs: 128, OpenFiles: 1024}
	})
	archive := packages(b)
	if err := os.WriteFile(filepath.Join(o.Root, "packages.tar"), archive, 0o600); err != nil {
		b.Fatal(err)
	}
	send(b, box, archive, "/tmp/packages.tar")
	places := func() []*place {
		return []*place{onHost(b, o.Root, o.Root), inBox(b, box, "work", sandbox.WorkDir), inBox(b, box, "memory", sandbox.HomeDir)}
	}
	all := places()
	for _, p := range all {
		if out := p.run(repository); out != "" {
			b.Fatal(out)
		}
		p.run(status)
	}
	b.Run("status", func(b *testing.B) { compare(b, status, places()) })
	b.Run("install", func(b *testing.B) { compare(b, install, places()) })
}

// send puts data into a file of a box.
func send(b *testing.B, box sandbox.Box, data []byte, path string) {
	ctx, id := context.Background(), cofferdam.ExecID(cofferdam.NewID("e"))
	if err := box.Start(ctx, sandbox.Command{ID: id, Shell: "cat >" + path, Stdin: true}); err != nil {
		b.Fatal(err)
	}
	const piece = 32 << 10
	for len(data) > 0 {
		n := min(piece, len(data))
		if err := box.Write(ctx, id, data[:n], n == len(data)); err != nil {
			b.Fatal(err)
		}
		data = data[n:]
	}
	r, err := box.Attach(ctx, id, sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return nil })
	if err != nil || r.Exit != 0 {
		b.Fatalf("%+v %v", r, err)
	}
}
