package watch

import (
	"bytes"
	"cmp"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Processes are those of a box that the host's kernel runs. It is seen what they
// hold, by themselves and together, and what files in memory hold. Not seen is what
// the kernel holds for them: files in memory without a name, and what is in pipes and
// sockets.
type Processes struct {
	Proc *os.Root // the box's own /proc
	Init int      // its pid 1, by the number that it has for this process; 0: what processes share counts for each
	// Files says what the box's files in memory take, in bytes, but for those that
	// have a limit of their own, which Apart says: what is mapped of them shows too.
	Files, Apart func() int64
	// Over is called before processes are ended, and Ending before each, with what it
	// holds in bytes.
	Over   func()
	Ending func(bytes int64)
}

// Look looks once, ends what is more than limit, and returns about how much the
// box holds, in bytes.
func (p *Processes) Look(limit int64) int64 {
	files := p.Files()
	list, held := p.list(status), files
	for _, h := range list {
		held += h.anon + h.shared
	}
	if held <= limit {
		return held
	}
	// What processes share was counted for each of them. To know better takes longer.
	list = p.list(exactly)
	apart := p.Apart()
	if held = total(list, files, apart); held > limit {
		list = p.once(list)
		held = total(list, files, apart)
	}
	if held <= limit {
		return held
	}
	p.Over()
	slices.SortFunc(list, func(a, b holder) int { return cmp.Compare(b.anon+b.shared, a.anon+a.shared) })
	for i, h := range list {
		if total(list[i:], files, apart) <= limit {
			break
		}
		p.end(h)
	}
	return held
}

// holder is what one process of a box holds, in bytes.
type holder struct {
	pid          string // in the box
	anon, shared int64
}

// total is what processes and files hold together. Files that are mapped are among
// what is shared.
func total(list []holder, files, apart int64) int64 {
	var anon, shared int64
	for _, h := range list {
		anon, shared = anon+h.anon, shared+h.shared
	}
	return anon + max(files, shared-apart)
}

// names lists a folder of the box's /proc; what could be read counts.
func (p *Processes) names(dir string) []string {
	f, err := p.Proc.Open(dir)
	if err != nil {
		return nil // it is gone
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// pids lists processes of the box, but for pid 1.
func (p *Processes) pids() []string {
	return slices.DeleteFunc(p.names("."), func(name string) bool { return name[0] < '0' || name[0] > '9' || name == "1" })
}

// list returns the processes that hold memory and live on.
func (p *Processes) list(hold func(*os.Root, string) (anon, shared int64)) (list []holder) {
	for _, pid := range p.pids() {
		h := holder{pid: pid}
		if h.anon, h.shared = hold(p.Proc, pid); h.anon+h.shared > 0 {
			list = append(list, h)
		}
	}
	return list
}

// places are links, beside those of descriptors, to what a thread holds open.
var places = []string{"cwd", "root", "exe"}

// Descriptors opens, one after the other, the folders of links to what threads of the
// box have open, with the names of those links, nil for all; the caller closes none.
// Threads of one process may differ in it.
func (p *Processes) Descriptors(yield func(*os.File, []string) bool) {
	for _, pid := range append(p.pids(), "1") {
		for _, thread := range p.names(pid + "/task") {
			for name, links := range map[string][]string{"": places, "/fd": nil} {
				f, err := p.Proc.Open(pid + "/task/" + thread + name)
				if err != nil {
					continue // it has ended
				}
				more := yield(f, links)
				f.Close()
				if !more {
					return
				}
			}
		}
	}
}

// status says what a process holds, with all that it shares; nothing of one that
// was killed. What finds its memory for it counts: by reading where nothing is, a
// process makes that large and has no memory.
func status(proc *os.Root, pid string) (anon, shared int64) {
	text := living(proc, pid)
	return Kilobytes(text, "RssAnon") + Kilobytes(text, "VmSwap") + Kilobytes(text, tables), Kilobytes(text, "RssShmem")
}

// tables is the line that says what finds a process' memory.
const tables = "VmPTE"

// living is the status of a process; nil if it is gone or was killed, unless somebody
// traces it and does not let it end.
func living(proc *os.Root, pid string) []byte {
	text, err := proc.ReadFile(pid + "/status")
	if err != nil || dying(text) && tracer(proc, pid) == "" {
		return nil
	}
	if state := Field(text, "State"); bytes.HasPrefix(state, []byte("Z")) && !Dead(text) {
		text = thread(proc, pid) // its first thread has ended and shows nothing
	}
	return text
}

// thread is the status of one thread of a process that still runs.
func thread(proc *os.Root, pid string) []byte {
	for _, name := range (&Processes{Proc: proc}).names(pid + "/task") {
		if text, err := proc.ReadFile(pid + "/task/" + name + "/status"); err == nil && Field(text, "RssAnon") != nil {
			return text
		}
	}
	return nil
}

// exactly says what a process holds, with its part of what it shares.
func exactly(proc *os.Root, pid string) (anon, shared int64) {
	status := living(proc, pid) // before what takes longer
	if status == nil {
		return 0, 0
	}
	own := Kilobytes(status, tables)
	text, err := proc.ReadFile(pid + "/smaps_rollup")
	if err != nil {
		return own + Kilobytes(status, "RssAnon") + Kilobytes(status, "VmSwap"), Kilobytes(status, "RssShmem")
	}
	return own + Kilobytes(text, "Pss_Anon") + Kilobytes(text, "SwapPss"), Kilobytes(text, "Pss_Shmem")
}

// tracer is the number of the thread that has a thread of a process stopped; "" if none
// has.
func tracer(proc *os.Root, pid string) string {
	for _, name := range (&Processes{Proc: proc}).names(pid + "/task") {
		text, err := proc.ReadFile(pid + "/task/" + name + "/status")
		if err == nil && bytes.HasPrefix(Field(text, "State"), []byte("t")) {
			return string(Field(text, "TracerPid"))
		}
	}
	return ""
}

// end ends a process, if it still is the one that was looked at.
func (p *Processes) end(h holder) {
	dir, err := p.Proc.OpenRoot(h.pid)
	if err != nil {
		return // it has ended
	}
	defer dir.Close()
	if anon, shared := status(dir, "."); anon+shared < (h.anon+h.shared)/2 {
		return
	}
	p.Ending(h.anon + h.shared)
	p.kill(dir, ".", maxTracers)
}

// maxTracers is how many may trace each other, each but the last killed already.
const maxTracers = 16

// kill ends a process of a /proc, and, if it was on its way already and does not get
// there, who traces it and keeps it from that.
func (p *Processes) kill(proc *os.Root, pid string, tracers int) {
	before, _ := proc.ReadFile(pid + "/status") // it may just have ended
	signal(proc, pid, unix.SIGKILL)
	after, _ := proc.ReadFile(pid + "/status")
	by := tracer(proc, pid)
	if by == "" || tracers == 0 || dying(after) && !dying(before) {
		return
	}
	p.kill(p.Proc, by, tracers-1)
}

// signal sends a signal to a process of a /proc, which may just have ended.
func signal(proc *os.Root, pid string, what unix.Signal) {
	f, err := proc.Open(pid)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.PidfdSendSignal(int(f.Fd()), what, nil, 0)
}
