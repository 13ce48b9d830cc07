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
	data, err := os.ReadFile(filepath.Join(dir, usage))
	if err != nil {
		return 0
	}
	total, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // the kernel writes numbers
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
