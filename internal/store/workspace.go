package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/workspace"
)

// maxWorkspaces bounds a list: as many as a host keeps of all its tiers.
const maxWorkspaces = 16384

func scanWorkspace(r *sql.Rows) (w workspace.Record, err error) {
	var body string
	if err := r.Scan(&body); err != nil {
		return w, err
	}
	return w, json.Unmarshal([]byte(body), &w)
}

// goneOf says whether nothing is left of a workspace.
func goneOf(w workspace.Record) bool { return !w.Removed.IsZero() && w.Bundle == nil }

// WorkspaceOf finds the workspace of an attempt.
func (s *Store) WorkspaceOf(ctx context.Context, t cofferdam.TaskID, attempt int) (workspace.Record, error) {
	const op = "store.WorkspaceOf"
	w, err := one(ctx, s.read, op, "workspace of task "+show(string(t)), scanWorkspace, `SELECT body FROM workspace WHERE task = ? AND attempt = ?`, t, attempt)
	return w, broken(op, s.path, err)
}

// Workspaces lists those that are there or have a bundle, the newest first.
func (s *Store) Workspaces(ctx context.Context) ([]workspace.Record, error) {
	list, err := all(ctx, s.read, scanWorkspace, `SELECT body FROM workspace WHERE gone = 0 ORDER BY made DESC, id LIMIT ?`, maxWorkspaces)
	return list, broken("store.Workspaces", s.path, err)
}

// AddWorkspace keeps a new one; a Conflict if the attempt has one.
func (s *Store) AddWorkspace(ctx context.Context, w workspace.Record) error {
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, "store.AddWorkspace", `INSERT INTO workspace VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		w.ID, w.Organization, w.Project, w.Task, w.Attempt, goneOf(w), stamp(w.Made), string(body))
	return err
}

// ChangeWorkspace reads one, lets change alter it and writes it back, in one
// transaction.
func (s *Store) ChangeWorkspace(ctx context.Context, id sandbox.WorkspaceID, change func(*workspace.Record) error) (w workspace.Record, err error) {
	const op = "store.ChangeWorkspace"
	err = s.change(ctx, op, func(tx *sql.Tx) error {
		w, err = one(ctx, tx, op, "workspace "+show(string(id)), scanWorkspace, `SELECT body FROM workspace WHERE id = ?`, id)
		if err != nil {
			return err
		}
		if err := change(&w); err != nil {
			return err
		}
		body, err := json.Marshal(w)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE workspace SET attempt = ?, gone = ?, made = ?, body = ? WHERE id = ?`, w.Attempt, goneOf(w), stamp(w.Made), string(body), id)
		return err
	})
	return w, err
}

// SessionTry is which try of its attempt a session is, from 1.
func (s *Store) SessionTry(ctx context.Context, id cofferdam.SessionID) (int, error) {
	const op = "store.SessionTry"
	v, err := one(ctx, s.read, op, "session "+show(string(id)), scanRun, runColumns+`WHERE id = ?`, id)
	return v.try, broken(op, s.path, err)
}
