package trace

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/internal/redact"
	"cofferdam/proof"
)

// Bounds of one log. The last sealRoom bytes and events are kept for what must
// still be said then: the gap and the seal.
const (
	MaxBytes  = 4 << 30 // 64 MiB journals of a few dozen commands, in JSON
	MaxEvents = 1 << 22 // a host's log for about 200,000 tasks
	sealRoom  = 16
)

// indexEvery is the number of events between two remembered offsets.
const indexEvery = 256

// Head says what a log held at one moment.
type Head = proof.Head

// Log is one append-only log. It implements cofferdam.Recorder. Safe for
// concurrent use.
type Log struct {
	id    cofferdam.SessionID // empty: the host's log
	scope cofferdam.Scope     // of a session's log; every event gets it
	path  string
	red   *redact.Redactor
	store *Store

	sealing sync.Mutex // held by Seal, before all others
	syncing sync.Mutex // held while syncing, before mu: who waits here shares the next sync

	mu      sync.Mutex
	state                 // guarded by mu
	file    file          // guarded by mu; nil: closed
	changed chan struct{} // guarded by mu; closed and forgotten at the next change
	damaged bool          // guarded by mu; the file may be longer than state.size
	lost    bool          // guarded by mu; a sync failed: what lies behind synced may not be on disk
	synced  mark          // guarded by mu; what is certainly on disk
	gap     *gap          // guarded by mu; not yet on record
	sealed  *Head         // guarded by mu
	line    []byte        // guarded by mu; scratch
}

// mark is a place in a log and the tree up to it.
type mark struct {
	size int64
	tree proof.Tree
}

// gap is what could not be recorded.
type gap struct {
	since  time.Time
	events int // refused since then
	reason string
}

// Record puts e on record as cofferdam.Recorder says. It does not stop for ctx:
// what happened is recorded also when the request that made it was cut.
func (l *Log) Record(ctx context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	e, err := l.admit(e)
	if err != nil {
		return e, err
	}
	body, err := encode(e)
	if err != nil {
		return e, err
	}
	end, err := l.add(&e, body)
	if err != nil || !e.Durable {
		return e, err
	}
	return e, l.sync(end)
}

// admit checks that e belongs here, and makes it fit to be stored.
func (l *Log) admit(e cofferdam.Event) (cofferdam.Event, error) {
	if l.id != "" {
		if e.Scope == (cofferdam.Scope{}) {
			e.Scope = l.scope
		}
		if e.Session == "" {
			e.Session = l.id
		}
		if e.Session != l.id || e.Scope != l.scope {
			return e, &cofferdam.Error{
				Op: "trace.Record", Kind: cofferdam.Invalid, Subject: "record event " + e.Kind,
				Reason: fmt.Sprintf("it belongs to session %.40q, and this is the log of %s", e.Session, l.id),
			}
		}
	}
	if e.Kind == cofferdam.EventSessionSeal {
		return e, &cofferdam.Error{
			Op: "trace.Record", Kind: cofferdam.Invalid, Subject: "record event " + e.Kind,
			Reason: "only Seal makes the event that ends a log",
		}
	}
	return clean(e, l.red)
}

// add writes e, whose encoding is body, and returns where it ends.
func (l *Log) add(e *cofferdam.Event, body []byte) (end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, err
	}
	if l.size+int64(len(body)) > MaxBytes-sealRoom*MaxEvent || l.tree.Size() >= MaxEvents-sealRoom {
		return 0, &cofferdam.Error{
			Op: "trace.Record", Kind: cofferdam.Exhausted, Subject: "record event " + e.Kind,
			Reason: fmt.Sprintf("the log is full: %d events, %d bytes", l.tree.Size(), l.size),
			Hint:   "start a new session; for the host's log, move the state folder away and start anew",
		}
	}
	if err := l.write(e, body); err != nil {
		return 0, err
	}
	return l.size, nil
}

// writable says whether an event may be written now, after mending what an
// earlier failure left behind. l.mu is held.
func (l *Log) writable() error {
	switch {
	case l.ended():
		return &cofferdam.Error{
			Op: "trace.Record", Kind: cofferdam.Conflict, Subject: "record event",
			Reason: "the trace of " + l.title() + " is sealed",
		}
	case l.file == nil:
		return &cofferdam.Error{
			Op: "trace.Record", Kind: cofferdam.Unavailable, Subject: "record event",
			Reason: "the trace of " + l.title() + " is closed",
		}
	}
	return l.mend()
}

// write appends one event, after the gap if there was one, with one write, or
// leaves the log as it was. l.mu is held.
func (l *Log) write(e *cofferdam.Event, body []byte) error {
	gap, gapBody, err := l.gapEvent()
	if err != nil {
		return err
	}
	l.line = l.line[:0]
	next, split := l.tree.Size(), 0
	if gapBody != nil {
		l.line = appendLine(l.line, next, gapBody)
		next, split = next+1, len(l.line)
	}
	l.line = appendLine(l.line, next, body)
	if _, err := l.file.Write(l.line); err != nil {
		l.damaged = true
		l.missed(1, err)
		_ = l.mend() // at once if it can be; else before the next event
		return unavailable("record event "+e.Kind, err)
	}
	if gapBody != nil {
		l.count(gap, l.line[:split])
		l.gap = nil
	}
	e.Seq = next
	l.count(*e, l.line[split:])
	l.notify()
	if cap(l.line) > 1<<16 {
		l.line = nil
	}
	return nil
}

func appendLine(p []byte, seq uint64, body []byte) []byte {
	p = append(p, seqPrefix...)
	p = strconv.AppendUint(p, seq, 10)
	return append(p, body...)
}

// gapEvent returns the event that tells of l.gap and its encoding; nil if there
// is no gap. l.mu is held.
func (l *Log) gapEvent() (cofferdam.Event, []byte, error) {
	g := l.gap
	if g == nil {
		return cofferdam.Event{}, nil, nil
	}
	e, err := clean(cofferdam.Event{
		Scope: l.scope, Session: l.id, Task: l.task, Source: "trace", Kind: cofferdam.EventGap,
		Actor: cofferdam.Principal{Kind: cofferdam.Platform, Name: "trace"}, Reason: g.reason,
		Fields: map[string]string{"since": g.since.UTC().Format(time.RFC3339Nano), "events": strconv.Itoa(g.events)},
	}, l.red)
	if err != nil {
		return e, nil, err
	}
	body, err := encode(e)
	return e, body, err
}

// missed notes that events could not be recorded. l.mu is held.
func (l *Log) missed(events int, err error) {
	if l.gap == nil {
		l.gap = &gap{since: time.Now(), reason: unavailable("record event", err).Reason}
	}
	l.gap.events += events
}

// mend cuts half an event from the end and puts unsynced ones on disk again.
// l.mu is held.
func (l *Log) mend() error {
	if l.damaged {
		if err := l.file.Truncate(l.size); err != nil {
			return unavailable("mend trace of "+l.title(), err)
		}
		l.damaged = false
	}
	if l.lost {
		if err := l.rescue(); err != nil {
			return unavailable("mend trace of "+l.title(), err)
		}
		l.lost = false
	}
	return nil
}

// sync returns when everything before end is on disk.
func (l *Log) sync(end int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	f, lost, done := l.file, l.lost, l.synced.size >= end
	upTo := mark{l.size, l.tree.Clone()}
	l.mu.Unlock()
	switch {
	case done:
		return nil
	case lost: // a second sync would say yes: the kernel tells of an error once
		return unavailable("sync trace of "+l.title(), errLost)
	case f == nil:
		return unavailable("sync trace of "+l.title(), errClosed)
	}
	err := f.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lost = true
		l.missed(int(upTo.tree.Size()-l.synced.tree.Size()), err)
		return unavailable("sync trace of "+l.title(), err)
	}
	if upTo.size > l.synced.size {
		l.synced = upTo
	}
	return nil
}

// notify wakes who follows. l.mu is held.
func (l *Log) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// wait returns a channel that is closed at the next change. l.mu is held.
func (l *Log) wait() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// title names l for people.
func (l *Log) title() string {
	if l.id == "" {
		return "the host"
	}
	return "session " + string(l.id)
}

// Size returns the number of events.
func (l *Log) Size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tree.Size()
}

// Bytes returns the length of the log.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Sealed returns the sealed head, if l is sealed.
func (l *Log) Sealed() (Head, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sealed == nil {
		return Head{}, false
	}
	return *l.sealed, true
}

// Close syncs l and lets another process open it. A sealed log is closed
// already.
func (l *Log) Close() error {
	l.mu.Lock()
	end, open := l.size, l.file != nil
	l.mu.Unlock()
	if !open {
		return nil
	}
	err := l.sync(end)
	l.detach()
	return err
}

// detach closes the file; l is no longer the store's open log of its session.
func (l *Log) detach() {
	l.store.forget(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close() // synced by the caller; nothing is lost by an error here
		l.file = nil
	}
	l.notify()
}
