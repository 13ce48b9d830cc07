package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// residue lists what is left on this host of boxes, by their ids, and of a
// driver, by its state folder ("": none): processes, mounts, loop devices,
// control groups and files.
func residue(root string, ids ...cofferdam.BoxID) (left []string) {
	names := make([]string, 0, len(ids)+1)
	for _, id := range ids {
		names = append(names, string(id))
	}
	if root != "" {
		names = append(names, filepath.Join(root, "boxes"))
	}
	of := func(text string) bool {
		for _, name := range names {
			if strings.Contains(text, name) {
				return true
			}
		}
		return false
	}
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/cgroup", "/proc/self/mountinfo", "/sys/block/loop*/loop/backing_file"} {
		found, _ := filepath.Glob(pattern) // the patterns are good
		for _, path := range found {
			data, err := os.ReadFile(path)
			if err != nil || strings.HasPrefix(path, self) { // it has just ended
				continue
			}
			for line := range strings.Lines(string(data)) {
				if of(line) {
					left = append(left, fmt.Sprintf("%s: %.200q", path, line))
				}
			}
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/*/b-*", "/sys/fs/cgroup/*/b-*", root + "/boxes/*", root + "/journal/*", root + "/memory/*"} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if of(path) || root != "" && strings.HasPrefix(path, root+"/") {
				left = append(left, path)
			}
		}
	}
	return left
}

// gonePatience is how long the kernel may take to let go of what has ended.
const gonePatience = 30 * time.Second

// wantGone waits until nothing is left of boxes and of what their driver had for
// them; see residue.
func wantGone(t testing.TB, root string, ids ...cofferdam.BoxID) {
	t.Helper()
	left := residue(root, ids...)
	for end := time.Now().Add(gonePatience); len(left) > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = residue(root, ids...)
	}
	for _, l := range left {
		t.Errorf("left: %s", l)
	}
}

// held is what this process holds.
type held struct{ descriptors, goroutines int }

func heldNow(t testing.TB) held {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return held{len(fds), runtime.NumGoroutine()}
}

// wantNoMore waits until this process holds no more than before.
func wantNoMore(t testing.TB, before held) {
	t.Helper()
	now := heldNow(t)
	for end := time.Now().Add(gonePatience); now.descriptors > before.descriptors || now.goroutines > before.goroutines; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Errorf("before: %+v, now: %+v\n%s", before, now, stacks[:runtime.Stack(stacks, true)])
			return
		}
		now = heldNow(t)
	}
}
