// Package store keeps the platform's truth in one SQLite file: tasks, their
// sessions, receipts, approvals and landings, and what an operator set up. It
// implements the interfaces that the nouns declare, one file per noun.
//
// It never decides anything, but the rules that must hold whatever program
// writes are triggers of the file itself: which state follows which, that "done"
// needs a receipt, an approval and a landing for exactly that commit, and that
// evidence is never changed. The invariant: what a method has returned without
// an error is on disk (WAL, synchronous=FULL), and every row belongs to one
// project of one organisation.
//
// # Format
//
// Migrations are files of the folder migrations, named by date, each applied
// once and in order, and listed with their hash in the table migration. A file
// that has a migration this program does not know was written by a newer one
// and is refused. Times are RFC 3339 text in UTC; compound values are JSON.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"cofferdam"
)

// readers bounds the connections that only read; SQLite lets them work beside
// the one that writes.
const readers = 4

// busy is how long a connection waits for another process's lock, in
// milliseconds: longer than any transaction of ours lasts.
const busy = 10_000

// Store is an open database. Safe for concurrent use.
type Store struct {
	path  string
	write *sql.DB // one connection: one writer
	read  *sql.DB
}

// Open opens the database at path, makes it if it is missing, and brings it up
// to date.
func Open(ctx context.Context, path string) (*Store, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("opening database %s: not an absolute path", path)
	}
	if err := touch(path); err != nil {
		return nil, broken("store.Open", path, err)
	}
	s := &Store{path: path}
	var err error
	if s.write, err = connect(path, "rwc", 1); err != nil {
		return nil, broken("store.Open", path, err)
	}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(broken("store.Open", path, err), s.write.Close())
	}
	if s.read, err = connect(path, "ro", readers); err == nil {
		err = s.read.PingContext(ctx)
	}
	if err != nil {
		return nil, errors.Join(broken("store.Open", path, err), s.write.Close())
	}
	return s, nil
}

// touch makes the file with a mode of its own, and finds out early and with a
// plain error whether it can be written.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func connect(path, mode string, most int) (*sql.DB, error) {
	q := url.Values{"mode": {mode}}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busy))
	if mode != "ro" {
		q.Set("_txlock", "immediate")
		// With recursive_triggers REPLACE meets the triggers of DELETE.
		for _, p := range []string{"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "recursive_triggers(1)"} {
			q.Add("_pragma", p)
		}
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// Close closes the database.
func (s *Store) Close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// change runs do in one transaction with nobody in between.
func (s *Store) change(ctx context.Context, op string, do func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return broken(op, s.path, err)
	}
	if err := do(tx); err != nil {
		if back := tx.Rollback(); back != nil && !errors.Is(back, sql.ErrTxDone) {
			err = errors.Join(err, back)
		}
		return broken(op, s.path, err)
	}
	if err := tx.Commit(); err != nil {
		return broken(op, s.path, err)
	}
	return nil
}

// exec is change for one statement.
func (s *Store) exec(ctx context.Context, op, query string, args ...any) (int64, error) {
	var n int64
	err := s.change(ctx, op, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return n, err
}

// querier is what a transaction and a pool have in common.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// all runs a query and scans every row.
func all[T any](ctx context.Context, q querier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, rows.Err()
}

// one is all for exactly one row; none is NotFound.
func one[T any](ctx context.Context, q querier, op, subject string, scan func(*sql.Rows) (T, error), query string, args ...any) (T, error) {
	var none T
	found, err := all(ctx, q, scan, query, args...)
	switch {
	case err != nil:
		return none, err
	case len(found) == 0:
		return none, notFound(op, subject)
	case len(found) > 1:
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: subject, Reason: "more than one begins with that", Hint: "give more digits"}
	}
	return found[0], nil
}
