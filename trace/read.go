package trace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"cofferdam"
)

// MaxPage and maxPageBytes bound what Events returns at a time.
const (
	MaxPage      = 10_000
	maxPageBytes = 16 << 20
)

// Events returns the events of a session from number from on, at most limit of
// them (0: MaxPage); fewer than there are where they are large. None means that
// there are no more yet.
func (s *Store) Events(ctx context.Context, id cofferdam.SessionID, from uint64, limit int) ([]cofferdam.Event, error) {
	l, err := s.reader(id)
	if err != nil {
		return nil, err
	}
	return l.Events(ctx, from, limit)
}

// Events returns events of l as Store.Events does.
func (l *Log) Events(ctx context.Context, from uint64, limit int) ([]cofferdam.Event, error) {
	if limit <= 0 || limit > MaxPage {
		limit = MaxPage
	}
	var out []cofferdam.Event
	size := 0
	err := l.each(ctx, from, func(line []byte) error {
		e, err := parse(line)
		if err != nil {
			return unavailable("read trace of "+l.title(), err)
		}
		out = append(out, e)
		if size += len(line); len(out) >= limit || size > maxPageBytes {
			return io.EOF
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out, nil
}

// each calls fn with every line from event number from on, without its newline;
// the line is fn's only until it returns.
func (l *Log) each(ctx context.Context, from uint64, fn func(line []byte) error) error {
	f, err := os.Open(l.path)
	if err != nil {
		return unavailable("read trace of "+l.title(), err)
	}
	defer f.Close()
	l.mu.Lock()
	end, n, at := l.size, uint64(0), int64(0)
	if i := from / indexEvery; len(l.index) > 0 {
		i = min(i, uint64(len(l.index)-1))
		n, at = i*indexEvery, l.index[i]
	}
	l.mu.Unlock()
	in := bufio.NewReaderSize(io.NewSectionReader(f, at, end-at), 1<<16)
	var long []byte // an event longer than the buffer
	for at < end {
		if n%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, line...); len(long) > MaxEvent {
				return unavailable("read trace of "+l.title(), errors.New("an event is too long"))
			}
			continue
		}
		if err != nil {
			return unavailable("read trace of "+l.title(), err)
		}
		if len(long) > 0 {
			line = append(long, line...)
		}
		at += int64(len(line))
		if n >= from {
			if err := fn(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		n++
		long = long[:0]
	}
	return nil
}

// Follow calls fn with every event of a session from number from on, waits for
// more, and returns nil after the closing event (Seal may have a moment to go
// still), or the first error of fn or ctx. A slow fn holds up nobody.
func (s *Store) Follow(ctx context.Context, id cofferdam.SessionID, from uint64, fn func(cofferdam.Event) error) error {
	for {
		// Ask for the signal first: what is recorded in between is not missed.
		s.mu.Lock()
		if s.opened == nil {
			s.opened = make(chan struct{})
		}
		opened := s.opened
		s.mu.Unlock()
		l, err := s.reader(id)
		if err != nil {
			return err
		}
		l.mu.Lock()
		changed, ended := l.wait(), l.ended()
		if l.file == nil { // nobody writes to it: wait until somebody opens it
			changed = opened
		}
		l.mu.Unlock()
		n, err := l.follow(ctx, from, fn)
		if err != nil {
			return err
		}
		if n == from && ended {
			return nil
		}
		if n > from {
			from = n
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow calls fn with what there is from number from on and returns the number
// after it.
func (l *Log) follow(ctx context.Context, from uint64, fn func(cofferdam.Event) error) (uint64, error) {
	err := l.each(ctx, from, func(line []byte) error {
		e, err := parse(line)
		if err != nil {
			return unavailable("read trace of "+l.title(), err)
		}
		if err := fn(e); err != nil {
			return err
		}
		from = e.Seq + 1
		return nil
	})
	return from, err
}

// reader returns the open log of a session, or one read from its file.
func (s *Store) reader(id cofferdam.SessionID) (*Log, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	s.mu.Lock()
	l, ok := s.open[id]
	s.mu.Unlock()
	if ok {
		return l, nil
	}
	l = &Log{id: id, path: s.path(id), store: s}
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &cofferdam.Error{
			Op: "trace.Events", Kind: cofferdam.NotFound, Subject: "read trace of session " + string(id), Reason: "there is none",
		}
	}
	if err != nil {
		return nil, unavailable("read trace of "+l.title(), err)
	}
	defer f.Close()
	l.state, _, err = scan(f) // a torn end is cut by who opens it for writing
	return l, err
}
