package guest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/sandboxtest"
)

func TestKillEndsEverything(t *testing.T) {
	for _, e := range sandboxtest.Escapes() {
		for _, how := range []string{"kill", "timeout"} {
			t.Run(how+", "+e.Name, func(t *testing.T) {
				if _, err := exec.LookPath(e.Needs); err != nil {
					t.Skipf("needs %s: %v", e.Needs, err)
				}
				testEscape(t, e.Script, how == "timeout")
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
	ctx := testContext(t)
	for !exists(beat) {
		time.Sleep(time.Millisecond) // another process makes it
		r, ended, err := b.Result(ctx, c.ID)
		if err == nil && ended && r.TimedOut && !exists(beat) { // a busy machine: it had not begun
			c.ID, c.Timeout = c.ID+"-again", 4*c.Timeout
			err = b.Start(ctx, c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if timeout {
		r, _, _ := b.finish(t, c.ID)
		if !r.TimedOut && r.Signal != 0 {
			t.Errorf("%+v", r)
		}
		if !r.TimedOut { // its first process ended in time: what it left is ended by name
			if err := b.Kill(testContext(t), c.ID); err != nil {
				t.Fatal(err)
			}
		}
	} else if err := b.Kill(testContext(t), c.ID); err != nil {
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

// besideInit runs a program beside a process of an ordinary user, and says whether
// that one lives on. What the program does to others stays in a pid namespace.
const besideInit = `setpriv --reuid 65432 --regid 65432 --clear-groups sleep 1000 3<&- 4>&- >&- & n=$!
until grep -q "^Uid:.65432" /proc/$n/status; do sleep 0.01; done
"$0"
grep -q "^State:.[RS]" /proc/$n/status && echo neighbour lives`

// TestOnlyAsPidOne: the marks of commands are the same in every box, so outside a
// pid namespace of its own a kill would meet the commands of others. One that refuses
// to serve for that reason ends nobody when the host goes away.
func TestOnlyAsPidOne(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: what it may not end runs as another user in a pid namespace")
	}
	program, err := initProgram()
	if err != nil {
		t.Fatal(err)
	}
	toInit, w := pipe(t)
	r, fromInit := pipe(t)
	var out bytes.Buffer
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-c", besideInit, program)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{toInit, fromInit}, &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toInit.Close()
	fromInit.Close()
	h, err := guest.NewHost(w, r, filepath.Join(t.TempDir(), "journals"), guest.Options{Config: guest.Config{UID: 1000, GID: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(testContext(t)); err == nil || !strings.Contains(err.Error(), "not pid 1") {
		t.Errorf("an ordinary process serves: %v", err)
	}
	if err := h.Close("over"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "neighbour lives\n" {
		t.Errorf("%v: %q; it ended a process that is not its own", err, out.String())
	}
}

func execID(i int) cofferdam.ExecID { return cofferdam.ExecID(fmt.Sprintf("x-%d", i)) }
