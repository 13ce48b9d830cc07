package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"cofferdam"
)

// maxQuestions bounds a list of questions.
const maxQuestions = 1000

const questionColumns = `SELECT id, state, reason, used, body FROM question `

func scanQuestion(r *sql.Rows) (q cofferdam.Question, err error) {
	var id cofferdam.QuestionID
	var state cofferdam.QuestionState
	var reason, body string
	var used int
	if err := r.Scan(&id, &state, &reason, &used, &body); err != nil {
		return q, err
	}
	err = json.Unmarshal([]byte(body), &q)
	q.ID, q.State, q.Used = id, state, used
	if reason != "" {
		q.Reason = reason
	}
	return q, err
}

// AddQuestion keeps a question that was asked.
func (s *Store) AddQuestion(ctx context.Context, q cofferdam.Question) error {
	q.Answers, q.Used = nil, 0
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, "store.AddQuestion", `INSERT INTO question VALUES (?, ?, ?, ?, ?, ?, ?, '', 0, ?, ?)`,
		q.ID, q.Organization, q.Project, q.Task, q.Hash, q.Needs, q.State, stamp(q.Created), string(body))
	return err
}

// Question finds one by its id or a unique prefix of it.
func (s *Store) Question(ctx context.Context, scope cofferdam.Scope, id string) (cofferdam.Question, error) {
	const op = "store.Question"
	subject := "question " + show(id)
	lo, hi, ok := prefix("a", id)
	if !ok {
		return cofferdam.Question{}, notFound(op, subject)
	}
	q, err := one(ctx, s.read, op, subject, scanQuestion, questionColumns+`WHERE organization = ? AND project = ? AND id >= ? AND id < ? LIMIT 2`, scope.Organization, scope.Project, lo, hi)
	if err == nil {
		q.Answers, err = answers(ctx, s.read, q.ID)
	}
	return q, broken(op, s.path, err)
}

// QuestionAnywhere finds a question by its whole id, whatever its project.
func (s *Store) QuestionAnywhere(ctx context.Context, id cofferdam.QuestionID) (cofferdam.Question, error) {
	const op = "store.Question"
	q, err := one(ctx, s.read, op, "question "+show(string(id)), scanQuestion, questionColumns+`WHERE id = ?`, id)
	if err == nil {
		q.Answers, err = answers(ctx, s.read, q.ID)
	}
	return q, broken(op, s.path, err)
}

// Questions lists those of a project, the newest first; open ones alone if asked.
func (s *Store) Questions(ctx context.Context, scope cofferdam.Scope, open bool, limit int) ([]cofferdam.Question, error) {
	if limit <= 0 || limit > maxQuestions {
		limit = maxQuestions
	}
	list, err := all(ctx, s.read, scanQuestion, questionColumns+`WHERE organization = ? AND project = ? AND (NOT ? OR state = 'open') ORDER BY created DESC, id LIMIT ?`,
		scope.Organization, scope.Project, open, limit)
	return list, broken("store.Questions", s.path, err)
}

// OpenQuestions lists what waits in all projects.
func (s *Store) OpenQuestions(ctx context.Context) ([]cofferdam.Question, error) {
	list, err := all(ctx, s.read, scanQuestion, questionColumns+`WHERE state = 'open' ORDER BY created`)
	return list, broken("store.OpenQuestions", s.path, err)
}

func answers(ctx context.Context, q querier, id cofferdam.QuestionID) ([]cofferdam.Answer, error) {
	return all(ctx, q, func(r *sql.Rows) (a cofferdam.Answer, err error) {
		var body string
		if err := r.Scan(&body); err != nil {
			return a, err
		}
		return a, json.Unmarshal([]byte(body), &a)
	}, `SELECT body FROM answer WHERE question = ? ORDER BY time`, id)
}

// Tally counts the questions of the task of like, and says when the last one was
// denied that has its hash, or proposed to open the same host.
func (s *Store) Tally(ctx context.Context, like cofferdam.Question, since time.Time) (count, recent int, denied time.Time, err error) {
	const op = "store.Tally"
	row := s.write.QueryRowContext(ctx, `SELECT COUNT(*), COUNT(CASE WHEN created > ? THEN 1 END) FROM question WHERE task = ?`, stamp(since), like.Task)
	if err := row.Scan(&count, &recent); err != nil {
		return 0, 0, denied, broken(op, s.path, err)
	}
	var at sql.NullString
	row = s.write.QueryRowContext(ctx, `SELECT MAX(a.time) FROM answer a JOIN question q ON q.id = a.question WHERE q.task = ? AND a.allow = 0
		AND (q.hash = ? OR json_extract(q.body, '$.proposed.entry') = ? OR json_extract(q.body, '$.proposed.entry') LIKE ? || ':%')`,
		like.Task, like.Hash, proposedHost(like), proposedHost(like))
	if err := row.Scan(&at); err != nil {
		return 0, 0, denied, broken(op, s.path, err)
	}
	denied, err = clock(at.String)
	return count, recent, denied, err
}

// Answer adds what a person said to an open question and moves it to state.
func (s *Store) Answer(ctx context.Context, id cofferdam.QuestionID, a cofferdam.Answer, state cofferdam.QuestionState) (q cofferdam.Question, err error) {
	const op = "store.Answer"
	body, err := json.Marshal(a)
	if err != nil {
		return q, err
	}
	err = s.change(ctx, op, func(tx *sql.Tx) error {
		q, err = one(ctx, tx, op, "question "+show(string(id)), scanQuestion, questionColumns+`WHERE id = ?`, id)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			id, q.Organization, q.Project, a.By.Kind, a.By.Name, a.Allow, stamp(a.Time), string(body)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE question SET state = ?, reason = ? WHERE id = ?`, state, a.Comment, id); err != nil {
			return err
		}
		q, err = one(ctx, tx, op, "question "+show(string(id)), scanQuestion, questionColumns+`WHERE id = ?`, id)
		if err == nil {
			q.Answers, err = answers(ctx, tx, id)
		}
		return err
	})
	return q, err
}

// UseAnswer takes the one use of a question that was allowed.
func (s *Store) UseAnswer(ctx context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error {
	const op = "store.UseAnswer"
	n, err := s.exec(ctx, op, `UPDATE question SET used = 1 WHERE id = ? AND hash = ? AND state = 'allowed' AND used = 0`, id, hash)
	if err == nil && n == 0 {
		return conflict(op, "question "+show(string(id)), "no answer is left that lets this pass")
	}
	return err
}

// EndQuestion ends an open question; one that is not open stays as it is.
func (s *Store) EndQuestion(ctx context.Context, id cofferdam.QuestionID, state cofferdam.QuestionState, reason string) error {
	_, err := s.exec(ctx, "store.EndQuestion", `UPDATE question SET state = ?, reason = ? WHERE id = ? AND state = 'open'`, state, reason, id)
	return err
}
