package watch

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// findAgain is how long it is believed which descriptors are of files in memory.
const findAgain = time.Minute

// Memfds are the files in memory that a process has open, as a kernel does that
// keeps a box's memory in some. What its own process maps of them tells little: the
// box's processes have mappings of their own. They are a few of up to thousands of
// descriptors, as many as a box makes its kernel have: to look at all takes longer than
// the time between two looks.
type Memfds struct {
	mu    sync.Mutex
	dir   string    // of the descriptors; guarded by mu
	paths []string  // guarded by mu
	found time.Time // guarded by mu
}

// Held is what those take, in bytes, that are in a folder of descriptors; 0 once
// its process is gone.
func (m *Memfds) Held(dir string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dir == dir && time.Since(m.found) < findAgain {
		if sum, ok := m.sum(); ok {
			return sum
		}
	}
	m.dir, m.paths, m.found = dir, nil, time.Now()
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range list {
		if path := filepath.Join(dir, e.Name()); isMemory(path) {
			m.paths = append(m.paths, path)
		}
	}
	sum, _ := m.sum()
	return sum
}

// sum adds up what is known; not ok if something of it is another file by now, or
// nothing is known. mu is held.
func (m *Memfds) sum() (sum int64, ok bool) {
	ok = len(m.paths) > 0
	for _, path := range m.paths {
		var st unix.Stat_t
		if !isMemory(path) || unix.Stat(path, &st) != nil {
			ok = false
			continue
		}
		sum += st.Blocks * 512
	}
	return sum, ok
}

func isMemory(path string) bool {
	name, err := os.Readlink(path)
	return err == nil && strings.HasPrefix(name, "/memfd:")
}
