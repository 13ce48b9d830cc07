package gvisor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
)

// shortTime is what boxes that get no memory may take to say so.
const shortTime = 4 * time.Minute

// noneLeft is what boxes say then.
const noneLeft = "the host has no memory left"

// TestMemoryRunsShort makes more boxes at once than there is memory for, which the
// group of all of them stands for: each works, or is refused with a reason that names
// memory, or has ended for it; nobody waits, nothing stays, and afterwards one works.
func TestMemoryRunsShort(t *testing.T) {
	d := newDriver(t)
	if d.watched {
		t.Skip("not run here: there are no control groups")
	}
	boxes, memory := 6, int64(64<<20)
	if os.Getenv("COFFERDAM_SOAK") != "" {
		boxes, memory = 60, 512<<20
	}
	newBox(t, d) // proves the platform, and holds some of it
	leave := func(bytes int64) {
		t.Helper()
		for _, s := range d.groups.Bounds(1, bytes, 1) {
			if strings.HasPrefix(s.File, "memory.") {
				must(t, d.groups.Set("", s))
			}
		}
	}
	leave(memory)
	ctx, cancel := context.WithTimeout(context.Background(), shortTime)
	defer cancel()
	var all sync.WaitGroup
	var refused, worked, ended atomic.Int32
	late := make(chan struct{}, boxes) // a box that worked has ended for another's sake
	for range boxes {
		all.Go(func() {
			spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()}
			b, err := d.Create(ctx, spec)
			if err != nil {
				refused.Add(1)
				wantNoneLeft(t, err)
				return
			}
			var out bytes.Buffer
			r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "x", Shell: "head -c 16M /dev/zero >/tmp/x; echo x"}, &out, &out)
			if err == nil && !r.Lost && out.String() == "x\n" {
				worked.Add(1)
				go func() {
					select {
					case <-b.(*box).Host.Done():
						late <- struct{}{}
					case <-ctx.Done():
					}
				}()
				return
			}
			ended.Add(1)
			select {
			case <-b.(*box).Host.Done():
			case <-ctx.Done():
			}
			if s := state(t, b); s.State != sandbox.Failed || !strings.Contains(s.Reason, noneLeft) {
				t.Errorf("it runs %q, %+v, %v, and is %s: %s", out.String(), r, err, s.State, s.Reason)
			}
		})
	}
	all.Wait()
	must(t, ctx.Err())
	t.Logf("of %d boxes in %d MiB %d were refused, %d worked, %d had ended", boxes, memory>>20, refused.Load(), worked.Load(), ended.Load())
	if refused.Load()+ended.Load() == 0 { // one after the other, each in the room of one before it
		select {
		case <-late:
		case <-time.After(time.Minute):
			t.Error("control: there was memory for all of them")
		}
	}
	must(t, d.DestroyAll(ctx))
	leave(8 << 20) // not enough for the kernel of one
	_, err := d.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()})
	wantNoneLeft(t, err)
	leave(1 << 40)
	if list := d.groups.List(); len(list) > 0 {
		t.Errorf("groups are left: %q", list)
	}
	if left := processesWith(t, d.state); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	entries, err := os.ReadDir(d.boxDir(""))
	must(t, err)
	mounts, err := mount.Under(d.o.Root)
	must(t, err)
	if len(entries) > 0 || len(mounts) != 1 { // that of the journals
		t.Errorf("left: %v, mounts %q", entries, mounts)
	}
	if out, r := sh(t, newBox(t, d), "echo x"); out != "x" || r.Exit != 0 {
		t.Errorf("then a box does not work: %q, %+v", out, r)
	}
}

// wantNoneLeft wants a box refused for want of memory, with what to do about it.
func wantNoneLeft(t *testing.T, err error) {
	t.Helper()
	var e *cofferdam.Error
	if !errors.As(err, &e) || e.Kind != cofferdam.Unavailable || !strings.Contains(e.Reason, noneLeft) || e.Hint == "" {
		t.Errorf("refused by %v (%s)", err, cofferdam.HintOf(err))
	}
}
