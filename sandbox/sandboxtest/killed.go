package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Killed tries what is left when the process of a driver that suspends and
// snapshots is killed in the middle of one: the next one has removed all that is
// half, and makes boxes from what is whole.
type Killed struct {
	Root      string                                             // a state folder that the test removes
	Snapshots string                                             // where its snapshots are
	Files     string                                             // pattern of the first files in one
	Open      func(t *testing.T, root string) (d sandbox.Driver) // that the test closes
	Change    func(*sandbox.Spec)
}

// What the process that is killed is told.
const (
	killedRoot = "COFFERDAM_TEST_KILLED"
	killedStep = "COFFERDAM_TEST_KILLED_IN"
)

// sums says what a box holds, in memory and in its workspace: the size of each,
// and the end of it. To read all takes an emulated machine minutes.
const sums = "for f in /tmp/kept /work/kept; do wc -c <$f; tail -c 65536 $f; done | sha256sum"

// Run runs the test, and in a process of its own, what is killed.
func (k Killed) Run(t *testing.T) {
	if root := os.Getenv(killedRoot); root != "" {
		k.victim(t, root, os.Getenv(killedStep))
		return
	}
	for _, c := range []struct{ name, step, half string }{
		{"at the begin of a snapshot", "snapshot", k.Snapshots + "/*.new"},
		{"in the middle of a snapshot", "snapshot", k.Snapshots + "/*.new/" + k.Files},
		{"at the begin of a suspension", "suspend", k.Root + "/boxes/*/suspended"},
		{"in the middle of a suspension", "suspend", k.Root + "/boxes/*/suspended/*"},
	} {
		t.Run(c.name, func(t *testing.T) { k.kill(t, c.step, c.half) })
	}
}

// kill starts the victim, kills it when what is half is there, and looks at what
// the next process makes of it.
func (k Killed) kill(t *testing.T, step, half string) {
	ctx := testContext(t)
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+test+"$")
	cmd.Env = append(os.Environ(), killedRoot+"="+k.Root, killedStep+"="+step, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	sum, whole := "", []sandbox.SnapshotID{}
	for said.Scan() {
		word, rest, _ := strings.Cut(said.Text(), " ")
		if word == "sum" {
			sum = rest
		}
		if word == "whole" {
			whole = append(whole, sandbox.SnapshotID(rest))
		}
		if word == "now" {
			break
		}
	}
	if sum == "" {
		t.Fatalf("control: the victim did not come to its step: %v", cmd.Wait())
	}
	for found := []string{}; len(found) == 0; found, _ = filepath.Glob(half) { // the pattern is good
		if time.Sleep(time.Millisecond); ctx.Err() != nil {
			t.Fatal("control: nothing half was ever there")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for said.Scan() { // it may have come to the end of it
		if id, ok := strings.CutPrefix(said.Text(), "whole "); ok {
			whole = append(whole, sandbox.SnapshotID(id))
		}
	}
	_ = cmd.Wait() // it was killed
	k.judge(t, sum, whole)
}

// judge looks at what there is after the next process has begun.
func (k Killed) judge(t *testing.T, sum string, whole []sandbox.SnapshotID) {
	t.Helper()
	d := k.Open(t, k.Root)
	s := &subject{Driver: d, tier: tierOf(t, d)}
	wantGone(t, k.Root)
	if list, err := d.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	entries, err := os.ReadDir(k.Snapshots)
	if err != nil {
		t.Fatal(err)
	}
	var found []sandbox.SnapshotID
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".new") {
			t.Errorf("half a snapshot is kept: %s", e.Name())
			continue
		}
		found = append(found, sandbox.SnapshotID(e.Name()))
	}
	for _, id := range whole {
		if !slices.Contains(found, id) {
			t.Errorf("snapshot %s was whole and is gone", id)
		}
	}
	if len(found) == 0 || len(found) > len(whole)+1 {
		t.Errorf("%d snapshots, of which %d were said to be whole", len(found), len(whole))
	}
	for _, id := range found {
		b := s.box(t, func(spec *sandbox.Spec) { k.Change(spec); spec.Snapshot = id })
		if got := strings.TrimSpace(b.shell(t, sums)); got != sum {
			t.Errorf("a box of snapshot %s holds %q, not %q", id, got, sum)
		}
		if err := s.RemoveSnapshot(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// victim makes a box with something to write down, takes one whole snapshot,
// says that it takes the step, and does so until it is killed.
func (k Killed) victim(t *testing.T, root, step string) {
	ctx := context.Background()
	d := k.Open(t, root)
	s := &subject{Driver: d, tier: tierOf(t, d)}
	spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier}
	k.Change(&spec)
	made, err := d.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	b := &testBox{made}
	b.shell(t, "head -c 16777216 /dev/urandom >/tmp/kept; head -c 16777216 /dev/urandom >/work/kept")
	fmt.Println("sum", strings.TrimSpace(b.shell(t, sums)))
	take := func() {
		snap, err := b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("whole", snap.ID)
	}
	take()
	fmt.Println("now")
	for step == "snapshot" {
		take()
	}
	for {
		if err := b.Suspend(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Resume(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
