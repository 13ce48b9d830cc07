package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"time"

	"cofferdam"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate applies what is missing, each migration in a transaction of its own
// together with its entry in the list.
func (s *Store) migrate(ctx context.Context) error {
	if err := s.write.PingContext(ctx); err != nil {
		return err
	}
	if _, err := s.write.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migration (name TEXT PRIMARY KEY, digest TEXT NOT NULL, applied TEXT NOT NULL) STRICT`); err != nil {
		return err
	}
	type entry struct{ name, digest string }
	have, err := all(ctx, s.write, func(r *sql.Rows) (e entry, err error) {
		return e, r.Scan(&e.name, &e.digest)
	}, `SELECT name, digest FROM migration`)
	if err != nil {
		return err
	}
	applied := map[string]string{}
	for _, e := range have {
		applied[e.name] = e.digest
	}
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name, which is by date
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := fs.ReadFile(migrations, f)
		if err != nil {
			return err
		}
		name, sum := path.Base(f), sha256.Sum256(text)
		digest, done := applied[name]
		delete(applied, name)
		switch {
		case done && digest == hex.EncodeToString(sum[:]):
			continue
		case done:
			return &cofferdam.Error{Op: "store.Open", Kind: cofferdam.Unavailable, Subject: "database " + s.path, Reason: "its schema " + name + " is not the one of this version", Hint: "run the version of cofferdam that made it"}
		}
		if err := s.apply(ctx, name, hex.EncodeToString(sum[:]), string(text)); err != nil {
			return fmt.Errorf("applying %s: %w", name, err)
		}
	}
	for name := range applied {
		return &cofferdam.Error{Op: "store.Open", Kind: cofferdam.Unavailable, Subject: "database " + s.path, Reason: "it was written by a newer version, which knows " + name, Hint: "run that version of cofferdam, or give another state folder"}
	}
	return nil
}

func (s *Store) apply(ctx context.Context, name, digest, text string) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO migration VALUES (?, ?, ?)`, name, digest, now()); err != nil {
		return err
	}
	return tx.Commit()
}

// stamp writes a time as the store keeps it; a zero time as "".
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func now() string { return stamp(time.Now()) }

// clock reads what stamp wrote.
func clock(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339Nano, s)
}
