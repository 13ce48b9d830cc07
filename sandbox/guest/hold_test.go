package guest_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// TestHeldHostRefuses: calls that the box would have to answer are refused and
// do not wait; a timeout does not count the time of a stand-still.
func TestHeldHostRefuses(t *testing.T) {
	life := sandbox.NewLife()
	if err := life.Move(sandbox.Ready, "made", sandbox.ByDriver); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, guest.Options{Life: life})
	ctx := testContext(t)
	if err := b.Start(ctx, sandbox.Command{ID: "slow", Shell: "read x; echo over", Timeout: 10 * time.Second, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	if now := life.Now(); now.State != sandbox.Busy {
		t.Errorf("with a command: %+v", now)
	}
	b.Hold("the box is paused")
	short, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for name, err := range map[string]error{
		"start": b.Start(short, sandbox.Command{ID: "new", Shell: "true"}),
		"write": b.Write(short, "slow", []byte("x"), false),
		"kill":  b.Kill(short, "slow"),
	} {
		if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "the box is paused") {
			t.Errorf("%s: %v, want a conflict that says why", name, err)
		}
	}
	time.Sleep(10500 * time.Millisecond) // longer than the timeout
	b.Release()
	if err := b.Write(ctx, "slow", []byte("\n"), true); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := b.Attach(ctx, "slow", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error {
		out.Write(p)
		return nil
	})
	if err != nil || r.TimedOut || r.Exit != 0 || out.String() != "over\n" {
		t.Errorf("after the stand-still: %+v %v %q", r, err, out.String())
	}
	if now, err := life.Wait(ctx, sandbox.Idle); err != nil || now.State != sandbox.Idle || now.Actor != sandbox.ByBox {
		t.Errorf("without a command: %+v %v", now, err)
	}
}

// TestQuietUnderOutput: a talk that is brought to rest again and again, while
// commands print and are started, loses no byte.
func TestQuietUnderOutput(t *testing.T) {
	b := newBox(t, guest.Options{})
	ctx := testContext(t)
	if err := b.Start(ctx, sandbox.Command{ID: "loud", Shell: "seq 1 300000"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := b.Attach(ctx, "loud", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error {
			out.Write(p)
			return nil
		})
		done <- err
	}()
	for i := range 20 {
		b.Hold("at rest")
		if err := b.Quiet(ctx); err != nil {
			t.Fatalf("quiet %d: %v", i, err)
		}
		if st := b.State(); len(st.Commands) != 1 || st.Commands[0].ID != "loud" {
			t.Fatalf("state %+v", st)
		}
		if err := b.Wake(ctx, guest.Identity{}); err != nil {
			t.Fatalf("wake %d: %v", i, err)
		}
		b.Release()
		time.Sleep(5 * time.Millisecond)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.Len() != 1988895 {
		t.Errorf("%d bytes, want 1988895", out.Len())
	}
}
