package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/trace"
)

// DefaultMaxOutput is what one command may write on both streams together, in
// bytes: more than a day of a talkative agent, and JSON of it fits into the
// 4 GiB of a session's log even if each byte takes six.
const DefaultMaxOutput = 256 << 20

// Bounds of a command's output.
const (
	// maxChunk is what one event holds; a field of 128 KiB is the most that fits
	// into an event whatever is in it.
	maxChunk = 32 << 10
	// maxTail is what is kept for people, of both streams.
	maxTail = 4 << 10
)

var (
	errTooMuch = errors.New("the command wrote too much")
	errGap     = errors.New("output of the command is missing")
)

// output puts the output of one command on record: every byte once, in order,
// with secrets removed, over any number of processes.
//
// What could be the beginning of a secret is held back until more comes. Held
// bytes have been taken from the box but are not on record, so they are kept in
// a file (mode 0600, removed with the session) before the box may forget them.
type output struct {
	a       *attempt
	id      cofferdam.ExecID
	also    func(sandbox.Stream, []byte) error
	streams map[sandbox.Stream]*stream
	tail    tail
	err     error // why take refused
}

// stream is one of the two. Its digest is over the recorded text, so that
// whoever has the trace can check it.
type stream struct {
	which sandbox.Stream
	next  int64  // offset of the first byte that is not on record
	held  []byte // from there on, taken and not on record
	kept  bool   // held is in the file
	clean Clean
	ready bytes.Buffer // what clean has passed on
	hash  hash.Hash
}

func streamName(s sandbox.Stream) string {
	if s == sandbox.Stderr {
		return "stderr"
	}
	return "stdout"
}

// openOutput goes on after what is on record: at.
func (a *attempt) openOutput(ctx context.Context, id cofferdam.ExecID, at sandbox.Offsets, also func(sandbox.Stream, []byte) error) (*output, error) {
	o := &output{a: a, id: id, also: also, streams: map[sandbox.Stream]*stream{}}
	for which, next := range map[sandbox.Stream]int64{sandbox.Stdout: at.Stdout, sandbox.Stderr: at.Stderr} {
		st := &stream{which: which, next: next, hash: sha256.New()}
		st.clean = a.o.Redact(&st.ready)
		o.streams[which] = st
	}
	if at != (sandbox.Offsets{}) {
		if err := o.replay(ctx); err != nil {
			return nil, err
		}
	}
	for _, which := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		if err := o.recover(ctx, o.streams[which]); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// replay reads what is on record already.
func (o *output) replay(ctx context.Context) error {
	return o.a.ledger.each(ctx, func(e cofferdam.Event) error {
		if e.Kind != cofferdam.EventExecOutput || e.Fields[fieldExec] != string(o.id) {
			return nil
		}
		text, ok := trace.Bytes(e, fieldText)
		if !ok {
			return fmt.Errorf("reading output of %s back: event %d cannot be read", o.id, e.Seq)
		}
		which := sandbox.Stdout
		if e.Fields[fieldStream] == streamName(sandbox.Stderr) {
			which = sandbox.Stderr
		}
		return o.pass(which, text)
	})
}

// recover finds what an earlier process had taken and held back.
func (o *output) recover(ctx context.Context, st *stream) error {
	data, err := os.ReadFile(o.path(st))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(data) < 8 {
		return fmt.Errorf("reading held output of %s: the file is cut", o.id)
	}
	st.kept = true
	from, held := int64(binary.BigEndian.Uint64(data)), data[8:]
	if end := from + int64(len(held)); from > st.next || end <= st.next {
		return nil // of before the last record, or of nothing
	}
	return o.write(ctx, st, held[st.next-from:])
}

func (o *output) path(st *stream) string {
	return filepath.Join(o.a.dir(), string(o.id)+"."+streamName(st.which))
}

// offsets is where the box has to go on.
func (o *output) offsets() sandbox.Offsets {
	at := func(s sandbox.Stream) int64 { return o.streams[s].next + int64(len(o.streams[s].held)) }
	return sandbox.Offsets{Stdout: at(sandbox.Stdout), Stderr: at(sandbox.Stderr)}
}

// take is the sink of the box. When it returns nil, p is on record or kept.
func (o *output) take(ctx context.Context, which sandbox.Stream, off int64, p []byte) error {
	st := o.streams[which]
	if have := st.next + int64(len(st.held)); off > have {
		o.err = fmt.Errorf("%w: %s of %s from %d to %d", errGap, streamName(which), o.id, have, off)
	} else if old := have - off; old < int64(len(p)) {
		p = p[old:] // a box may repeat, never skip
	} else {
		return nil
	}
	if at := o.offsets(); o.err == nil && at.Stdout+at.Stderr+int64(len(p)) > o.a.o.MaxOutput {
		o.err = errTooMuch
	}
	for len(p) > 0 && o.err == nil {
		n := min(len(p), maxChunk)
		o.err = o.write(ctx, st, p[:n])
		p = p[n:]
	}
	return o.err
}

// write takes raw output that follows what is held.
func (o *output) write(ctx context.Context, st *stream, p []byte) error {
	if _, err := st.clean.Write(p); err != nil {
		return err
	}
	return o.advance(ctx, st, append(st.held, p...))
}

// flush puts on record what is held back, at the end of the output.
func (o *output) flush(ctx context.Context) error {
	for _, which := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		st := o.streams[which]
		if err := st.clean.Flush(); err != nil {
			return err
		}
		if err := o.advance(ctx, st, st.held); err != nil {
			return err
		}
	}
	return nil
}

// advance records what clean has passed on of raw and keeps the rest of raw.
func (o *output) advance(ctx context.Context, st *stream, raw []byte) error {
	text := bytes.Clone(st.ready.Bytes())
	st.ready.Reset()
	n := len(raw) - st.clean.Held()
	if n > 0 || len(text) > 0 {
		if err := o.record(ctx, st, n, text); err != nil {
			return err
		}
	}
	st.next += int64(n)
	st.held = bytes.Clone(raw[n:])
	return o.keep(st)
}

// record puts text on record, which stands for the next n bytes of the stream.
func (o *output) record(ctx context.Context, st *stream, n int, text []byte) error {
	for {
		part := text[:min(len(text), 3*maxChunk)]
		text = text[len(part):]
		length := 0
		if len(text) == 0 {
			length = n // with the last part all of it is on record
		}
		sum := sha256.Sum256(part)
		err := o.a.ledger.put(ctx, cofferdam.EventExecOutput, string(o.id), map[string]string{
			fieldExec: string(o.id), fieldStream: streamName(st.which), fieldText: string(part),
			fieldOffset: strconv.FormatInt(st.next, 10), fieldLength: strconv.Itoa(length),
			"sha256": hex.EncodeToString(sum[:]),
		})
		if err != nil {
			return err
		}
		if err := o.pass(st.which, part); err != nil {
			return err
		}
		if len(text) == 0 {
			return nil
		}
	}
}

// pass gives recorded text to everything that wants it.
func (o *output) pass(which sandbox.Stream, text []byte) error {
	o.streams[which].hash.Write(text)
	o.tail.write(text)
	if o.also == nil {
		return nil
	}
	return o.also(which, text)
}

// keep puts the held bytes into their file: survives the end of this process.
func (o *output) keep(st *stream) error {
	if len(st.held) == 0 && !st.kept {
		return nil
	}
	if err := os.MkdirAll(o.a.dir(), 0o700); err != nil {
		return err
	}
	data := binary.BigEndian.AppendUint64(nil, uint64(st.next))
	path := o.path(st)
	if err := os.WriteFile(path+".new", append(data, st.held...), 0o600); err != nil {
		return err
	}
	st.kept = true
	return os.Rename(path+".new", path)
}

func (o *output) ran(r sandbox.Result) *ran {
	digest := func(s sandbox.Stream) cofferdam.Digest {
		return cofferdam.DigestOfSum([32]byte(o.streams[s].hash.Sum(nil)))
	}
	return &ran{Result: r, stdout: digest(sandbox.Stdout), stderr: digest(sandbox.Stderr), tail: o.tail}
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) write(p []byte) {
	t.text = append(t.text, p[max(0, len(p)-maxTail):]...)
	if len(t.text) > maxTail {
		t.text = append([]byte(nil), t.text[len(t.text)-maxTail:]...)
	}
}

// String returns it as valid UTF-8.
func (t tail) String() string { return strings.ToValidUTF8(string(t.text), "\uFFFD") }

// lastLine returns the last line of text that says something.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return clip(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]), 300)
}
