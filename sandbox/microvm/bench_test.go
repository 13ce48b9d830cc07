package microvm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam/sandbox"
)

// processorTime is what a box's monitor has used: unlike the clock's, it says
// something on a busy host too.
func processorTime(b *testing.B, of sandbox.Box) time.Duration {
	pid := of.(*box).machine().Process().PID
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	var user, system int64
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')'):]))
	if _, err := fmt.Sscan(fields[12]+" "+fields[13], &user, &system); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux there is
	return time.Duration(user+system) * tick
}

// BenchmarkCold is from Create to the end of the first command.
func BenchmarkCold(b *testing.B) {
	d := newDriver(b)
	image := smallImage(b)
	if _, err := d.root(context.Background(), image); err != nil {
		b.Fatal(err)
	}
	var spent time.Duration
	defer func() { b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "cpu-ms/op") }()
	for b.Loop() {
		box := newBox(b, d, func(s *sandbox.Spec) { s.Image = image })
		sh(b, box, "true")
		b.StopTimer()
		spent += processorTime(b, box)
		if err := box.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkFromSnapshot is the same for a box that goes on from a snapshot.
func BenchmarkFromSnapshot(b *testing.B) {
	d := newDriver(b)
	image := smallImage(b)
	first := newBox(b, d, func(s *sandbox.Spec) { s.Image = image })
	sh(b, first, "true")
	snap, err := first.Snapshot(context.Background(), sandbox.Take{ID: "s-00000000000000000000000000000000", Memory: true})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(snap.Paused.Milliseconds()), "ms-paused")
	if err := first.Destroy(context.Background()); err != nil {
		b.Fatal(err)
	}
	var spent time.Duration
	defer func() { b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "cpu-ms/op") }()
	for b.Loop() {
		box := newBox(b, d, func(s *sandbox.Spec) { s.Image, s.Snapshot = image, snap.ID })
		sh(b, box, "true")
		b.StopTimer()
		spent += processorTime(b, box)
		if err := box.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
