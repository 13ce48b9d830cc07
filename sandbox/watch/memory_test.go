package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMemoryIsLookedAt: it is looked at until that is ended, and never after; more
// often once the box is crowded.
func TestMemoryIsLookedAt(t *testing.T) {
	var looks, held atomic.Int64
	end := Memory(100, func() int64 { looks.Add(1); return held.Load() })
	await := func(n int64) time.Duration {
		began := time.Now()
		for before := looks.Load(); looks.Load() < before+n; time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%d looks in a minute", looks.Load()-before)
			}
		}
		return time.Since(began)
	}
	if took := await(5); took < 3*memoryPeriod {
		t.Errorf("5 looks in %s", took)
	}
	held.Store(51)
	await(1)
	if took := await(50); took < 20*crowdedPeriod {
		t.Errorf("50 looks at a crowded box in %s", took)
	}
	end()
	after := looks.Load()
	end()
	if time.Sleep(3 * memoryPeriod); looks.Load() != after {
		t.Error("it is looked at although that was ended")
	}
}

// TestMemfds: files in memory count, whatever their descriptors and as they grow;
// others do not, nor what is gone.
func TestMemfds(t *testing.T) {
	dir := "/proc/self/fd"
	memfd := func(size int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		must(t, err)
		_, err = unix.Write(fd, make([]byte, size))
		must(t, err)
		return fd
	}
	var m Memfds
	before := m.Held(dir)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer file.Close()
	_, err = file.Write(make([]byte, 4<<20))
	must(t, err)
	m.found = time.Time{} // as after a minute
	if got := m.Held(dir) - before; got != 0 {
		t.Errorf("a file on disk counts as %d", got)
	}
	one := memfd(1 << 20)
	m.found = time.Time{}
	if got := m.Held(dir) - before; got < 1<<20 || got > 2<<20 {
		t.Errorf("1 MiB counts as %d", got)
	}
	must(t, unix.Ftruncate(one, 0))
	if got := m.Held(dir) - before; got != 0 {
		t.Errorf("what was given back counts as %d", got)
	}
	must(t, unix.Dup3(int(file.Fd()), one, unix.O_CLOEXEC)) // the descriptor is another file's now
	defer unix.Close(one)
	defer unix.Close(memfd(2 << 20))
	if got := m.Held(dir) - before; got < 2<<20 || got > 3<<20 {
		t.Errorf("2 MiB, found anew, count as %d", got)
	}
	if got := m.Held("/proc/0/fd"); got != 0 {
		t.Errorf("what is gone counts as %d", got)
	}
}

// proc makes a /proc of processes, each with kilobytes of its own and shared ones,
// and its part of the latter.
func proc(t *testing.T, list map[string][3]int) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for pid, kib := range list {
		must(t, os.MkdirAll(filepath.Join(dir, pid, "task", pid), 0o700))
		for name, text := range map[string]string{
			"status":       fmt.Sprintf("Name:\tx\nState:\tS (sleeping)\nThreads:\t1\nRssAnon:\t%d kB\nRssShmem:\t%d kB\n", kib[0], kib[1]),
			"smaps_rollup": fmt.Sprintf("Pss_Anon:\t%d kB\nPss_Shmem:\t%d kB\n", kib[0], kib[2]),
		} {
			must(t, os.WriteFile(filepath.Join(dir, pid, name), []byte(text), 0o600))
		}
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

// TestLook: what is shared counts once, files that are mapped too, and nobody is
// ended within the limit; above it the largest go until the rest is within it.
func TestLook(t *testing.T) {
	shared := map[string][3]int{"1": {9999, 0, 0}, "7": {100, 400, 200}, "8": {100, 400, 200}, "self": {1, 1, 1}}
	for name, c := range map[string]struct {
		list               map[string][3]int
		files, apart, most int64
		ended              []int64
	}{
		"within":                     {map[string][3]int{"7": {400, 0, 0}, "8": {500, 0, 0}}, 100, 0, 1000, nil},
		"files are too much with it": {map[string][3]int{"7": {400, 0, 0}, "8": {500, 0, 0}}, 101, 0, 1000, []int64{500}},
		"shared by two":              {shared, 0, 0, 600, nil},
		"shared by two, and more":    {shared, 0, 0, 599, []int64{300}},
		"mapped files":               {shared, 400, 0, 600, nil},
		"mapped files of their own":  {shared, 0, 400, 200, nil},
		"the largest alone":          {map[string][3]int{"7": {10, 0, 0}, "8": {5000, 0, 0}, "9": {80, 0, 0}}, 0, 0, 100, []int64{5000}},
		"one after the other":        {map[string][3]int{"7": {60, 0, 0}, "8": {70, 0, 0}, "9": {80, 0, 0}}, 0, 0, 100, []int64{80, 70}},
	} {
		var ended []int64
		over := 0
		p := &Processes{
			Proc:  proc(t, c.list),
			Files: func() int64 { return c.files << 10 }, Apart: func() int64 { return c.apart << 10 },
			Over: func() { over++ }, Ending: func(n int64) { ended = append(ended, n>>10) },
		}
		p.Look(c.most << 10) // the signal goes to a folder that is no process
		if fmt.Sprint(ended) != fmt.Sprint(c.ended) || over != min(1, len(c.ended)) {
			t.Errorf("%s: ended %v, want %v; over %d times", name, ended, c.ended, over)
		}
	}
}
