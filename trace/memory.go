package trace

import (
	"context"
	"slices"
	"sync"

	"cofferdam"
	"cofferdam/internal/redact"
)

// Memory is a Recorder without a disk, for tests: it takes and refuses the same
// events as a Log of that Scope and Session. The zero Memory is ready.
type Memory struct {
	Scope   cofferdam.Scope
	Session cofferdam.SessionID // empty: takes the events of any, like the host's log
	Redact  *redact.Redactor
	// Fail, if not nil, is asked before each event; its error is returned.
	Fail func(cofferdam.Event) error

	mu     sync.Mutex
	events []cofferdam.Event // guarded by mu
}

// Record implements cofferdam.Recorder.
func (m *Memory) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	if m.Fail != nil {
		if err := m.Fail(e); err != nil {
			return e, err
		}
	}
	e, err := (&Log{id: m.Session, scope: m.Scope, red: m.Redact}).admit(e)
	if err != nil {
		return e, err
	}
	if _, err := encode(e); err != nil {
		return e, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Seq = uint64(len(m.events))
	m.events = append(m.events, e)
	return e, nil
}

// Events returns what was recorded.
func (m *Memory) Events() []cofferdam.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}
