package store

import (
	"context"
	"strings"
	"time"

	"cofferdam"
)

// UseOpening takes one of the acts that the answers to a question opened, of at
// most so many.
func (s *Store) UseOpening(ctx context.Context, id cofferdam.QuestionID, most int) error {
	const op = "store.UseOpening"
	if most < 1 {
		return conflict(op, "question "+show(string(id)), "it opened no acts")
	}
	n, err := s.exec(ctx, op, `INSERT INTO opening VALUES (?, 1) ON CONFLICT (question) DO UPDATE SET used = used + 1 WHERE used < ?`, id, most)
	if err == nil && n == 0 {
		return conflict(op, "question "+show(string(id)), "the acts that it opened are used up")
	}
	return err
}

// TakeBytes takes n of the bytes that the answers to a question opened, of at most
// so many, or with n below zero gives some back. The database refuses what is more
// than the answers say as well.
func (s *Store) TakeBytes(ctx context.Context, id cofferdam.QuestionID, n, most int64) error {
	const op = "store.TakeBytes"
	if n < 0 {
		_, err := s.exec(ctx, op, `UPDATE opening_bytes SET used = MAX(0, used + ?) WHERE question = ?`, n, id)
		return err
	}
	spent := conflict(op, "question "+show(string(id)), "the bytes that it opened are used up")
	if n > most {
		return spent
	}
	changed, err := s.exec(ctx, op, `INSERT INTO opening_bytes VALUES (?, ?) ON CONFLICT (question) DO UPDATE SET used = used + excluded.used WHERE used + excluded.used <= ?`, id, n, most)
	if err == nil && changed == 0 {
		return spent
	}
	return err
}

// EndOpening ends for good what the answers to a question opened.
func (s *Store) EndOpening(ctx context.Context, id cofferdam.QuestionID, at time.Time, reason string) error {
	const op = "store.EndOpening"
	n, err := s.exec(ctx, op, `INSERT INTO opening_end VALUES (?, ?, ?) ON CONFLICT (question) DO NOTHING`, id, stamp(at), reason)
	if err == nil && n == 0 {
		return notFound(op, "opening of question "+show(string(id)))
	}
	return err
}

// Openings returns the questions of a task whose answers opened something that was
// not ended since.
func (s *Store) Openings(ctx context.Context, task cofferdam.TaskID) ([]cofferdam.Question, error) {
	const op = "store.Openings"
	list, err := all(ctx, s.read, scanQuestion, questionColumns+`WHERE task = ? AND state = 'allowed'
		AND NOT EXISTS (SELECT 1 FROM opening_end WHERE question = question.id) AND EXISTS (
		SELECT 1 FROM answer WHERE question = question.id AND json_extract(body, '$.bounds') IS NOT NULL) ORDER BY created LIMIT ?`, task, maxQuestions)
	for i := range list {
		if err == nil {
			list[i].Answers, err = answers(ctx, s.read, list[i].ID)
		}
	}
	return list, broken(op, s.path, err)
}

// proposedHost is the host that a question proposes to open, whatever its port; ""
// for none, which nothing proposes.
func proposedHost(q cofferdam.Question) string {
	if q.Proposed == nil {
		return ""
	}
	host, _, _ := strings.Cut(q.Proposed.Entry, ":")
	return host
}
