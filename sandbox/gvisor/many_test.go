package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// lowest is the descriptor that this process would get next.
func lowest(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	return fd
}

// fillTo takes descriptors until the next one is n.
func fillTo(t *testing.T, n int) {
	t.Helper()
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if fd >= n {
			unix.Close(fd)
			return
		}
		t.Cleanup(func() { unix.Close(fd) })
	}
}

// TestManyDescriptors: with as many descriptors open here as boxes take in time,
// one of ours that gVisor's package leaves to the kernel of a box would have the
// number of a standard stream there, and the box would not start.
func TestManyDescriptors(t *testing.T) {
	d := newDriver(t)
	before := lowest(t)
	fillTo(t, before+40) // no holes
	before = lowest(t)
	b := newBox(t, d).(*box)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.container.SandboxPid()))
	if err != nil {
		t.Fatal(err)
	}
	met := 0
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if n < before || n >= firstStream { // its own
			continue
		}
		met++
		if to := firstStream + 1 - (n - before); to > before {
			fillTo(t, to)
			if out, r := sh(t, newBox(t, d), "echo x"); out != "x" || r.Exit != 0 {
				t.Errorf("%q %+v", out, r)
			}
		}
	}
	if met == 0 {
		t.Skip("gVisor's package leaves nothing of this process to a box any more")
	}
}

// TestCachedNames: however many or few descriptors there are, the names that are
// kept leave some.
func TestCachedNames(t *testing.T) {
	for descriptors, want := range map[uint64]int{
		0: minNames, 1024: minNames, spareDescriptors: minNames, 20000: 6000, 1 << 20: maxNames, ^uint64(0): maxNames,
	} {
		if got := cachedNames(descriptors); got != want {
			t.Errorf("%d of %d descriptors, want %d", got, descriptors, want)
		}
	}
}
