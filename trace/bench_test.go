package trace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"cofferdam"
)

// benchEvent is a decision as a gateway records it.
func benchEvent(durable bool) cofferdam.Event {
	return cofferdam.Event{
		Task: "t-0123456789abcdef0123456789abcdef", Source: "egress", Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed, Rule: "allow-1",
		Resource: "packages.example.com:443", Actor: cofferdam.Principal{Kind: cofferdam.Agent, Name: "command"}, Durable: durable,
		Fields: map[string]string{"method": "GET", "path": "/left-pad/-/left-pad-1.3.0.tgz", "address": "198.18.0.7"},
	}
}

// BenchmarkSync is what the disk itself can do, to read BenchmarkRecord
// beside: one write of the same size, synced, one at a time.
func BenchmarkSync(b *testing.B) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	body, err := encode(benchEvent(true))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := f.Write(body); err != nil {
			b.Fatal(err)
		}
		if err := (dataFile{f}).Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
}

// BenchmarkRecord records events, durable or not, from so many goroutines.
func BenchmarkRecord(b *testing.B) {
	for _, durable := range []bool{false, true} {
		for _, writers := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("durable=%t/writers=%d", durable, writers), func(b *testing.B) {
				s := openStore(b, b.TempDir(), testKey(b))
				l := openSession(b, s, "s-1")
				b.SetParallelism(max(1, writers/2)) // times GOMAXPROCS, 2 here
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := l.Record(context.Background(), benchEvent(durable)); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
