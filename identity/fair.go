package identity

import (
	"context"
	"fmt"
	"sync"

	"cofferdam"
)

// Bounds of what somebody may do whom nobody knows yet. Source:
// docs/SPECIFICATION.md, "Identity".
const (
	maxWaiting = 8  // passwords of one source that wait to be hashed
	maxSources = 64 // sources that wait at a time
)

type sourceKey struct{}

// WithSource returns a context of a request that came from source: a user of this
// machine or an address, as the face that took it knows them. What people do
// before they are known is shared out by it.
func WithSource(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// sourceOf returns where ctx's request came from; "" if no face has said it.
func sourceOf(ctx context.Context) string {
	s, _ := ctx.Value(sourceKey{}).(string)
	return s
}

// turns hands out a few places, and to each source that waits in turn: one that
// asks for many has the others wait for one of them at most.
type turns struct {
	mu    sync.Mutex
	free  int      // guarded by mu
	lines []*queue // guarded by mu; of those that wait, the next first
}

// queue is what one source waits for, the oldest first.
type queue struct {
	source string
	waits  []chan struct{}
}

// enter waits for a place, which leave gives back.
func (t *turns) enter(ctx context.Context) error {
	t.mu.Lock()
	if t.free > 0 { // then nobody waits
		t.free--
		t.mu.Unlock()
		return nil
	}
	wait, err := t.line(sourceOf(ctx))
	t.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		if !t.forget(wait) { // it was given the place just now
			t.leave()
		}
		return ctx.Err()
	}
}

// line stands in the queue of a source. The caller holds mu.
func (t *turns) line(source string) (chan struct{}, error) {
	full := &cofferdam.Error{Op: "identity.Password", Kind: cofferdam.Exhausted, Subject: "passwords", Hint: "try again in a moment", After: 1e9}
	wait := make(chan struct{})
	for _, q := range t.lines {
		if q.source != source {
			continue
		}
		if len(q.waits) >= maxWaiting {
			full.Reason = fmt.Sprintf("%d of yours wait already", maxWaiting)
			return nil, full
		}
		q.waits = append(q.waits, wait)
		return wait, nil
	}
	if len(t.lines) >= maxSources {
		full.Reason = fmt.Sprintf("%d others wait", maxSources)
		return nil, full
	}
	t.lines = append(t.lines, &queue{source, []chan struct{}{wait}})
	return wait, nil
}

// leave gives a place back, to whoever's turn it is.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		t.free++
		return
	}
	q := t.lines[0]
	close(q.waits[0])
	t.lines, q.waits = t.lines[1:], q.waits[1:]
	if len(q.waits) > 0 {
		t.lines = append(t.lines, q)
	}
}

// forget takes one that waits away; false if it does not wait any more.
func (t *turns) forget(wait chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, q := range t.lines {
		for j, w := range q.waits {
			if w != wait {
				continue
			}
			q.waits = append(q.waits[:j], q.waits[j+1:]...)
			if len(q.waits) == 0 {
				t.lines = append(t.lines[:i], t.lines[i+1:]...)
			}
			return true
		}
	}
	return false
}
