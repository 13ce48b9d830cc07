package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/wall"
)

func TestOffers(t *testing.T) {
	d := newDriver(t)
	offers, err := d.Offers(t.Context())
	if err != nil || len(offers) != 1 || offers[0].Tier != sandbox.Process {
		t.Fatalf("%v, %v", offers, err)
	}
	for capability, spec := range map[sandbox.Capability]sandbox.Spec{
		sandbox.CanSetup:    {Image: sandbox.HostImage, Env: "/no/env.img", SetupPhase: true},
		sandbox.CanSnapshot: {Image: sandbox.HostImage, Snapshot: "s-0"},
	} {
		spec.ID, spec.Tier = cofferdam.BoxID(cofferdam.NewID("b")), sandbox.Process
		if _, err := d.Create(t.Context(), spec); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "gvisor") || slices.Contains(offers[0].Can, capability) {
			t.Errorf("%s: %v (%s)", capability, err, cofferdam.HintOf(err))
		}
	}
}

// TestMissingLayerIsRefused is CMP-13: without a layer there is no box, and the
// refusal names the layer and its fix. The same driver with nothing missing is
// the control.
func TestMissingLayerIsRefused(t *testing.T) {
	d := newDriver(t)
	newBox(t, d)
	good := d.checker
	empty := t.TempDir()
	script := filepath.Join(empty, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		layer, fix string
		change     func(*checker)
	}{
		"an ordinary user":   {layerRoot, "cofferdam run", func(c *checker) { c.euid = 1000 }},
		"no pid 1":           {layerInit, "make build", func(c *checker) { c.o.Init = "/no/such" }},
		"pid 1 is a script":  {layerInit, "make build", func(c *checker) { c.o.Init = script }},
		"no Landlock":        {wall.LayerLandlock, "lsm=", func(c *checker) { c.landlock = func() int { return 0 } }},
		"an old Landlock":    {wall.LayerLandlock, "5.19", func(c *checker) { c.landlock = func() int { return 1 } }},
		"no seccomp":         {wall.LayerSeccomp, "CONFIG_SECCOMP_FILTER", func(c *checker) { c.seccomp = func() error { return unix.EINVAL } }},
		"no tun":             {wall.LayerTAP, "modprobe tun", func(c *checker) { c.tun = filepath.Join(empty, "tun") }},
		"no control groups":  {layerGroups, "cgroup controllers", func(c *checker) { c.groups = empty }},
		"state below a file": {layerState, "state folder", func(c *checker) { c.o.Root = "/etc/passwd/x" }},
	} {
		d.checker = good
		c.change(&d.checker)
		spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: sandbox.HostImage}
		_, err := d.Create(t.Context(), spec)
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), c.layer) || !strings.Contains(cofferdam.HintOf(err), c.fix) {
			t.Errorf("%s: %v, hint %q", name, err, cofferdam.HintOf(err))
		}
		if !slices.ContainsFunc(d.checker.all(t.Context()), func(f sandbox.Finding) bool {
			return f.Name == "process-"+c.layer && f.Level == sandbox.Fail && f.Fix != ""
		}) {
			t.Errorf("%s: no finding says so", name)
		}
		if _, err := d.Open(t.Context(), spec.ID); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%s: after the refusal: %v", name, err)
		}
	}
}

// TestLayerMissingInside: what pid 1 cannot have, it refuses, and nothing runs.
func TestLayerMissingInside(t *testing.T) {
	_, project := person(t)
	o := OneOff{Init: initProgram(t), Workspace: project, Argv: []string{"touch", "ran"}, Env: []string{"PATH=/usr/bin"}}
	for name, change := range map[string]func(*wall.Plan){
		"no filter":       func(p *wall.Plan) { p.Filter = nil },
		"a broken filter": func(p *wall.Plan) { p.Filter = p.Filter[:2] },
		"no such folder":  func(p *wall.Plan) { p.Write = append(p.Write, "/no/such") },
		"missing source": func(p *wall.Plan) {
			p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Bind, To: "/x", From: "/no/such"})
		},
		"no kind of mount": func(p *wall.Plan) { p.Mounts = append(p.Mounts, wall.Mount{Kind: "magic", To: "/x"}) },
	} {
		p, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		change(&p)
		init, err := startInit(starting{path: o.Init, once: true, flags: unix.CLONE_NEWNET}, func() (wall.Plan, error) { return p, nil })
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.follow(init, findTerminal([3]*os.File{}))
		_ = init.cmd.Wait() // its code says nothing more
		unix.Close(init.talk)
		if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(project, "ran")); err == nil {
		t.Error("the command ran without a wall")
	}
}

func TestRestrictedUserNamespaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "restrict")
	if restricted(file) {
		t.Error("a host without the switch restricts")
	}
	for text, want := range map[string]bool{"0\n": false, "1\n": true} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if restricted(file) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	for _, c := range []struct {
		layer      string
		euid       int
		restricted bool
		profile    bool
	}{
		{layerUser, 0, true, true},
		{layerUser, 1000, false, false},
		{wall.LayerMount, 1000, true, true},
		{wall.LayerMount, 0, true, false},
		{wall.LayerNetwork, 1000, true, true},
		{wall.LayerLandlock, 1000, true, false},
	} {
		if got := fixFor(c.layer, c.euid, c.restricted); strings.Contains(got, "userns,") != c.profile || got == "" {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestFixOfTAP: who may not open the device is told to open it, not to load what is
// loaded, also where pid 1 has only written why.
func TestFixOfTAP(t *testing.T) {
	if restricted(restrictFile) && os.Geteuid() != 0 {
		t.Skip("AppArmor refuses before the device does, and its profile is the fix")
	}
	for text, want := range map[string]string{
		"open /dev/net/tun: permission denied": "chmod 0666 /dev/net/tun", "open /dev/net/tun: no such file or directory": "modprobe tun", "make device: no such device": "modprobe tun",
	} {
		err := reported(opRun, wall.Report{Layer: wall.LayerTAP, Error: text})
		if hint := cofferdam.HintOf(err); !strings.Contains(hint, want) || strings.Contains(hint, "modprobe") != (want == "modprobe tun") {
			t.Errorf("%s: %s", text, hint)
		}
	}
}

// TestHostView has a box that sees the whole host, but for what is secret.
func TestHostView(t *testing.T) {
	home, _ := person(t)
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) { s.Image = sandbox.HostView })
	for text, want := range map[string]string{
		"id -u; pwd; ls -A /work":                                       "1000\n/work",
		"cat " + home + "/notes.txt":                                    "plain", // no home folder of the keeper's: it is an ordinary one
		"ls -A /root /var/lib/docker 2>/dev/null | wc -l":               "0",
		"ls -A /home":                                                   "agent",
		"cat /etc/shadow /etc/ssl/private/* 2>/dev/null":                "",
		"find / -xdev -name '*.sock' 2>/dev/null | head":                "",
		"touch /usr/x /etc/x /srv/x 2>/dev/null || echo no":             "no",
		"hostname; cat /etc/hostname; whoami":                           "box\nbox\nagent",
		"test -d /usr/share && command -v git >/dev/null && echo tools": "tools",
	} {
		if got, r := sh(t, b, text); got != want {
			t.Errorf("%s:\ngot  %q, %+v\nwant %q", text, got, r, want)
		}
	}
}

// forkAll makes processes until none can be made, and ends when they have.
func forkAll() string {
	return fmt.Sprintf("(for i in $(seq 400); do sleep %d & done) 2>/dev/null; exec sleep %d.5", full(), full())
}

// full is for how many seconds a box is full of processes: a control group counts
// those that could not be made, an ordinary user's box is only looked at.
func full() int {
	if isUser() {
		return 8
	}
	return 1
}

// TestBoxFullOfProcesses: pid 1 goes on when no process can be made any more.
func TestBoxFullOfProcesses(t *testing.T) {
	fork := fmt.Sprintf(`python3 -c '
import os, time
try:
    while True:
        if os.fork() == 0: time.sleep(%d); os._exit(0)
except OSError: pass
try:
    while True: os.wait()
except ChildProcessError: pass'`, full())
	b := newBox(t, newDriver(t))
	for range 2 {
		if _, r := sh(t, b, fork); r.Lost || r.Exit != 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedPIDs) {
			t.Fatalf("%+v", r)
		}
	}
}

// TestLimitsAreNamed is R08 for what the host counts.
func TestLimitsAreNamed(t *testing.T) {
	b := newBox(t, newDriver(t))
	for text, want := range map[string]sandbox.Exhaustion{
		`python3 -c 'x = bytearray(1 << 30)'; exit 0`:              sandbox.ExhaustedMemory,
		`head -c 100M /dev/zero >/work/big; sleep 5; rm /work/big`: sandbox.ExhaustedDisk,
		`head -c 100M /dev/zero >/tmp/big; sleep 5; rm /tmp/big`:   sandbox.ExhaustedTemp,
		forkAll(): sandbox.ExhaustedPIDs,
	} {
		_, r := sh(t, b, text)
		if !slices.Contains(r.Exhausted, want) || r.Lost {
			t.Errorf("%s: %+v, want %s", text, r, want)
		}
		got, r := sh(t, b, "echo fine")
		if got != "fine" || len(r.Exhausted) > 0 {
			t.Errorf("after %s: %q, %+v", want, got, r)
		}
	}
}

// TestNothingIsLeft looks for what boxes had after their end, also after that of
// a driver that could not end them.
func TestNothingIsLeft(t *testing.T) {
	o := options(t)
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t, d)
	if err := b.Start(t.Context(), sandbox.Command{ID: "long", Shell: "setsid sleep 1000 & sleep 1000"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Pause(t.Context()); err != nil && !isUser() { // what is frozen must end too
		t.Fatal(err)
	}
	again, err := New(o) // as after a keeper that was killed
	if err != nil {
		t.Fatal(err)
	}
	change, err := b.Wait(t.Context())
	if err != nil || change.State != sandbox.Failed && change.State != sandbox.Suspended {
		t.Errorf("the box of before: %+v, %v", change, err)
	}
	mounts, err := mount.Under(filepath.Join(o.Root, "boxes"))
	entries, readErr := os.ReadDir(filepath.Join(o.Root, "boxes"))
	if err := errors.Join(err, readErr); err != nil || len(mounts) > 0 || len(entries) > 0 || len(again.groups.List()) > 0 {
		t.Errorf("left: %v, %v, %v, %v", mounts, entries, again.groups.List(), err)
	}
	if err := errors.Join(b.Destroy(context.Background()), again.Close(context.Background())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(again.groups.Dir("memory", "")); err == nil {
		t.Error("the parent of the control groups is still there")
	}
}

func TestBoundsOfBoxes(t *testing.T) {
	d := newDriver(t)
	newBox(t, d)
	for d.Count() < maxBoxes {
		if _, err := d.Reserve(cofferdam.BoxID(cofferdam.NewID("b"))); err != nil {
			t.Fatal(err)
		}
	}
	spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: sandbox.HostImage}
	if _, err := d.Create(t.Context(), spec); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("one more: %v", err)
	}
	for name, change := range map[string]func(*sandbox.Spec){
		"memory too small":         func(s *sandbox.Spec) { s.Limits.Memory = minMemory - 1 },
		"too many files":           func(s *sandbox.Spec) { s.Files = make([]sandbox.File, sandbox.MaxFiles+1) },
		"file in the image":        func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/usr/bin/sh"}} },
		"image is the host's root": func(s *sandbox.Spec) { s.Image = "/" },
		"image holds our state":    func(s *sandbox.Spec) { s.Image = filepath.Dir(d.o.Root) },
		"image is a link":          func(s *sandbox.Spec) { s.Image = "/bin" },
		"hostname":                 func(s *sandbox.Spec) { s.Hostname = "a\nb" },
	} {
		spec := spec
		change(&spec)
		if _, err := d.Create(t.Context(), spec); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFolderImage has a folder as the root of a box, whose own /etc stays.
func TestFolderImage(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	text := `set -e; cd "$1"; mkdir -p bin etc/deep opt tmp work; cp /bin/busybox bin/; ln -s busybox bin/sh; ln -s busybox bin/cat; ln -s busybox bin/ls; ln -s busybox bin/touch
	ln -s busybox bin/id; echo image >etc/release; echo deep >etc/deep/file; echo secret:x >etc/passwd; echo left >work/left; ln -s /etc/release opt/link`
	if out, err := exec.Command("sh", "-c", text, "sh", root).CombinedOutput(); err != nil {
		t.Skipf("needs busybox: %v, %s", err, out)
	}
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) { s.Image = root })
	for text, want := range map[string]string{
		"cat /etc/release /etc/deep/file /opt/link": "image\ndeep\nimage",
		"id -un; ls -A /work":                       "agent",
		"touch /opt/x /etc/x 2>/dev/null || ls /usr 2>/dev/null || cat /no 2>/dev/null": "",
	} {
		if got, r := sh(t, b, text); got != want {
			t.Errorf("%s: %q, want %q (%+v)", text, got, want, r)
		}
	}
}

// TestNeighbours is XTK-05: two boxes of the same user of the host, and one of
// them tries to reach the other by every way that a user's processes have.
func TestNeighbours(t *testing.T) {
	d := newDriver(t)
	one, two := newBox(t, d), newBox(t, d)
	const holds = `exec python3 -c '
import os, socket, time
open("/dev/shm/canary", "w").write("canary"); open("/tmp/canary", "w").write("canary")
s = socket.socket(socket.AF_UNIX); s.bind("\0canary"); s.listen()
p = socket.socket(); p.bind(("127.0.0.1", 3001)); p.listen()
open("/work/ready", "w"); time.sleep(100)'`
	if err := one.Start(t.Context(), sandbox.Command{ID: "holds", Shell: holds, Env: []string{"CANARY=canary"}}); err != nil {
		t.Fatal(err)
	}
	const reach = `python3 -c '
import os, socket
found = []
for pid in os.listdir("/proc"):
    try:
        if pid.isdigit() and b"CANARY=" in open("/proc/%s/environ" % pid, "rb").read(): found.append("process")
    except OSError: pass
for path in ("/dev/shm/canary", "/tmp/canary"):
    if os.path.exists(path): found.append(path)
for family, address in ((socket.AF_UNIX, "\0canary"), (socket.AF_INET, ("127.0.0.1", 3001))):
    try: socket.socket(family).connect(address); found.append(str(address))
    except OSError: pass
print(found)'`
	if _, r := sh(t, one, "for i in $(seq 1200); do test -e /work/ready && exit; sleep 0.05; done; exit 1"); r.Exit != 0 {
		t.Fatal("the first box does not get ready")
	}
	if got, _ := sh(t, one, reach); strings.Count(got, ",") != 5 {
		t.Errorf("control, in the same box: %s", got)
	}
	if got, _ := sh(t, two, reach); got != "[]" {
		t.Errorf("in the other box: %s", got)
	}
}
