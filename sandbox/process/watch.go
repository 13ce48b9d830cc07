package process

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
)

// How often the memory of a box without a control group is looked at.
const (
	watchPeriod = 100 * time.Millisecond
	// crowdedPeriod is the same while the box holds more than half of its memory.
	crowdedPeriod = 10 * time.Millisecond
	// firstToGo makes the kernel choose a box where the whole host lacks memory: from
	// -1000 for never to 1000.
	firstToGo = 500
)

// sized are the folders in memory of which commands are told that they are full.
func sized() []string { return []string{"/tmp", sandbox.HomeDir, "/dev/shm"} }

// countedPIDs is how many processes the kernel lets the user of a box have, which
// is all that bounds them without a control group. pid 1 has the same limit.
func (b *box) countedPIDs() int64 {
	if !b.d.watched {
		return 0
	}
	return max(b.spec.Limits.PIDs, initThreads)
}

// watcher looks at the memory of one box for as long as it is there, also while no
// command runs: what one left behind can grow. It sees what processes hold, by
// themselves and together, and the box's files in memory, which have sizes that leave
// room for processes, but for the workspace. It does not see what the kernel holds for them: files in
// memory without a name, and what is in pipes and sockets.
type watcher struct {
	b    *box
	proc *os.Root // the box's own /proc
	root string   // the box's root folder
	quit chan struct{}
	done chan struct{}
}

// beginWatch starts the watcher of a box whose walls are up, if it has no control
// group.
func (b *box) beginWatch() error {
	if !b.d.watched {
		return nil
	}
	root := fmt.Sprintf("/proc/%d/root", b.init.cmd.Process.Pid)
	proc, err := os.OpenRoot(root + "/proc")
	if err != nil {
		return fmt.Errorf("watch memory: %w", err)
	}
	b.watcher = &watcher{b: b, proc: proc, root: root, quit: make(chan struct{}), done: make(chan struct{})}
	go b.watcher.run()
	return nil
}

// yield has the kernel choose this box, before others, when the host lacks memory.
// That it may not is no harm to anybody's wall.
func (b *box) yield() {
	if b.d.watched {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", b.init.cmd.Process.Pid), []byte(strconv.Itoa(firstToGo)), 0)
	}
}

// stop ends the watching. It may be called of none, and once of one.
func (w *watcher) stop() {
	if w == nil {
		return
	}
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	<-w.done
}

func (w *watcher) run() {
	defer close(w.done)
	defer w.proc.Close()
	limit := w.b.spec.Limits.Memory
	for {
		began, pause := time.Now(), watchPeriod
		if held := w.look(limit); held > limit/2 {
			pause = max(crowdedPeriod, time.Since(began)) // half of the time at most
		}
		select {
		case <-w.quit:
			return
		case <-w.b.ended:
			return
		case <-time.After(pause):
		}
	}
}

// look looks once, ends what is too much, and returns about how much the box
// holds, in bytes.
func (w *watcher) look(limit int64) int64 {
	files := w.files()
	list, held := w.processes(status), files
	for _, p := range list {
		held += p.anon + p.shared
	}
	if held <= limit {
		return held
	}
	// What processes share was counted for each of them. To know better takes longer.
	list = w.processes(exactly)
	giveBack(list)
	held = total(list, files, w.used(sandbox.WorkDir))
	if held <= limit {
		return held
	}
	w.b.meter.Met(sandbox.ExhaustedMemory)
	slices.SortFunc(list, func(a, b holder) int { return cmp.Compare(b.anon+b.shared, a.anon+a.shared) })
	for i, p := range list {
		if total(list[i:], files, w.used(sandbox.WorkDir)) <= limit {
			break
		}
		w.end(p)
	}
	return held
}

// holder is what one process of a box holds, in bytes.
type holder struct {
	pid          string // in the box
	anon, shared int64
	of           string // process whose memory it may have, being about to become another program; "" for none
}

// total is what processes and files hold together. Files that are mapped are among
// what is shared, and those of the workspace have a limit of their own.
func total(list []holder, files, workspace int64) int64 {
	var anon, shared int64
	for _, p := range list {
		anon, shared = anon+p.anon, shared+p.shared
	}
	return anon + max(files, shared-workspace)
}

// processes lists those of the box that hold memory and live on, but for pid 1.
func (w *watcher) processes(hold func(*os.Root, string) (anon, shared int64)) (list []holder) {
	dir, err := w.proc.Open(".")
	if err != nil {
		return nil // the box is gone
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what could be read counts
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' || name == "1" {
			continue
		}
		p := holder{pid: name, of: borrows(w.proc, name)} // before its memory, which is its own once it is another program
		if p.anon, p.shared = hold(w.proc, name); p.anon+p.shared > 0 {
			list = append(list, p)
		}
	}
	return list
}

// status says what a process holds, with all that it shares; nothing of one that
// was killed.
func status(proc *os.Root, pid string) (anon, shared int64) {
	text, err := proc.ReadFile(pid + "/status")
	if err != nil || dying(text) {
		return 0, 0
	}
	if bytes.Contains(text, []byte("\nState:\tZ")) && mount.Kilobytes(text, "Threads")>>10 > 1 {
		text = thread(proc, pid) // its first thread has ended and shows nothing
	}
	return mount.Kilobytes(text, "RssAnon") + mount.Kilobytes(text, "VmSwap"), mount.Kilobytes(text, "RssShmem")
}

// thread is the status of one thread of a process that still runs.
func thread(proc *os.Root, pid string) []byte {
	dir, err := proc.Open(pid + "/task")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what could be read counts
	for _, name := range names {
		if text, err := proc.ReadFile(pid + "/task/" + name + "/status"); err == nil && bytes.Contains(text, []byte("\nRssAnon:")) {
			return text
		}
	}
	return nil
}

// exactly says what a process holds, with its part of what it shares.
func exactly(proc *os.Root, pid string) (anon, shared int64) {
	if anon, shared = status(proc, pid); anon+shared == 0 {
		return 0, 0
	}
	text, err := proc.ReadFile(pid + "/smaps_rollup")
	if err != nil {
		return anon, shared
	}
	return mount.Kilobytes(text, "Pss_Anon") + mount.Kilobytes(text, "SwapPss"), mount.Kilobytes(text, "Pss_Shmem")
}

// youth is how long a process may take to become another program.
const youth = time.Second

// borrows returns the maker of a process that has just begun and is to become another
// program. By vfork, as posix_spawn and most runtimes use it, such a one has all of its
// maker's memory, which then shows for both.
func borrows(proc *os.Root, pid string) (maker string) {
	const forkNoExec = 0x40 // of the kernel's flags: it has not become another program yet
	text, err := proc.ReadFile(pid + "/stat")
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	var up unix.Timespec
	if err != nil || len(f) < 20 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return ""
	}
	flags, _ := strconv.ParseUint(string(f[6]), 10, 64)
	began, _ := strconv.ParseInt(string(f[19]), 10, 64) // the kernel writes numbers, here hundredths of a second
	if flags&forkNoExec == 0 || time.Duration(up.Nano())-time.Duration(began)*10*time.Millisecond > youth {
		return ""
	}
	return string(f[1])
}

// giveBack takes from who may have another's memory as much as that one has.
func giveBack(list []holder) {
	of := map[string]holder{}
	for _, p := range list {
		of[p.pid] = p
	}
	for i, p := range list {
		if maker, there := of[p.of]; there {
			list[i].anon, list[i].shared = max(0, p.anon-maker.anon), max(0, p.shared-maker.shared)
		}
	}
}

// dying says whether a process has been killed and only has to notice.
func dying(status []byte) bool {
	for _, name := range []string{"\nSigPnd:\t", "\nShdPnd:\t"} {
		if i := bytes.LastIndex(status, []byte(name)); i >= 0 {
			word, _, _ := bytes.Cut(status[i+len(name):], []byte("\n"))
			if set, err := strconv.ParseUint(string(word), 16, 64); err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// end ends a process, if it still is the one that was looked at.
func (w *watcher) end(p holder) {
	dir, err := w.proc.OpenRoot(p.pid)
	if err != nil {
		return // it has ended
	}
	defer dir.Close()
	if anon, shared := status(dir, "."); anon+shared < (p.anon+p.shared)/2 {
		return
	}
	f, err := dir.Open(".")
	if err != nil {
		return
	}
	defer f.Close()
	w.b.d.o.Log.Warn("ending the largest process of a box above its limit of memory", slog.Any("box", w.b.spec.ID), slog.Int64("bytes", p.anon+p.shared))
	_ = unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0) // it may just have ended
}

// files is what the box's files in memory take, in bytes, but for the workspace.
func (w *watcher) files() (sum int64) {
	for _, dir := range append(sized(), "/run") {
		sum += w.used(dir)
	}
	return sum
}

// used is what is in one of the box's file systems, in bytes.
func (w *watcher) used(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(w.root+dir, &st) != nil {
		return 0 // the box is gone
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}
