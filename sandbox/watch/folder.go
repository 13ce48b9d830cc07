package watch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// How often a folder is looked at, and how much of a processor that may take.
// Source: docs/SPECIFICATION.md, "Boxes of an ordinary user's keeper".
const (
	folderTick  = 100 * time.Millisecond // between looks at what is free on its disk
	folderBusy  = 2 * time.Second        // between counts while commands run
	folderIdle  = 30 * time.Second       // between counts while none does
	folderShare = 4                      // a count is followed by at least so many times of what it took
	// Slack bytes more than was found after an end are no new growth: a box's
	// kernel still writes what it had in memory.
	Slack = 4 << 20
)

// Box is what a folder has to know of the box that writes to it.
type Box struct {
	Commands *Commands
	Kill     func(context.Context, cofferdam.ExecID) error // ends a command with all it started
	Life     *sandbox.Life
	// Open opens folders of /proc with links to what those have open who may have files
	// of the folder open, and closes them again. The names are of those links; nil: all.
	Open iter.Seq2[*os.File, []string]
	// Still stops all that may write to the folder; nil: nothing does that.
	Still func(context.Context) (Stillness, error)
	Full  func()           // a folder holds more than it may
	End   func(why string) // ends the box
	Fault func(error)      // it could not be counted this time
}

// Folder is one of the host's that a box writes to and that has no size of its own:
// what it holds is counted. Over its size all commands of the box are ended; if it
// grows again without one, the box is.
type Folder struct {
	box  Box
	dir  string
	most Usage
	held atomic.Int64 // bytes, when it was last counted
	over atomic.Bool

	stop context.CancelFunc // nil before Begin
	done chan struct{}

	// The loop's own.
	space   func(dir string) (Usage, error) // what is free on its disk
	mark    Usage                           // what it may hold: its size, or, once it was over, what was left then
	free    Usage                           // on its disk at the last count
	known   Usage                           // what it held when it was last counted for sure
	peak    Usage                           // the most that was free on its disk since then
	unsure  int                             // counts, one after the other, for which not all of the box stood still
	vain    bool                            // it was counted for what had gone from its disk, and others had written that
	warned  bool                            // mark is not its size
	counted time.Time
	took    time.Duration
}

// NewFolder returns what watches dir, which may hold most and holds held bytes
// already. In what is said to people its name is that of dir, below "/".
func NewFolder(dir string, most Usage, held int64, box Box) *Folder {
	f := &Folder{box: box, dir: dir, most: most, done: make(chan struct{}), space: space, mark: most, known: Usage{Bytes: held}}
	f.mark.Bytes = max(most.Bytes, held+Slack)
	f.held.Store(held)
	return f
}

// Held is how many bytes it held when it was last counted.
func (f *Folder) Held() int64 { return f.held.Load() }

// Over says whether it held more than it may.
func (f *Folder) Over() bool { return f.over.Load() }

// Folders are those of one box.
type Folders []*Folder

// Of returns what watches dir; nil if nothing does.
func (l Folders) Of(dir string) *Folder {
	for _, f := range l {
		if f.dir == dir {
			return f
		}
	}
	return nil
}

// Over says whether one of them holds more than it may.
func (l Folders) Over() bool {
	for _, f := range l {
		if f.Over() {
			return true
		}
	}
	return false
}

// Begin begins to watch all.
func (l Folders) Begin() {
	for _, f := range l {
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		f.peak, _ = f.space(f.dir) // before a command can take of it; a count says why if it cannot be seen
		go f.run(ctx)
	}
}

// End ends that, and returns when nothing looks into the folders any more.
func (l Folders) End() {
	for _, f := range l {
		if f.stop != nil {
			f.stop()
			<-f.done
		}
	}
}

func (f *Folder) run(ctx context.Context) {
	defer close(f.done)
	t := time.NewTicker(folderTick)
	defer t.Stop()
	for {
		if f.due() {
			if err := f.look(ctx); err != nil && ctx.Err() == nil {
				f.box.Fault(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// due says whether it is time to count: now and then, and at once when so much has
// gone from the disk that half of what is left of the size may be in use.
func (f *Folder) due() bool {
	switch f.box.Life.Now().State {
	case sandbox.Suspending, sandbox.Suspended:
		return false // it writes nothing, and its commands take no call
	}
	since := time.Since(f.counted)
	free, err := f.space(f.dir)
	if err != nil {
		return since >= folderShare*f.took // the count says why
	}
	gone, left := f.gone(free)
	// Who has many files must not be over by what is written in all that time; and who has
	// a neighbour that writes must not be counted, and stand still for it, all the time.
	if since < folderShare*f.took && (gone <= left || f.vain) {
		return false
	}
	pause := folderIdle
	if f.box.Commands.Count() > 0 {
		pause = folderBusy
	}
	return gone > left/2 || f.over.Load() || since >= pause || f.box.Still != nil && f.mayHold(free).Exceeds(f.mark)
}

// gone is how much has gone from the disk since the last count, in bytes, and how much
// of that may be in the folder.
func (f *Folder) gone(free Usage) (gone, left int64) {
	return f.free.Bytes - free.Bytes, max(f.most.Bytes-f.held.Load(), Slack)
}

// look counts, and acts on what it finds.
func (f *Folder) look(ctx context.Context) error {
	name := "/" + path.Base(f.dir)
	now, err := f.find(ctx)
	switch {
	case errors.Is(err, ErrUncounted):
		f.over.Store(true)
		f.box.End(fmt.Sprintf("what it wrote below %s: %v", name, err))
		return nil
	case err != nil:
		return err
	case !now.Exceeds(f.most):
		f.over.Store(false)
		f.mark, f.warned = f.most, false
		return nil
	}
	f.over.Store(true)
	f.box.Full()
	if !now.Exceeds(f.mark) {
		return nil
	}
	why := fmt.Sprintf("%s holds %d MiB in %d files, and its size is %d MiB for %d", name, now.Bytes>>20, now.Files, f.most.Bytes>>20, f.most.Files)
	if f.unsure > 0 {
		why = fmt.Sprintf("%s may hold %d MiB, by what has gone from its disk, and something in the box does not stand still to be counted; its size is %d MiB", name, now.Bytes>>20, f.most.Bytes>>20)
	}
	ended, err := f.box.Commands.end(ctx, f.box.Kill, why)
	switch {
	case cofferdam.KindOf(err) == cofferdam.Conflict && err != nil: // it is being stopped
		return nil
	case err == nil && !ended && !f.warned: // its command has ended by itself: only what grows on is somebody's whom nothing ends
	case (err != nil || !ended) && ctx.Err() == nil:
		f.box.End(why + ", and something in it writes on")
		return err
	case err != nil:
		return err
	}
	if now, err = f.count(ctx); err == nil {
		f.mark, f.warned = Usage{Bytes: now.Bytes + Slack, Files: max(now.Files, f.most.Files)}, true
	}
	return err
}

// count returns what the folder holds, with files that are open and have no name
// any more.
func (f *Folder) count(ctx context.Context) (Usage, error) {
	began, first := time.Now(), f.counted.IsZero()
	defer func() { f.counted, f.took = time.Now(), time.Since(began) }()
	free, err := f.space(f.dir)
	if err != nil {
		return Usage{}, err
	}
	f.free = free
	now, err := Measure(ctx, f.dir, f.most)
	if err == nil {
		now.Bytes += f.nameless(ctx)
		f.held.Store(now.Bytes)
	}
	if err == nil && first {
		f.known.Files = now.Files // its bytes were known before
	}
	return now, err
}

// nameless is how many bytes files of the folder's disk hold, and folders, that
// somebody in the box has open and that were removed.
func (f *Folder) nameless(ctx context.Context) (bytes int64) {
	var in unix.Stat_t
	if unix.Stat(f.dir, &in) != nil {
		return 0
	}
	seen := map[uint64]bool{}
	for open, names := range f.box.Open {
		if names == nil {
			names, _ = open.Readdirnames(-1) // what could be read counts: it may have ended
		}
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(int(open.Fd()), name, &st, 0) != nil || st.Nlink > 0 || st.Dev != in.Dev || seen[st.Ino] {
				continue
			}
			seen[st.Ino] = true
			bytes += st.Blocks * 512
		}
		if ctx.Err() != nil {
			break
		}
	}
	return bytes
}
