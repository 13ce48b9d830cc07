package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/watch"
)

// groupDir is where a machine has its control groups, and where container engines
// look for them; only root can write there.
const groupDir = "/sys/fs/cgroup"

// ownReserve of a machine's memory is not for commands: pid 1 and the kernel
// have it, so that what runs out of memory is one command and not the machine.
const ownReserve = 40 << 20

// freezePatience is how long processes may take to stand still.
const freezePatience = 5 * time.Second

// group is the control group of all commands of a machine: with a kernel of its
// own, it is pid 1 that bounds them and sees what ran out. A nil group is that of
// a box whose driver does both.
type group struct {
	dir  string
	file *os.File

	// making is held while a process is made, and while all stand still. One that
	// stood still before it is another program would hold up the thread that makes
	// it, and with that, some time, Go's collector and so all of pid 1.
	making sync.Mutex
	still  bool // making is held for that; of the reader of the host's pipe alone
}

// newGroup makes the group with room for so many processes and threads.
func newGroup(pids int64) (*group, error) {
	for _, f := range []string{"cgroup.subtree_control"} {
		if err := os.WriteFile(filepath.Join(groupDir, f), []byte("+pids +memory"), 0); err != nil {
			return nil, fmt.Errorf("bound commands: %w", err)
		}
	}
	g := &group{dir: filepath.Join(groupDir, "commands")}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("bound commands: %w", err)
	}
	memory, err := available()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]int64{"pids.max": pids, "memory.max": max(memory-ownReserve, ownReserve)} {
		if value <= 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(g.dir, name), strconv.AppendInt(nil, value, 10), 0); err != nil {
			return nil, fmt.Errorf("bound commands: %w", err)
		}
	}
	g.file, err = os.Open(g.dir)
	return g, err
}

// available is the memory that nobody uses yet, in bytes.
func available() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	if free := watch.Kilobytes(data, "MemAvailable"); free > 0 {
		return free, nil
	}
	return 0, errors.New("/proc/meminfo does not say what is available")
}

// start is a starter: the process is in the group from its first moment.
func (g *group) start(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	sys := *attr.Sys
	sys.UseCgroupFD, sys.CgroupFD = true, int(g.file.Fd())
	own := *attr
	own.Sys = &sys
	g.making.Lock()
	defer g.making.Unlock()
	return syscall.ForkExec(path, argv, &own)
}

// freeze makes every command stand still, or go on, in a way that none of them
// can see: who draws random numbers or reads the clock does it as the box that
// pid 1 was told to be.
func (g *group) freeze(still bool) error {
	if g == nil {
		return nil
	}
	value := "0"
	if still {
		value = "1"
	}
	if still && !g.still {
		g.making.Lock()
		g.still = true
	}
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.freeze"), []byte(value), 0); err != nil {
		return fmt.Errorf("freeze commands: %w", err)
	}
	for deadline := time.Now().Add(freezePatience); still && g.counter("cgroup.events", "frozen") != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("freeze commands: some of them run on")
		}
	}
	if still {
		unix.Sync() // nothing writes now: what is on the disks is whole
	} else if g.still {
		g.still = false
		g.making.Unlock()
	}
	return nil
}

// counter reads one line of "name number"; 0 if there is none.
func (g *group) counter(file, name string) int64 {
	data, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), " "); ok && key == name {
			n, _ := strconv.ParseInt(value, 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// events are how often commands met a limit of the group.
type events struct{ memory, pids int64 }

func (g *group) events() events {
	return events{memory: g.counter("memory.events", "oom_kill"), pids: g.counter("pids.events", "max")}
}
