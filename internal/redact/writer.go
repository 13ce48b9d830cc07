package redact

import (
	"io"
	"sync"
)

// slack is what a Writer may hold back besides the longest secret: line breaks
// and escapes between its characters. A secret with more of them between any
// two characters than that gets through.
const slack = 4096

// Writer passes on what is written to it with every secret replaced. It holds
// back the end of the text as long as that could be the beginning of a secret;
// Flush gives it out. Safe for concurrent use.
type Writer struct {
	red *Redactor
	out io.Writer

	mu   sync.Mutex
	held []byte // guarded by mu
	err  error  // guarded by mu; of out, for good
}

// Writer returns a Writer on w.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{red: r, out: w} }

// Write takes all of p. An error of the writer below is returned for good.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	w.held = append(w.held, p...)
	if err := w.pass(false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what is held back. What was held may have been half a secret,
// and the other half, if it comes, is no longer recognised: flush at an end.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.pass(true)
}

// Held returns how many bytes are held back.
func (w *Writer) Held() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// pass gives out what is settled, or all. w.mu is held.
func (w *Writer) pass(all bool) error {
	m := w.red.matcher()
	ready, upTo := w.held, len(w.held)
	if m != nil {
		var found []match
		found, upTo = m.scan(w.held, all)
		if limit := m.limit(); len(w.held)-upTo > limit {
			upTo = len(w.held) - limit
		}
		n := 0
		for n < len(found) && found[n].start < upTo {
			upTo = max(upTo, found[n].end)
			n++
		}
		ready = m.replace(w.held[:upTo], found[:n])
	}
	if len(ready) > 0 {
		if _, err := w.out.Write(ready); err != nil {
			w.err = err
			return err
		}
	}
	w.held = append(w.held[:0], w.held[upTo:]...)
	if cap(w.held) > 1<<20 && len(w.held) < 1<<16 {
		w.held = append([]byte(nil), w.held...) // one huge write does not cost memory for ever
	}
	return nil
}

// limit is how much a Writer holds back at most.
func (m *matcher) limit() int { return slack + 8*m.longest }
