package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/userns"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// isUser says whether this is the process that TestAsUser starts.
func isUser() bool { return sandboxtest.IsUser() }

// TestAsUser runs the suite, what holds of root's boxes too, and what an ordinary
// user's boxes lack, as one.
func TestAsUser(t *testing.T) {
	if isUser() {
		t.Skip("this is that user")
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.RunAsUser(t, dir, "TestSuite", "TestLimitsAreNamed", "TestBoxFullOfProcesses", "TestNothingIsLeft", "TestNeighbours", "TestFolderImage", "TestSoak",
		"TestUserWatched", "TestUserFullDisk", "TestUserLacks", "TestUserIDs", "TestUserIsKeptShort", "TestUserSharedMemoryCountsOnce", "TestUserSpawnCountsOnce", "TestUserHiddenMemory",
		"TestUserForksCount", "TestUserPageTables", "TestUserHostView", "TestUserMovesWhatItHolds", "TestUserStandsStillUnseen", "TestUserRemovedProgramCounts")
}

func needUser(t *testing.T) {
	t.Helper()
	if !isUser() {
		t.Skip("TestAsUser runs it")
	}
	if !userns.Inside() {
		t.Fatal("this is not a user namespace")
	}
}

// TestUserWatched: what has no wall is watched.
func TestUserWatched(t *testing.T) {
	needUser(t)
	sandboxtest.Watched(t, func(t *testing.T) sandbox.Driver { return newDriver(t) }, func(t *testing.T) sandbox.Driver {
		o := options(t)
		o.Watched = false
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close(context.Background()) })
		return d
	})
	s, err := newBox(t, newDriver(t)).Status(t.Context())
	for _, want := range []string{"namespaces=mnt,pid,net,ipc,uts,cgroup,user", "seccomp=filter", "no-new-privs"} {
		if err != nil || !slices.Contains(s.Flags, want) {
			t.Errorf("flags %q lack %s; %v", s.Flags, want, err)
		}
	}
}

// TestUserFullDisk: see sandboxtest.FullDisk.
func TestUserFullDisk(t *testing.T) {
	needUser(t)
	sandboxtest.FullDisk(t, func(t *testing.T, root string) sandbox.Driver {
		o := options(t)
		o.Root = root
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return d
	})
}

// What cannot be had is refused by name, and is not offered.
func TestUserLacks(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	offers, err := d.Offers(t.Context())
	if err != nil || len(offers) != 1 || slices.Contains(offers[0].Can, sandbox.CanPause) || slices.Contains(offers[0].Can, sandbox.CanCheckpoint) || !slices.Contains(offers[0].Can, sandbox.CanKeep) || !slices.Contains(offers[0].Can, sandbox.CanImage) {
		t.Errorf("%v, %v", offers, err)
	}
	b := newBox(t, d)
	if err := b.Pause(t.Context()); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "tier gvisor") {
		t.Errorf("pause: %v, hint %q", err, cofferdam.HintOf(err))
	}
	if _, err := b.Snapshot(t.Context(), sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s"))}); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "tier gvisor") {
		t.Errorf("checkpoint: %v, hint %q", err, cofferdam.HintOf(err))
	}
	if got, r := sh(t, b, "echo on"); got != "on" || r.Exit != 0 {
		t.Errorf("afterwards: %q, %+v", got, r)
	}
}

// A namespace without the ids of boxes is found before a box is made.
func TestUserIDs(t *testing.T) {
	good := map[string]string{"uid_map": "0 65534 1\n1 200000 65536\n", "gid_map": "0 65534 1\n1 200000 65536\n", "setgroups": "allow\n"}
	for name, c := range map[string]struct {
		file, text string
		ok         bool
	}{
		"a range":                {"uid_map", good["uid_map"], true},
		"root's own":             {"gid_map", "         0          0 4294967295\n", true},
		"no user of boxes":       {"uid_map", "0 65534 1\n", false},
		"a user short":           {"uid_map", "0 65534 1\n1 200000 999\n", false},
		"too few groups":         {"gid_map", "0 65534 1\n1 200000 56383\n", false},
		"just enough groups":     {"gid_map", "0 65534 1\n1 200000 56384\n", true},
		"a hole in the groups":   {"gid_map", "0 65534 1\n1 200000 44000\n44002 300000 20000\n", false},
		"no groups":              {"gid_map", "", false},
		"nobody may have groups": {"setgroups", "deny\n", false},
		"nonsense":               {"gid_map", "x y z\n\x00\xff -1\n", false},
	} {
		dir := t.TempDir()
		for file, text := range good {
			if file == c.file {
				text = c.text
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		check := checker{proc: dir}
		if said, err := check.ids(); (err == nil) != c.ok {
			t.Errorf("%s: %q, %v", name, said, err)
		}
	}
}

// What the host keeps from this user is refused with what to do about it, before
// anything is made.
func TestUserIsKeptShort(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	good := d.checker
	for name, c := range map[string]struct {
		says, fix string
		change    func(*checker)
	}{
		"no network device": {"tun-device", "chmod 0666 /dev/net/tun", func(c *checker) { c.tun = "/etc/shadow" }},
		"few processes": {"limit of processes", "hard nproc 512", func(c *checker) {
			c.most = func(what int) uint64 {
				return map[int]uint64{unix.RLIMIT_NPROC: 511, unix.RLIMIT_NOFILE: 1 << 20}[what]
			}
		}},
		"few open files":     {"limit of open files", "hard nofile 8192", func(c *checker) { c.most = func(int) uint64 { return 8191 } }},
		"no namespace of it": {"group-ids", "usermod --add-subuids", func(c *checker) { c.proc = "/no/such" }},
	} {
		d.checker = good
		c.change(&d.checker)
		id := cofferdam.BoxID(cofferdam.NewID("b"))
		_, err := d.Create(t.Context(), sandbox.Spec{ID: id, Tier: sandbox.Process, Image: sandbox.HostImage})
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), c.says) || !strings.Contains(cofferdam.HintOf(err), c.fix) {
			t.Errorf("%s: %v, hint %q", name, err, cofferdam.HintOf(err))
		}
		if _, err := os.Stat(filepath.Join(d.o.Root, "boxes", string(id))); err == nil {
			t.Errorf("%s: something is left", name)
		}
	}
	d.checker = good
	newBox(t, d)
	// A host that gives no user namespaces: this one's own number of them.
	const file = "/proc/sys/user/max_user_namespaces"
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("0"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: sandbox.HostImage})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "user-namespace") || !strings.Contains(cofferdam.HintOf(err), "sysctl -w user.max_user_namespaces") {
		t.Errorf("no user namespace: %v, hint %q", err, cofferdam.HintOf(err))
	}
	if !slices.ContainsFunc(d.checker.all(t.Context()), func(f sandbox.Finding) bool { return f.Name == "process-user-namespace" && f.Level == sandbox.Fail }) {
		t.Error("no finding says that there is no user namespace")
	}
	if err := os.WriteFile(file, before, 0); err != nil {
		t.Fatal(err)
	}
	newBox(t, d)
}

// Root's keeper without control groups has boxes of the same kind, on disk.
func TestWatchedAsRoot(t *testing.T) {
	if isUser() {
		t.Skip("TestUser… has them")
	}
	d := newDriver(t)
	d.o.Watched, d.watched = true, true // as where there are none
	b := newBox(t, d)
	s, err := b.Status(t.Context())
	if err != nil || !slices.Contains(s.Flags, sandbox.LimitsWatched) || slices.Contains(s.Flags, sandbox.WorkspaceMemory) {
		t.Errorf("%+v, %v", s, err)
	}
	for text, want := range map[string]string{
		"id -u; echo kept >/work/f; cat /work/f; stat -c %u /work/f": "1000\nkept\n1000",
		"grep -c . /proc/self/uid_map; cat /proc/self/oom_score_adj": "2\n500",
	} {
		if got, r := sh(t, b, text); got != want || r.Exit != 0 {
			t.Errorf("%s: %q, %+v", text, got, r)
		}
	}
	if _, r := sh(t, b, "exec python3 -c 'x = bytearray(2048 << 20); import time; time.sleep(60)'"); r.Signal != 9 || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("a hog: %+v", r)
	}
}

// What processes share is held once: a large one that forks is no hog.
func TestUserSharedMemoryCountsOnce(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t)) // of 256 MiB
	const share = `exec python3 -c '
import mmap, os, time
x = bytearray(%s << 20); m = mmap.mmap(-1, 20 << 20); m.write(bytes(20 << 20))
for i in range(8):
    if os.fork() == 0:
        m[0]; sum(m[::4096])
        while not os.path.exists("/work/go"): time.sleep(0.01)
        os._exit(0)
time.sleep(1); open("/work/go", "w")
print([os.wait()[1] for i in range(8)])'`
	got, r := sh(t, b, fmt.Sprintf(share, "100"))
	if want := "[0, 0, 0, 0, 0, 0, 0, 0]"; got != want || r.Exit != 0 || len(r.Exhausted) > 0 {
		t.Errorf("nine processes with 120 MiB together: %q, %+v", got, r)
	}
}

// What begins another program by vfork has its memory once: the kernel shows it for
// both until the other program runs, here until somebody opens a pipe, however long
// that takes.
func TestUserSpawnCountsOnce(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t)) // of 256 MiB
	const spawn = `exec python3 -c '
import os, time
os.mkfifo("/work/pipe")
if os.fork() == 0:
    for i in range(3):
        time.sleep(0.2 + i); os.close(os.open("/work/pipe", os.O_WRONLY))
    os._exit(0)
x = bytearray(150 << 20)
for i in range(3):
    pid = os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/work/pipe", os.O_RDONLY, 0)])
    print(os.waitpid(pid, 0)[1])'`
	if got, r := sh(t, b, spawn); got != "0\n0\n0" || r.Exit != 0 || len(r.Exhausted) > 0 {
		t.Errorf("150 MiB of 256 that begins programs: %q, %+v", got, r)
	}
}

// What forks is no such thing: its children have what they write for themselves, however
// short they live and whatever their parent has.
func TestUserForksCount(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t)) // of 256 MiB
	const forks = `exec python3 -c '
import os, time
x = bytearray(110 << 20)
for i in range(%d):
    made = []
    for j in range(%d):
        if (pid := os.fork()) == 0:
            for at in range(0, len(x), 4096): x[at] = 1 # its own from now on
            time.sleep(0.3); os._exit(0)
        made.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in made): print("ended"); break'`
	if got, r := sh(t, b, fmt.Sprintf(forks, 3, 1)); got != "" || r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("220 MiB of 256: %q, %+v", got, r)
	}
	if got, r := sh(t, b, fmt.Sprintf(forks, 100, 2)); got != "ended" && r.Signal == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("330 MiB of 256: %q, %+v", got, r)
	}
}

// Files in memory are held too, and a process whose first thread has ended.
func TestUserHiddenMemory(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := newBox(t, d) // of 256 MiB
	const thread = `exec python3 -c '
import ctypes, os, threading, time
def hog():
    x = []
    while len(x) < 128: x.append(bytearray(16 << 20)); time.sleep(0.1) # slower than a watch on a busy machine looks
    open("/work/over", "w")
threading.Thread(target=hog).start()
ctypes.CDLL(None).pthread_exit(None)'`
	if _, r := sh(t, b, thread); r.Signal != 9 || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("a hog without a first thread: %+v", r)
	}
	if got, _ := sh(t, b, "ls /work"); got != "" {
		t.Errorf("it came to its end: %q", got)
	}
	// 60 MiB of files of three folders, and 120 MiB of a process: together above 160 MiB.
	small := newBox(t, d, func(s *sandbox.Spec) { s.Limits.Memory = 160 << 20 })
	const fill = "for f in /tmp/f /dev/shm/f $HOME/f; do head -c 20M /dev/zero >$f; done; "
	const holds = "exec python3 -c 'x = bytearray(110 << 20); import time; time.sleep(%d)'"
	if _, r := sh(t, small, fmt.Sprintf(holds, 1)); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("without files: %+v", r)
	}
	if _, r := sh(t, small, fill+fmt.Sprintf(holds, 1000)); r.Signal != 9 || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("with files: %+v", r)
	}
	if got, r := sh(t, small, "cat /tmp/f | wc -c"); got != "20971520" || r.Exit != 0 {
		t.Errorf("afterwards: %q, %+v", got, r)
	}
}

// What finds a process' memory is held too: who reads where nothing is makes it large.
func TestUserPageTables(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t)) // of 256 MiB
	const read = `exec python3 -c '
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for i in range(%d):
    p = libc.mmap(None, 1 << 30, 1, 0x4022, -1, 0) # to be read, private, without a file, nothing reserved
    for at in range(0, 1 << 30, 2 << 20): ctypes.c_char.from_address(p + at).value
print("all")'`
	if got, r := sh(t, b, fmt.Sprintf(read, 10)); got != "all" || r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("20 MiB: %q, %+v", got, r)
	}
	if got, r := sh(t, b, fmt.Sprintf(read, 1000)); got != "" || r.Signal != 9 || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("2 GiB of 256 MiB: %q, %+v", got, r)
	}
}

// A view of the host shows an ordinary user's box what everybody may read, and no
// file of that user.
func TestUserHostView(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Image = sandbox.HostView })
	for text, want := range map[string]string{
		"id -u; pwd; ls -A /work":                          "1000\n/work",
		"ls -A /home; ls -A /root 2>/dev/null":             "agent",
		"cat /etc/shadow " + d.o.Root + "/* 2>/dev/null":   "",
		"touch /usr/x /etc/x 2>/dev/null || echo no":       "no",
		"hostname; whoami; ls -ld /work | cut -d\" \" -f3": "box\nagent\nagent",
		"command -v sh >/dev/null && echo tools":           "tools",
		"cat /proc/self/oom_score_adj":                     "500",

		"grep -c . /proc/self/uid_map; grep Cap /proc/self/status | sort -u | grep -c 0000000000000000": "2\n4",
	} {
		if got, r := sh(t, b, text); got != want {
			t.Errorf("%s:\ngot  %q, %+v\nwant %q", text, got, r, want)
		}
	}
}
