package proof

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"cofferdam"
)

// Bounds of what Verify reads; memory is bounded by them, not by the export.
const (
	maxLine     = 2 << 20 // an event of the trace has at most 1 MiB, an entry its proof besides
	maxSessions = 10_000  // of one task
	maxReceipts = 1_000   // of one task
	maxPolicies = 10_000  // of one task, and by so many times as much its sessions may be judged
)

// ErrNotSealed is in the chain of errors of evidence whose end is missing: a
// session without its seal, or an export without its last line. It may be
// unfinished rather than changed, and is trusted as little.
var ErrNotSealed = errors.New("not sealed")

// Report says what an export holds. It is complete only without an error.
type Report struct {
	Schema   string           `json:"schema"` // cofferdam/verify/v1
	Task     cofferdam.TaskID `json:"task"`
	Key      string           `json:"key"` // public key that all of it was checked with
	Exported time.Time        `json:"exported"`
	Events   uint64           `json:"events"` // of all sessions
	Sessions []SessionReport  `json:"sessions"`
	Host     Head             `json:"host"`     // of the host's log; compare it with one you know
	Entries  uint64           `json:"entries"`  // events of the host's log in the export
	Policies []PolicyChange   `json:"policies"` // of the documents by which sessions were judged; their texts are in the export
	Receipts []Receipt        `json:"receipts"`
	// Unseen are digests of receipts that the host's log tells of and that are
	// not here: made for an attempt that was given up, or left out on export.
	Unseen []cofferdam.Digest `json:"unseen,omitempty"`
}

// SessionReport says what the trace of one session holds.
type SessionReport struct {
	Session  cofferdam.SessionID `json:"session"`
	Events   uint64              `json:"events"`
	Root     cofferdam.Digest    `json:"root"`
	Sealed   bool                `json:"sealed"`
	Time     time.Time           `json:"time"` // of the seal
	Kinds    map[string]uint64   `json:"kinds"`
	Verdicts map[string]uint64   `json:"verdicts"`
}

// Verify checks an export against a public key. The error is of kind Tampered
// where the evidence does not hold, with ErrNotSealed in its chain where its end
// is missing, and Invalid where public is no key.
func Verify(r io.Reader, public string) (Report, error) {
	key, err := verifier(public)
	if err != nil {
		return Report{}, err
	}
	c := &checker{
		key: key, in: bufio.NewReaderSize(r, 1<<16), hash: sha256.New(),
		heads: map[cofferdam.SessionID]Head{}, told: map[cofferdam.SessionID]Head{}, wanted: map[string]bool{},
		judged: map[cofferdam.Judged]bool{}, texts: map[cofferdam.Digest]bool{},
		report: Report{Schema: "cofferdam/verify/v1", Key: public, Sessions: []SessionReport{}, Policies: []PolicyChange{}, Receipts: []Receipt{}},
	}
	for c.stage != lineEnd {
		if err := c.step(); err != nil {
			return c.report, err
		}
	}
	if err := c.finish(); err != nil {
		return c.report, err
	}
	return c.report, nil
}

// checker is the state of one Verify.
type checker struct {
	key    note.Verifier
	in     *bufio.Reader
	hash   hash.Hash // of all lines so far
	line   uint64    // lines so far
	stage  string    // type of the last line with one
	buf    []byte
	report Report

	session cofferdam.SessionID // under way, if stage is lineSession
	tree    Tree
	tally   Tally
	last    event

	hostRoot Hash
	next     uint64                       // least index of the next entry
	heads    map[cofferdam.SessionID]Head // sealed sessions of the export
	told     map[cofferdam.SessionID]Head // what the host's log says was sealed
	wanted   map[string]bool              // digests of receipts the host's log tells of
	open     []cofferdam.SessionID        // sessions without a seal

	schema string
	judged map[cofferdam.Judged]bool // by what the sessions say that they were judged
	texts  map[cofferdam.Digest]bool // documents of policy that are here, signed
}

// event is what Verify reads of a stored event.
type event struct {
	Seq     uint64              `json:"seq"`
	Session cofferdam.SessionID `json:"session"`
	Kind    string              `json:"kind"`
	On      string              `json:"resource"`
	Verdict cofferdam.Verdict   `json:"verdict"`
	Time    time.Time           `json:"time"`
	Fields  json.RawMessage     `json:"fields"` // may be large; parsed where it is wanted
}

// fields returns e's fields; what is not there, or no fields, is an empty map.
func (e event) fields() map[string]string {
	var out map[string]string
	if json.Unmarshal(e.Fields, &out) != nil {
		return nil // no digest, no size: the callers refuse
	}
	return out
}

// read returns the next line without its newline; it is valid until the next read.
func (c *checker) read() ([]byte, error) {
	c.buf = c.buf[:0]
	for {
		part, err := c.in.ReadSlice('\n')
		c.buf = append(c.buf, part...)
		switch {
		case len(c.buf) > maxLine:
			return nil, c.fail("the line is longer than any of an export")
		case err == nil:
			return bytes.TrimSuffix(c.buf, []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, c.cut("it ends before its last line")
		default:
			return nil, &cofferdam.Error{
				Op: "proof.Verify", Kind: cofferdam.Unavailable, Subject: "read export", Err: err,
			}
		}
	}
}

// fail reports what does not hold on the line being checked.
func (c *checker) fail(format string, a ...any) error {
	return tampered(fmt.Sprintf("check export, line %d", c.line+1), fmt.Errorf(format, a...))
}

// cut reports a missing end.
func (c *checker) cut(why string) error {
	return &cofferdam.Error{
		Op: "proof.Verify", Kind: cofferdam.Tampered, Subject: "check export", Reason: "not sealed: " + why,
		Hint: "export the trace again once the task has ended; if it had, the file was cut: do not trust it", Err: ErrNotSealed,
	}
}

// step checks one line.
func (c *checker) step() error {
	raw, err := c.read()
	if err != nil {
		return err
	}
	if c.stage == lineSession && !bytes.HasPrefix(raw, []byte(`{"type":`)) {
		err = c.event(raw)
	} else {
		var l line
		if err := decode(raw, &l); err != nil {
			return c.fail("not a line of an export: %w", err)
		}
		if c.line == 0 && l.Type != lineHeader {
			return c.fail("an export begins with its header")
		}
		err = c.typed(l)
	}
	if err != nil {
		return err
	}
	c.hash.Write(raw)
	c.hash.Write([]byte("\n"))
	c.line++
	return nil
}

// typed checks a line with a type.
func (c *checker) typed(l line) error {
	ok := false
	switch stage := c.stage; l.Type {
	case lineHeader:
		ok = stage == "" && (l.Schema == ExportSchema || l.Schema == exportBefore) && l.Time != nil
	case lineSession:
		ok = stage == lineHeader || stage == lineSession || stage == lineSeal
	case lineSeal:
		ok = stage == lineSession
	case lineHost:
		ok = stage == lineHeader || stage == lineSession || stage == lineSeal
	case lineEntry:
		ok = (stage == lineHost || stage == lineEntry) && l.Index != nil
	case linePolicy:
		ok = c.schema == ExportSchema && (stage == lineHost || stage == lineEntry || stage == linePolicy)
	case lineReceipt, lineEnd:
		ok = stage == lineHost || stage == lineEntry || stage == linePolicy || stage == lineReceipt
	}
	if !ok {
		return c.fail("a line of type %.20q does not belong here", l.Type)
	}
	if c.stage == lineSession && l.Type != lineSeal {
		c.endSession(Head{})
	}
	c.stage = l.Type
	switch l.Type {
	case lineHeader:
		c.report.Task, c.report.Exported, c.schema = l.Task, *l.Time, l.Schema
		if l.Key != c.key.Name() {
			return c.fail("it was signed by the key %.80q, and the key given is %.80q", l.Key, c.key.Name())
		}
	case lineSession:
		return c.begin(l)
	case lineSeal:
		return c.seal(l)
	case lineHost:
		return c.host(l)
	case lineEntry:
		return c.entry(l)
	case linePolicy:
		return c.policy(l)
	case lineReceipt:
		return c.receipt(l)
	case lineEnd:
		return c.end(l)
	}
	return nil
}

func (c *checker) begin(l line) error {
	if len(c.report.Sessions) >= maxSessions {
		return c.fail("more than %d sessions", maxSessions)
	}
	for _, s := range c.report.Sessions {
		if s.Session == l.Session {
			return c.fail("session %.80q comes twice", l.Session)
		}
	}
	c.session, c.tree, c.tally, c.last = l.Session, Tree{}, Tally{}, event{}
	return nil
}

// event checks one event of the session under way.
func (c *checker) event(raw []byte) error {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return c.fail("not an event: %w", err)
	}
	switch {
	case e.Seq != c.tree.Size():
		return c.fail("event %d of session %s is missing or out of place: here is event %d", c.tree.Size(), c.session, e.Seq)
	case e.Session != c.session:
		return c.fail("event %d belongs to session %.80q, not to %s", e.Seq, e.Session, c.session)
	case c.last.Kind == cofferdam.EventSessionSeal:
		return c.fail("event %d of session %s follows its seal", e.Seq, c.session)
	}
	if e.Kind == cofferdam.EventSessionSeal && !c.tally.Matches(e.fields()) {
		return c.fail("the seal of session %s counts other events than there are", c.session)
	}
	if err := c.judge(e); err != nil {
		return err
	}
	c.tally.Add(e.Kind, e.Verdict)
	c.tree.Append(raw)
	c.last = e
	c.report.Events++
	return nil
}

// endSession takes the session under way into the report.
func (c *checker) endSession(sealed Head) {
	head := HeadOf(c.session, &c.tree, sealed.Time)
	r := SessionReport{
		Session: c.session, Events: head.Size, Root: head.Root, Sealed: sealed.Size > 0, Time: sealed.Time,
		Kinds: c.tally.Kinds(), Verdicts: c.tally.Verdicts(),
	}
	c.report.Sessions = append(c.report.Sessions, r)
	if r.Sealed {
		c.heads[c.session] = sealed
	} else {
		c.open = append(c.open, c.session)
	}
}

func (c *checker) seal(l line) error {
	head, err := c.head(l.Note)
	if err != nil {
		return err
	}
	got := HeadOf(c.session, &c.tree, head.Time)
	switch {
	case head.Session != c.session:
		return c.fail("the seal is that of session %.80q, not of %s", head.Session, c.session)
	case head.Size != got.Size:
		return c.fail("session %s has %d events, and %d were sealed", c.session, got.Size, head.Size)
	case head.Root != got.Root:
		return c.fail("session %s was changed: its events give the root %s, and %s was sealed", c.session, got.Root, head.Root)
	case c.last.Kind != cofferdam.EventSessionSeal || !c.last.Time.Equal(head.Time):
		return c.fail("session %s does not end in its seal", c.session)
	}
	c.endSession(head)
	return nil
}

// head opens a signed head of this export.
func (c *checker) head(text string) (Head, error) {
	body, err := open([]byte(text), c.key)
	if err != nil {
		return Head{}, c.fail("signed head: %w", err)
	}
	h, err := parseHead(body, c.key.Name())
	if err != nil {
		return Head{}, c.fail("%w", err)
	}
	return h, nil
}

func (c *checker) host(l line) (err error) {
	if c.report.Host, err = c.head(l.Note); err != nil {
		return err
	}
	if c.report.Host.Session != "" {
		return c.fail("the host's head is that of session %.80q", c.report.Host.Session)
	}
	c.hostRoot, err = parseDigest(c.report.Host.Root)
	return err
}

// entry checks one event of the host's log and takes in what it says of sessions
// and receipts.
func (c *checker) entry(l line) error {
	size := c.report.Host.Size
	switch {
	case *l.Index >= size:
		return c.fail("entry %d lies behind the host's head of %d events", *l.Index, size)
	case *l.Index < c.next:
		return c.fail("entry %d is out of order", *l.Index)
	}
	err := tlog.CheckRecord(l.Proof, int64(size), c.hostRoot, int64(*l.Index), tlog.RecordHash(l.Event))
	if err != nil {
		return c.fail("entry %d is not in the host's log: %w", *l.Index, err)
	}
	var e event
	if err := json.Unmarshal(l.Event, &e); err != nil || e.Seq != *l.Index {
		return c.fail("entry %d is not the event of that number", *l.Index)
	}
	c.next = *l.Index + 1
	c.report.Entries++
	switch {
	case e.Kind == cofferdam.EventSeal:
		return c.tell(e)
	case e.Kind == cofferdam.EventReceipt && e.fields()["note"] != "":
		if len(c.wanted) >= maxReceipts {
			return c.fail("more than %d receipts", maxReceipts)
		}
		c.wanted[e.fields()["note"]] = true
	}
	return nil
}

// tell takes in a trace.seal event.
func (c *checker) tell(e event) error {
	fields := e.fields()
	size, err := strconv.ParseUint(fields["size"], 10, 64)
	if err != nil {
		return c.fail("entry %d is no seal: %w", e.Seq, err)
	}
	h := Head{Session: e.Session, Size: size, Root: cofferdam.Digest(fields["root"])}
	if old, ok := c.told[h.Session]; ok && !old.Same(h) {
		return c.fail("session %s was sealed twice, with other events", h.Session)
	}
	if len(c.told) >= maxSessions {
		return c.fail("more than %d sessions", maxSessions)
	}
	c.told[h.Session] = h
	return nil
}

func (c *checker) receipt(l line) error {
	body, err := open([]byte(l.Note), c.key)
	if err != nil {
		return c.fail("receipt: %w", err)
	}
	r, err := parseReceipt(body)
	if err != nil {
		return c.fail("%w", err)
	}
	if c.report.Task != "" && r.Task != c.report.Task {
		return c.fail("receipt %s is for task %s, not for %s", r.ID, r.Task, c.report.Task)
	}
	if len(c.report.Receipts) >= maxReceipts {
		return c.fail("more than %d receipts", maxReceipts)
	}
	for _, h := range r.Sessions {
		if have, ok := c.heads[h.Session]; !ok || !have.Same(h) {
			return c.fail("receipt %s rests on the trace of session %.80q, which is not the one in this export", r.ID, h.Session)
		}
	}
	if err := c.terms(r); err != nil {
		return err
	}
	delete(c.wanted, string(DigestOf([]byte(l.Note))))
	c.report.Receipts = append(c.report.Receipts, r)
	return nil
}

// end checks the signature over the whole export, and that nothing follows.
func (c *checker) end(l line) error {
	body, err := open([]byte(l.Note), c.key)
	if err != nil {
		return c.fail("end: %w", err)
	}
	var sum Hash
	c.hash.Sum(sum[:0])
	if body != endText(c.report.Task, c.line, sum) {
		return c.fail("lines before the end were changed, dropped, added or moved")
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		return c.fail("something follows the end")
	}
	return nil
}

// finish compares what the host's log says with what the export holds.
func (c *checker) finish() error {
	for id, told := range c.told {
		head, ok := c.heads[id]
		switch {
		case !ok:
			return tampered("check export", fmt.Errorf("session %s was sealed with %d events and is not here in full", id, told.Size))
		case !head.Same(told):
			return tampered("check export", fmt.Errorf("session %s is not the one that was sealed: %d events then, %d here", id, told.Size, head.Size))
		}
	}
	for id := range c.heads {
		if _, ok := c.told[id]; !ok {
			return tampered("check export", fmt.Errorf("the host's log does not know the seal of session %s", id))
		}
	}
	if err := c.documents(); err != nil {
		return err
	}
	for d := range c.wanted {
		c.report.Unseen = append(c.report.Unseen, cofferdam.Digest(d))
	}
	slices.Sort(c.report.Unseen)
	if len(c.open) > 0 {
		return c.cut(fmt.Sprintf("session %s has no seal", c.open[0]))
	}
	return nil
}
