package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam/sandbox/mount"

	"cofferdam"
	"cofferdam/sandbox"
)

// traces is everything on the host that boxes of this driver could leave.
type traces struct {
	mounts, loops, groups, state, folders, processes string
	descriptors                                      int
}

// settled waits until nothing is left but what was before: the kernel lets go of
// loop devices, and readers of closed pipes end, a moment later.
func settled(t *testing.T, d *Driver, before traces) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		after := tracesOf(t, d)
		few := after.descriptors <= before.descriptors
		after.descriptors = before.descriptors
		if few && after == before {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("before %+v\nafter  %+v", before, after)
			return
		}
	}
}

// quiet waits until the boxes that were are gone, and returns what is left.
func quiet(t *testing.T, d *Driver) traces {
	t.Helper()
	want := tracesOf(t, d)
	want.loops, want.groups, want.state, want.folders = "[]", "[]", "[]", "[] []"
	settled(t, d, want)
	want.descriptors = tracesOf(t, d).descriptors
	return want
}

func tracesOf(t *testing.T, d *Driver) traces {
	t.Helper()
	mounts, err := mount.Under(d.o.Root)
	if err != nil {
		t.Fatal(err)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var behind []string
	for _, l := range loops {
		if data, err := os.ReadFile(l); err == nil && bytes.Contains(data, []byte(d.o.Root)) {
			behind = append(behind, string(data))
		}
	}
	state, _ := filepath.Glob(d.state + "/*")
	boxes, _ := filepath.Glob(d.o.Root + "/boxes/*")
	journals, _ := filepath.Glob(d.o.Root + "/journal/*")
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return traces{
		mounts: fmt.Sprint(mounts), loops: fmt.Sprint(behind), groups: fmt.Sprint(d.groups.List()), state: fmt.Sprint(state),
		folders: fmt.Sprint(boxes, journals), processes: fmt.Sprint(children(t)), descriptors: len(fds),
	}
}

// children lists the sandbox processes of this one, dead ones included.
func children(t *testing.T) []string {
	t.Helper()
	var list []string
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, path := range tasks {
		data, _ := os.ReadFile(path)
		for _, pid := range strings.Fields(string(data)) {
			name, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			list = append(list, pid+" "+strings.SplitN(string(name), "\x00", 2)[0])
		}
	}
	return list
}

func TestDestroyLeavesNothing(t *testing.T) {
	d := newDriver(t)
	newBox(t, d).Destroy(context.Background()) // what is made once is made now
	before := quiet(t, d)
	env := filepath.Join(t.TempDir(), "env.img")
	for i := range 3 {
		b := newBox(t, d, func(s *sandbox.Spec) { s.Env, s.SetupPhase = env, true })
		sh(t, b, "echo x > /env/x; (setsid sleep 100 &) ; dd if=/dev/zero of=/work/f bs=1M count=5 2>/dev/null")
		if i == 1 { // one that still runs something
			if err := b.Start(context.Background(), sandbox.Command{ID: "runs", Shell: "sleep 100; echo x"}); err != nil {
				t.Fatal(err)
			}
		}
		if i == 2 { // one whose sandbox was killed
			c := b.(*box).container
			if p, err := os.FindProcess(c.SandboxPid()); err != nil || p.Kill() != nil {
				t.Fatal("cannot kill the sandbox")
			}
			<-b.(*box).Host.Done()
			if s, err := b.Status(context.Background()); err != nil || s.State != sandbox.Failed || s.Reason == "" {
				t.Errorf("status of a killed box: %+v, %v", s, err)
			}
		}
		q, err := b.Wire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if tracesOf(t, d).mounts == before.mounts {
			t.Fatal("control: a running box leaves no trace either")
		}
		for range 2 {
			if err := b.Destroy(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		q.Close()
		if _, err := b.Wire(context.Background()); err == nil {
			t.Error("a destroyed box lends a wire")
		}
		if err := b.Start(context.Background(), sandbox.Command{ID: "late", Shell: "true"}); err == nil {
			t.Error("a destroyed box takes commands")
		}
	}
	settled(t, d, before)
}

func TestFailedCreationLeavesNothing(t *testing.T) {
	d := newDriver(t)
	newBox(t, d).Destroy(context.Background())
	before := quiet(t, d)
	broken := filepath.Join(t.TempDir(), "broken.img")
	if err := os.WriteFile(broken, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := d.Create(context.Background(), sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Env: broken,
	})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "environment image") || !strings.Contains(cofferdam.HintOf(err), "remove the image") {
		t.Errorf("broken environment: %v, hint %s", err, cofferdam.HintOf(err))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()}); err == nil {
		t.Error("a box though nobody waits for it")
	}
	settled(t, d, before)
}

func TestEnvironmentIsMadeOnceAndReadOnly(t *testing.T) {
	d := newDriver(t)
	env := filepath.Join(t.TempDir(), "env.img")
	setup := newBox(t, d, func(s *sandbox.Spec) { s.Env, s.SetupPhase = env, true })
	if out, r := sh(t, setup, "ls -A /env; stat -c %u /env; mkdir /env/bin && printf '#!/bin/sh\necho from setup\n' > /env/bin/tool && chmod 755 /env/bin/tool; dd if=/dev/zero of=/env/big bs=1M count=100 2>/dev/null; rm /env/big"); out != "1000" || r.Exit != 0 {
		t.Errorf("setup: %q, %+v", out, r)
	}
	if err := setup.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	one, two := newBox(t, d, func(s *sandbox.Spec) { s.Env = env }), newBox(t, d, func(s *sandbox.Spec) { s.Env = env })
	for _, b := range []sandbox.Box{one, two} {
		if out, _ := sh(t, b, "/env/bin/tool; (echo x > /env/x) 2>/dev/null || echo read-only; rm -f /env/bin/tool 2>/dev/null; ls /env/bin"); out != "from setup\nread-only\ntool" {
			t.Errorf("use: %q", out)
		}
	}
}

func TestFilesAndHostname(t *testing.T) {
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) {
		s.Hostname = "t-42"
		s.Files = []sandbox.File{
			{Path: "/etc/cofferdam/ca.pem", Data: []byte("certificate\n")},
			{Path: sandbox.HomeDir + "/.config/agent.json", Data: []byte("{}")},
			{Path: "/opt/hook", Data: []byte("#!/bin/sh\necho hook\n"), Mode: 0o755},
		}
	})
	out, r := sh(t, b, "hostname; cat /etc/hostname /etc/cofferdam/ca.pem ~/.config/agent.json; echo; /opt/hook; grep -c t-42 /etc/hosts; (echo x > /etc/cofferdam/ca.pem) 2>/dev/null; (echo x > ~/.config/agent.json) 2>/dev/null; cat ~/.config/agent.json; cat /etc/resolv.conf")
	if want := "t-42\nt-42\ncertificate\n{}\nhook\n1\n{}nameserver 10.99.0.1\noptions timeout:2 attempts:5"; out != want || r.Exit != 0 {
		t.Errorf("got  %q\nwant %q", out, want)
	}
	other := newBox(t, d) // shares nothing of it
	if out, _ := sh(t, other, "ls /opt /etc/cofferdam 2>/dev/null; cat /etc/hostname"); out != "box" {
		t.Errorf("another box has %q", out)
	}
}

func TestLimitsAreThere(t *testing.T) {
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Limits.CPU = 0.5 })
	memory, pids := strconv.FormatInt(small().Memory+reserve, 10), strconv.FormatInt(hostPIDsBase+hostPIDsEach*small().PIDs, 10)
	files := map[string]string{"memory/memory.limit_in_bytes": memory, "pids/pids.max": pids, "cpu/cpu.cfs_quota_us": "50000"}
	if d.groups.V2 {
		files = map[string]string{"memory/memory.max": memory, "pids/pids.max": pids, "cpu/cpu.max": "50000 100000"}
		if _, err := os.Stat(filepath.Join(d.groups.Dir("memory", string(b.ID())), "memory.swap.max")); err == nil {
			files["memory/memory.swap.max"] = "0"
		}
	}
	for file, want := range files {
		controller, name, _ := strings.Cut(file, "/")
		data, err := os.ReadFile(filepath.Join(d.groups.Dir(controller, string(b.ID())), name))
		if got := strings.TrimSpace(string(data)); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", file, got, err, want)
		}
	}
	if out, _ := sh(t, b, "bash -c 'ulimit -n; ulimit -u; ulimit -c'; df -B1 --output=size /tmp /home/agent /dev/shm | tail -n +2 | tr -d ' '; [ $(df -B1 --output=size /work | tail -1) -le 67108864 ] && echo small"); out != "256\n128\n0\n33554432\n33554432\n67108864\nsmall" {
		t.Errorf("inside: %q", out)
	}
	s, err := b.Status(context.Background())
	if err != nil || s.Limits.Memory != 512<<20 || !strings.HasPrefix(s.Kernel, "gVisor v0.0.0-2026") || !strings.Contains(strings.Join(s.Flags, " "), "--platform=systrap") {
		t.Errorf("status: %+v, %v", s, err)
	}
}

// TestLeftoversOfAKilledKeeper kills a process with a running box and opens its
// state folder again.
func TestLeftoversOfAKilledKeeper(t *testing.T) {
	if root := os.Getenv("COFFERDAM_TEST_LEFTOVER"); root != "" {
		bin := os.Getenv("COFFERDAM_TEST_PROGRAMS")
		d, err := New(Options{Root: root, Runsc: bin + "/cofferdam-runsc", Init: bin + "/cofferdam-init", Pool: 1})
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Create(context.Background(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Pause(context.Background()); err != nil { // so that the end of its pipe does not end it
			t.Fatal(err)
		}
		waiting(t, d, 1) // and neither that of the one in the pool
		fmt.Println("ready", b.(*box).container.SandboxPid())
		time.Sleep(time.Hour) // until killed
	}
	o := options(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLeftoversOfAKilledKeeper$")
	cmd.Env = append(os.Environ(), "COFFERDAM_TEST_LEFTOVER="+o.Root, "COFFERDAM_TEST_PROGRAMS="+filepath.Dir(o.Init))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have been killed
	var pid int
	if _, err := fmt.Fscanf(out, "ready %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		t.Fatal("control: the box went with its keeper")
	}
	if left, err := mount.Under(o.Root); err != nil || len(left) == 0 {
		t.Fatal("control: nothing is left mounted", err)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if got := quiet(t, d); got.mounts != fmt.Sprint([]string{o.Root + "/journal"}) {
		t.Errorf("left: %+v", got)
	}
	if data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !strings.Contains(string(data), ") Z ") {
		t.Errorf("the sandbox still runs: %s", data)
	}
	newBox(t, d)
}
