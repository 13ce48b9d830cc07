package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"cofferdam"
	"cofferdam/proof"
)

var (
	errLost   = errors.New("an earlier sync failed")
	errClosed = errors.New("the log is closed")
)

// state is what is known of the events of a log.
type state struct {
	size  int64 // bytes
	tree  proof.Tree
	index []int64          // offset of every indexEvery-th event
	tally proof.Tally      // events by kind and verdict
	first cofferdam.Scope  // of the first event
	task  cofferdam.TaskID // first one named
	last  cofferdam.Event  // kind and time only
}

// count takes note of an event at the end; line is as stored.
func (s *state) count(e cofferdam.Event, line []byte) {
	n := s.tree.Size()
	if n%indexEvery == 0 {
		s.index = append(s.index, s.size)
	}
	if n == 0 {
		s.first = e.Scope
	}
	if s.task == "" {
		s.task = e.Task
	}
	s.tally.Add(e.Kind, e.Verdict)
	s.last = cofferdam.Event{Seq: n, Kind: e.Kind, Time: e.Time}
	s.tree.Append(bytes.TrimSuffix(line, []byte("\n")))
	s.size += int64(len(line))
}

// ended says whether nothing may follow.
func (s *state) ended() bool { return s.tree.Size() > 0 && s.last.Kind == cofferdam.EventSessionSeal }

// scan reads a whole log. torn is the number of bytes at the end that are no
// whole event; a whole event in the wrong place is an error of kind Tampered.
func scan(r io.Reader) (s state, torn int64, err error) {
	in := bufio.NewReaderSize(r, MaxEvent+1)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return s, torn, nil
		}
		long := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && err != io.EOF && !long {
			return s, torn, unavailable("read trace", err)
		}
		e, perr := parse(bytes.TrimSuffix(line, []byte("\n")))
		whole := err == nil && perr == nil
		switch {
		case whole && (torn > 0 || e.Seq != s.tree.Size() || s.ended()):
			return s, torn, &cofferdam.Error{
				Op: "trace.Open", Kind: cofferdam.Tampered, Subject: "read trace",
				Reason: fmt.Sprintf("event %d is missing or changed, and event %d follows", s.tree.Size(), e.Seq),
			}
		case whole:
			s.count(e, line)
		default:
			torn += int64(len(line))
		}
	}
}

// load reads the log in f and cuts what is torn. l.mu need not be held yet.
func (l *Log) load(f *os.File, fresh bool) error {
	var s state
	var torn int64
	if !fresh { // reading nothing would still cost a buffer of MaxEvent
		var err error
		if s, torn, err = scan(io.NewSectionReader(f, 0, MaxBytes)); err != nil {
			return err
		}
	}
	l.state = s
	l.file = dataFile{f}
	if l.store.brief {
		l.file = quickFile{f}
	}
	if torn > 0 {
		l.damaged = true
		l.gap = &gap{
			since: s.last.Time, events: 1,
			reason: fmt.Sprintf("a torn record of %d bytes was cut: this host or its disk stopped while it was written", torn),
		}
		return l.mend()
	}
	return nil
}

// rescue writes again what a failed sync may have dropped from disk while it is
// still in memory, after checking that it is what was recorded. l.mu is held.
func (l *Log) rescue() error {
	f, err := os.OpenFile(l.path, os.O_RDWR, 0) // not O_APPEND: in place
	if err != nil {
		return err
	}
	defer f.Close()
	tree := l.synced.tree.Clone()
	const step = 1 << 20
	var rest []byte
	for at := l.synced.size; at < l.size; {
		buf := make([]byte, min(step, l.size-at))
		if _, err := f.ReadAt(buf, at); err != nil {
			return err
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
		at += int64(len(buf))
		rest = append(rest, buf...)
		for {
			line, after, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				break
			}
			tree.Append(line)
			rest = after
		}
	}
	if tree.Root() != l.tree.Root() {
		return errors.New("events that were not yet synced are gone from the disk")
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l.synced = mark{l.size, tree}
	return nil
}
