package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/internal/redact"
	"cofferdam/proof"
)

// maxOpen bounds the session logs open at a time: each costs a descriptor.
const maxOpen = 4096

// maxHead bounds a file with a signed head.
const maxHead = 4096

// Store is a folder of logs: the host's, and one for each session. Safe for
// concurrent use.
type Store struct {
	dir  string
	key  proof.Signer
	red  *redact.Redactor
	host *Log

	brief bool // nothing is synced

	heading sync.Mutex // held while host.head is written
	headed  uint64     // events under host.head as this process wrote it; guarded by heading
	opening sync.Mutex // held while a session's log is opened, before mu

	mu     sync.Mutex
	open   map[cofferdam.SessionID]*Log // guarded by mu; not sealed
	opened chan struct{}                // guarded by mu; closed and forgotten when a session's log is opened
	closed bool                         // guarded by mu
}

// Open opens the logs in dir, which is made if it is missing. What is recorded
// is redacted by red first, and heads are signed with key. Only one process can
// have dir open.
func Open(dir string, key proof.Signer, red *redact.Redactor) (*Store, error) {
	return open(dir, key, red, false)
}

// OpenBrief is Open for a record that is exported as soon as its one session is
// over, which is shorter than a disk takes to sync: what was recorded survives
// the end of this process at any moment, and no loss of power, durable events
// no more than others.
func OpenBrief(dir string, key proof.Signer, red *redact.Redactor) (*Store, error) {
	return open(dir, key, red, true)
}

func open(dir string, key proof.Signer, red *redact.Redactor, brief bool) (*Store, error) {
	if key.Name() == "" {
		return nil, &cofferdam.Error{Op: "trace.Open", Kind: cofferdam.Invalid, Subject: "open trace", Reason: "there is no signing key"}
	}
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return nil, unavailable("open trace "+dir, err)
	}
	s := &Store{dir: dir, key: key, red: red, brief: brief, open: map[cofferdam.SessionID]*Log{}}
	s.host = &Log{path: filepath.Join(dir, "host.jsonl"), red: red, store: s}
	f, fresh, err := openLog(s.host.path)
	if err != nil {
		return nil, err
	}
	if err := s.begin(s.host, f, fresh); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// begin reads a log that was opened, and checks the host's against its head.
func (s *Store) begin(l *Log, f *os.File, fresh bool) error {
	if err := l.load(f, fresh); err != nil {
		return err
	}
	if fresh && !s.brief {
		if err := syncDir(filepath.Dir(l.path)); err != nil {
			return unavailable("open trace of "+l.title(), err)
		}
	}
	// What was read may still wait in memory of the kernel: an event that is
	// there now must be there after a power loss too, before anything builds on it.
	if err := l.file.Sync(); err != nil {
		return unavailable("open trace of "+l.title(), err)
	}
	l.synced = mark{l.size, l.tree.Clone()}
	if l.id == "" {
		return s.checkHost(f)
	}
	return nil
}

// checkHost compares the host's log with the head that was signed last.
func (s *Store) checkHost(f *os.File) error {
	note, err := readNote(filepath.Join(s.dir, "host.head"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unavailable("open trace of the host", err)
	}
	head, err := proof.OpenHead(note, s.key.Public())
	if err != nil {
		return fmt.Errorf("open trace of the host: %w", err)
	}
	return checkPrefix(f, head)
}

// Host returns the host's log: task states, receipts, approvals, landings, seals.
func (s *Store) Host() *Log { return s.host }

// maxID bounds the name of a session, in bytes.
const maxID = 64

// validID says whether a session may be called so: it becomes a file's name. It is
// no regular expression, which takes a part of a short run to compile.
func validID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && i > 0) {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// Session opens the log of a session, or goes on with it. A log that is open
// already is returned as it is; a sealed one takes no events.
func (s *Store) Session(scope cofferdam.Scope, id cofferdam.SessionID) (*Log, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	l, open := s.open[id]
	count, closed := len(s.open), s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, unavailable("open trace of session "+string(id), errClosed)
	case open && l.scope == scope:
		return l, nil
	case open:
		return nil, elsewhere(id)
	}
	return s.openSession(scope, id, count)
}

func elsewhere(id cofferdam.SessionID) error {
	return &cofferdam.Error{
		Op: "trace.Session", Kind: cofferdam.NotFound, Subject: "open trace of session " + string(id),
		Reason: "there is no such session in this project",
	}
}

// openSession opens a log that is not open yet. s.opening is held, s.mu is not.
func (s *Store) openSession(scope cofferdam.Scope, id cofferdam.SessionID, count int) (*Log, error) {
	l := &Log{id: id, scope: scope, path: s.path(id), red: s.red, store: s}
	note, err := readNote(s.sealPath(id))
	switch {
	case err == nil:
		if err := l.loadSealed(note); err != nil {
			return nil, err
		}
		if l.scope != scope {
			return nil, elsewhere(id)
		}
		return l, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, unavailable("open trace of "+l.title(), err)
	case count >= maxOpen:
		return nil, &cofferdam.Error{
			Op: "trace.Session", Kind: cofferdam.Exhausted, Subject: "open trace of " + l.title(),
			Reason: fmt.Sprintf("%d sessions are under way", count), Hint: "wait until some have ended",
		}
	}
	f, fresh, err := openLog(l.path)
	if err != nil {
		return nil, err
	}
	err = s.begin(l, f, fresh)
	if err == nil && l.tree.Size() > 0 && l.first != scope {
		err = elsewhere(id)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = l
	if s.opened != nil {
		close(s.opened)
		s.opened = nil
	}
	return l, nil
}

// loadSealed reads a sealed log and checks it against its head.
func (l *Log) loadSealed(note []byte) error {
	head, err := proof.OpenHead(note, l.store.key.Public())
	if err != nil {
		return fmt.Errorf("open trace of %s: %w", l.title(), err)
	}
	f, err := os.Open(l.path)
	if err != nil {
		return unavailable("open trace of "+l.title(), err)
	}
	defer f.Close()
	s, torn, err := scan(f)
	if err != nil {
		return err
	}
	if got := proof.HeadOf(l.id, &s.tree, head.Time); torn > 0 || !got.Same(head) {
		return mismatch(l.title(), got, head)
	}
	l.state, l.sealed = s, &head
	if s.tree.Size() > 0 {
		l.scope = s.first
	}
	return nil
}

func mismatch(title string, got, want Head) error {
	return &cofferdam.Error{
		Op: "trace.Open", Kind: cofferdam.Tampered, Subject: "open trace of " + title,
		Reason: fmt.Sprintf("it holds %d events with root %s, and %d with root %s were signed", got.Size, got.Root, want.Size, want.Root),
	}
}

// Close syncs and closes every log.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	var logs []*Log
	for _, l := range s.open {
		logs = append(logs, l)
	}
	s.mu.Unlock()
	var errs []error
	for _, l := range logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, s.writeHead(), s.host.Close())...)
}

// writeHead signs what the host's log holds now, durable events and others.
func (s *Store) writeHead() error {
	s.heading.Lock()
	defer s.heading.Unlock()
	head, err := s.host.head()
	if err != nil || head.Size == s.headed { // 0: there is nothing to sign
		return err
	}
	note, err := s.key.SignHead(head)
	if err != nil {
		return err
	}
	if err := s.put(filepath.Join(s.dir, "host.head"), note); err != nil {
		return unavailable("write head of the host's trace", err)
	}
	s.headed = head.Size
	return nil
}

// head returns what is on disk for certain, after a sync.
func (l *Log) head() (Head, error) {
	l.mu.Lock()
	end := l.size
	l.mu.Unlock()
	if err := l.sync(end); err != nil {
		return Head{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return proof.HeadOf(l.id, &l.synced.tree, time.Now()), nil
}

func (s *Store) forget(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[l.id] == l {
		delete(s.open, l.id)
	}
}

func (s *Store) path(id cofferdam.SessionID) string {
	return filepath.Join(s.dir, "sessions", string(id)+".jsonl")
}

func (s *Store) sealPath(id cofferdam.SessionID) string {
	return filepath.Join(s.dir, "sessions", string(id)+".seal")
}

func checkID(id cofferdam.SessionID) error {
	if !validID(string(id)) {
		return &cofferdam.Error{
			Op: "trace.Session", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("open trace of session %.80q", id),
			Reason: "that is not a session's id",
		}
	}
	return nil
}

// readNote reads a small signed file.
func readNote(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxHead {
		return nil, fmt.Errorf("%s is %d bytes long", filepath.Base(path), info.Size())
	}
	return os.ReadFile(path)
}
