package keeper

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestTwoServers is the one that was thought dead and comes late: as soon as
// another has claimed the keeper, nothing it asks for is done any more, and what
// it had under way has ended.
func TestTwoServers(t *testing.T) {
	driver, state := fake(t), t.TempDir()
	drivers := map[sandbox.Tier]sandbox.Driver{sandbox.None: driver}
	path, stop := runOn(t, newServer(drivers, Options{State: state}))
	ctx := testContext(t)
	late := dial(t, path)
	b := newBox(t, late)
	start := func(b sandbox.Box, id cofferdam.ExecID, text string) error {
		return b.Start(ctx, sandbox.Command{ID: id, Shell: text, Stdin: true})
	}
	if err := start(b, "cat", "echo begun; cat"); err != nil {
		t.Fatal(err)
	}
	heard, attached := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := b.Attach(ctx, "cat", sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error {
			select {
			case heard <- struct{}{}:
			default:
			}
			return nil
		})
		attached <- err
	}()
	<-heard
	if err := b.Write(ctx, "cat", []byte("before\n"), false); err != nil {
		t.Fatalf("control: the first server cannot write: %v", err)
	}

	now := dial(t, path)
	if err := <-attached; cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("the attachment of the first server: %v", err)
	}
	refusals := func(c *Client, b sandbox.Box) map[string]error {
		_, create := c.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host"})
		_, attach := b.Attach(ctx, "cat", sandbox.Offsets{}, nil)
		_, wire := b.Wire(ctx)
		_, snapshot := b.Snapshot(ctx, sandbox.Take{ID: "s-0"})
		return map[string]error{
			"create": create, "start": start(b, "late", "touch late"), "attach": attach, "write": b.Write(ctx, "cat", []byte("late\n"), true),
			"kill": b.Kill(ctx, "cat"), "wire": wire, "pause": b.Pause(ctx), "suspend": b.Suspend(ctx), "resume": b.Resume(ctx),
			"snapshot": snapshot, "forget": c.RemoveSnapshot(ctx, "s-0"), "drain": c.Drain(ctx), "destroy": b.Destroy(ctx),
		}
	}
	fenced := func(when string, c *Client, b sandbox.Box) {
		t.Helper()
		for name, err := range refusals(c, b) {
			if cofferdam.KindOf(err) != cofferdam.Conflict || !bytes.Contains([]byte(err.Error()), []byte("another server claimed this keeper at ")) || cofferdam.HintOf(err) == "" {
				t.Errorf("%s, %s: %v", when, name, err)
			}
		}
	}
	fenced("after another claimed", late, b)
	// It may look, and sees what is there.
	if list, err := late.List(ctx); err != nil || len(list) != 1 || list[0].ID != b.ID() {
		t.Errorf("boxes: %+v, %v", list, err)
	}
	// A keeper that is started again remembers whose it is.
	stop()
	path, _ = runOn(t, newServer(drivers, Options{State: state}))
	now.path, late.path = path, path
	fenced("after the keeper was started again", late, &box{client: late, id: b.ID()})
	again, err := now.Open(ctx, b.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Write(ctx, "cat", []byte("after\n"), true); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	r, err := again.Attach(ctx, "cat", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error { out.Write(p); return nil })
	if err != nil || r.Exit != 0 || r.Stdout != int64(len("begun\nbefore\nafter\n")) || !bytes.HasSuffix([]byte("begun\nbefore\nafter\n"), out.Bytes()) {
		t.Errorf("what the command read: %q, %+v, %v", out.String(), r, err)
	}
	if r, err := sandbox.Run(ctx, again, sandbox.Command{ID: "look", Shell: "! test -e late"}, nil, nil); err != nil || r.Exit != 0 {
		t.Errorf("a late command has run: %+v, %v", r, err)
	}
}

// A claim that cannot be kept is none, and one that cannot be read is nobody's.
func TestClaimIsKept(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, leaseFile), []byte(`{"token":`), 0o600); err != nil {
		t.Fatal(err)
	}
	l := openLease(state)
	if _, _, err := l.enter(""); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a caller without a claim: %v", err)
	}
	token, err := l.claim(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, leave, err := openLease(state).enter(token); err != nil {
		t.Errorf("the claim was not kept: %v", err)
	} else {
		leave()
	}
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	if _, err := l.claim(context.Background()); cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
		t.Errorf("without a folder: %v", err)
	}
	if _, leave, err := l.enter(token); err != nil {
		t.Errorf("a claim that failed took the keeper from its holder: %v", err)
	} else {
		leave()
	}
}

// TestClaimAgain: a server that gave up its claim, or was killed meanwhile, leaves
// the next one no keeper on which calls of the first are still under way.
func TestClaimAgain(t *testing.T) {
	l := openLease("")
	first, err := l.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, leave, err := l.enter(first)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := l.claim(impatient); err == nil {
			t.Error("claimed while a call of the first server was under way")
		}
		cancel()
	}
	leave()
	token, err := l.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, leave, err = l.enter(token); err != nil {
		t.Fatal(err)
	}
	leave()
}
