package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Setting is what one file of a group is to hold. Its name begins with the name of
// its controller.
type Setting struct {
	File, Value string
	Optional    bool // some kernels have no such file, and need none
}

// period of the processor's time, in microseconds: the kernel's default.
const period = 100_000

// Bounds are settings for so many processors, bytes of memory and tasks.
func (g Groups) Bounds(cpu float64, memory, tasks int64) []Setting {
	quota, bytes, pids := strconv.FormatInt(int64(cpu*period), 10), strconv.FormatInt(memory, 10), strconv.FormatInt(tasks, 10)
	if g.V2 {
		return []Setting{{File: "pids.max", Value: pids}, {File: "cpu.max", Value: quota + " " + strconv.Itoa(period)}, {File: "memory.max", Value: bytes}}
	}
	return []Setting{{File: "pids.max", Value: pids}, {File: "cpu.cfs_quota_us", Value: quota}, {File: "memory.limit_in_bytes", Value: bytes}}
}

// NoSwap is the setting by which a group with so many bytes of memory has no other.
// It follows that of memory. A host without swap may have no such file.
func (g Groups) NoSwap(memory int64) Setting {
	if g.V2 {
		return Setting{File: "memory.swap.max", Value: "0", Optional: true}
	}
	return Setting{File: "memory.memsw.limit_in_bytes", Value: strconv.FormatInt(memory, 10), Optional: true}
}

// Set writes settings of a box's group, in their order.
func (g Groups) Set(box string, list ...Setting) error {
	if g.None() {
		return nil
	}
	for _, s := range list {
		controller, _, _ := strings.Cut(s.File, ".")
		err := write(g.Dir(controller, box), s.File, s.Value)
		if err != nil && !(s.Optional && errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("set %s: %w", s.File, err)
		}
	}
	return nil
}

// Events are the counters that tell a limit was hit.
type Events struct {
	OOMKills int64 // processes that ended for want of memory
	PIDsFull int64 // forks that the host refused
}

// Events reads the counters of a box; what cannot be read counts as zero, as
// when the box is gone.
func (g Groups) Events(box string) Events {
	if g.None() {
		return Events{}
	}
	memory := "memory.oom_control"
	if g.V2 {
		memory = "memory.events"
	}
	return Events{
		OOMKills: Counter(filepath.Join(g.Dir("memory", box), memory), "oom_kill"),
		PIDsFull: Counter(filepath.Join(g.Dir("pids", box), "pids.events"), "max"),
	}
}

// NoMemory says why processes of a box ended for want of memory: for more than its
// limit, which is so many bytes to whoever uses it, or because nobody had any. "" if
// none did.
func (g Groups) NoMemory(box string, limit int64) string {
	switch {
	case g.Events(box).OOMKills == 0:
		return ""
	case g.metLimit(box):
		return fmt.Sprintf("it needed more memory than its limit of %d MiB", limit>>20)
	}
	return "the host has no memory left, or none that all boxes together may have"
}

// nearLimit of its limit, in bytes, a box has met it: memory is counted ahead in pieces,
// of which one did not fit.
const nearLimit = 1 << 20

// metLimit says whether a box ever had as much memory as its own limit allows, and
// wanted more.
func (g Groups) metLimit(box string) bool {
	if g.V2 {
		return Counter(filepath.Join(g.Dir("memory", box), "memory.events"), "oom") > 0
	}
	most, limit := number(g.Dir("memory", box)+"/memory.max_usage_in_bytes"), number(g.Dir("memory", box)+"/memory.limit_in_bytes")
	return most >= limit-nearLimit // failcnt counts nothing on newer kernels
}

// number reads a file that is one; 0 if it is not there.
func number(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // the kernel writes numbers
	return n
}

// Memory is how many bytes a box holds that the kernel cannot take back: file
// pages do not count. It is 0 once the box is gone.
func (g Groups) Memory(box string) int64 {
	if g.None() {
		return 0
	}
	dir := g.Dir("memory", box)
	usage, prefix := "memory.usage_in_bytes", "total_"
	if g.V2 {
		usage, prefix = "memory.current", ""
	}
	total := number(filepath.Join(dir, usage))
	if total == 0 {
		return 0
	}
	stat := filepath.Join(dir, "memory.stat")
	return total - Counter(stat, prefix+"active_file") - Counter(stat, prefix+"inactive_file")
}

// Counter reads the line of "name number" from a file; 0 if there is none.
func Counter(path, name string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			n, _ := strconv.ParseInt(value, 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}
