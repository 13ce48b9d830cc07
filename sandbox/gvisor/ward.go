package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/volume"

	"golang.org/x/sys/unix"
)

// How often a watched folder is looked at, and how much of a processor that may
// take. Source: docs/SPECIFICATION.md, "Boxes of an ordinary user's keeper".
const (
	wardTick  = 100 * time.Millisecond // between looks at what is free on its disk
	wardBusy  = 2 * time.Second        // between counts while commands run
	wardIdle  = 30 * time.Second       // between counts while none does
	wardShare = 4                      // a count is followed by at least so many times of what it took
	// wardSlack bytes more than was found after an end are no new growth: the box's
	// kernel still writes what it had in memory.
	wardSlack = 4 << 20
	wardEnd   = 30 * time.Second // that commands may take to end
)

// ward is a folder of the host's that a box writes to and that has no size of its
// own: what it holds is counted. Over its size all commands of the box are ended;
// if it grows again without one, the box is.
type ward struct {
	b    *box
	dir  string
	most volume.Usage
	held atomic.Int64 // bytes, when it was last counted
	over atomic.Bool

	stop context.CancelFunc
	done chan struct{}

	// The loop's own.
	mark    volume.Usage // what it may hold: its size, or, once it was over, what was left then
	free    int64        // on its disk at the last count, in bytes
	warned  bool         // mark is not its size
	counted time.Time
	took    time.Duration
}

// guard has a folder of the box watched, which may hold size bytes and holds held.
func guard(b *box, name string, size, held int64) {
	w := &ward{b: b, dir: b.path(name), most: volume.Allowed(size), done: make(chan struct{})}
	w.mark = w.most
	w.mark.Bytes = max(w.mark.Bytes, held+wardSlack)
	w.held.Store(held)
	b.wards = append(b.wards, w)
}

// wards are those of a box.
type wards []*ward

// of returns what watches a folder; nil if nothing does.
func (l wards) of(dir string) *ward {
	for _, w := range l {
		if w.dir == dir {
			return w
		}
	}
	return nil
}

// work returns what watches the workspace; nil if nothing does.
func work(b *box) *ward { return b.wards.of(b.path("work")) }

// begin begins the watch of what guard named.
func (l wards) begin() {
	for _, w := range l {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		go w.run(ctx)
	}
}

// end ends it, and returns when nothing looks into the folders any more.
func (l wards) end() {
	for _, w := range l {
		if w.stop != nil {
			w.stop()
			<-w.done
		}
	}
}

func (w *ward) run(ctx context.Context) {
	defer close(w.done)
	t := time.NewTicker(wardTick)
	defer t.Stop()
	for {
		if w.due() {
			if err := w.look(ctx); err != nil && ctx.Err() == nil {
				w.b.d.o.Log.WarnContext(ctx, "counting what a box has written", slog.Any("box", w.b.name), slog.Any("err", err))
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
func (w *ward) due() bool {
	switch w.b.Life.Now().State {
	case sandbox.Suspending, sandbox.Suspended:
		return false // it writes nothing, and its commands take no call
	}
	since := time.Since(w.counted)
	var st unix.Statfs_t
	if unix.Statfs(w.dir, &st) != nil {
		return since >= wardShare*w.took // the count says why
	}
	left := max(w.most.Bytes-w.held.Load(), wardSlack)
	gone := w.free - int64(st.Bavail)*st.Bsize
	if since < wardShare*w.took && gone <= left { // who has many files must not be over by what is written in all that time
		return false
	}
	pause := wardIdle
	if w.b.commands.count() > 0 {
		pause = wardBusy
	}
	return gone > left/2 || w.over.Load() || since >= pause
}

// look counts, and acts on what it finds.
func (w *ward) look(ctx context.Context) error {
	now, err := w.count(ctx)
	switch {
	case errors.Is(err, volume.ErrUncounted):
		w.over.Store(true)
		condemn(w.b, fmt.Sprintf("what it wrote below /%s: %v", filepath.Base(w.dir), err))
		return nil
	case err != nil:
		return err
	case !now.Exceeds(w.most):
		w.over.Store(false)
		w.mark, w.warned = w.most, false
		return nil
	}
	w.over.Store(true)
	w.b.meter.Met(sandbox.ExhaustedDisk)
	if !now.Exceeds(w.mark) {
		return nil
	}
	why := fmt.Sprintf("/%s holds %d MiB in %d files, and its size is %d MiB for %d", filepath.Base(w.dir), now.Bytes>>20, now.Files, w.most.Bytes>>20, w.most.Files)
	ended, err := w.b.commands.end(ctx, w.b.Host, why)
	switch {
	case cofferdam.KindOf(err) == cofferdam.Conflict && err != nil: // it is being stopped
		return nil
	case err == nil && !ended && !w.warned: // its command has ended by itself: only what grows on is somebody's whom nothing ends
	case (err != nil || !ended) && ctx.Err() == nil:
		condemn(w.b, why+", and something in it writes on")
		return err
	case err != nil:
		return err
	}
	if now, err = w.count(ctx); err == nil {
		w.mark, w.warned = volume.Usage{Bytes: now.Bytes + wardSlack, Files: max(now.Files, w.most.Files)}, true
	}
	return err
}

// count returns what the folder holds, with files that are open and have no name
// any more.
func (w *ward) count(ctx context.Context) (volume.Usage, error) {
	began := time.Now()
	defer func() { w.counted, w.took = time.Now(), time.Since(began) }()
	var st unix.Statfs_t
	if err := unix.Statfs(w.dir, &st); err != nil {
		return volume.Usage{}, &os.PathError{Op: "looking at", Path: w.dir, Err: err}
	}
	w.free = int64(st.Bavail) * st.Bsize
	now, err := volume.Measure(ctx, w.dir, w.most.Bytes)
	if err == nil {
		now.Bytes += w.nameless()
		w.held.Store(now.Bytes)
	}
	return now, err
}

// nameless is how many bytes files of the folder's disk hold that the box's kernel
// has open and that were removed.
func (w *ward) nameless() (bytes int64) {
	var in unix.Stat_t
	if unix.Stat(w.dir, &in) != nil {
		return 0
	}
	open := filepath.Join("/proc", strconv.FormatInt(w.b.pid.Load(), 10), "fd")
	list, err := os.ReadDir(open)
	if err != nil {
		return 0 // the box has just ended
	}
	seen := map[uint64]bool{}
	for _, e := range list {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(open, e.Name()), &st) != nil || st.Nlink > 0 || st.Dev != in.Dev || st.Mode&unix.S_IFMT != unix.S_IFREG || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		bytes += st.Blocks * 512
	}
	return bytes
}

// condemn ends the box for what it wrote.
func condemn(b *box, why string) {
	b.condemned.CompareAndSwap(nil, &why)
	_ = sandbox.Signal(int(b.pid.Load()), unix.SIGKILL) // it may just have ended
}

// commands are those of a box that run.
type commands struct {
	mu  sync.Mutex
	ids map[cofferdam.ExecID]string // why each was ended; "" if it was not; guarded by mu
}

func (c *commands) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// begin is called when a command starts; what it returns completes the result,
// after met has.
func (c *commands) begin(id cofferdam.ExecID, met func(*sandbox.Result)) func(*sandbox.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[cofferdam.ExecID]string{}
	}
	c.ids[id] = ""
	return func(r *sandbox.Result) {
		met(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if why := c.ids[id]; why != "" && !r.TimedOut {
			r.Reason = "ended with everything it started: " + why
		}
		delete(c.ids, id)
	}
}

// end ends all that run; false if none does.
func (c *commands) end(ctx context.Context, h *guest.Host, why string) (ended bool, err error) {
	c.mu.Lock()
	var ids []cofferdam.ExecID
	for id := range c.ids {
		c.ids[id] = why
		ids = append(ids, id)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wardEnd)
	defer cancel()
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { errs[i] = h.Kill(ctx, id) })
	}
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range ids { // one that was not ended must not say that it was
		if c.ids[id] == why && errs[i] != nil {
			c.ids[id] = ""
		}
	}
	return len(ids) > 0, errors.Join(errs...)
}
