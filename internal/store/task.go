package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/task"
)

var _ task.Store = (*Store)(nil)

// taskColumns reads a task together with the ids of its sessions.
const taskColumns = `SELECT id, number, organization, project, request, repo, state, reason, comment, attempt,
	branch, base, base_commit, head, receipt, regression_only, landed, usage, by_kind, by_name, created, updated, raised,
	(SELECT json_group_array(s.id) FROM (SELECT id FROM session WHERE session.task = task.id ORDER BY attempt, created, id) s) FROM task `

func scanTask(r *sql.Rows) (cofferdam.Task, error) {
	t := cofferdam.Task{Schema: "cofferdam/task/v1"}
	var request, usage, created, updated, raised, sessions string
	err := r.Scan(&t.ID, &t.Number, &t.Organization, &t.Project, &request, &t.Repo, &t.State, &t.Reason, &t.Comment, &t.Attempt,
		&t.Branch, &t.Base, &t.BaseAt, &t.Head, &t.Receipt, &t.RegressionOnly, &t.Landed, &usage, &t.By.Kind, &t.By.Name, &created, &updated, &raised, &sessions)
	if err != nil {
		return t, err
	}
	err = errors.Join(json.Unmarshal([]byte(request), &t.Request), json.Unmarshal([]byte(usage), &t.Usage), json.Unmarshal([]byte(raised), &t.Raised), json.Unmarshal([]byte(sessions), &t.Sessions))
	if err != nil {
		return t, err
	}
	if t.Created, err = clock(created); err != nil {
		return t, err
	}
	t.Updated, err = clock(updated)
	return t, err
}

// CreateTask keeps a new task and gives it the next number of its project.
func (s *Store) CreateTask(ctx context.Context, t cofferdam.Task, record func(cofferdam.Task) error) (cofferdam.Task, bool, error) {
	const op = "store.CreateTask"
	request, err := json.Marshal(t.Request)
	if err != nil {
		return t, false, err
	}
	usage, err := json.Marshal(t.Usage)
	if err != nil {
		return t, false, err
	}
	sum := sha256.Sum256(request)
	digest, made := hex.EncodeToString(sum[:]), true
	err = s.change(ctx, op, func(tx *sql.Tx) error {
		old, found, err := keyed(ctx, tx, t, digest)
		if err != nil {
			return err
		}
		if found {
			t, made = old, false
			return nil
		}
		row := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(number), 0) + 1 FROM task WHERE organization = ? AND project = ?`, t.Organization, t.Project)
		if err := row.Scan(&t.Number); err != nil {
			return err
		}
		t.Branch = task.Branch(t.Number, t.Attempt)
		if _, err := tx.ExecContext(ctx, `INSERT INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'null')`,
			t.ID, t.Organization, t.Project, t.Number, string(request), t.Repo, t.State, t.Reason, t.Comment, t.Attempt, t.Branch, t.Base,
			t.BaseAt, t.Head, t.Receipt, t.RegressionOnly, t.Landed, string(usage), t.By.Kind, t.By.Name, stamp(t.Created), stamp(t.Updated)); err != nil {
			return err
		}
		if t.Request.Key != "" {
			if _, err := tx.ExecContext(ctx, `INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)`, t.Organization, t.Project, t.Request.Key, digest, t.ID); err != nil {
				return err
			}
		}
		return record(t)
	})
	return t, made && err == nil, err
}

// NewestTask says when the nth newest task of a project was made.
func (s *Store) NewestTask(ctx context.Context, scope cofferdam.Scope, n int) (time.Time, error) {
	const op = "store.NewestTask"
	var text string
	err := s.read.QueryRowContext(ctx, `SELECT created FROM task WHERE organization = ? AND project = ? ORDER BY number DESC LIMIT 1 OFFSET ?`,
		scope.Organization, scope.Project, n-1).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, broken(op, s.path, err)
	}
	at, err := clock(text)
	return at, broken(op, s.path, err)
}

// keyed finds the task that was made with the same key before.
func keyed(ctx context.Context, tx *sql.Tx, t cofferdam.Task, digest string) (cofferdam.Task, bool, error) {
	if t.Request.Key == "" {
		return t, false, nil
	}
	var before string
	var id cofferdam.TaskID
	err := tx.QueryRowContext(ctx, `SELECT request, task FROM idempotency WHERE organization = ? AND project = ? AND key = ?`,
		t.Organization, t.Project, t.Request.Key).Scan(&before, &id)
	switch {
	case err == sql.ErrNoRows:
		return t, false, nil
	case err != nil:
		return t, false, err
	case before != digest:
		return t, false, &cofferdam.Error{Op: "store.CreateTask", Kind: cofferdam.Conflict, Subject: "idempotency key " + show(t.Request.Key), Reason: "was used for another request", Hint: "use a new key for a new request"}
	}
	old, err := one(ctx, tx, "store.CreateTask", string(id), scanTask, taskColumns+`WHERE id = ?`, id)
	return old, true, err
}

// TaskByID finds a task of any scope; for the platform, not for faces.
func (s *Store) TaskByID(ctx context.Context, id cofferdam.TaskID) (cofferdam.Task, error) {
	const op = "store.TaskByID"
	t, err := one(ctx, s.read, op, "task "+show(string(id)), scanTask, taskColumns+`WHERE id = ?`, id)
	return t, broken(op, s.path, err)
}

// FindTask finds a task by short name, id or unique prefix of an id. One id in
// seventeen begins with six decimal digits, which read as a short name too: the
// task of that number comes first, since nothing shorter names it.
func (s *Store) FindTask(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Task, error) {
	const op = "store.FindTask"
	const mine = taskColumns + `WHERE organization = ? AND project = ? AND `
	var t cofferdam.Task
	err := notFound(op, "task "+show(name))
	if n, ok := number(name); ok {
		t, err = one(ctx, s.read, op, "task "+name, scanTask, mine+`number = ?`, scope.Organization, scope.Project, n)
	}
	if lo, hi, ok := prefix("t", name); ok && cofferdam.KindOf(err) == cofferdam.NotFound {
		t, err = one(ctx, s.read, op, "task "+name, scanTask, mine+`id >= ? AND id < ? LIMIT 2`, scope.Organization, scope.Project, lo, hi)
	}
	return t, broken(op, s.path, err)
}

// Tasks lists the tasks of a project, newest first.
func (s *Store) Tasks(ctx context.Context, scope cofferdam.Scope, f task.Filter) ([]cofferdam.Task, error) {
	query, args := taskColumns+`WHERE organization = ? AND project = ?`, []any{scope.Organization, scope.Project}
	if len(f.States) > 0 {
		query += ` AND state IN (?` + strings.Repeat(`, ?`, len(f.States)-1) + `)`
		for _, st := range f.States {
			args = append(args, st)
		}
	}
	if f.Repo != "" {
		query, args = query+` AND repo = ?`, append(args, f.Repo)
	}
	if f.Before > 0 {
		query, args = query+` AND number < ?`, append(args, f.Before)
	}
	if f.Limit <= 0 || f.Limit > task.MaxList {
		f.Limit = task.MaxList
	}
	v, err := all(ctx, s.read, scanTask, query+` ORDER BY number DESC LIMIT ?`, append(args, f.Limit)...)
	return v, broken("store.Tasks", s.path, err)
}

// OpenTasks lists every task that has not ended, of all scopes, oldest first.
func (s *Store) OpenTasks(ctx context.Context) ([]cofferdam.Task, error) {
	v, err := all(ctx, s.read, scanTask, taskColumns+`WHERE state IN ('queued', 'preparing', 'running', 'verifying', 'waiting', 'in review') ORDER BY created, id`)
	return v, broken("store.OpenTasks", s.path, err)
}

// ChangeTask lets change alter a task inside one transaction.
func (s *Store) ChangeTask(ctx context.Context, id cofferdam.TaskID, change func(*cofferdam.Task) error) (cofferdam.Task, error) {
	const op = "store.ChangeTask"
	var t cofferdam.Task
	err := s.change(ctx, op, func(tx *sql.Tx) error {
		var err error
		if t, err = one(ctx, tx, op, "task "+show(string(id)), scanTask, taskColumns+`WHERE id = ?`, id); err != nil {
			return err
		}
		changed := t
		if err := change(&changed); err != nil {
			return err
		}
		usage, err := json.Marshal(changed.Usage)
		if err != nil {
			return err
		}
		raised, err := json.Marshal(changed.Raised)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE task SET raised = ?, state = ?, reason = ?, comment = ?, attempt = ?, branch = ?, base_commit = ?,
			head = ?, receipt = ?, landed = ?, usage = ?, updated = ? WHERE id = ?`,
			string(raised), changed.State, changed.Reason, changed.Comment, changed.Attempt, changed.Branch, changed.BaseAt,
			changed.Head, changed.Receipt, changed.Landed, string(usage), stamp(changed.Updated), id)
		if err == nil {
			t = changed
		}
		return err
	})
	return t, err
}
