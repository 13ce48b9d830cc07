package sandboxtest

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// offers says whether the driver says that it can do c. If not, refused must be
// what it says instead: invalid, and the tiers that can.
func (s *subject) offers(t *testing.T, c sandbox.Capability, refused error) bool {
	t.Helper()
	list, err := s.Offers(testContext(t))
	if err != nil {
		t.Fatalf("offers: %v", err)
	}
	for _, o := range list {
		if o.Tier == s.tier && slices.Contains(o.Can, c) {
			return true
		}
	}
	wantKind(t, "what it does not offer: "+string(c), refused, cofferdam.Invalid)
	if hint := cofferdam.HintOf(refused); !strings.Contains(hint, "tier") {
		t.Errorf("the refusal of %s names no tier that can: %q", c, hint)
	}
	return false
}

// testStates: a box says where it stands, who caused it and why, without a gap.
func testStates(t *testing.T, s *subject) {
	ctx := testContext(t)
	b := s.box(t, nil)
	if st, err := b.Status(ctx); err != nil || st.State != sandbox.Ready {
		t.Errorf("made: %+v, %v", st, err)
	}
	b.start(t, sandbox.Command{ID: "wait", Argv: []string{"cat"}, Stdin: true})
	if c, err := b.Wait(ctx, sandbox.Busy); err != nil || c.State != sandbox.Busy {
		t.Errorf("with a command: %+v, %v", c, err)
	}
	if err := b.Write(ctx, "wait", nil, true); err != nil {
		t.Fatal(err)
	}
	if c, err := b.Wait(ctx, sandbox.Idle); err != nil || c.State != sandbox.Idle {
		t.Errorf("without: %+v, %v", c, err)
	}
	st, err := b.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range st.Changes {
		if c.Sequence != int64(i+1) || c.Reason == "" || c.Actor == "" || c.Time.IsZero() {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	if n := len(st.Changes); n != 4 || st.Changes[n-1].State != st.State {
		t.Errorf("changes %+v", st.Changes)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := b.Wait(short, sandbox.Expired); err == nil {
		t.Error("waiting for what does not come ends without an error")
	}
	if err := b.Resume(ctx); err != nil {
		t.Errorf("resume of a box that runs: %v", err)
	}
	ended := make(chan sandbox.Change, 1)
	go func() {
		c, _ := b.Wait(ctx, sandbox.Deleted) // the change says all
		ended <- c
	}()
	if err := b.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-ended:
		if c.State != sandbox.Deleted && c.State != sandbox.Stopped {
			t.Errorf("destroyed: %+v", c)
		}
	case <-ctx.Done():
		t.Error("who waits for its end is not told")
	}
	// Whatever it finds in the place of the box, it says nothing of that.
	_, err = b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Memory: true})
	allowed := []cofferdam.Kind{cofferdam.Conflict, cofferdam.NotFound, cofferdam.Unavailable, cofferdam.Invalid}
	if !slices.Contains(allowed, cofferdam.KindOf(err)) {
		t.Errorf("snapshot of a box that is gone: %v", err)
	}
}

// countAloud is a command that counts aloud until it gets a line, which is its last,
// and exits with it. What came of the line when the time was up is kept; where all of
// it had come by then, the end of the input says so.
const countAloud = `i=0; line=; while :; do read -t 0.05 code; how=$?; line=$line$code; [ $how -le 128 ] && exit $line; i=$((i+1)); echo $i; done`

// testStops: what is stopped, in either way, says nothing, takes no call and goes
// on as if nothing had been: streams, exit codes, files, memory.
func testStops(t *testing.T, s *subject) {
	for _, way := range []struct {
		can  sandbox.Capability
		stop func(sandbox.Box, context.Context) error
	}{{sandbox.CanPause, sandbox.Box.Pause}, {sandbox.CanSuspend, sandbox.Box.Suspend}} {
		t.Run(string(way.can), func(t *testing.T) {
			ctx := testContext(t)
			b := s.box(t, nil)
			b.shell(t, "echo kept >/tmp/kept; echo kept >/work/kept")
			b.start(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
			b.waitFor(t, "count", "1\n")
			b.waitFor(t, "count", "1\n") // a box may stop and go on before it says anything
			err := way.stop(b, ctx)
			if !s.offers(t, way.can, err) {
				b.shell(t, "true")
				return
			}
			if err != nil {
				t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
			}
			if st, err := b.Status(ctx); err != nil || st.State != sandbox.Suspended || st.Reason == "" {
				t.Errorf("stopped: %+v, %v", st, err)
			}
			began := time.Now()
			wantKind(t, "start", b.Start(ctx, sandbox.Command{ID: "late", Shell: "true"}), cofferdam.Conflict)
			wantKind(t, "write", b.Write(ctx, "count", []byte("1\n"), false), cofferdam.Conflict)
			wantKind(t, "kill", b.Kill(ctx, "count"), cofferdam.Conflict)
			if took := time.Since(began); took > 30*time.Second { // who waited would wait until it goes on
				t.Errorf("the refusals took %v", took)
			}
			gone, cancel := context.WithCancelCause(ctx)
			cancel(errImpatient)
			_ = b.Resume(gone) // done or not begun: a caller who goes away does not cost the box its life
			if err := b.Resume(ctx); err != nil {
				t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
			}
			b.shell(t, "cat /tmp/kept /work/kept")
			if err := b.Write(ctx, "count", []byte("17\n"), true); err != nil {
				t.Fatal(err)
			}
			r, out, _ := b.do(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
			if r.Exit != 17 || r.Lost || r.Signal != 0 {
				t.Errorf("the command of before: %+v", r)
			}
			wantCount(t, out)
		})
	}
}

// wantCount fails unless text is 1, 2, 3 … on lines of their own.
func wantCount(t *testing.T, text string) {
	t.Helper()
	var want bytes.Buffer
	for i := range strings.Count(text, "\n") {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	if text != want.String() || text == "" {
		t.Errorf("output has a gap or is doubled: %.200q", text)
	}
}

// testFork: a copy goes on under an identity of its own with a workspace of its
// own, and the box that it was taken of never notices.
func testFork(t *testing.T, s *subject) {
	ctx := testContext(t)
	ours, theirs := cofferdam.Scope{Organization: "o-1", Project: "p-1"}, cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	b := s.box(t, func(spec *sandbox.Spec) { spec.Scope = ours })
	b.shell(t, "echo old >/work/f; echo old >/tmp/f")
	b.start(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
	id := sandbox.SnapshotID(cofferdam.NewID("s"))
	snap, err := b.Snapshot(ctx, sandbox.Take{ID: id, Memory: true})
	if !s.offers(t, sandbox.CanSnapshot, err) {
		spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host", Snapshot: id}
		if _, err := s.Create(ctx, spec); err == nil {
			t.Error("a box from a snapshot that cannot be")
		}
		return
	}
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	for _, other := range []cofferdam.Scope{{}, theirs} {
		_, err := s.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host", Snapshot: id, Scope: other})
		wantKind(t, "a box from another project's snapshot", err, cofferdam.NotFound)
	}
	if snap.Scope != ours || snap.ID != id || snap.Box != b.ID() || snap.Tier != s.tier || snap.Digest == "" || snap.Size <= 0 {
		t.Errorf("%+v", snap)
	}
	b.shell(t, "echo new >/work/f; echo new >/tmp/f")
	random := map[string]bool{}
	for range 2 {
		c := s.box(t, func(spec *sandbox.Spec) { spec.Snapshot, spec.Scope = id, ours })
		if got := c.shell(t, "cat /work/f /tmp/f"); got != "old\nold\n" {
			t.Errorf("the copy has %q", got)
		}
		if st, err := c.Status(ctx); err != nil || st.State != sandbox.Busy || st.ID != c.ID() {
			t.Errorf("its command does not go on: %+v, %v", st, err)
		}
		random[c.shell(t, "head -c 32 /dev/urandom | od -An -tx1")] = true
		c.shell(t, "echo mine >/work/f")
		if err := c.Kill(ctx, "count"); err != nil {
			t.Error(err)
		}
	}
	random[b.shell(t, "head -c 32 /dev/urandom | od -An -tx1")] = true
	if len(random) != 3 {
		t.Errorf("two boxes drew the same 32 random bytes: %v", random)
	}
	if got := b.shell(t, "cat /work/f /tmp/f"); got != "new\nnew\n" {
		t.Errorf("the box has %q", got)
	}
	for range 2 {
		if err := s.RemoveSnapshot(ctx, id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	_, err = s.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host", Snapshot: id, Scope: ours})
	wantKind(t, "a box from a snapshot that is gone", err, cofferdam.NotFound)
	wrote := b.Write(ctx, "count", []byte("3\n"), true)
	r, out, errs := b.do(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
	if wrote != nil {
		t.Fatalf("%v: it ended with %+v, and said %q, %q", wrote, r, out, errs)
	}
	if r.Exit != 3 || r.Lost {
		t.Errorf("the command of the box: %+v", r)
	}
	wantCount(t, out)
}
