package process

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkOneOff runs true in a one-off box and in bubblewrap by turns, so that
// both meet the same host, and reports the median of each and their ratio.
func BenchmarkOneOff(b *testing.B) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		b.Skip("needs bubblewrap to compare with")
	}
	home, project := person(b)
	o := OneOff{Init: initProgram(b), Home: home, Workspace: project, Argv: []string{"/bin/true"}, Env: []string{"PATH=/usr/bin"}}
	withWire := o
	withWire.Wire = func(tap *os.File, _ int) error {
		b.Cleanup(func() { tap.Close() })
		return nil
	}
	ways := []struct {
		name string
		run  func() error
		took []time.Duration
	}{
		{"box", func() error { _, err := o.Run(b.Context()); return err }, nil},
		{"box-with-tap", func() error { _, err := withWire.Run(b.Context()); return err }, nil},
		{"bubblewrap", func() error {
			return exec.Command("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", home,
				"--bind", project, project, "--unshare-all", "--die-with-parent", "/bin/true").Run()
		}, nil},
	}
	for b.Loop() {
		for i := range ways {
			began := time.Now()
			if err := ways[i].run(); err != nil {
				b.Fatal(err)
			}
			ways[i].took = append(ways[i].took, time.Since(began))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds()) / 1000
	}
	last := median(ways[2].took)
	for _, w := range ways {
		b.ReportMetric(median(w.took), w.name+"-ms")
	}
	b.ReportMetric(median(ways[0].took)/last, "ratio")
	b.ReportMetric(median(ways[1].took)/last, "ratio-with-tap")
}
