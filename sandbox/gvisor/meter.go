package gvisor

import (
	"context"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/mount"
)

// relievePause is how long the largest process has to be gone before the next
// one is ended.
const relievePause = 100 * time.Millisecond

// crowded says whether the box holds more than half of its memory, and has the
// largest process ended when it holds more than all of it: a hog must be met
// within the reserve.
func (b *box) crowded() bool {
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
	return held > b.spec.Limits.Memory/2
}

// look is what the host can see of the box.
func (b *box) look() guest.Seen {
	now := b.d.cgroups.events(string(b.name))
	for _, w := range b.wards {
		if w.over.Load() {
			return guest.Seen{OOMKills: now.oomKills, PIDsFull: now.pidsFull, DiskFull: true}
		}
	}
	full := mount.Full(b.path("work")) || b.project != 0 && mount.Full(b.dir) || b.spec.SetupPhase && mount.Full(b.path("env"))
	return guest.Seen{OOMKills: now.oomKills, PIDsFull: now.pidsFull, DiskFull: full}
}
