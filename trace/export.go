package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"cofferdam"
	"cofferdam/proof"
)

// Texts finds the documents of policy of some digests, signed; what is not there
// is left out, and Verify will say so.
type Texts = func(ctx context.Context, of []cofferdam.Digest) ([]proof.SignedPolicy, error)

// Export writes the trace of a task in the form that proof.Verify checks: the
// logs of the sessions ids, and of every other sealed session that the host's
// log knows of the task; the events of the host's log about them; the documents
// by which the sessions were judged, where texts, which may be nil, finds them;
// receipts, as signed notes. Sessions that are not sealed are in it as far as they
// are, and Verify will say so.
func (s *Store) Export(ctx context.Context, w io.Writer, ids []cofferdam.SessionID, task cofferdam.TaskID, texts Texts, receipts ...[]byte) error {
	for _, id := range ids {
		if err := checkID(id); err != nil {
			return err
		}
	}
	head, err := s.host.head() // before the sessions: a seal made meanwhile is not in it, nor missed
	if err != nil {
		return err
	}
	note, err := s.key.SignHead(head)
	if err != nil {
		return err
	}
	host, err := s.entries(ctx, head, ids, task)
	if err != nil {
		return err
	}
	x := proof.NewExport(w, s.key, task, time.Now())
	named := documents{}
	for _, id := range host.sessions {
		if err := s.exportSession(ctx, x, id, host.sealed[id], named); err != nil {
			return err
		}
	}
	if err := x.Host(note); err != nil {
		return err
	}
	for _, e := range host.entries {
		path, err := tlog.ProveRecord(int64(head.Size), int64(e.index), host)
		if err != nil {
			return fmt.Errorf("prove event %d of the host's trace: %w", e.index, err)
		}
		if err := x.Entry(e.index, path, e.line); err != nil {
			return err
		}
	}
	if err := named.export(ctx, x, texts); err != nil {
		return err
	}
	for _, r := range receipts {
		if err := x.Receipt(r); err != nil {
			return err
		}
	}
	return x.End()
}

// exportSession writes one session. told says that the host's log has its seal;
// without that, the session is exported as not sealed although it may have been
// sealed a moment ago.
func (s *Store) exportSession(ctx context.Context, x *proof.Export, id cofferdam.SessionID, told bool, named documents) error {
	l, err := s.reader(id)
	if err != nil {
		return err
	}
	if err := x.Session(id); err != nil {
		return err
	}
	var tree proof.Tree
	var last []byte
	err = l.each(ctx, 0, func(line []byte) error {
		tree.Append(line)
		last = append(last[:0], line...)
		named.note(line)
		return x.Event(line)
	})
	if err != nil {
		return err
	}
	note, err := readNote(s.sealPath(id))
	if errors.Is(err, os.ErrNotExist) && told {
		note, err = s.sealing(id, &tree, last) // it is being sealed at this moment
	}
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && !told:
		return nil
	case err != nil:
		return unavailable("export trace of "+l.title(), err)
	}
	return x.Seal(note)
}

// documents are those by which sessions were judged.
type documents map[cofferdam.Digest]bool

// note learns from one event as stored.
func (d documents) note(line []byte) {
	if !bytes.Contains(line, []byte(`"resource":"`+cofferdam.StepPolicy+`"`)) {
		return // it need not be parsed
	}
	e, err := parse(line)
	if err != nil {
		return // who checks the export says so
	}
	if j, ok := cofferdam.JudgedBy(e); ok {
		for _, doc := range j.Documents() {
			d[doc] = true
		}
	}
}

func (d documents) export(ctx context.Context, x *proof.Export, texts Texts) error {
	if texts == nil || len(d) == 0 {
		return nil
	}
	found, err := texts(ctx, slices.Sorted(maps.Keys(d)))
	if err != nil {
		return err
	}
	for _, p := range found {
		if err := x.Policy(p); err != nil {
			return err
		}
	}
	return nil
}

// sealing signs the head that Seal is about to write: the host's log has the
// seal already, and the log ends with its closing event.
func (s *Store) sealing(id cofferdam.SessionID, tree *proof.Tree, last []byte) ([]byte, error) {
	var e cofferdam.Event
	if err := json.Unmarshal(last, &e); err != nil {
		return nil, fmt.Errorf("read closing event of %s: %w", id, err)
	}
	return s.key.SignHead(proof.HeadOf(id, tree, e.Time))
}

// hostPart is what an export needs of the host's log. It reads the hashes of
// the whole log as tlog's HashReader: 64 bytes an event, while an export lasts.
type hostPart struct {
	hashes   []tlog.Hash
	entries  []hostEntry
	sessions []cofferdam.SessionID
	sealed   map[cofferdam.SessionID]bool
}

type hostEntry struct {
	index uint64
	line  []byte
}

// maxExported bounds the host's events in one export, in bytes; a task makes
// some dozens of a few hundred each.
const maxExported = 64 << 20

// ReadHashes implements tlog.HashReader.
func (h *hostPart) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		if n < 0 || n >= int64(len(h.hashes)) {
			return nil, fmt.Errorf("hash %d of %d", n, len(h.hashes))
		}
		out[i] = h.hashes[n]
	}
	return out, nil
}

// entries reads the host's log up to head and picks what concerns the task and
// the sessions.
func (s *Store) entries(ctx context.Context, head Head, ids []cofferdam.SessionID, task cofferdam.TaskID) (*hostPart, error) {
	part := &hostPart{sealed: map[cofferdam.SessionID]bool{}}
	want := map[cofferdam.SessionID]bool{}
	add := func(id cofferdam.SessionID) {
		if !want[id] {
			want[id] = true
			part.sessions = append(part.sessions, id)
		}
	}
	var needles [][]byte // an event that names none of them need not be parsed
	for _, id := range ids {
		add(id)
		needles = append(needles, []byte(`"`+id+`"`))
	}
	if task != "" {
		needles = append(needles, []byte(`"`+task+`"`))
	}
	n, size := uint64(0), 0
	err := s.host.each(ctx, 0, func(line []byte) error {
		if n == head.Size {
			return io.EOF
		}
		hashes, err := tlog.StoredHashes(int64(n), line, part)
		if err != nil {
			return err
		}
		part.hashes = append(part.hashes, hashes...)
		n++
		if !slices.ContainsFunc(needles, func(needle []byte) bool { return bytes.Contains(line, needle) }) {
			return nil
		}
		e, err := parse(line)
		if err != nil {
			return unavailable("read trace of the host", err)
		}
		if !want[e.Session] && (task == "" || e.Task != task) {
			return nil
		}
		if e.Kind == cofferdam.EventSeal {
			add(e.Session)
			part.sealed[e.Session] = true
		}
		if size += len(line); size > maxExported {
			return &cofferdam.Error{
				Op: "trace.Export", Kind: cofferdam.Exhausted, Subject: "export trace",
				Reason: "the host's log holds too many events of the task",
			}
		}
		part.entries = append(part.entries, hostEntry{n - 1, bytes.Clone(line)})
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return part, nil
}
