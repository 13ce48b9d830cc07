package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"cofferdam"
)

// MaxCounts bounds how many commands one answer tells of: the limit of processes
// that a box has by default, twice. What is beyond counts as of command 0.
const MaxCounts = 1024

// Counted answers a count.
type Counted struct {
	Counts []Count `json:"counts,omitempty"`
}

// Count is how many processes one command has.
type Count struct {
	Command   uint32 `json:"command"` // 0: which one cannot be told
	Processes int    `json:"processes"`
}

// tally is one count that pid 1 was asked for. Its fields are set before done is
// closed and not changed after.
type tally struct {
	done chan struct{}
	jobs []cofferdam.BoxJob
	void bool // pid 1 was not asked after all
}

// Jobs counts the processes of each command that has any, also of those that have
// ended and left some behind. Who asks while another does gets the same answer.
func (h *Host) Jobs(ctx context.Context) ([]cofferdam.BoxJob, error) {
	const op = "guest.Jobs"
	for {
		h.mu.Lock()
		if h.lost == "" && h.held != "" {
			defer h.mu.Unlock()
			return nil, refusal(h.held, op, "count processes")
		}
		t, asks := h.tally, false
		if h.lost == "" && t == nil {
			t, asks = &tally{done: make(chan struct{})}, true
			h.tally = t
			h.calls.Add(1)
		}
		h.mu.Unlock()
		if asks {
			err := h.send(ctx, op, Frame{Kind: KindCount})
			h.calls.Done()
			if err != nil {
				h.mu.Lock()
				t.void, h.tally = true, nil
				close(t.done)
				h.mu.Unlock()
				return nil, err
			}
		}
		if t == nil {
			return nil, h.lostError(op, "count processes")
		}
		select {
		case <-t.done:
			if !t.void {
				return t.jobs, nil
			}
		case <-h.done:
			return nil, h.lostError(op, "count processes")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// receiveCounted takes pid 1's answer, once it was asked.
func (h *Host) receiveCounted(f Frame) error {
	var c Counted
	if err := json.Unmarshal(f.Payload, &c); err != nil {
		return fmt.Errorf("%w: counted frame: %w", ErrProtocol, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tally == nil || len(c.Counts) > MaxCounts {
		return fmt.Errorf("%w: counts of %d commands that nobody asked for", ErrProtocol, len(c.Counts))
	}
	slices.SortFunc(c.Counts, func(x, y Count) int { return cmp.Compare(x.Command, y.Command) })
	var jobs []cofferdam.BoxJob
	for i, n := range c.Counts {
		if n.Processes < 1 || i > 0 && n.Command == c.Counts[i-1].Command || int64(n.Command) > int64(len(h.list)) {
			return fmt.Errorf("%w: %d processes of command %d", ErrProtocol, n.Processes, n.Command)
		}
		j := cofferdam.BoxJob{Processes: n.Processes}
		if n.Command > 0 {
			if of := h.list[n.Command-1]; of != nil {
				j.Command, j.Ended = of.id, of.exit != nil || of.finishing
			}
		}
		jobs = append(jobs, j)
	}
	h.tally.jobs = jobs
	close(h.tally.done)
	h.tally = nil
	return nil
}
