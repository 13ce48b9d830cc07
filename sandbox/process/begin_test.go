package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/wall"
)

// TestSignalIsNoWord: a signal that is sent on while a box is built is not taken
// for the word by which its command begins, before which it is not on record.
func TestSignalIsNoWord(t *testing.T) {
	_, project := person(t)
	o := OneOff{
		Init: initProgram(t), Workspace: project, Argv: []string{"touch", "made"}, Env: []string{"PATH=/usr/bin:/bin"},
		Wire: func(tap *os.File, _ int) error { return tap.Close() },
	}
	p, err := startInit(starting{path: o.Init, once: true, apart: true, flags: unix.CLONE_NEWNET}, o.plan)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p.talk)
	defer func() { _ = p.cmd.Wait() }() // how it ended is in its report
	defer func() { _ = p.cmd.Process.Kill() }()
	say := func(b byte) {
		t.Helper()
		if err := p.say(b); err != nil {
			t.Fatal(err)
		}
	}
	say(byte(unix.SIGUSR1))
	say(0)
	r, tap, err := p.hear()
	if err != nil || !r.Wire {
		t.Fatalf("%+v, %v", r, err)
	}
	defer tap.Close()
	say(byte(unix.SIGUSR1))
	for { // until pid 1 has read it
		unread, err := unix.IoctlGetInt(p.talk, unix.SIOCOUTQ)
		if err != nil {
			t.Fatal(err)
		}
		if unread == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// A command that began would say its end at once.
	early := []unix.PollFd{{Fd: int32(p.talk), Events: unix.POLLIN}}
	if n, err := unix.Poll(early, 500); n != 0 && err == nil {
		r, _, err := p.hear()
		t.Fatalf("before it was told to go on: %+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(project, "made")); err == nil {
		t.Fatal("the command ran before it was told to")
	}
	say(0)
	if r, _, err := p.hear(); err != nil || r != (wall.Report{Ended: true}) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(project, "made")); err != nil {
		t.Error(err)
	}
}
