package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// Ways to outlive a kill. Each script ends up writing its heartbeat to the file
// beat; RES-05 itself is in sandboxtest.
var escapes = map[string]struct{ needs, script string }{
	"double fork, new session, signals ignored": {"setsid", `
		trap '' TERM HUP INT QUIT
		(setsid sh -c 'trap "" TERM HUP; exec <&- >&- 2>&-; while :; do date >beat; sleep 0.05; done' & ) &
		sleep 1000`},
	"orphan of an orphan whose parents are gone": {"setsid", `
		setsid sh -c 'setsid sh -c "while :; do date >beat; sleep 0.05; done" & exit' & exit`},
	"stopped, to be continued": {"sh", `
		sh -c 'kill -STOP $$; while :; do date >beat; sleep 0.05; done' & p=$!
		date >beat; (while :; do sleep 0.2; kill -CONT $p; done) & sleep 1000`},
	"user namespace of its own": {"unshare", `
		unshare --user --map-root-user sh -c 'while :; do date >beat; sleep 0.05; done'`},
	"user namespace that drops its groups": {"python3", `exec python3 -c '
import os, time, ctypes
libc = ctypes.CDLL(None)
u, g = os.getuid(), os.getgid()
if libc.unshare(0x10000000) == 0:
    for name, text in (("setgroups", "allow"), ("gid_map", "0 %d 1" % g), ("uid_map", "0 %d 1" % u)):
        try: open("/proc/self/" + name, "w").write(text)
        except OSError: pass
    try: os.setgroups([])
    except OSError: pass
while True:
    open("beat", "w").write(str(time.time())); time.sleep(0.05)'`},
	"first thread gone": {"python3", `exec python3 -c '
import ctypes, threading, time
def beat():
    while True:
        open("beat", "w").write(str(time.time())); time.sleep(0.05)
threading.Thread(target=beat).start()
ctypes.CDLL(None).pthread_exit(None)'`},
	"name that looks like a status": {"bash", `exec bash -c '
		printf "a\nGroups:\t7" >/proc/$$/comm; while :; do date >beat; sleep 0.05; done'`},
	"chain of forks": {"sh", `
		echo 'date >beat; sh chain & exit' >chain; sh chain; sleep 1000`},
	"several chains of forks": {"python3", `
		cat >chain.py <<'X'
import os
while True:
    if os.fork(): os._exit(0)
    if os.getpid() % 64 == 0: open("beat", "w").write(str(os.getpid()))
X
		for i in 1 2 3; do python3 chain.py & done; sleep 1000`},
}

func TestKillEndsEverything(t *testing.T) {
	for name, e := range escapes {
		for _, how := range []string{"kill", "timeout"} {
			t.Run(how+", "+name, func(t *testing.T) {
				if _, err := exec.LookPath(e.needs); err != nil {
					t.Skipf("needs %s: %v", e.needs, err)
				}
				testEscape(t, e.script, how == "timeout")
			})
		}
	}
}

func testEscape(t *testing.T, script string, timeout bool) {
	b := newBox(t, guest.Options{Config: guest.Config{PIDs: 300}})
	beat := filepath.Join(b.work, "beat")
	other := sandbox.Command{ID: "other", Shell: `sleep 0.01; while ! test -e stop; do sleep 0.01; done; echo unharmed`}
	if err := b.Start(testContext(t), other); err != nil {
		t.Fatal(err)
	}
	c := sandbox.Command{ID: "bad", Shell: script}
	if timeout {
		c.Timeout = time.Second
	}
	if err := b.Start(testContext(t), c); err != nil {
		t.Fatal(err)
	}
	for !exists(beat) {
		time.Sleep(time.Millisecond) // another process makes it
	}
	if timeout {
		r, _, _ := b.finish(t, "bad")
		if !r.TimedOut && r.Signal != 0 {
			t.Errorf("%+v", r)
		}
		if !r.TimedOut { // its first process ended in time: what it left is ended by name
			if err := b.Kill(testContext(t), "bad"); err != nil {
				t.Fatal(err)
			}
		}
	} else if err := b.Kill(testContext(t), "bad"); err != nil {
		t.Fatal(err)
	}
	os.Remove(beat)
	time.Sleep(300 * time.Millisecond) // several heartbeats
	if exists(beat) {
		t.Error("its heart still beats")
	}
	if err := os.WriteFile(filepath.Join(b.work, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, stdout, _ := b.finish(t, "other"); r.Exit != 0 || stdout != "unharmed\n" {
		t.Errorf("another command was hit: %+v, %q", r, stdout)
	}
}
