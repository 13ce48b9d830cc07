package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"
)

// evade fills a folder of a workspace and moves it away from wherever that is being
// counted: it hears which folders are opened, in the order in which they are listed.
// Its arguments are the workspace, how many MiB it wants in all, and in a second.
const evade = `
import ctypes, os, struct, sys, threading, time
work, most, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
for i in range(400): os.makedirs("%s/d%d" % (work, i), exist_ok=True)
names = os.listdir(work)
first, last = names[0], names[-1]
os.mkdir("%s/%s/hoard" % (work, last))
hoard = os.open("%s/%s/hoard" % (work, last), os.O_RDONLY)
heard = libc.inotify_init1(0)
at = {libc.inotify_add_watch(heard, ("%s/%s" % (work, name)).encode(), 0x30): i for i, name in enumerate(names)} # opened, closed
def move(of, to):
    try: os.rename("%s/%s/hoard" % (work, of), "%s/%s/hoard" % (work, to))
    except FileNotFoundError: pass
def dodge():
    while True:
        data = os.read(heard, 65536)
        for o in range(0, len(data), 16):
            what, how = struct.unpack_from("iI", data, o)
            if at.get(what) == len(names) // 8: move(last, first) # where it is counted has been already
            if at.get(what) == len(names) - 1 and how & 0x10: move(first, last)
threading.Thread(target=dodge, daemon=True).start()
for n in range(most // 2):
    f = os.open("f%d" % n, os.O_WRONLY | os.O_CREAT, dir_fd=hoard)
    os.posix_fallocate(f, 0, 2 << 20)
    os.close(f)
    time.sleep(2 / rate)
print("held", most)
`

// RES-disk, by moving. The hole: a workspace that is a folder is counted by walking through it, and
// who may write to it hears where that is and moves what it holds to where it was already.
// The steps: 400 folders, in one of them another that grows by 10 MiB a second, and that
// is moved each time the count comes near. What must hold: the command is ended, for its
// disk, while it holds less than twice its size. Control: without the boundary counts see
// less than the size while more than twice that is there. Twin:
// TestUserStandsStillUnseen.
func TestUserMovesWhatItHolds(t *testing.T) {
	needUser(t)
	const size, each = 64 << 20, 2 << 20
	control := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(control, 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "python3", "-c", evade, control, "2048", "40")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for evaded, deadline := 0, time.Now().Add(90*time.Second); evaded < 3; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("control: every count sees it")
		}
		there, err := filepath.Glob(filepath.Join(control, "*", "hoard", fmt.Sprint("f", 2*size/each)))
		if err != nil {
			t.Fatal(err)
		}
		u, err := watch.Measure(t.Context(), control, watch.Usage{Bytes: size, Files: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if len(there) > 0 && u.Bytes < size { // who has written that file has written all before it
			evaded++
		}
	}
	_ = c.Process.Kill()
	_ = c.Wait() // it was killed

	d := newDriver(t)
	id := sandbox.WorkspaceID(cofferdam.NewID("w"))
	b := newBox(t, d, func(s *sandbox.Spec) { s.Workspace, s.Epoch = id, 1 })
	got, r := sh(t, b, fmt.Sprintf("exec python3 -c '%s' /work 1024 10", evade))
	if r.TimedOut || r.Signal == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) || !strings.Contains(r.Reason, "/work holds") {
		t.Errorf("%q, %+v", got, r)
	}
	u, err := watch.Measure(t.Context(), filepath.Join(d.o.Root, "workspaces", string(id), "disk"), watch.Usage{Bytes: size, Files: 1 << 20})
	if err != nil || u.Bytes > 2*size {
		t.Errorf("it held %d MiB of %d; %v", u.Bytes>>20, size>>20, err)
	}
	t.Logf("ended with %d MiB of %d", u.Bytes>>20, size>>20)
}

// moves moves a folder of 20 MiB about for as long as there is no file "enough", makes
// a file "told" when it was told to go on, and says whether waiting for a child showed it
// as stopped, and whether a child that stopped itself still stands.
const moves = `
import os, signal, time
def go_on(*_): open("/work/told", "w").close()
signal.signal(signal.SIGCONT, go_on)
os.makedirs("/work/a/x"); os.mkdir("/work/b")
open("/work/a/x/f", "wb").write(bytes(20 << 20))
stands = os.fork()
if stands == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(1)
os.waitpid(stands, os.WUNTRACED)
runs = os.fork()
if runs == 0:
    while not os.path.exists("/work/enough"):
        os.rename("/work/a/x", "/work/b/x"); os.rename("/work/b/x", "/work/a/x")
    os._exit(0)
pid, status = os.waitpid(runs, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), "exit", os.WEXITSTATUS(status))
print("stands", os.waitpid(stands, os.WNOHANG) == (0, 0) and open("/proc/%d/stat" % stands).read().split(")")[1].split()[0])
`

// A box that moves folders about within its size is stopped for a count when others take
// so much of the disk that it could have been the box; its programs do not see it, what
// stopped itself stands afterwards, and a command that begins meanwhile waits and runs.
func TestUserStandsStillUnseen(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) {
		s.Workspace, s.Epoch = sandbox.WorkspaceID(cofferdam.NewID("w")), 1
	})
	others, err := os.Create(filepath.Join(d.o.Root, "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		got, r := sh(t, b, fmt.Sprintf("exec python3 -c '%s'", moves))
		if want := "stopped False exit 0\nstands T"; got != want || r.Exit != 0 || len(r.Exhausted) > 0 {
			t.Errorf("%q, want %q; %+v", got, want, r)
		}
	}()
	for deadline := time.Now().Add(50 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := errors.Join(others.Truncate(0), unix.Fallocate(int(others.Fd()), 0, 0, 100<<20)); err != nil {
			t.Fatal(err)
		}
		if got, r := sh(t, b, "test -e /work/told && echo told"); got == "told" || len(r.Exhausted) > 0 || time.Now().After(deadline) {
			if got != "told" {
				t.Errorf("it was never stopped: %+v", r)
			}
			break
		}
	}
	if _, r := sh(t, b, "touch /work/enough"); r.Exit != 0 {
		t.Errorf("%+v", r)
	}
	<-ended
}

// A program that runs and was removed takes its room: 40 MiB of it and 40 MiB with a
// name are more than 64.
func TestUserRemovedProgramCounts(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) { s.Workspace, s.Epoch = sandbox.WorkspaceID(cofferdam.NewID("w")), 1 })
	const run = `cp "$(readlink -f "$(command -v sleep)")" /work/p && chmod 700 /work/p && fallocate -o 1M -l 40M /work/p && { /work/p %d & until [ "$(readlink /proc/$!/exe)" = /work/p ]; do sleep 0.05; done; rm /work/p; %s; wait; }`
	if _, r := sh(t, b, fmt.Sprintf(run, 5, "fallocate -l 4M /work/f")); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("44 MiB: %+v", r)
	}
	if _, r := sh(t, b, fmt.Sprintf(run, 50, "fallocate -l 40M /work/f")); r.Signal == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) {
		t.Errorf("80 MiB of 64: %+v", r)
	}
}
