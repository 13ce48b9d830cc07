package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Whoever may write to a folder can see where a count is and move what it holds away
// from there. So a count is believed as long as it does not matter: what was in the
// folder for sure, and all that has gone from its disk since, is within its size.
// Otherwise, and before anything is ended, it is counted while nothing of the box runs.

// Bounds of that. Source: docs/SPECIFICATION.md, "Boxes of an ordinary user's keeper".
const (
	stillPatience = 2 * time.Second // in which all of a box has to stand still
	stillTries    = 3               // of one count, and counts in a row after which it is taken for too much
)

// Stillness is a box that stands still.
type Stillness interface {
	// Kept says whether nothing of it has run since it stood still.
	Kept() bool
	// GoOn lets it go on.
	GoOn()
}

// errUnsure is of a count for which not all of the box stood still.
var errUnsure = errors.New("not all of the box stood still")

// space is what is free on the disk of dir.
func space(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, &os.PathError{Op: "looking at", Path: dir, Err: err}
	}
	return Usage{Bytes: int64(st.Bavail) * st.Bsize, Files: int64(st.Ffree)}, nil
}

// mayHold is the most that the folder can hold, by what is free on its disk now.
// Others write to that too; what they remove meanwhile shows in the peak.
func (f *Folder) mayHold(free Usage) Usage {
	f.peak = Usage{max(f.peak.Bytes, free.Bytes), max(f.peak.Files, free.Files)}
	return Usage{f.known.Bytes + f.peak.Bytes - free.Bytes, f.known.Files + f.peak.Files - free.Files}
}

// find counts what the folder holds: for sure, where that matters.
func (f *Folder) find(ctx context.Context) (now Usage, err error) {
	free, err := f.space(f.dir)
	if err != nil {
		return Usage{}, err
	}
	was := f.held.Load()
	gone, left := f.gone(free)
	defer func() { f.vain = err == nil && gone > left/2 && now.Bytes-was <= left/2 }()
	most := f.mayHold(free)
	if f.box.Still == nil || !most.Exceeds(f.mark) {
		now, err := f.count(ctx)
		if f.box.Still == nil || err == nil && !now.Exceeds(f.mark) || err != nil && !errors.Is(err, ErrUncounted) {
			f.unsure = 0
			return now, err
		}
	}
	now, err = f.sure(ctx)
	switch {
	case !errors.Is(err, errUnsure):
		f.unsure = 0
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		if f.unsure++; f.unsure >= stillTries && most.Exceeds(f.mark) {
			return most, nil
		}
	}
	return now, err
}

// sure counts while nothing of the box runs. The time that it stands still counts as
// that of the count, which is a bounded part of all.
func (f *Folder) sure(ctx context.Context) (Usage, error) {
	f.box.Commands.turn.Lock()
	defer f.box.Commands.turn.Unlock()
	began := time.Now()
	defer func() { f.took = time.Since(began) }()
	for range stillTries {
		still, err := f.box.Still(ctx)
		if err != nil {
			f.counted = time.Now()
			return Usage{}, fmt.Errorf("%w: %w", errUnsure, err)
		}
		now, err := f.count(ctx)
		kept := still.Kept()
		still.GoOn()
		if err != nil && kept {
			return now, err
		}
		if kept {
			f.known, f.peak = now, f.free
			return now, nil
		}
	}
	return Usage{}, errUnsure
}
