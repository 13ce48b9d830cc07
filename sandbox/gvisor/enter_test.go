package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
)

// threads returns those of this process that are in a group of one of d's boxes.
func threads(t *testing.T, d *Driver) (inside []string) {
	t.Helper()
	list, err := filepath.Glob("/proc/self/task/*/cgroup")
	must(t, err)
	for _, path := range list {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), d.groups.Parent()+"/b-") {
			inside = append(inside, path)
		}
	}
	return inside
}

// TestKeeperIsInNoBox: while boxes are made, made from a snapshot and brought back from
// disk, no thread of this process is in the group of a box, which would pay for what
// this process does and end it; and every program of the boxes is in its own.
func TestKeeperIsInNoBox(t *testing.T) {
	d := newDriver(t)
	if d.watched {
		t.Skip("not run here: there are no control groups")
	}
	var over sync.WaitGroup
	done, looks := make(chan struct{}), 0
	over.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			looks++
			if in := threads(t, d); len(in) > 0 {
				t.Errorf("in a box's group: %q", in)
				return
			}
		}
	})
	ctx := context.Background()
	first := newBox(t, d)
	s, err := first.Snapshot(ctx, sandbox.Take{ID: newSnapshotID(), Memory: true})
	must(t, err, first.Suspend(ctx), first.Resume(ctx))
	boxes := []sandbox.Box{first, newBox(t, d), newBox(t, d, func(c *sandbox.Spec) { c.Snapshot = s.ID })}
	close(done)
	over.Wait()
	must(t, d.RemoveSnapshot(ctx, s.ID))
	if looks < 10 {
		t.Errorf("control: looked %d times", looks)
	}
	for _, b := range boxes {
		name := d.groups.Name(string(nameOf(b)))
		for _, program := range []string{"runsc-sandbox", "runsc-gofer"} {
			found := 0
			for _, pid := range processes(t, b) {
				line, _ := os.ReadFile("/proc/" + pid + "/cmdline") // empty of one that has ended
				if !strings.HasPrefix(string(line), program+"\x00") {
					continue
				}
				groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
				must(t, err)
				found++
				for _, controller := range []string{"memory", "cpu", "pids"} {
					if !slices.ContainsFunc(strings.Split(string(groups), "\n"), func(line string) bool {
						return strings.HasSuffix(line, ":"+name) && (d.groups.V2 || strings.Contains(line, controller))
					}) {
						t.Errorf("%s is in no group of %s:\n%s", program, controller, groups)
					}
				}
			}
			if found == 0 {
				t.Errorf("control: %s of %s was not found", program, b.ID())
			}
		}
	}
}

// unbuilt is a box that is put together and not started.
func unbuilt(t *testing.T, d *Driver) *box {
	t.Helper()
	spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()}
	must(t, d.checkSpec(&spec))
	b := d.newBox(spec)
	t.Cleanup(func() { b.abandon(context.Background()) })
	must(t, b.prepare(context.Background(), nil))
	return b
}

// TestGroupIsGone: a box whose group went before its programs are in it does not start,
// and says why.
func TestGroupIsGone(t *testing.T) {
	d := newDriver(t)
	if d.watched {
		t.Skip("not run here: there are no control groups")
	}
	b := unbuilt(t, d)
	must(t, d.groups.End(string(b.name)))
	if err := b.boot(context.Background()); err == nil || !strings.Contains(err.Error(), "entering a control group") {
		t.Errorf("it started: %v", err)
	}
	if out, r := sh(t, newBox(t, d), "echo x"); out != "x" || r.Exit != 0 {
		t.Errorf("then the next one does not: %q, %+v", out, r)
	}
}

// TestStartThatHangs: programs of a box that never come up are ended, so that other
// boxes can be made.
func TestStartThatHangs(t *testing.T) {
	d := newDriver(t)
	b := unbuilt(t, d)
	dir := t.TempDir()
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	former := d.o.Init
	d.o.Init, d.patience = filepath.Join(dir, "hangs"), 300*time.Millisecond
	text := fmt.Sprintf("#!/bin/sh\nread x <%s/fifo\n", dir)
	syscall.ForkLock.RLock() // a process made meanwhile would hold it open for writing
	err := os.WriteFile(d.o.Init, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	must(t, err)
	if err := b.boot(context.Background()); err == nil || !strings.Contains(err.Error(), "it was not up after 300ms") {
		t.Errorf("it hangs, and the error is: %v", err)
	}
	for _, path := range processesWith(t, b.dir) {
		t.Errorf("still there: %s", path)
	}
	d.o.Init, d.patience = former, startPatience
	if out, r := sh(t, newBox(t, d), "echo x"); out != "x" || r.Exit != 0 {
		t.Errorf("then the next one does not start: %q, %+v", out, r)
	}
}

// processesWith lists processes that have text in their command line.
func processesWith(t *testing.T, text string) (found []string) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range list {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), text) {
			found = append(found, path+": "+string(data))
		}
	}
	return found
}

// TestSeen: a box sees the processors and the memory that it may use, and never more
// than the host has.
func TestSeen(t *testing.T) {
	l := small()
	l.CPU, l.Memory = 1<<15, 1<<60
	var host unix.Sysinfo_t
	must(t, unix.Sysinfo(&host))
	if got, want := seen(l)[1], fmt.Sprintf("--total-memory=%d", int64(host.Totalram)*int64(host.Unit)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) { s.Limits.CPU = 0.5 })
	kib := (small().Memory + reserve) >> 10
	if out, _ := sh(t, b, "nproc; grep MemTotal /proc/meminfo"); strings.Join(strings.Fields(out), " ") != fmt.Sprintf("%d MemTotal: %d kB", minCPUs, kib) {
		t.Errorf("it sees %q", out)
	}
}

// TestStartFolderIsOurs: who may not write to the state folder cannot say what begins.
func TestStartFolderIsOurs(t *testing.T) {
	b := newBox(t, newDriver(t)).(*box)
	s, err := cgroup.ReadStart(b.dir)
	must(t, err)
	if s.Program != b.d.o.Runsc {
		t.Errorf("it starts %s", s.Program)
	}
	list, err := filepath.Glob(filepath.Join(b.dir, "start*"))
	must(t, err)
	for _, path := range list {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if out, _ := sh(t, b, "ls / /work /env 2>/dev/null | grep start"); out != "" {
		t.Errorf("the box sees %q", out)
	}
}
