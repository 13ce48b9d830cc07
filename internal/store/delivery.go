package store

import (
	"context"
	"database/sql"
	"time"
)

// Deliver keeps the id of a message of a system outside, and forgets those from
// before old; a conflict if it is kept already.
func (s *Store) Deliver(ctx context.Context, system, id string, at, old time.Time) error {
	const op = "store.Deliver"
	return s.change(ctx, op, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM delivery WHERE time < ?`, stamp(old)); err != nil {
			return err
		}
		r, err := tx.ExecContext(ctx, `INSERT INTO delivery VALUES (?, ?, ?) ON CONFLICT (system, id) DO NOTHING`, system, id, stamp(at))
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if err == nil && n == 0 {
			return conflict(op, "message", "one with its id came before")
		}
		return err
	})
}
