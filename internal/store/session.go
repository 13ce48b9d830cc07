package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"cofferdam"
	"cofferdam/session"
)

// run is one row: what a session was to do, and what came of it.
type run struct {
	plan    session.Plan
	purpose string
	try     int
	result  *session.Result
	ended   string
}

const runColumns = `SELECT plan, purpose, try, result, COALESCE(ended, '') FROM session `

func scanRun(r *sql.Rows) (run, error) {
	var v run
	var plan string
	var result sql.NullString
	if err := r.Scan(&plan, &v.purpose, &v.try, &result, &v.ended); err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(plan), &v.plan); err != nil {
		return v, err
	}
	if !result.Valid {
		return v, nil
	}
	v.result = &session.Result{}
	return v, json.Unmarshal([]byte(result.String), v.result)
}

// BeginSession keeps a plan before its session starts. purpose is what the
// session is for in its attempt (base, work, proof) and try counts from 1; a
// plan that is there already for the same of both is a Conflict.
func (s *Store) BeginSession(ctx context.Context, purpose string, try int, p session.Plan) error {
	plan, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, "store.BeginSession", `INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, NULL)`,
		p.ID, p.Organization, p.Project, p.Task, p.Attempt, purpose, try, string(plan), now())
	return err
}

// LatestSession returns the newest try for a purpose of an attempt; result is
// nil as long as it has none.
func (s *Store) LatestSession(ctx context.Context, t cofferdam.TaskID, attempt int, purpose string) (p session.Plan, result *session.Result, try int, err error) {
	const op = "store.LatestSession"
	v, err := one(ctx, s.read, op, "session for "+purpose, scanRun, runColumns+`WHERE task = ? AND attempt = ? AND purpose = ? ORDER BY try DESC LIMIT 1`, t, attempt, purpose)
	return v.plan, v.result, v.try, broken(op, s.path, err)
}

// SaveResult keeps what came of a session. The first word counts: saving again
// changes nothing and is no error.
func (s *Store) SaveResult(ctx context.Context, r session.Result) error {
	const op = "store.SaveResult"
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	n, err := s.exec(ctx, op, `UPDATE session SET result = ?, ended = ? WHERE id = ? AND result IS NULL`, string(text), now(), r.Session)
	if err != nil || n > 0 {
		return err
	}
	_, _, err = s.LoadResult(ctx, r.Session)
	return err
}

// LoadResult returns what came of a session; ok is false while it runs.
func (s *Store) LoadResult(ctx context.Context, id cofferdam.SessionID) (r session.Result, ok bool, err error) {
	const op = "store.LoadResult"
	v, err := one(ctx, s.read, op, "session "+show(string(id)), scanRun, runColumns+`WHERE id = ?`, id)
	if err != nil || v.result == nil {
		return r, false, broken(op, s.path, err)
	}
	return *v.result, true, nil
}

// TaskUsage sums what all sessions of a task spent.
func (s *Store) TaskUsage(ctx context.Context, t cofferdam.TaskID) (cofferdam.Usage, error) {
	const op = "store.TaskUsage"
	runs, err := all(ctx, s.read, scanRun, runColumns+`WHERE task = ? AND result IS NOT NULL`, t)
	var sum cofferdam.Usage
	for _, r := range runs {
		sum = sum.Plus(r.result.Usage)
	}
	return sum, broken(op, s.path, err)
}

// Session finds a session by id or unique prefix of it.
func (s *Store) Session(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Session, error) {
	const op = "store.Session"
	lo, hi, ok := prefix("s", name)
	if !ok {
		return cofferdam.Session{}, notFound(op, "session "+show(name))
	}
	v, err := one(ctx, s.read, op, "session "+name, scanRun, runColumns+`WHERE organization = ? AND project = ? AND id >= ? AND id < ? LIMIT 2`, scope.Organization, scope.Project, lo, hi)
	if err != nil {
		return cofferdam.Session{}, broken(op, s.path, err)
	}
	return v.view(), nil
}

// maxSessions bounds one list.
const maxSessions = 500

// Sessions lists sessions of a project, newest first, of one task unless t is "".
func (s *Store) Sessions(ctx context.Context, scope cofferdam.Scope, t cofferdam.TaskID, limit int) ([]cofferdam.Session, error) {
	if limit <= 0 || limit > maxSessions {
		limit = maxSessions
	}
	query, args := runColumns+`WHERE organization = ? AND project = ?`, []any{scope.Organization, scope.Project}
	if t != "" {
		query, args = query+` AND task = ?`, append(args, t)
	}
	runs, err := all(ctx, s.read, scanRun, query+` ORDER BY created DESC, id LIMIT ?`, append(args, limit)...)
	var views []cofferdam.Session
	for _, r := range runs {
		views = append(views, r.view())
	}
	return views, broken("store.Sessions", s.path, err)
}

// Plan returns what a session was to do; for the platform, not for faces.
func (s *Store) Plan(ctx context.Context, id cofferdam.SessionID) (session.Plan, error) {
	const op = "store.Plan"
	v, err := one(ctx, s.read, op, "session "+show(string(id)), scanRun, runColumns+`WHERE id = ?`, id)
	return v.plan, broken(op, s.path, err)
}

// OpenSessions lists the plans of all sessions without a result, of all scopes.
func (s *Store) OpenSessions(ctx context.Context) ([]session.Plan, error) {
	runs, err := all(ctx, s.read, scanRun, runColumns+`WHERE result IS NULL ORDER BY created, id`)
	var plans []session.Plan
	for _, r := range runs {
		plans = append(plans, r.plan)
	}
	return plans, broken("store.OpenSessions", s.path, err)
}

// view is the session as every face shows it.
func (r run) view() cofferdam.Session {
	v := cofferdam.Session{
		Schema: "cofferdam/session/v1", ID: r.plan.ID, Scope: r.plan.Scope, Task: r.plan.Task, Attempt: r.plan.Attempt,
		Phase: string(r.plan.Phase), State: "busy", Commit: r.plan.Commit,
	}
	if r.result == nil {
		return v
	}
	res := *r.result
	v.State = "stopped"
	if res.Failure != "" {
		v.State = "failed"
	}
	v.Met = res.Met
	v.Head, v.Said, v.Exit, v.Failure, v.Reason, v.Usage = res.Head, res.Said, res.Exit, res.Failure, res.Reason, res.Usage
	v.Tier, v.Kernel, v.Image, v.Environment, v.Policy = res.Box.Tier, res.Box.Kernel, res.Box.Image, res.Box.Environment, res.Box.Policy
	v.Found = res.Box.Found
	v.TraceSize, v.TraceRoot, v.Sealed = res.Sealed.Size, res.Sealed.Root, res.Sealed.Time
	return v
}
