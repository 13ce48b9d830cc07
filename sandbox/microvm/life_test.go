package microvm

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestStandStill pauses, suspends and copies one box: what runs in it goes on,
// and each of the two copies is another machine.
func TestStandStill(t *testing.T) {
	d, ctx := newDriver(t), context.Background()
	image := smallImage(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Image = image })
	if err := b.Start(ctx, sandbox.Command{ID: "count", Shell: "i=0; while [ ! -e /work/stop ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo over"}); err != nil {
		t.Fatal(err)
	}
	sh(t, b, "echo kept >/work/file; echo kept >/tmp/file; sync")

	if err := b.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx, sandbox.Command{ID: "late", Shell: "true"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a command in a paused box: %v", err)
	}
	if err := b.Resume(ctx); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	if err := b.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("suspended after %s", time.Since(began))
	if b.(*box).machine() != nil {
		t.Error("a suspended box has a machine")
	}
	began = time.Now()
	if err := b.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("resumed after %s", time.Since(began))
	if got, _ := sh(t, b, "cat /work/file /tmp/file"); got != "kept\nkept" {
		t.Errorf("after suspending: %q", got)
	}

	id := sandbox.SnapshotID("s-" + strings.Repeat("0", 32))
	s, err := b.Snapshot(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshot of %d MiB, box paused for %s", s.Size>>20, s.Paused)
	var seen [3]string
	for i := range seen {
		copied := b
		if i > 0 {
			began := time.Now()
			copied = newBox(t, d, func(s *sandbox.Spec) { s.Image, s.Snapshot, s.Hostname = image, id, "copy"+string(rune('0'+i)) })
			t.Logf("copy made after %s", time.Since(began))
			sh(t, copied, "true")
			t.Logf("and its first command ended after %s", time.Since(began))
		}
		got, _ := sh(t, copied, "cat /work/file /tmp/file | tr '\\n' ' '")
		if got != "kept kept" {
			t.Errorf("copy %d: %q", i, got)
		}
		seen[i], _ = sh(t, copied, "hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1")
		if now, _ := sh(t, copied, "date +%s"); !near(now) {
			t.Errorf("copy %d: its clock says %q", i, now)
		}
		sh(t, copied, "echo "+seen[i][:4]+" >/work/mine; touch /work/stop")
	}
	for i := range seen {
		for j := range i {
			for k, a := range strings.Split(seen[i], "\n") {
				if a == strings.Split(seen[j], "\n")[k] {
					t.Errorf("copies %d and %d share %q", i, j, a)
				}
			}
		}
	}
	var out bytes.Buffer
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "count", Shell: "x"}, &out, nil)
	if err != nil || r.Exit != 0 || !strings.HasSuffix(out.String(), "over\n") {
		t.Errorf("the command that ran all the time: %+v, %v", r, err)
	}
	for i, line := range strings.Fields(strings.TrimSuffix(out.String(), "over\n")) {
		if line != strings.TrimSpace(line) || line != itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if err := d.RemoveSnapshot(ctx, id); err != nil {
		t.Error(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// near says whether a clock's seconds are the host's, give or take a few.
func near(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && time.Since(time.Unix(n, 0)).Abs() < 5*time.Second
}
