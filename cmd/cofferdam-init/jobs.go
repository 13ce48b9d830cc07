package main

import (
	"cofferdam/sandbox/guest"
)

// tell counts the processes of each command and answers the host. A process
// without a mark is of some command all the same (see sweep), and counts as of 0.
func (b *box) tell() {
	counts := map[uint32]int{}
	waits := 0
	b.mu.Lock()
	if b.standby != nil { // of no command yet
		waits = b.standby.pid
	}
	b.mu.Unlock()
	for _, p := range scan(func(p process) bool { return !p.dead && (p.mark != 0 || p.uid != 0) && p.pid != waits }) {
		number := uint32(0)
		if p.mark != 0 {
			number = p.mark - guest.MarkBase
		}
		if _, known := counts[number]; !known && len(counts) >= guest.MaxCounts-1 {
			number = 0
		}
		counts[number]++
	}
	answer := guest.Counted{}
	for number, n := range counts {
		answer.Counts = append(answer.Counts, guest.Count{Command: number, Processes: n})
	}
	b.sendJSON(guest.KindCounted, 0, answer)
}
