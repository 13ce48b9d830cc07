package microvm

import (
	"slices"
	"testing"
	"time"

	"cofferdam/sandbox"
)

// testExhaustion meets each limit of a machine in turn: what ran out is
// said, one command ends of it, and the box goes on.
func testExhaustion(t *testing.T, b *box) {
	for _, c := range []struct {
		name sandbox.Exhaustion
		text string
	}{
		{sandbox.ExhaustedMemory, "dd if=/dev/zero of=/dev/null bs=450M count=1"},
		{sandbox.ExhaustedDisk, "dd if=/dev/zero of=/work/big bs=1M; sleep 5; rm /work/big"},
		{sandbox.ExhaustedTemp, "dd if=/dev/zero of=/tmp/big bs=1M; sleep 5; rm /tmp/big"},
		{sandbox.ExhaustedPIDs, "for i in $(seq 300); do sleep 2 & done 2>/dev/null; sleep 0.3"},
		{sandbox.ExhaustedTime, "sleep 100"},
	} {
		limit := time.Minute
		if c.name == sandbox.ExhaustedTime {
			limit = 2 * time.Second
		}
		_, r := shFor(t, b, c.text, limit)
		if !slices.Contains(r.Exhausted, c.name) || r.Lost {
			t.Errorf("%s: %+v", c.name, r)
		}
		if c.name == sandbox.ExhaustedMemory && r.Reason != "ended because the box needed more memory than its limit" {
			t.Errorf("its reason: %q", r.Reason)
		}
		if got, r := sh(t, b, "echo on"); got != "on" || len(r.Exhausted) != 0 {
			t.Errorf("after %s: %q %+v", c.name, got, r)
		}
	}
}
