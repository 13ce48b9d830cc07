package sandboxtest

import (
	"strings"
	"testing"

	"cofferdam/sandbox"
)

// Escape is a way to outlive a kill: a shell script whose processes end up
// writing the file beat in the folder they started in, again and again.
type Escape struct {
	Name   string
	Needs  string // program without which it cannot be tried
	Script string
}

// Escapes returns the ways we know, RES-05 among them.
func Escapes() []Escape {
	return []Escape{
		{"double fork, new session, signals ignored", "setsid", `
		trap '' TERM HUP INT QUIT
		(setsid sh -c 'trap "" TERM HUP; exec <&- >&- 2>&-; while :; do date >beat; sleep 0.05; done' & ) &
		sleep 1000`},
		{"orphan of an orphan whose parents are gone", "setsid", `
		setsid sh -c 'setsid sh -c "while :; do date >beat; sleep 0.05; done" & exit' & exit`},
		{"stopped, to be continued", "sh", `
		sh -c 'kill -STOP $$; while :; do date >beat; sleep 0.05; done' & p=$!
		date >beat; (while :; do sleep 0.2; kill -CONT $p; done) & sleep 1000`},
		{"user namespace of its own", "unshare", `
		unshare --user --map-root-user sh -c 'while :; do date >beat; sleep 0.05; done'`},
		{"user namespace that drops its groups", "python3", `exec python3 -c '
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
		{"first thread gone", "python3", `exec python3 -c '
import ctypes, threading, time
def beat():
    while True:
        open("beat", "w").write(str(time.time())); time.sleep(0.05)
threading.Thread(target=beat).start()
ctypes.CDLL(None).pthread_exit(None)'`},
		{"name that looks like a status", "bash", `exec bash -c '
		printf "a\nGroups:\t7" >/proc/$$/comm; while :; do date >beat; sleep 0.05; done'`},
		{"chain of forks", "sh", `
		echo 'date >beat; sh chain & exit' >chain; sh chain; sleep 1000`},
		{"several chains of forks", "python3", `
		cat >chain.py <<'X'
import os
while True:
    if os.fork(): os._exit(0)
    if os.getpid() % 64 == 0: open("beat", "w").write(str(os.getpid()))
X
		for i in 1 2 3; do python3 chain.py & done; sleep 1000`},
	}
}

// testEscapes tries every way, beside a command that must not be hit.
func testEscapes(t *testing.T, s *subject) {
	b := s.box(t, nil)
	b.start(t, sandbox.Command{ID: "other", Shell: "while ! test -e stop; do sleep 0.05; done; echo unharmed"})
	for i, e := range Escapes() {
		if e.Needs == "unshare" && !s.bounded() {
			continue // the box without a boundary is a chroot, where no user namespace can be made
		}
		t.Run(e.Name, func(t *testing.T) {
			if r, _, _ := b.do(t, sandbox.Command{Shell: "command -v " + e.Needs}); r.Exit != 0 {
				t.Skip("needs " + e.Needs + " in the box")
			}
			if r, _, stderr := b.do(t, sandbox.Command{Shell: "unshare --user true"}); e.Needs == "unshare" && r.Exit != 0 {
				t.Skip("the box refuses it: " + stderr)
			}
			id := execID("escape-" + string(rune('a'+i)))
			b.shell(t, "rm -f beat")
			b.start(t, sandbox.Command{ID: id, Shell: e.Script})
			b.shell(t, "for i in $(seq 400); do test -e beat && exit; sleep 0.05; done; exit 1")
			if err := b.Kill(testContext(t), id); err != nil {
				t.Errorf("kill: %v", err)
			}
			if got := b.shell(t, "rm -f beat; sleep 0.5; ls beat 2>/dev/null || echo silent"); strings.TrimSpace(got) != "silent" {
				t.Error("its heart still beats")
			}
		})
	}
	b.shell(t, "touch stop")
	if r, stdout, _ := b.do(t, sandbox.Command{ID: "other", Shell: "x"}); r.Exit != 0 || stdout != "unharmed\n" {
		t.Errorf("another command was hit: %+v, %q", r, stdout)
	}
}
