package keeper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestKeeperIsStartedAgain ends the keeper under its server: the next calls start
// one more, once, with the same flags, and the server's claim holds there. The
// boxes are gone.
func TestKeeperIsStartedAgain(t *testing.T) {
	fake(t).Close() // skips who is not root
	h := newHouse(t)
	ctx := testContext(t)
	h.keeper(h.slots[0], "a", []string{"--limits", "watched"})
	late := h.mustServe("a")
	set := h.mustServe("a")
	box := newBox(t, set)
	h.stop(h.slots[0])
	h.want("the keeper has ended", "- - - -")

	if _, err := late.Offers(ctx); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a server that lost its claim starts a keeper: %v", err)
	}
	h.want("after a call of a server that lost its claim", "- - - -")

	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if _, err := set.Offers(ctx); err != nil {
				t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
			}
		})
	}
	calls.Wait()
	h.want("after calls", "a - - -")
	if strings.Join(h.args, " ") != "--limits watched" {
		t.Errorf("it was started with %q", h.args)
	}
	if _, err := set.Open(ctx, box.ID()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("a box of the keeper that ended: %v", err)
	}
	newBox(t, set)
	if _, err := late.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a server that lost its claim is heard by the new keeper: %v", err)
	}
}

// TestKeeperThatGoesOnEnding: what cannot be started is not tried at every call,
// and the error says why and where more is said.
func TestKeeperThatGoesOnEnding(t *testing.T) {
	dir := t.TempDir()
	slot := Slot{filepath.Join(dir, "k.sock"), filepath.Join(dir, "k")}
	if err := os.MkdirAll(slot.State, 0o700); err != nil {
		t.Fatal(err)
	}
	claim := openLease(slot.State)
	token, err := claim.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var starts atomic.Int32
	broken := &cofferdam.Error{Op: "t", Kind: cofferdam.Unavailable, Subject: "starting it", Reason: "no TUN device", Hint: "modprobe tun"}
	r := &reviver{slot: slot, token: token, log: slog.New(slog.DiscardHandler), start: func(context.Context, Slot, []string) error {
		starts.Add(1)
		return broken
	}}
	c := &Client{path: slot.Socket, token: token, again: r}
	begun := time.Now()
	for range 50 {
		_, err := c.List(t.Context())
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "no TUN device") ||
			!strings.Contains(cofferdam.HintOf(err), "modprobe tun") || !strings.Contains(cofferdam.HintOf(err), filepath.Join(slot.State, "keeper.log")) {
			t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
		}
	}
	if n, took := int(starts.Load()), time.Since(begun); n < 1 || n > 1+int(took/firstPause)+1 {
		t.Errorf("%d starts for 50 calls in %s", n, took)
	}
	var pauses []time.Duration
	for range 6 {
		over := make(chan struct{})
		r.begin(t.Context(), over, 0)
		r.mu.Lock()
		pauses = append(pauses, r.pause)
		r.mu.Unlock()
	}
	if pauses[len(pauses)-1] != longestPause {
		t.Errorf("pauses %v", pauses)
	}

	// One that starts and ends at once.
	r = &reviver{slot: slot, token: token, log: r.log, start: func(context.Context, Slot, []string) error { return nil }}
	c.again = r
	_, err = c.List(t.Context())
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "ended at once") || !strings.Contains(cofferdam.HintOf(err), "keeper.log") {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
	// Nobody waits for longer than he likes.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	// Without anybody who starts one, it is not there, as before.
	c.again = nil
	if _, err := c.List(t.Context()); !ended(err) || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
}
