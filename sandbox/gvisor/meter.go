package gvisor

import (
	"context"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/watch"
)

// relievePause is how long the largest process has to be gone before the next
// one is ended.
const relievePause = 100 * time.Millisecond

// relieve returns what the box holds, in bytes, and has the largest process ended
// when that is more than its limit: a hog must be met within the reserve.
func (b *box) relieve() int64 {
	held := b.held()
	if held > b.spec.Limits.Memory {
		last, now := b.relieved.Load(), time.Now().UnixNano()
		if time.Duration(now-last) > relievePause && b.relieved.CompareAndSwap(last, now) {
			b.meter.Met(sandbox.ExhaustedMemory)
			ctx, cancel := context.WithTimeout(context.Background(), relievePause)
			defer cancel()
			_ = b.Host.Relieve(ctx) // the box may end meanwhile; what does not help is asked again
		}
	}
	return held
}

// look is what the host can see of the box.
func (b *box) look() guest.Seen {
	now := b.d.groups.Events(string(b.name))
	full := b.folders.Over() || watch.Full(b.path("work")) || b.project != 0 && watch.Full(b.dir) || b.spec.SetupPhase && watch.Full(b.path("env"))
	return guest.Seen{OOMKills: now.OOMKills, PIDsFull: now.PIDsFull, DiskFull: full}
}
