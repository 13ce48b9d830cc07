package approval

import (
	"context"
	"slices"
	"sync"

	"cofferdam"
)

// notices wait to be sent. Organisations take turns, and where no more fit the one that
// has most loses one: nobody's flood delays or drops what is another's.
type notices struct {
	mu    sync.Mutex
	lines []*line       // guarded by mu; none is empty, and whose turn it is comes first
	more  chan struct{} // has one in it once there may be something
}

// line is what an organisation waits for, the oldest first.
type line struct {
	of   cofferdam.OrganizationID
	list []cofferdam.Question
}

func newNotices() *notices { return &notices{more: make(chan struct{}, 1)} }

// add takes a notice and returns the one that is dropped for it, if any.
func (n *notices) add(q cofferdam.Question) (dropped cofferdam.QuestionID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.lines, func(l *line) bool { return l.of == q.Organization })
	if i < 0 {
		i = len(n.lines)
		n.lines = append(n.lines, &line{of: q.Organization})
	}
	n.lines[i].list = append(n.lines[i].list, q)
	waiting, most := 0, i // of those with as many the new one is dropped
	for j, l := range n.lines {
		if waiting += len(l.list); len(l.list) > len(n.lines[most].list) {
			most = j
		}
	}
	if waiting > maxNotices {
		l := n.lines[most]
		last := len(l.list) - 1
		dropped = l.list[last].ID
		l.list = slices.Delete(l.list, last, last+1)
		if last == 0 {
			n.lines = slices.Delete(n.lines, most, most+1)
		}
	}
	select {
	case n.more <- struct{}{}:
	default:
	}
	return dropped
}

// next waits for a notice; false if ctx is over.
func (n *notices) next(ctx context.Context) (cofferdam.Question, bool) {
	for {
		if q, ok := n.take(); ok {
			return q, true
		}
		select {
		case <-n.more:
		case <-ctx.Done():
			return cofferdam.Question{}, false
		}
	}
}

// take takes the next; false if there is none.
func (n *notices) take() (q cofferdam.Question, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) == 0 {
		return q, false
	}
	l := n.lines[0]
	q = l.list[0]
	n.lines, l.list = slices.Delete(n.lines, 0, 1), slices.Delete(l.list, 0, 1)
	if len(l.list) > 0 {
		n.lines = append(n.lines, l)
	}
	return q, true
}
