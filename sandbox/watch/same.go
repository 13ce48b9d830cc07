package watch

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Who begins another program by vfork, as posix_spawn and most runtimes do, shares all
// of its memory with it until that program runs, and the kernel shows it for both. What
// a process looks like does not tell that from a fork, whose memory becomes its own as
// it is written; the kernel tells.

// once leaves, of processes that have one memory, the first, with what it holds by now:
// one that shared may have become another program, or have ended.
func (p *Processes) once(list []holder) (left []holder) {
	at := outside(p.Init)
	var known, unknown []holder
	for _, h := range list {
		if at[h.pid] != 0 {
			known = append(known, h)
		} else {
			unknown = append(unknown, h) // it has ended, or the kernel does not say
		}
	}
	// The kernel's answer is an order too.
	order := func(a, b holder) int { return sameMemory(at[a.pid], at[b.pid]) }
	slices.SortFunc(known, order)
	for _, h := range append(slices.CompactFunc(known, func(a, b holder) bool { return order(a, b) == 0 }), unknown...) {
		if h.anon, h.shared = exactly(p.Proc, h.pid); h.anon+h.shared > 0 {
			left = append(left, h)
		}
	}
	return left
}

// sameMemory is 0 for two processes that have one memory, else their order. It is no
// more than another number where the kernel does not say: then each counts for itself.
func sameMemory(a, b int) int {
	const ofMemory = 1 // KCMP_VM
	r, _, err := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), ofMemory, 0, 0, 0)
	switch {
	case err != 0 || r > 2:
		return a - b
	case r == 1:
		return -1
	}
	return int(r) / 2
}

// outside says, by the numbers that processes have in a box, which they have for this
// process: those of threads that have their memory, 0 for one that has none. init is the
// box's pid 1: what descends from it is in the box.
func outside(init int) map[string]int {
	list, err := os.ReadDir("/proc")
	if err != nil || init == 0 {
		return nil
	}
	children, ids := map[int][]int{}, map[int][][]byte{}
	for _, e := range list {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		parent := int(Number(text, "PPid"))
		children[parent], ids[n] = append(children[parent], n), bytes.Fields(Field(text, "NSpid"))
	}
	level := len(ids[init]) - 1 // of the box's numbers among those of one process
	at := map[string]int{}
	for next := children[init]; len(next) > 0; {
		n := next[0]
		if next = append(next[1:], children[n]...); level > 0 && len(ids[n]) > level {
			at[string(ids[n][level])] = withMemory(n)
		}
	}
	return at
}

// withMemory is the number of a thread that has its process' memory; 0 if none has. The
// kernel says of threads that have ended, as a process' first may have long before the
// others, that all have the same memory: none.
func withMemory(pid int) int {
	dir := "/proc/" + strconv.Itoa(pid)
	threads, _ := os.ReadDir(dir + "/task") // the first thread is the first
	for _, thread := range threads {
		text, err := os.ReadFile(dir + "/task/" + thread.Name() + "/status")
		if err == nil && Field(text, "RssAnon") != nil {
			n, _ := strconv.Atoi(thread.Name()) // the kernel writes numbers
			return n
		}
	}
	return 0
}
