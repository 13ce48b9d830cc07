package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
	"cofferdam/sandbox/sandboxtest"
)

// release builds the programs once more, as another release: only the id that
// the linker writes differs.
func release(t *testing.T, id string) string {
	t.Helper()
	dir := t.TempDir()
	if err := sandboxtest.Build(dir, "cofferdam-runsc", "cofferdam-init"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -buildid="+id, "-o", dir, "cofferdam/cmd/cofferdam-keeper")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// gather is the start of a server whose programs are in bin.
func (p place) gather(t *testing.T, bin string) *keeper.Set {
	t.Helper()
	build, err := keeper.BuildOf(bin, "")
	if err != nil {
		t.Fatal(err)
	}
	set, err := keeper.Gather(context.Background(), keeper.Gathering{
		Slots: keeper.Slots(p.socket, p.state), Build: build, Log: slog.New(slog.DiscardHandler), Patience: p.patience,
		Start: func(ctx context.Context, s keeper.Slot, args []string) error {
			q := place{bin: bin, state: s.State, socket: s.Socket}
			if out, err := q.command(append([]string{"--detach", "--kept", p.state}, args...)...).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			pid := q.holder(t)
			t.Cleanup(func() { q.end(t, pid, syscall.SIGTERM) }) // killed, it would leave boxes of its pool
			return nil
		},
	})
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
	}
	return set
}

// builds of the keepers that answer, by their sockets; a minus drains.
func (p place) builds() string {
	var all []string
	for _, s := range keeper.Slots(p.socket, p.state) {
		if info, err := keeper.Look(context.Background(), s.Socket); err == nil {
			all = append(all, strings.TrimSuffix(filepath.Base(s.Socket), ".sock")+map[bool]string{true: "-"}[info.Draining])
		}
	}
	return strings.Join(all, " ")
}

// TestKeeperIsReplacedWhileBoxesRun installs another release under a keeper
// whose boxes are at work. Each box goes on to its end with every byte, and the
// old keeper ends with the last one.
func TestKeeperIsReplacedWhileBoxesRun(t *testing.T) {
	p := newPlace(t)
	next := release(t, "next")
	ctx := context.Background()
	set := p.gather(t, p.bin)
	old := p.holder(t)
	const count = 200_000
	boxes := map[sandbox.Tier]sandbox.Box{}
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process} {
		b, err := set.Create(ctx, sandbox.Spec{
			ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: tier, Image: "host", Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, PIDs: 128},
		})
		if err != nil {
			t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
		}
		boxes[tier] = b
		if err := b.Start(ctx, sandbox.Command{ID: "work", Shell: fmt.Sprintf("seq %d; cat >/dev/null; seq %d; exit 7", count, count), Stdin: true}); err != nil {
			t.Fatal(err)
		}
	}
	p.gather(t, next)
	if got := p.builds(); got != "k- k-2" {
		t.Fatalf("keepers after the upgrade: %q", got)
	}
	again := p.gather(t, next) // the server is killed and starts once more
	if got := p.builds(); got != "k- k-2" {
		t.Fatalf("keepers after another start of the server: %q", got)
	}
	if _, err := set.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: "host"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("the server of before makes a box: %v", err)
	}
	// New boxes are the new keeper's, beside the old ones.
	fresh, err := again.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: "host", Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20}})
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
	}
	if r, err := sandbox.Run(ctx, fresh, sandbox.Command{ID: "one", Shell: "exit 3"}, nil, nil); err != nil || r.Exit != 3 {
		t.Errorf("in the new keeper: %+v, %v", r, err)
	}
	if list, err := again.List(ctx); err != nil || len(list) != 3 {
		t.Errorf("boxes: %d, %v", len(list), err)
	}
	// A keeper that hangs hides no box, and once it goes on nothing is lost.
	stop(t, old)
	hanging := p.gather(t, next)
	if _, err := hanging.Open(ctx, boxes[sandbox.Process].ID()); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(cofferdam.HintOf(err), "kill -CONT "+pidText(old)) {
		t.Errorf("a box of a keeper that hangs: %v (%s)", err, cofferdam.HintOf(err))
	}
	if err := syscall.Kill(old, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	for range 2 {
		for i := 1; i <= count; i++ {
			fmt.Fprintln(&whole, i)
		}
	}
	for tier, b := range boxes {
		b, err := hanging.Open(ctx, b.ID())
		if err != nil {
			t.Fatalf("%s: %v", tier, err)
		}
		if err := b.Write(ctx, "work", nil, true); err != nil {
			t.Fatalf("%s: %v", tier, err)
		}
		var out bytes.Buffer
		r, err := b.Attach(ctx, "work", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error { out.Write(p); return nil })
		if err != nil || r.Exit != 7 || !bytes.Equal(out.Bytes(), whole.Bytes()) {
			t.Errorf("%s: %+v, %v, %d bytes of %d", tier, r, err, out.Len(), whole.Len())
		}
		q, err := b.Wire(ctx)
		if err != nil {
			t.Errorf("%s: its network: %v", tier, err)
		} else {
			q.Close()
		}
		if err := b.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	gone(t, p.bin, old)
	if got := p.builds(); got != "k-2" {
		t.Errorf("keepers when the old boxes have ended: %q", got)
	}
	if err := fresh.Destroy(ctx); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("by a server of before: %v", err)
	}
	// Back to the first release: now nothing runs, and the keeper is replaced.
	set = p.gather(t, p.bin)
	if list, err := set.List(ctx); err != nil || len(list) != 1 || p.builds() != "k k-2-" {
		t.Errorf("%d boxes, %v, keepers %q", len(list), err, p.builds())
	}
}

// TestProgramsAreThoseOfTheBuild installs others over the programs of a keeper
// that runs: its boxes are still made by its own.
func TestProgramsAreThoseOfTheBuild(t *testing.T) {
	p := newPlace(t)
	bin := t.TempDir()
	for _, name := range append(keeper.Sisters(), keeper.Program) {
		if err := os.Link(filepath.Join(p.bin, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.bin = bin
	p.start(t)
	for _, name := range append(keeper.Sisters(), keeper.Program) {
		if err := os.Remove(filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte("another release"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process} {
		b := createOf(t, p.dial(t), tier)
		if r, err := sandbox.Run(context.Background(), b, sandbox.Command{ID: "one", Shell: "exit 4"}, nil, nil); err != nil || r.Exit != 4 {
			t.Errorf("%s: %+v, %v", tier, r, err)
		}
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestInherit takes over the snapshots of a keeper when it has ended, and none
// before.
func TestInherit(t *testing.T) {
	first := filepath.Join(t.TempDir(), "keeper")
	s := settings{state: first + "-2", kept: first}
	put := func(state, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(state, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name string) bool { _, err := os.Stat(filepath.Join(s.state, name)); return err == nil }
	put(first, "snapshots/s-1")
	put(first, "snapshots/s-2.new")
	put(first, "microvm/snapshot/s-3")
	put(first+"-3", "snapshots/s-4")
	put(first+"-4", "snapshots/s-5") // no keeper was ever there
	put(s.state, "snapshots/s-6")
	var locks []*os.File
	for _, state := range []string{first, first + "-3"} {
		f, err := os.Create(filepath.Join(state, keeper.LockFile))
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, f)
	}
	defer locks[1].Close()
	if err := unix.Flock(int(locks[0].Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s.inherit(context.Background(), slog.New(slog.DiscardHandler))
	if !has("snapshots/s-4") || has("snapshots/s-1") || has("snapshots/s-5") || !has("snapshots/s-6") {
		t.Error("before the first keeper ends, something else than what the ended one left was taken")
	}
	if err := locks[0].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "what the first keeper left is taken", func() bool { return has("snapshots/s-1") && has("microvm/snapshot/s-3") })
	if has("snapshots/s-2.new") || has("snapshots/s-2") {
		t.Error("half a snapshot was taken")
	}
}

// TestKilledKeeperIsReplacedUnderItsServer kills the only keeper while a box is at
// work. The server's next call starts another, which removes what the dead one
// left, and boxes are made as before.
func TestKilledKeeperIsReplacedUnderItsServer(t *testing.T) {
	p := newPlace(t)
	ctx := context.Background()
	set := p.gather(t, p.bin)
	spec := func() sandbox.Spec {
		return sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: "host", Limits: cofferdam.Limits{Memory: 512 << 20, Disk: 64 << 20, PIDs: 128}}
	}
	lost, err := set.Create(ctx, spec())
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
	}
	if err := lost.Start(ctx, sandbox.Command{ID: "work", Shell: "sleep 1000"}); err != nil {
		t.Fatal(err)
	}
	pid := p.holder(t)
	p.end(t, pid, syscall.SIGKILL)
	_, err = lost.Status(ctx)
	for cofferdam.KindOf(err) == cofferdam.Unavailable && t.Context().Err() == nil { // its socket may still take calls while it ends
		_, err = lost.Status(ctx)
	}
	if cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("the box of the killed keeper: %v (%s)", err, cofferdam.HintOf(err))
	}
	if again := p.holder(t); again == pid {
		t.Errorf("process %d holds the state folder still", pid)
	}
	next, err := set.Create(ctx, spec())
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
	}
	if list, err := set.List(ctx); err != nil || len(list) != 1 || list[0].ID != next.ID() {
		t.Errorf("boxes %+v, %v", list, err)
	}
	if err := next.Destroy(ctx); err != nil {
		t.Error(err)
	}
}
