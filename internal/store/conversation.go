package store

import (
	"context"
	"database/sql"
	"fmt"

	"cofferdam"
	"cofferdam/agent/loop"
)

// Bounds of one conversation. Source: docs/SPECIFICATION.md, "Our own agent".
const (
	MaxEntry        = 8 << 20   // bytes of one entry
	MaxEntries      = 20_000    // 500 answers with 16 results each, and what people said
	MaxConversation = 256 << 20 // bytes of all
)

// conversation is that of one session.
type conversation struct {
	s     *Store
	scope cofferdam.Scope
	id    cofferdam.SessionID
}

// Conversation returns what is kept of a session's conversation; it need not
// have begun.
func (s *Store) Conversation(scope cofferdam.Scope, id cofferdam.SessionID) loop.Conversation {
	return conversation{s, scope, id}
}

// Entries implements loop.Conversation.
func (c conversation) Entries(ctx context.Context) ([]loop.Entry, error) {
	v, err := all(ctx, c.s.read, func(r *sql.Rows) (e loop.Entry, err error) {
		var at string
		var body []byte
		if err = r.Scan(&e.Number, &at, &body); err == nil {
			e.Body = body
			e.Time, err = clock(at)
		}
		return e, err
	}, `SELECT number, time, body FROM conversation WHERE session = ? AND organization = ? AND project = ? ORDER BY number`, c.id, c.scope.Organization, c.scope.Project)
	return v, broken("store.Entries", c.s.path, err)
}

// Append implements loop.Conversation. A conversation that is full is Exhausted;
// an entry that does not follow the last one is a Conflict.
func (c conversation) Append(ctx context.Context, e loop.Entry) error {
	const op = "store.Append"
	full := func(reason string) error {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Exhausted, Subject: "conversation of the agent", Reason: reason, Hint: "give a new task with less to do at once"}
	}
	if len(e.Body) > MaxEntry {
		return full(fmt.Sprintf("an entry has %d bytes, the limit is %d", len(e.Body), MaxEntry))
	}
	return c.s.change(ctx, op, func(tx *sql.Tx) error {
		var n, size int64
		err := tx.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(length(body)), 0) FROM conversation WHERE session = ?`, c.id).Scan(&n, &size)
		if err != nil {
			return err
		}
		if n >= MaxEntries || size+int64(len(e.Body)) > MaxConversation {
			return full(fmt.Sprintf("it has %d entries with %d bytes, the limits are %d and %d", n, size, MaxEntries, MaxConversation))
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO conversation VALUES (?, ?, ?, ?, ?, ?)`,
			c.id, c.scope.Organization, c.scope.Project, e.Number, stamp(e.Time), []byte(e.Body))
		return err
	})
}
