package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"
)

// firstToGo makes the kernel choose a box where the whole host lacks memory: from
// -1000 for never to 1000.
const firstToGo = 500

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

// watching is what looks at a box from outside. The zero value looks at nothing.
type watching struct {
	see      watch.Processes // its Proc is nil where nothing is looked at
	root     string          // the box's root folder
	commands watch.Commands
	folders  watch.Folders
	end      func() // of its memory; nil: a control group bounds it
}

// beginWatch begins to look at a box whose walls are up: at its memory, if it has no
// control group, and at a workspace that has no size of its own.
func (b *box) beginWatch() (err error) {
	w := &b.watching
	if !b.d.watched && len(w.folders) == 0 {
		return nil
	}
	w.root = fmt.Sprintf("/proc/%d/root", b.init.cmd.Process.Pid)
	if w.see.Proc, err = os.OpenRoot(w.root + "/proc"); err != nil {
		return fmt.Errorf("watch box: %w", err)
	}
	w.see.Init = b.init.cmd.Process.Pid
	w.see.Files = func() (sum int64) { // their sizes leave room for processes, but for the workspace's
		for _, dir := range append(sized(), "/run") {
			sum += w.used(dir)
		}
		return sum
	}
	w.see.Apart = func() int64 {
		if b.size() != sandbox.WorkspaceMemory {
			return 0
		}
		return w.used(sandbox.WorkDir)
	}
	w.see.Over = func() { b.meter.Met(sandbox.ExhaustedMemory) }
	w.see.Ending = func(bytes int64) {
		b.d.o.Log.Warn("ending the largest process of a box above its limit of memory", slog.Any("box", b.spec.ID), slog.Int64("bytes", bytes))
	}
	if b.d.watched {
		w.end = watch.Memory(b.spec.Limits.Memory, func() int64 {
			select {
			case <-b.ended:
				return 0 // its number may be another's
			default:
				return w.see.Look(b.spec.Limits.Memory)
			}
		})
	}
	w.folders.Begin()
	return nil
}

// stop ends the looking.
func (w *watching) stop() {
	w.folders.End()
	if w.end != nil {
		w.end()
	}
	if w.see.Proc != nil {
		_ = w.see.Proc.Close() // twice does no harm
	}
}

// used is what is in one of the box's file systems, in bytes.
func (w *watching) used(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(w.root+dir, &st) != nil {
		return 0 // the box is gone
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// guard has the kept workspace watched, which is a folder of the host's.
func (b *box) guard() {
	b.watching.folders = watch.Folders{b.kept.Watched(b.path("work"), watch.Box{
		Commands: &b.watching.commands, Life: b.Life, Open: b.watching.see.Descriptors, Still: b.watching.see.Still,
		Kill: func(ctx context.Context, id cofferdam.ExecID) error { return b.Host.Kill(ctx, id) },
		Full: func() { b.meter.Met(sandbox.ExhaustedDisk) },
		End: func(why string) {
			b.condemned.CompareAndSwap(nil, &why)
			_ = b.init.cmd.Process.Kill() // it may just have ended
		},
		Fault: func(err error) {
			b.d.o.Log.Warn("counting what a box has written", slog.Any("box", b.spec.ID), slog.Any("err", err))
		},
	})}
}

// yield has the kernel choose this box, before others, when the host lacks memory.
// That it may not is no harm to anybody's wall.
func (b *box) yield() {
	if b.d.watched {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", b.init.cmd.Process.Pid), []byte(strconv.Itoa(firstToGo)), 0)
	}
}
