package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/local/network"
	"cofferdam/trace"
)

// Bounds of a run's record, which lies in memory while the run goes on where there
// is such a place: as many events as a session may have acts, of some 600 bytes. A
// full one ends the network, which is all that a command can fill it by; how it
// ended is on record all the same.
const (
	maxEvents = 200_000
	maxRecord = 128 << 20 // bytes
)

// bounded is the record as what a command does gets it.
type bounded struct {
	log    *trace.Log
	events uint64
	bytes  int64
}

// Record implements cofferdam.Recorder.
func (b bounded) Record(ctx context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	if n, size := b.log.Size(), b.log.Bytes(); n >= b.events || size >= b.bytes {
		return e, &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.Exhausted, Subject: "network of this run",
			Reason: fmt.Sprintf("its record is full: %d events, %d bytes", n, size),
			Hint:   "divide the work into several runs", Err: network.ErrFull,
		}
	}
	return b.log.Record(ctx, e)
}

// Lost is why a run had no network to its end.
type Lost struct {
	After        time.Duration // since its start
	Reason, Hint string
}

// lost puts on record that the network of the run has ended before its command.
// That goes on, without: what it does of itself is its own.
func (r *run) lost(why error) {
	reason := plain(why)
	if e := (*cofferdam.Error)(nil); errors.As(why, &e) && e.Reason != "" {
		reason = e.Reason
	}
	r.noNetwork = &Lost{After: time.Since(r.record.since), Reason: reason, Hint: cofferdam.HintOf(why)}
	// A record that cannot be written says so at the end of the run.
	_ = r.record.put(cofferdam.Event{Kind: cofferdam.EventSessionState, Resource: "network", Outcome: "lost", Reason: reason})
}

// elsewhere is what to do about a place without space that nobody named for this run.
const elsewhere = "free some there, or name another place with XDG_STATE_HOME or XDG_RUNTIME_DIR"

// placed says where the record is that could not be written for want of space, and
// how much there is. Other errors stay as they are.
func placed(dir, hint string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return &cofferdam.Error{
		Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "record of this run", Reason: "the disk that has " + dir + " is full: " + room(dir),
		Hint: hint, Err: err,
	}
}

// room is what is left of the disk that has dir, or would have it.
func room(dir string) string {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return "how much is left cannot be seen: " + plain(err)
	}
	const mib = 1 << 20
	block := uint64(st.Bsize) // is no negative size
	if st.Files != 0 && st.Ffree == 0 {
		return "no more files can be made there"
	}
	return fmt.Sprintf("%.1f of %.1f MiB are free to you", float64(st.Bavail*block)/mib, float64(st.Blocks*block)/mib)
}
