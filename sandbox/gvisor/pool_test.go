package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"

	"golang.org/x/sys/unix"
)

// newPooled returns a driver that makes size boxes ahead of each kind.
func newPooled(t testing.TB, size int) *Driver {
	t.Helper()
	o := options(t)
	o.Pool = size
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left := d.groups.List(); len(left) > 0 {
			t.Errorf("left in control groups: %q", left)
		}
	})
	return d
}

// waiting returns the boxes in the pool once there are n.
func waiting(t testing.TB, d *Driver, n int) []*box {
	t.Helper()
	patience := 2*time.Minute + time.Duration(n)*time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		d.pool.mu.Lock()
		var all []*box
		for _, k := range d.pool.kinds {
			all = append(all, k.boxes...)
		}
		d.pool.mu.Unlock()
		if len(all) == n {
			return all
		}
	}
	t.Fatalf("there are never %d boxes in the pool", n)
	return nil
}

// isStopped says whether b's kernel is stopped, or is within a minute: a thread
// that has the processor goes on for a moment.
func isStopped(t testing.TB, b *box) bool {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.container.SandboxPid()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(") T ")) {
			return true
		}
	}
	return false
}

// TestPoolGivesEachBoxOnce is XTK-04: what was made ahead is claimed by one box
// and never comes back; nothing of a task is in the next one's.
func TestPoolGivesEachBoxOnce(t *testing.T) {
	d := newPooled(t, 2)
	newBox(t, d) // the first of its kind is made when it is asked for
	used, seen := map[cofferdam.BoxID]bool{}, map[string]bool{}
	for i := range 4 {
		for _, w := range waiting(t, d, 2) {
			if !isStopped(t, w) {
				t.Error("a box in the pool is not stopped")
			}
			if used[w.name] {
				t.Errorf("%s is in the pool again", w.name)
			}
		}
		b := newBox(t, d, func(s *sandbox.Spec) { s.Hostname = fmt.Sprintf("host-%d", i) })
		x := b.(*box)
		if x.name == b.ID() || used[x.name] {
			t.Errorf("box %s is %s: not from the pool, or used before", b.ID(), x.name)
		}
		used[x.name] = true
		got, _ := sh(t, b, identityText)
		f := strings.Fields(got)
		if len(f) != 5 || f[0] != string(b.ID()[2:]) || f[1] != fmt.Sprintf("host-%d", i) || f[2] != f[1] || seen[f[3]] {
			t.Errorf("identity %q", got)
		}
		seen[f[3]] = true
		marks, r := sh(t, b, `ls -A /work "$HOME" /tmp /dev/shm | grep mark; env | grep MARK; echo $?
			for d in /work "$HOME" /tmp /dev/shm; do echo x >$d/mark; done; (setsid sleep 300 >/dev/null 2>&1 &)`)
		if marks != "1" || r.Exit != 0 {
			t.Errorf("box %d has marks %q, exit %d", i, marks, r.Exit)
		}
		if s := state(t, b); s.State != sandbox.Idle || s.ID != b.ID() || !strings.Contains(fmt.Sprint(s.Changes), "made ahead") {
			t.Errorf("status %+v", s)
		}
		must(t, b.Destroy(context.Background()))
	}
}

// TestPoolKinds: what cannot be given late is of another kind, and what a kind is
// made of must be what it was.
func TestPoolKinds(t *testing.T) {
	image := muslImage(t)
	d := newPooled(t, 1)
	of := func(change func(*sandbox.Spec)) *box {
		return newBox(t, d, func(s *sandbox.Spec) { s.Image = image }, change).(*box)
	}
	same := func(*sandbox.Spec) {}
	of(same)
	waiting(t, d, 1)
	for name, change := range map[string]func(*sandbox.Spec){
		"limits": func(s *sandbox.Spec) { s.Limits.PIDs++ },
		"files":  func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/own", Data: []byte("x")}} },
		"image":  func(s *sandbox.Spec) { s.Image = sandbox.HostImage },
	} {
		if b := of(change); b.name != b.ID() {
			t.Errorf("other %s: a box of the pool", name)
		}
	}
	waiting(t, d, 4)
	if b := of(same); b.name == b.ID() {
		t.Error("the same again: none of the pool")
	}
	waiting(t, d, 4)
	must(t, os.WriteFile(image+"/etc/issue", []byte("changed\n"), 0o644))
	if b := of(same); b.name != b.ID() {
		t.Error("an image that changed: a box of the pool")
	} else if got, _ := sh(t, b, "cat /etc/issue"); got != "changed" {
		t.Errorf("it has %q", got)
	}
	d.pool.trim(context.Background(), time.Now().Add(keepKind+time.Second))
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	if len(d.pool.kinds) != 0 {
		t.Errorf("%d kinds are kept though nobody asks for them", len(d.pool.kinds))
	}
}

// TestPoolBoxThatDied: a box of the pool that does not answer is none.
func TestPoolBoxThatDied(t *testing.T) {
	d := newPooled(t, 1)
	newBox(t, d)
	dead := waiting(t, d, 1)[0]
	must(t, unix.Kill(dead.container.SandboxPid(), unix.SIGKILL))
	<-dead.Host.Done()
	b := newBox(t, d)
	if got, r := sh(t, b, "echo up"); got != "up" || r.Exit != 0 || b.(*box).name == dead.name {
		t.Errorf("%q %+v", got, r)
	}
	if _, err := os.Lstat(dead.dir); !os.IsNotExist(err) {
		t.Errorf("the dead one's folder: %v", err)
	}
}

// TestPoolOfACallerWhoLeaves: whoever asks and is gone costs one box at most.
func TestPoolOfACallerWhoLeaves(t *testing.T) {
	d := newPooled(t, 3)
	first := newBox(t, d).(*box)
	before := waiting(t, d, 3)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	spec := first.spec
	spec.ID = cofferdam.BoxID(cofferdam.NewID("b"))
	if b := d.pool.claim(gone, spec); b != nil { // the look took no time
		b.abandon(gone)
	}
	left := 0
	for _, b := range before {
		if _, err := os.Lstat(b.dir); err == nil {
			left++
		}
	}
	if left < len(before)-1 {
		t.Errorf("of %d boxes in the pool %d are left", len(before), left)
	}
}

// TestPoolIsOff: without one nothing is made ahead.
func TestPoolIsOff(t *testing.T) {
	d := newDriver(t)
	newBox(t, d)
	time.Sleep(300 * time.Millisecond)
	if b := newBox(t, d).(*box); b.name != b.ID() || len(d.groups.List()) != 2 {
		t.Errorf("%s is %s; groups %q", b.ID(), b.name, d.groups.List())
	}
}

func TestMemoryThatIsLeft(t *testing.T) {
	total, available := meminfo("MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:    1500 kB\n")
	if total != 16000 || available != 1500 {
		t.Errorf("%d, %d", total, available)
	}
	if memoryIsShort() {
		t.Skip("this host is short of memory")
	}
}

// TestPoolThatCannotMakeMore: a box that could not be made ahead takes nothing
// from those that were; the next claim has one of them, and the end leaves none.
func TestPoolThatCannotMakeMore(t *testing.T) {
	d := newPooled(t, 2)
	newBox(t, d)
	waiting(t, d, 2)
	good := d.o.Runsc
	d.o.Runsc = good + "-that-is-not-there" // the pool waits; it reads this after the next claim
	first := newBox(t, d)
	tired := func() (is bool) {
		d.pool.mu.Lock()
		defer d.pool.mu.Unlock()
		for _, k := range d.pool.kinds {
			is = is || k.tired
		}
		return is
	}
	for end := time.Now().Add(time.Minute); !tired(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pool makes boxes without a program")
		}
	}
	left := waiting(t, d, 1)
	d.o.Runsc = good
	second := newBox(t, d)
	if nameOf(first) == first.ID() || nameOf(second) != left[0].name {
		t.Errorf("claimed %s and %s; %s was made ahead", nameOf(first), nameOf(second), left[0].name)
	}
	waiting(t, d, 2) // and it makes them again
}

// TestPoolWakesOnlyWhatIsTaken: a claim that no box of the pool is for lets none go
// on, and one that was told who it is before its image was looked at is nobody's if
// that has changed.
func TestPoolWakesOnlyWhatIsTaken(t *testing.T) {
	image := muslImage(t)
	d := newPooled(t, 1)
	first := newBox(t, d, func(s *sandbox.Spec) { s.Image = image }).(*box)
	b := waiting(t, d, 1)[0]
	newBox(t, d, func(s *sandbox.Spec) { s.Image, s.Limits.PIDs = image, s.Limits.PIDs+1 })
	if !isStopped(t, b) {
		t.Error("a box of another kind was woken")
	}
	waiting(t, d, 2)
	must(t, os.WriteFile(image+"/etc/issue", []byte("changed\n"), 0o644))
	if taken := newBox(t, d, func(s *sandbox.Spec) { *s = first.spec; s.ID = cofferdam.BoxID(cofferdam.NewID("b")) }); nameOf(taken) == b.name {
		t.Error("claimed a box of an image that changed")
	}
	if _, err := os.Lstat(b.dir); !os.IsNotExist(err) {
		t.Errorf("the folder of the box that nobody has: %v", err)
	}
}

// TestFingerprintOfLinks: of a link in a folder only the name is looked at, and
// another one in its place is noticed all the same, whatever the times say.
func TestFingerprintOfLinks(t *testing.T) {
	image := t.TempDir()
	dir := filepath.Join(image, "etc", "alternatives")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.Symlink("/usr/bin/one", filepath.Join(dir, "cc")))
	look := func() string {
		t.Helper()
		text, err := fingerprint(image, nil)
		must(t, err)
		return text
	}
	var st, now unix.Stat_t
	must(t, unix.Stat(dir, &st))
	before := look()
	if look() != before {
		t.Fatal("it changes by itself")
	}
	for now = st; now.Ctim == st.Ctim; { // until the file system's clock has moved on
		clock := filepath.Join(image, "clock")
		must(t, os.WriteFile(clock, nil, 0o644))
		must(t, unix.Stat(clock, &now))
		must(t, os.Remove(clock))
	}
	must(t, os.Remove(filepath.Join(dir, "cc")))
	must(t, os.Symlink("/usr/bin/two", filepath.Join(dir, "cc")))
	must(t, os.Chtimes(dir, time.Unix(0, st.Atim.Nano()), time.Unix(0, st.Mtim.Nano())))
	if look() == before {
		t.Error("another link is not noticed")
	}
}

// TestPoolOfAShellThatHangs: a box whose shell does not end is not made ahead, and
// others are.
func TestPoolOfAShellThatHangs(t *testing.T) {
	image := muslImage(t)
	bin := filepath.Join(image, "bin")
	must(t, os.Remove(filepath.Join(bin, "sh")))
	must(t, os.Symlink("busybox", filepath.Join(bin, "yes")))
	must(t, os.WriteFile(filepath.Join(bin, "sh"), []byte("#!/bin/yes\n"), 0o755))
	d := newPooled(t, 1)
	hangs := newBox(t, d, func(s *sandbox.Spec) { s.Image = image })
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		d.pool.mu.Lock()
		tired := false
		for _, k := range d.pool.kinds {
			tired = tired || k.tired
		}
		d.pool.mu.Unlock()
		if tired {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the pool waits for a shell that does not end")
		}
	}
	waiting(t, d, 0)
	if err := firstByteOf(hangs, sandbox.Command{Argv: []string{"/bin/echo", "x"}}); err != nil {
		t.Error(err)
	}
	newBox(t, d) // of another image
	waiting(t, d, 1)
}
