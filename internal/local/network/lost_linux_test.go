package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// playing is the variable by which this program, started again, is that of a network.
const playing = "COFFERDAM_TEST_NETWORK"

func TestMain(m *testing.M) {
	if part := os.Getenv(playing); part != "" {
		if err := play(part); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play is a program that serves, says one event, with its process number, and ends
// when it is told to, or as its part says.
func play(part string) error {
	talk := os.NewFile(3, "talk")
	var s Setup
	if err := Receive(talk, &s); err != nil {
		return err
	}
	if part == "refuses" {
		return Send(talk, Entry{Error: "another release"})
	}
	said := Entry{Event: cofferdam.Event{
		Scope: s.Scope, Session: s.Session, Actor: Actor, Source: "egress", Kind: cofferdam.EventConnect, Resource: strconv.Itoa(os.Getpid()),
	}}
	if err := Send(talk, Entry{}); err != nil {
		return err
	}
	switch part {
	case "floods":
		for said.Event.Resource = strings.Repeat("x", 4096); ; {
			if err := Send(talk, said); err != nil {
				return err
			}
		}
	case "talks nonsense":
		if _, err := talk.Write([]byte("\x00\x00\x00\x01x")); err != nil {
			return err
		}
		return unix.Pause()
	}
	if forge := forgeries[part]; forge != nil {
		forge(&said.Event)
	}
	if err := Send(talk, said); err != nil {
		return err
	}
	var a Answer
	if err := Receive(talk, &a); err != nil {
		return err
	}
	if part == "ends" {
		return nil
	}
	if err := Receive(talk, &a); err != nil || !a.End {
		return fmt.Errorf("not told to end: %+v, %w", a, err)
	}
	if part == "ends badly" {
		os.Exit(4)
	}
	return nil
}

// forgeries are what a program that was taken over makes of its event, by their part.
var forgeries = map[string]func(*cofferdam.Event){
	"ends the command":       func(e *cofferdam.Event) { e.Kind = cofferdam.EventExecEnd },
	"has a person agree":     func(e *cofferdam.Event) { e.Kind = cofferdam.EventApprovalAnswer },
	"is the run":             func(e *cofferdam.Event) { e.Source = "local" },
	"is a person":            func(e *cofferdam.Event) { e.Actor.Kind = cofferdam.Person },
	"is of another session":  func(e *cofferdam.Event) { e.Session = "s-other" },
	"is of another project":  func(e *cofferdam.Event) { e.Scope.Project = "p-other" },
	"is of a task":           func(e *cofferdam.Event) { e.Task = "t-other" },
	"has no kind, no source": func(e *cofferdam.Event) { e.Kind, e.Source = "", "" },
}

// heard is a record that does with an event what a test wants.
type heard func(e cofferdam.Event) error

// Record implements cofferdam.Recorder.
func (h heard) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) { return e, h(e) }

// served is a way out by this program, and the box at its other end.
func served(t *testing.T, part string, record heard) (w Way, box *os.File, lost chan error) {
	t.Helper()
	t.Setenv(playing, part)
	setup := Setup{Version: Version, Session: "s-run", Scope: cofferdam.Scope{Organization: "o-1", Project: "p-1"}}
	w, err := Program{File: os.Args[0]}.Open(t.Context(), setup, record)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if part == "floods" {
		w.(*far).patience = time.Second
	}
	box, lost = os.NewFile(uintptr(ends[1]), "box"), make(chan error, 2)
	t.Cleanup(func() { box.Close() })
	if err := w.Connect(Box{TAP: os.NewFile(uintptr(ends[0]), "device"), Lost: func(why error) { lost <- why }}); err != nil {
		t.Fatal(err)
	}
	return w, box, lost
}

// call sends the first packet of a connection and returns what answers it.
func call(t *testing.T, box *os.File) string {
	t.Helper()
	if _, err := box.Write(sent(protoTCP, far9, segment(flagSYN, 7, 0, ""))); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, maxFrameSize)
	n, err := box.Read(frame)
	if err != nil {
		return err.Error()
	}
	return shown(frame[:n])
}

const isReset = "tcp c612000901bb9c40 00000000 00000008 5014"

// TestLost: however the program of a network ends too soon, the run is told why, once,
// and before the box hears of it; the box hears so at once; and the end of the run has
// nothing to complain of.
func TestLost(t *testing.T) {
	signal := func(s unix.Signal) heard {
		return func(e cofferdam.Event) error {
			pid, err := strconv.Atoi(e.Resource)
			if err != nil {
				t.Error(err)
				return nil
			}
			return unix.Kill(pid, s)
		}
	}
	nothing := func(cofferdam.Event) error { return nil }
	full := func(cofferdam.Event) error {
		return &cofferdam.Error{Kind: cofferdam.Exhausted, Reason: "it has 9 events", Hint: "divide the work", Err: ErrFull}
	}
	for name, c := range map[string]struct {
		part   string
		record heard
		want   string
	}{
		"killed":         {"stays", signal(unix.SIGKILL), "its program ended: signal: killed"},
		"stopped":        {"stays", signal(unix.SIGSTOP), "its program did not go on: somebody has stopped it"},
		"ends by itself": {"ends", nothing, "it ended before the run"},
		"says it cannot": {"refuses", nothing, "another release"},
		"full":           {"stays", full, "it has 9 events"},
		"never listens":  {"floods", nothing, "did not keep to the talk: write talk: i/o timeout"},
		"talks nonsense": {"talks nonsense", nothing, "did not keep to the talk: read message"},
	} {
		t.Run(name, func(t *testing.T) {
			w, box, lost := served(t, c.part, c.record)
			if got := call(t, box); got != isReset {
				t.Errorf("the first packet is answered by %q", got)
			}
			why := <-lost
			e := (*cofferdam.Error)(nil)
			if !errors.As(why, &e) || !strings.Contains(e.Reason, c.want) || cofferdam.HintOf(why) == "" {
				t.Errorf("%v, want %q", why, c.want)
			}
			if got := call(t, box); got != isReset {
				t.Errorf("a later one is answered by %q", got)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if len(lost) != 0 {
				t.Errorf("told again: %v", <-lost)
			}
		})
	}
}

// TestForged: what gateways do not say of themselves never comes on record, and who
// says it serves no more. Control: what they say does.
func TestForged(t *testing.T) {
	said := make(chan cofferdam.Event, 1)
	note := func(e cofferdam.Event) error { said <- e; return nil }
	w, box, _ := served(t, "stays", note)
	if _, err := box.Write([]byte("a packet")); err != nil {
		t.Fatal(err)
	}
	if e := <-said; e.Kind != cofferdam.EventConnect || e.Source != "egress" {
		t.Errorf("control: %+v", e)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for part := range forgeries {
		t.Run(part, func(t *testing.T) {
			w, box, lost := served(t, part, note)
			if got := call(t, box); got != isReset {
				t.Errorf("the first packet is answered by %q", got)
			}
			if why := <-lost; !strings.Contains(why.Error(), "did not keep to the talk: it asked for") {
				t.Error(why)
			}
			if len(said) != 0 {
				t.Errorf("on record: %+v", <-said)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProgramThatCannotStart: that is an end of the network as well.
func TestProgramThatCannotStart(t *testing.T) {
	dir := t.TempDir() + "/cofferdam-wire"
	if err := os.WriteFile(dir, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	way, err := Program{File: dir}.Open(t.Context(), Setup{}, heard(nil))
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	box, lost := os.NewFile(uintptr(ends[1]), "box"), make(chan error, 1)
	defer box.Close()
	if err := way.Connect(Box{TAP: os.NewFile(uintptr(ends[0]), "device"), Lost: func(why error) { lost <- why }}); err != nil {
		t.Fatal(err)
	}
	if got := call(t, box); got != isReset {
		t.Errorf("the first packet is answered by %q", got)
	}
	if why := <-lost; !strings.Contains(why.Error(), "cannot be started: exec format error") {
		t.Error(why)
	}
	if err := way.Close(); err != nil {
		t.Error(err)
	}
}

// TestEndOfTheRun: the program of a network that lives to its end is told so, and
// nothing is lost; how it ended is known; and one that no packet asked for is never started.
func TestEndOfTheRun(t *testing.T) {
	for part, want := range map[string]string{"stays": "", "ends badly": "exit status 4"} {
		var once sync.Once
		begun := make(chan struct{})
		w, box, lost := served(t, part, func(cofferdam.Event) error { once.Do(func() { close(begun) }); return nil })
		if _, err := box.Write([]byte("a packet")); err != nil {
			t.Fatal(err)
		}
		<-begun
		err := w.Close()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", part, err)
		}
		if len(lost) != 0 {
			t.Errorf("%s: lost: %v", part, <-lost)
		}
		if n, err := box.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: %d bytes of a device that should be closed", part, n)
		}
	}
	w, _, lost := served(t, "refuses", nil)
	if err := w.Close(); err != nil || len(lost) != 0 {
		t.Errorf("a run without a packet: %v, %d lost", err, len(lost))
	}
}
