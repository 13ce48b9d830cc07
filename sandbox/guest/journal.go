package guest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

const (
	// endSlack is what a stream may still send after its process ended, whatever
	// the journal's cap: Linux lets a process grow a pipe to 1 MiB, pid 1 holds
	// one chunk more. So a command that ended always gets its result.
	endSlack = 1<<20 + 2*ChunkSize
	// retryJournal is how often a journal that could not be written is tried
	// again; its writer in the box waits meanwhile.
	retryJournal = 100 * time.Millisecond
	// page is the unit in which file space is given back.
	page = 4096
)

// stream is the journal of one output. Offsets count the stream's bytes:
// base ≤ acked and readers' places ≤ written ≤ received ≤ granted. The file
// holds [base, written) at these very offsets, pending the bytes after it that
// could not be written yet.
type stream struct {
	h     *Host
	c     *command
	which sandbox.Stream

	fileMu   sync.Mutex // taken before Host.mu; guards these
	file     *os.File   // nil until the first byte, and again after close
	pending  []byte
	retrying bool // a timer will flush

	// Guarded by Host.mu.
	base, acked, written, received, granted, slack int64
	ended                                          bool
	readers                                        map[*reader]bool
}

func newStream(h *Host, c *command, which sandbox.Stream) *stream {
	return &stream{h: h, c: c, which: which, readers: map[*reader]bool{}}
}

// lastCall lets through what a pipe still holds. Host.mu is held.
func (s *stream) lastCall() { s.slack = s.received + endSlack }

// receive keeps output that pid 1 sent.
func (s *stream) receive(p []byte) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	s.h.mu.Lock()
	if s.ended || s.h.lost != "" || s.received+int64(len(p)) > s.granted {
		s.h.mu.Unlock()
		return fmt.Errorf("%w: more output than it may send", ErrProtocol)
	}
	s.received += int64(len(p))
	s.h.mu.Unlock()
	s.pending = append(s.pending, p...)
	s.flush()
	return nil
}

// flush moves pending into the file as far as that goes. fileMu is held.
func (s *stream) flush() {
	err := s.flushOnce()
	if err != nil { // full, perhaps: make room and try again
		s.h.mu.Lock()
		s.h.reclaim()
		s.h.mu.Unlock()
		err = s.flushOnce()
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.written-s.base > s.h.o.StreamCap {
		s.punch(min(s.floor(), s.written-s.h.o.StreamCap/2))
	}
	if s.h.retained > s.h.o.BoxCap {
		s.h.reclaim()
	}
	s.grant()
	s.c.change()
	if err == nil || s.retrying || s.h.lost != "" {
		return
	}
	s.retrying = true
	time.AfterFunc(retryJournal, func() {
		s.fileMu.Lock()
		defer s.fileMu.Unlock()
		s.retrying = false
		s.flush()
	})
}

// flushOnce is one try of flush.
func (s *stream) flushOnce() error {
	n, err := s.store(s.pending)
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.written += int64(n)
	s.h.retained += int64(n)
	return err
}

// store appends p to the file, which is made with its first byte.
func (s *stream) store(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.file == nil {
		f, err := os.OpenFile(s.h.journalPath(s.c.number, s.which), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return 0, err
		}
		s.file = f
	}
	return s.file.WriteAt(p, s.written) // written changes under fileMu only
}

// floor is the offset before which nobody needs anything. Host.mu is held.
func (s *stream) floor() int64 {
	floor := s.acked
	for r := range s.readers {
		floor = min(floor, r.at[s.which])
	}
	return floor
}

// punch gives back the file's space before offset to. Host.mu is held.
func (s *stream) punch(to int64) {
	to = min(to, s.written) // what is pending has no space yet
	to -= to % page
	if to <= s.base {
		return
	}
	path := s.h.journalPath(s.c.number, s.which)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return // nothing was freed, so nothing is promised
	}
	defer f.Close()
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(f.Fd()), mode, s.base, to-s.base); err != nil {
		return
	}
	s.h.retained -= to - s.base
	s.base = to
}

// close lets go of the file of an ended command; a later read opens its own.
func (s *stream) close() {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// reclaim gives back all that nobody needs, and lets go on who waited for
// that. Host.mu is held.
func (h *Host) reclaim() {
	for _, c := range h.list {
		if c == nil {
			continue
		}
		for _, s := range c.streams[1:] {
			s.punch(s.floor())
		}
	}
	for _, c := range h.list {
		if c == nil || c.ended {
			continue
		}
		c.streams[sandbox.Stdout].grant()
		c.streams[sandbox.Stderr].grant()
	}
}

// grant lets pid 1 send more of s if there is room. Host.mu is held.
func (s *stream) grant() {
	h := s.h
	to := min(s.written+Window, s.acked+h.o.StreamCap)
	if h.retained >= h.o.BoxCap {
		to = min(to, s.acked+Window)
	}
	to = max(to, s.slack)
	// Small steps are saved up, unless pid 1 may be waiting for them.
	if to <= s.granted || (to-s.granted < ChunkSize && s.granted-s.received >= ChunkSize) {
		return
	}
	s.granted = to
	h.limits[s] = to
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// reader is one attachment.
type reader struct {
	h     *Host
	c     *command
	at    [3]int64    // by sandbox.Stream: the next byte it wants
	files [3]*os.File // opened when first needed
	last  sandbox.Stream
}

func (r *reader) close() {
	for _, s := range r.c.streams[1:] {
		s.fileMu.Lock()
		if f := r.files[s.which]; f != nil {
			f.Close()
		}
		s.fileMu.Unlock()
	}
}

// attach registers r, unless what it wants is gone or not yet there.
func (r *reader) attach() error {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range r.c.streams[1:] {
		reason := ""
		switch at := r.at[s.which]; {
		case at < 0 || at > s.received:
			reason = fmt.Sprintf("offset %d of %s is not within its %d bytes", at, streamName(s.which), s.received)
		case at < s.base:
			reason = fmt.Sprintf("%s before byte %d was acknowledged and dropped", streamName(s.which), s.base)
		}
		if reason != "" {
			return &cofferdam.Error{
				Op: "guest.Attach", Kind: cofferdam.Invalid,
				Subject: "attach to command " + string(r.c.id), Reason: reason, Hint: "attach from the last acknowledged offset",
			}
		}
	}
	for _, s := range r.c.streams[1:] {
		s.readers[r] = true
		s.acknowledge()
	}
	return nil
}

func (r *reader) detach() {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range r.c.streams[1:] {
		delete(s.readers, r)
	}
}

// next picks the stream that r reads next, taking turns. Without one it returns
// what to wait for, or nil if the command has ended.
func (r *reader) next() (*stream, int, <-chan struct{}) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	for i := range sandbox.Stream(2) {
		which := (r.last+i)%2 + 1 // the other one first
		s := r.c.streams[which]
		if n := s.received - r.at[which]; n > 0 {
			r.last = which
			return s, int(min(n, ChunkSize)), nil
		}
	}
	if r.c.ended {
		return nil, 0, nil
	}
	return nil, 0, r.c.changed
}

// hold opens the journal for every reader that has not yet: it will be removed.
func (s *stream) hold() {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	s.h.mu.Lock()
	readers := slices.Collect(maps.Keys(s.readers))
	s.h.mu.Unlock()
	for _, r := range readers {
		if s.written > 0 {
			_ = r.open(s) // what cannot be opened is reported when it is read
		}
	}
}

// open opens r's own view of s, once. s.fileMu is held.
func (r *reader) open(s *stream) error {
	if r.files[s.which] != nil {
		return nil
	}
	f, err := os.Open(s.h.journalPath(s.c.number, s.which))
	if err != nil {
		return err
	}
	r.files[s.which] = f
	return nil
}

// read fills p from r's place in s: from the file, or from what is pending.
func (r *reader) read(s *stream, p []byte) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	at := r.at[s.which]
	inFile := int(min(int64(len(p)), max(0, s.written-at)))
	if inFile > 0 {
		if err := r.open(s); err != nil {
			return err
		}
		if _, err := r.files[s.which].ReadAt(p[:inFile], at); err != nil {
			return err
		}
	}
	if rest := p[inFile:]; len(rest) > 0 {
		copy(rest, s.pending[at+int64(inFile)-s.written:])
	}
	return nil
}

// confirm moves r on by n bytes of s.
func (r *reader) confirm(s *stream, n int64) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	r.at[s.which] += n
	s.acknowledge()
}

// acknowledge takes the slowest reader's place as acknowledged. Host.mu is held.
func (s *stream) acknowledge() {
	h := s.h
	slowest := int64(-1)
	for r := range s.readers {
		if at := r.at[s.which]; slowest < 0 || at < slowest {
			slowest = at
		}
	}
	if slowest <= s.acked {
		return
	}
	s.acked = slowest
	if h.retained >= h.o.BoxCap {
		h.reclaim()
	}
	s.grant()
}

func streamName(s sandbox.Stream) string {
	if s == sandbox.Stderr {
		return "standard error"
	}
	return "standard output"
}
