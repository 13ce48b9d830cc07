package keeper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// house is an installation whose keepers run in this process.
type house struct {
	t       *testing.T
	slots   []Slot
	running map[string]chan struct{} // by socket; closed when it has ended
	stops   map[string]func()
	args    []string // of the last start
	broken  error    // of the next start

	patience time.Duration // with a keeper that begins; 0: as it is
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, slots: Slots(filepath.Join(dir, "k.sock"), filepath.Join(dir, "k")), running: map[string]chan struct{}{}, stops: map[string]func(){}}
	t.Cleanup(func() {
		for _, s := range h.slots {
			h.stop(s)
		}
		os.RemoveAll(dir)
	})
	return h
}

// keeper starts a keeper of a build, as the program does.
func (h *house) keeper(s Slot, build string, args []string) {
	h.t.Helper()
	d, err := sandboxtest.NewFake(h.t.TempDir())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.MkdirAll(s.State, 0o700); err != nil {
		h.t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(s.State, LockFile))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		h.t.Fatalf("two keepers in one folder: %v", err)
	}
	_ = os.Remove(s.Socket) // of one that has ended
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Socket})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	h.running[s.Socket], h.stops[s.Socket] = over, cancel
	go func() {
		defer close(over)
		defer lock.Close()
		defer d.Close()
		_ = newServer(map[sandbox.Tier]sandbox.Driver{sandbox.None: d}, Options{Build: build, State: s.State, Args: args}).run(ctx, l)
	}()
}

// stop is kill -9.
func (h *house) stop(s Slot) {
	if stop := h.stops[s.Socket]; stop != nil {
		stop()
		<-h.running[s.Socket]
	}
}

// serve is the start of a server of a build.
func (h *house) serve(build string) (*Set, error) {
	return Gather(testContext(h.t), Gathering{
		Slots: h.slots, Build: build, Log: slog.New(slog.DiscardHandler), Patience: h.patience,
		Start: func(_ context.Context, s Slot, args []string) error {
			if h.broken != nil {
				return h.broken
			}
			h.args = args
			h.keeper(s, build, args)
			return nil
		},
	})
}

func (h *house) mustServe(build string) *Set {
	h.t.Helper()
	s, err := h.serve(build)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// at returns the builds of the keepers that run, by slot; those that drain have
// a minus.
func (h *house) at() string {
	var all []string
	for _, s := range h.slots {
		info, err := Look(testContext(h.t), s.Socket)
		switch {
		case err != nil:
			all = append(all, "-")
		case info.Draining:
			all = append(all, info.Build+"*")
		default:
			all = append(all, info.Build)
		}
	}
	return strings.Join(all, " ")
}

func (h *house) want(what, list string) {
	h.t.Helper()
	if got := h.at(); got != list {
		h.t.Errorf("%s: keepers %q, want %q", what, got, list)
	}
}

// TestUpgrade takes an installation through upgrades while boxes run.
func TestUpgrade(t *testing.T) {
	fake(t).Close() // skips who is not root
	h := newHouse(t)
	ctx := testContext(t)
	a := h.mustServe("a")
	h.want("first start", "a - - -")
	if h.mustServe("a"); h.args != nil {
		t.Error("the first keeper was started with flags of another")
	}
	h.want("server started again", "a - - -")

	// A keeper without boxes is replaced at once, in its place.
	h.mustServe("b")
	h.want("upgrade without boxes", "b - - -")
	if _, err := a.List(ctx); err != nil {
		t.Errorf("any server may look: %v", err)
	}

	// One with boxes goes on beside the new one.
	b := h.mustServe("b")
	first := newBox(t, b)
	if err := first.Start(ctx, sandbox.Command{ID: "runs", Shell: "echo first; cat", Stdin: true}); err != nil {
		t.Fatal(err)
	}
	h.broken = errors.New("no")
	if _, err := h.serve("c"); !errors.Is(err, h.broken) {
		t.Errorf("a keeper that does not start: %v", err)
	}
	h.want("upgrade that failed", "b - - -")
	h.broken = nil
	c := h.mustServe("c")
	h.want("upgrade while a box runs", "b* c - -")
	second := newBox(t, c)
	if _, err := b.Create(ctx, sandbox.Spec{ID: "b-2", Tier: sandbox.None, Image: "host"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("the old server makes a box: %v", err)
	}

	// Again, and the server is started once more in between.
	h.mustServe("d")
	h.want("two upgrades", "b* c* d -")
	d := h.mustServe("d")
	h.want("server started again", "b* c* d -")
	if list, err := d.List(ctx); err != nil || len(list) != 2 {
		t.Errorf("boxes of all keepers: %+v, %v", list, err)
	}
	old, err := Dial(ctx, h.slots[0].Socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Create(ctx, sandbox.Spec{ID: "b-3", Tier: sandbox.None, Image: "host"}); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "being replaced") {
		t.Errorf("a keeper that drains makes a box: %v", err)
	}
	d = h.mustServe("d")

	// Each box is found where it is, and its keeper ends with it.
	got, err := d.Open(ctx, first.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Write(ctx, "runs", []byte("last\n"), true); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r, err := got.Attach(ctx, "runs", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error { out.Write(p); return nil })
	if err != nil || r.Exit != 0 || out.String() != "first\nlast\n" {
		t.Errorf("%q, %+v, %v", out.String(), r, err)
	}
	if err := got.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	<-h.running[h.slots[0].Socket]
	h.want("its last box is gone", "- c* d -")
	if _, err := d.Open(ctx, first.ID()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("the box that is gone: %v", err)
	}

	// One that is killed takes its boxes along, and that is said.
	if _, err := d.Open(ctx, second.ID()); err != nil {
		t.Fatal(err)
	}
	h.stop(h.slots[1])
	if _, err := d.Open(ctx, second.ID()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("box of a keeper that was killed: %v", err)
	}
	if list, err := d.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	h.mustServe("d")
	h.want("the end", "- - d -")
}

// TestCrowded refuses a fifth keeper and names the others; their flags go on.
func TestCrowded(t *testing.T) {
	fake(t).Close()
	h := newHouse(t)
	h.keeper(h.slots[0], "a", []string{"--limits", "watched"})
	for _, build := range []string{"a", "b", "c", "d"} {
		newBox(t, h.mustServe(build))
	}
	if strings.Join(h.args, " ") != "--limits watched" {
		t.Errorf("flags of the last keeper: %q", h.args)
	}
	_, err := h.serve("e")
	if cofferdam.KindOf(err) != cofferdam.Exhausted || strings.Count(err.Error(), "with 1 boxes") != MaxKeepers || cofferdam.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
	h.want("nothing has changed", "a* b* c* d")
}

// TestAnotherProtocol leaves a keeper of another release alone.
func TestAnotherProtocol(t *testing.T) {
	h := newHouse(t)
	l, err := net.Listen("unix", h.slots[0].Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = writeJSON(conn, hello{Protocol: protocolName, Version: Version - 1})
			conn.Close()
		}
	}()
	_, err = h.serve("b")
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "older release") || !strings.Contains(cofferdam.HintOf(err), "kill -TERM") {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
	if len(h.running) != 0 {
		t.Error("another was started beside it")
	}
}

func TestSlots(t *testing.T) {
	s := Slots("/run/c/keeper.sock", "/var/k")
	if len(s) != MaxKeepers || s[0] != (Slot{"/run/c/keeper.sock", "/var/k"}) || s[3] != (Slot{"/run/c/keeper-4.sock", "/var/k-4"}) {
		t.Errorf("%+v", s)
	}
}

// TestBuild holds that a build is another as soon as one of its programs is.
func TestBuild(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Sisters(), Program) {
		put(name, "one")
	}
	for _, c := range []struct{ name, text string }{{Program, "one"}, {Program, "two"}, {Sisters()[0], "two"}, {Sisters()[1], "two"}, {Program, string(self)}} {
		put(c.name, c.text)
		id, err := BuildOf(dir, "")
		if err != nil || len(id) != 12 || seen[id] != "" {
			t.Errorf("%s: %q, %v, seen for %q", c.name, id, err, seen[id])
		}
		seen[id] = c.name
	}
	if id, err := buildID(os.Args[0]); err != nil || !strings.Contains(id, "/") {
		t.Errorf("the linker's own id of a program: %q, %v", id, err)
	}
	own, err := BuildOf(dir, os.Args[0])
	if other, err2 := BuildOf(dir, ""); err != nil || err2 != nil || own != other {
		t.Errorf("%q %q, %v %v", own, other, err, err2)
	}
	if err := os.Remove(filepath.Join(dir, Sisters()[1])); err != nil {
		t.Fatal(err)
	}
	if _, err := BuildOf(dir, ""); err == nil || !strings.Contains(err.Error(), Sisters()[1]) {
		t.Errorf("without one: %v", err)
	}
}
