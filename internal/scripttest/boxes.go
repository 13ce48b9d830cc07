package scripttest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdBoxes waits until the script's keeper has exactly N boxes. They are counted
// as the host sees them, whatever keeper or server say: each is one process below
// the keeper, the kernel of a box of gVisor's or pid 1 of one of the host's.
func cmdBoxes(ts *testscript.TestScript, neg bool, args []string) {
	want, seconds := -1, 0
	if len(args) == 2 {
		want, _ = strconv.Atoi(args[0])
		seconds, _ = strconv.Atoi(args[1])
	}
	usage(ts, neg, want >= 0 && seconds > 0, "boxes N SECONDS")
	k := of(ts).keeper
	if k == nil {
		ts.Fatalf("boxes: there is no keeper; serve starts one")
	}
	late := time.Now().Add(time.Duration(seconds) * time.Second)
	for {
		found := boxesBelow(k.cmd.Process.Pid)
		if len(found) == want {
			return
		}
		if time.Now().After(late) {
			ts.Fatalf("not within %d s: %d boxes, not %d: processes %v", seconds, len(found), want, found)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// boxesBelow finds the processes below one that stand for a box.
func boxesBelow(top int) (boxes []int) {
	parents := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name of the program, in brackets, may hold anything.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	for pid := range parents {
		if !isBox(pid) {
			continue
		}
		for up, n := parents[pid], 0; up > 1 && n < len(parents); up, n = parents[up], n+1 {
			if up == top {
				boxes = append(boxes, pid)
				break
			}
		}
	}
	return boxes
}

func isBox(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	argv := strings.Split(string(line), "\x00")
	switch filepath.Base(argv[0]) {
	case "runsc-sandbox":
		return true
	case "cofferdam-init":
		return len(argv) > 1 && argv[1] == "--box"
	}
	return false
}
