package main

import (
	"bytes"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/watch"
)

// Bounds of a kill.
const (
	killTime   = 20 * time.Second     // for all of it
	killTries  = 8                    // plain rounds before everything is frozen …
	plainTime  = time.Second          // … or this long: on a busy host a look at many processes takes a second
	stopRounds = 20                   // of stopping everything until nothing new is found
	leastTry   = 4                    // rounds in which everything is frozen before a kill is given up
	killPause  = 2 * time.Millisecond // a killed process needs a moment to be gone
	reapTime   = 15 * time.Second     // for what was killed to be reaped
)

// reap takes every process that ended, ours and orphans.
func (b *box) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		for b.reapOne() {
		}
		<-ended
	}
}

func (b *box) reapOne() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if c := b.byPID[pid]; c != nil {
		delete(b.byPID, pid)
		go c.exited(ws)
	}
	return true
}

// kill ends command number with everything it started and tells the host.
func (b *box) kill(number uint32, c *command) {
	if c != nil {
		<-c.started
	}
	left := b.sweep(func(mark uint32) bool { return mark == guest.MarkBase+number })
	b.sendJSON(guest.KindKilled, number, guest.Killed{Left: left})
}

// end ends all commands: the host is gone. The kernel does the same when pid 1
// exits, but later. Who is not pid 1 has no commands, and what it sees is others'.
func (b *box) end() {
	if os.Getpid() != 1 {
		return
	}
	b.sweep(func(uint32) bool { return true })
}

// process is what /proc says of one process.
type process struct {
	pid  int
	uid  int
	mark uint32 // of its command, as guest.Marked says; 0: none
	dead bool
	stop bool

	threads int
	fdSize  int64 // room for descriptors; at least as many as there are
	memory  int64 // bytes in use
}

// sweep kills every process whose mark is meant and returns how many are left.
// Those that ended are reaped by then, so that they count for nobody who comes.
//
// A mark is a supplementary group: it is inherited, and taking it off needs a
// capability no command has. One way around it is known, in a user namespace of
// one's own: then a process has no mark at all. So, as every process of our
// namespace is a command's, an unmarked process of an ordinary user dies with
// whatever is killed. A process that forks faster than we look is met by
// freezing everything first.
func (b *box) sweep(meant func(mark uint32) bool) int {
	ours := func(p process) bool { return p.mark != 0 && meant(p.mark) || p.mark == 0 && p.uid != 0 }
	match := func(p process) bool { return !p.dead && ours(p) }
	began, frozen := time.Now(), 0
	for try := 0; ; try++ {
		found, quiet := look(match)
		if len(found) == 0 && quiet {
			// What forked while we looked was not yet there when we began.
			if found, quiet = look(match); len(found) == 0 && quiet {
				awaitReaped(ours)
				return 0
			}
		}
		for _, p := range found {
			unix.Kill(p.pid, unix.SIGKILL)
		}
		if try >= killTries || time.Since(began) > plainTime {
			if frozen++; freeze(match) {
				awaitReaped(ours)
				return 0
			}
		}
		if time.Since(began) > killTime && frozen >= leastTry {
			return len(found)
		}
		time.Sleep(killPause)
	}
}

// awaitReaped waits until no process that matches is left to be reaped. One that
// is listed and cannot be read any more is about to be gone, and counts against
// the limit until then.
func awaitReaped(match func(process) bool) {
	ending := map[int]bool{}
	for _, pid := range pids() {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		ending[pid] = err != nil || match(parseStatus(pid, status))
	}
	for deadline := time.Now().Add(reapTime); time.Now().Before(deadline); time.Sleep(killPause) {
		if !slices.ContainsFunc(pids(), func(pid int) bool { return ending[pid] }) {
			return
		}
	}
}

// freezing is held by freeze: of two kills at a time the second would take what the
// first has stopped for stopped by itself, and nobody would let it go on.
var freezing sync.Mutex

// freeze stops every process but pid 1, kills those that match while nothing can
// fork, and lets the others go on that were not stopped before. It says
// whether all was seen and nothing matched.
// Preconditions: this is pid 1 of a pid namespace.
func freeze(match func(process) bool) (none bool) {
	freezing.Lock()
	defer freezing.Unlock()
	before := map[int]bool{}
	for _, p := range scan(func(p process) bool { return p.stop }) {
		before[p.pid] = true
	}
	stopAll()
	var others []process
	all, none := look(func(process) bool { return true })
	for _, p := range all {
		switch {
		case match(p):
			none = false
			unix.Kill(p.pid, unix.SIGKILL)
		case !before[p.pid]:
			others = append(others, p)
		}
	}
	for _, p := range others {
		unix.Kill(p.pid, unix.SIGCONT)
	}
	return none
}

// stopAll stops every process but pid 1. One that is forked meanwhile is not
// stopped by the signal that its parent got, so this is said again until the list
// stands still, which is soon: saying it and listing names takes less time than
// looking at each.
func stopAll() {
	var before []int
	for range stopRounds {
		unix.Kill(-1, unix.SIGSTOP)
		now := pids()
		slices.Sort(now)
		if slices.Equal(before, now) {
			return
		}
		before = now
	}
}

// scan returns the processes that match, but never this one.
func scan(match func(process) bool) []process {
	found, _ := look(match)
	return found
}

// look is scan, and says whether every process that was listed could be read:
// those of a fork bomb live shorter than a look, so one that sees none of them
// has not seen that there are none.
func look(match func(process) bool) (found []process, quiet bool) {
	quiet = true
	for _, pid := range pids() {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			quiet = false
			continue
		}
		if p := parseStatus(pid, status); match(p) {
			found = append(found, p)
		}
	}
	return found, quiet
}

// pids lists every process but this one.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what could be read counts
	var list []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() {
			list = append(list, pid)
		}
	}
	return list
}

// parseStatus reads /proc/PID/status.
func parseStatus(pid int, status []byte) process {
	p := process{pid: pid}
	p.threads, p.fdSize = int(watch.Number(status, "Threads")), watch.Number(status, "FDSize")
	p.memory, p.dead = watch.Kilobytes(status, "VmRSS"), watch.Dead(status)
	p.stop = bytes.HasPrefix(watch.Field(status, "State"), []byte("T"))
	if uids := bytes.Fields(watch.Field(status, "Uid")); len(uids) > 0 {
		p.uid, _ = strconv.Atoi(string(uids[0]))
	}
	for _, g := range bytes.Fields(watch.Field(status, "Groups")) {
		if n, err := strconv.ParseUint(string(g), 10, 32); err == nil && guest.Marked(uint32(n)) != 0 {
			p.mark = guest.Marked(uint32(n))
		}
	}
	return p
}
