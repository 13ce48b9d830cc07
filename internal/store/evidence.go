package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/task"
)

func scanReceipt(r *sql.Rows) (task.Receipt, error) {
	var v task.Receipt
	var report, created string
	if err := r.Scan(&v.ID, &v.Organization, &v.Project, &v.Task, &v.Attempt, &v.Commit, &report, &v.Note, &created); err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(report), &v.Report); err != nil {
		return v, err
	}
	var err error
	v.Created, err = clock(created)
	return v, err
}

const receiptColumns = `SELECT id, organization, project, task, attempt, commit_id, report, note, created FROM receipt `

// AddReceipt keeps the receipt of an attempt's commit. If there is one already
// that one is returned: a receipt is written once.
func (s *Store) AddReceipt(ctx context.Context, r task.Receipt) (task.Receipt, error) {
	const op = "store.AddReceipt"
	report, err := json.Marshal(r.Report)
	if err != nil {
		return r, err
	}
	err = s.change(ctx, op, func(tx *sql.Tx) error {
		old, err := all(ctx, tx, scanReceipt, receiptColumns+`WHERE task = ? AND attempt = ? AND commit_id = ?`, r.Task, r.Attempt, r.Commit)
		if err != nil {
			return err
		}
		if len(old) > 0 {
			r = old[0]
			return nil
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO receipt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ID, r.Organization, r.Project, r.Task, r.Attempt, r.Commit, string(report), r.Note, stamp(r.Created))
		return err
	})
	return r, err
}

// ReceiptFor returns the newest receipt for exactly this commit of the task.
func (s *Store) ReceiptFor(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (task.Receipt, error) {
	const op = "store.ReceiptFor"
	v, err := one(ctx, s.read, op, "receipt for commit "+show(string(commit)), scanReceipt, receiptColumns+`WHERE task = ? AND commit_id = ? ORDER BY attempt DESC LIMIT 1`, t, commit)
	return v, broken(op, s.path, err)
}

// ReceiptsOf lists every receipt of a task, oldest first: what an export carries.
func (s *Store) ReceiptsOf(ctx context.Context, t cofferdam.TaskID) ([]task.Receipt, error) {
	v, err := all(ctx, s.read, scanReceipt, receiptColumns+`WHERE task = ? ORDER BY attempt, created`, t)
	return v, broken("store.ReceiptsOf", s.path, err)
}

func scanApproval(r *sql.Rows) (cofferdam.Approval, error) {
	var v cofferdam.Approval
	var at string
	err := r.Scan(&v.Commit, &v.By.Kind, &v.By.Name, &at)
	if err == nil {
		v.Time, err = clock(at)
	}
	return v, err
}

const approvalColumns = `SELECT commit_id, by_kind, by_name, time FROM approval `

// AddApproval keeps a person's word for exactly one commit of a task. Each person
// has one; giving it again returns it.
func (s *Store) AddApproval(ctx context.Context, t cofferdam.Task, a cofferdam.Approval) (cofferdam.Approval, error) {
	const op = "store.AddApproval"
	err := s.change(ctx, op, func(tx *sql.Tx) error {
		old, err := all(ctx, tx, scanApproval, approvalsOf, t.ID, a.Commit, t.ID, a.Commit)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(old, func(o cofferdam.Approval) bool { return o.By == a.By }); i >= 0 {
			a = old[i]
			return nil
		}
		into := `INSERT INTO approval VALUES (?, ?, ?, ?, ?, ?, ?)`
		if len(old) > 0 {
			into = `INSERT INTO approval_more VALUES (?, ?, ?, ?, ?, ?, ?)`
		}
		_, err = tx.ExecContext(ctx, into, t.Organization, t.Project, t.ID, a.Commit, a.By.Kind, a.By.Name, stamp(a.Time))
		return err
	})
	return a, err
}

// approvalsOf has the first word, then those of others in order.
const approvalsOf = `SELECT commit_id, by_kind, by_name, time FROM (
	SELECT 0 AS more, commit_id, by_kind, by_name, time FROM approval WHERE task = ? AND commit_id = ?
	UNION ALL SELECT 1, commit_id, by_kind, by_name, time FROM approval_more WHERE task = ? AND commit_id = ?
) ORDER BY more, time, by_kind, by_name`

// Approvals returns the words of all people for exactly this commit of the task,
// the first one first.
func (s *Store) Approvals(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) ([]cofferdam.Approval, error) {
	list, err := all(ctx, s.read, scanApproval, approvalsOf, t, commit, t, commit)
	return list, broken("store.Approvals", s.path, err)
}

// Approval returns the first person's word for exactly this commit of the task.
func (s *Store) Approval(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (cofferdam.Approval, error) {
	const op = "store.Approval"
	v, err := one(ctx, s.read, op, "approval of commit "+show(string(commit)), scanApproval, approvalColumns+`WHERE task = ? AND commit_id = ?`, t, commit)
	return v, broken(op, s.path, err)
}

func scanLanding(r *sql.Rows) (task.Landing, error) {
	var v task.Landing
	var asked, landed string
	err := r.Scan(&v.Organization, &v.Project, &v.Task, &v.Attempt, &v.Commit, &v.Base, &v.By.Kind, &v.By.Name, &asked, &landed)
	if err != nil {
		return v, err
	}
	if v.Asked, err = clock(asked); err != nil {
		return v, err
	}
	v.Landed, err = clock(landed)
	return v, err
}

const landingColumns = `SELECT organization, project, task, attempt, commit_id, base, by_kind, by_name, asked, COALESCE(landed, '') FROM landing `

// AskLanding keeps a person's wish; asking twice for the same commit is no error.
func (s *Store) AskLanding(ctx context.Context, l task.Landing) error {
	const op = "store.AskLanding"
	return s.change(ctx, op, func(tx *sql.Tx) error {
		old, err := all(ctx, tx, scanLanding, landingColumns+`WHERE task = ? AND commit_id = ?`, l.Task, l.Commit)
		if err != nil || len(old) > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO landing VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
			l.Organization, l.Project, l.Task, l.Attempt, l.Commit, l.Base, l.By.Kind, l.By.Name, stamp(l.Asked))
		return err
	})
}

// LandingOf returns the wish for exactly this commit of the task.
func (s *Store) LandingOf(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (task.Landing, error) {
	const op = "store.LandingOf"
	v, err := one(ctx, s.read, op, "landing of commit "+show(string(commit)), scanLanding, landingColumns+`WHERE task = ? AND commit_id = ?`, t, commit)
	return v, broken(op, s.path, err)
}

// FinishLanding says that the base branch holds the commit now; saying it again
// is no error.
func (s *Store) FinishLanding(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit, at time.Time) error {
	n, err := s.exec(ctx, "store.FinishLanding", `UPDATE landing SET landed = ? WHERE task = ? AND commit_id = ? AND landed IS NULL`, stamp(at), t, commit)
	if err != nil || n > 0 {
		return err
	}
	_, err = s.LandingOf(ctx, t, commit)
	return err
}

// DropLanding takes back a wish that could not be met. What has landed stays.
func (s *Store) DropLanding(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) error {
	_, err := s.exec(ctx, "store.DropLanding", `DELETE FROM landing WHERE task = ? AND commit_id = ?`, t, commit)
	return err
}
