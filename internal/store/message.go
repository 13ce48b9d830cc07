package store

import (
	"context"
	"database/sql"

	"cofferdam"
	"cofferdam/task"
)

const messageColumns = `SELECT task, number, text, by_kind, by_name, time FROM message `

func scanMessage(r *sql.Rows) (cofferdam.TaskMessage, error) {
	m, at := cofferdam.TaskMessage{Schema: "cofferdam/task-message/v1"}, ""
	err := r.Scan(&m.Task, &m.Number, &m.Text, &m.By.Kind, &m.By.Name, &at)
	if err == nil {
		m.Time, err = clock(at)
	}
	return m, err
}

// deafTask finds the latest work session of the task's present attempt, if it is
// past hearing.
const deafTask = `SELECT COUNT(*) FROM deaf WHERE session = (SELECT s.id FROM session s JOIN task t ON t.id = s.task
	WHERE t.id = ? AND s.attempt = t.attempt AND s.purpose = 'work' ORDER BY s.try DESC LIMIT 1)`

// AddMessage keeps what a person says to a task, in one transaction with the
// look at the task that admits it.
func (s *Store) AddMessage(ctx context.Context, m cofferdam.TaskMessage, admit func(h task.Hearing, m cofferdam.TaskMessage) error) (cofferdam.TaskMessage, error) {
	const op = "store.AddMessage"
	err := s.change(ctx, op, func(tx *sql.Tx) error {
		var h task.Hearing
		var err error
		if h.Task, err = one(ctx, tx, op, "task "+show(string(m.Task)), scanTask, taskColumns+`WHERE id = ?`, m.Task); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM message WHERE task = ?`, m.Task).Scan(&h.Messages); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, deafTask, m.Task).Scan(&h.Deaf); err != nil {
			return err
		}
		m.Number = h.Messages + 1
		if err := admit(h, m); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			h.Task.Organization, h.Task.Project, m.Task, m.Number, m.Text, m.By.Kind, m.By.Name, stamp(m.Time))
		return err
	})
	return m, err
}

// Messages returns what people said to a task after the message of that number,
// in order.
func (s *Store) Messages(ctx context.Context, t cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error) {
	v, err := all(ctx, s.read, scanMessage, messageColumns+`WHERE task = ? AND number > ? ORDER BY number LIMIT ?`, t, after, task.MaxMessages)
	return v, broken("store.Messages", s.path, err)
}

// LastMessages is Messages for a session whose agent has ended. If there are
// none, the session is past hearing from then on: a message is either among
// those that some call has returned, or refused to whoever sends it.
func (s *Store) LastMessages(ctx context.Context, id cofferdam.SessionID, t cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error) {
	var found []cofferdam.TaskMessage
	err := s.change(ctx, "store.LastMessages", func(tx *sql.Tx) error {
		var err error
		found, err = all(ctx, tx, scanMessage, messageColumns+`WHERE task = ? AND number > ? ORDER BY number LIMIT ?`, t, after, task.MaxMessages)
		if err != nil || len(found) > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO deaf SELECT id, organization, project, ? FROM session WHERE id = ?
			AND NOT EXISTS (SELECT 1 FROM deaf WHERE session = id)`, now(), id)
		return err
	})
	return found, err
}
