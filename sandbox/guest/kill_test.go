package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// TestNotFirst runs pid 1's program as an ordinary process: what orphans itself
// comes to it all the same, and dies by kill and with the host.
func TestNotFirst(t *testing.T) {
	b := newBox(t, guest.Options{Config: guest.Config{PIDs: notFirst}})
	const orphan = "setsid sh -c 'setsid sleep %s & exit' & exit"
	for i, token := range []string{"4545", "4646"} {
		id := execID(i)
		if r, _, _ := b.do(t, sandbox.Command{ID: id, Shell: fmt.Sprintf(orphan, token)}); r.Exit != 0 {
			t.Fatalf("%+v", r)
		}
		if !alive(t, "sleep\x00"+token) {
			t.Fatal("the orphan is not there")
		}
	}
	if err := b.Kill(testContext(t), execID(0)); err != nil {
		t.Fatal(err)
	}
	if alive(t, "sleep\x004545") || !alive(t, "sleep\x004646") {
		t.Error("the kill hit the wrong one")
	}
	if err := b.Close("over"); err != nil {
		t.Fatal(err)
	}
	b.init.Wait()
	if alive(t, "sleep\x004646") {
		t.Error("an orphan outlived its host")
	}
}

func execID(i int) cofferdam.ExecID { return cofferdam.ExecID(fmt.Sprintf("x-%d", i)) }
