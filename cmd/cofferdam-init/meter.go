package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"
)

const (
	// samplePeriod is how often limits are looked at while commands run: one
	// look reads a few files of /proc for each process.
	samplePeriod = 100 * time.Millisecond
	// sampleFresh is how old a look at the processes may be to count for a
	// command that ends: many may end at once.
	sampleFresh = 5 * time.Millisecond
	// almost is the part of a limit, in 1/32, from which it counts as met:
	// processes come and go while they are counted.
	almost = 30
)

// meter remembers when each limit was last seen met.
type meter struct {
	mu     sync.Mutex
	met    map[sandbox.Exhaustion]time.Time // guarded by mu
	looked time.Time                        // guarded by mu
	last   events                           // of the group, when last read; guarded by mu
}

// since lists the limits that were seen met after a moment.
func (m *meter) since(began time.Time) []sandbox.Exhaustion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []sandbox.Exhaustion
	for e, last := range m.met {
		if last.After(began) {
			list = append(list, e)
		}
	}
	return list
}

// watch looks at the limits for as long as there are commands.
func (b *box) watch() {
	t := time.NewTicker(samplePeriod)
	defer t.Stop()
	for range t.C {
		b.mu.Lock()
		idle := len(b.commands) == 0
		b.watched = !idle
		b.mu.Unlock()
		if idle {
			return
		}
		b.sample()
	}
}

// sample looks at every limit that only shows from the inside.
func (b *box) sample() {
	m := &b.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.met == nil {
		m.met = map[sandbox.Exhaustion]time.Time{}
	}
	// What is seen counts for the moment before it was looked at, which takes a
	// second when many processes fork: a command that begins meanwhile is not to
	// blame.
	now := time.Now()
	// Cheap, so always: a folder may fill up within sampleFresh.
	for _, dir := range b.config.Sized {
		if full(dir) {
			m.met[sandbox.ExhaustedTemp] = now
		}
	}
	b.sampleKernel(now)
	if now.Sub(m.looked) < sampleFresh {
		return
	}
	m.looked = now // what happened since was not seen
	tasks, most := int64(0), others()
	for _, p := range scan(func(p process) bool { return p.uid == b.config.UID }) {
		tasks += int64(max(p.threads, 1))
		if limit := b.config.OpenFiles; limit > 0 && p.fdSize >= limit && b.descriptors(p.pid) >= limit*almost/32 {
			m.met[sandbox.ExhaustedFiles] = now
		}
	}
	limit := b.config.PIDs
	if b.group != nil {
		limit = 0 // its group counts
	}
	if limit > 0 && max(tasks, most) >= limit*almost/32 {
		m.met[sandbox.ExhaustedPIDs] = now
	}
	// Of many that come and go, half are gone before they are looked into.
	if now = time.Now(); limit > 0 && others() >= limit*almost/32 {
		m.met[sandbox.ExhaustedPIDs] = now
	}
}

// sampleKernel looks at what the box's own kernel counts. meter.mu is held.
func (b *box) sampleKernel(now time.Time) {
	if b.group == nil {
		return
	}
	e, m := b.group.events(), &b.meter
	if e.memory > m.last.memory {
		m.met[sandbox.ExhaustedMemory] = now
	}
	if e.pids > m.last.pids {
		m.met[sandbox.ExhaustedPIDs] = now
	}
	m.last = e
	for _, dir := range b.config.Disks {
		if watch.Full(dir) {
			m.met[sandbox.ExhaustedDisk] = now
		}
	}
}

// others counts the processes beside this one, which in a box are all of
// commands.
func others() int64 {
	if os.Getpid() != 1 {
		return 0 // a test's: what runs beside it is not ours
	}
	return int64(len(pids()))
}

// full says whether a file system has no room left, or no file.
func full(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	return st.Bavail <= st.Blocks/128 || st.Files > 0 && st.Ffree == 0
}

// descriptors counts the open files of a process of the box's user, as that
// user: pid 1 has no right of its own to look.
func (b *box) descriptors(pid int) int64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if effective(b.config.UID, b.config.GID) != nil {
		return 0
	}
	names := 0
	if dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd"); err == nil {
		list, _ := dir.Readdirnames(-1) // it may have ended meanwhile
		names = len(list)
		dir.Close()
	}
	if err := effective(0, 0); err != nil {
		os.Exit(1) // this thread may not serve anybody again
	}
	return int64(names)
}

// relieve ends the process that holds the most memory.
func relieve() {
	var most process
	for _, p := range scan(func(p process) bool { return p.uid != 0 && !p.dead }) {
		if p.memory > most.memory {
			most = p
		}
	}
	if most.pid > 0 {
		unix.Kill(most.pid, unix.SIGKILL)
	}
}
