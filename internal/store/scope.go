package store

import (
	"context"
	"database/sql"

	"cofferdam"
)

// The names of the organisation and project that every new database has.
const (
	firstOrganization = "default"
	firstProject      = "default"
)

// DefaultScope returns the scope of a server that serves one project. It is
// made at its first use and stays the same.
func (s *Store) DefaultScope(ctx context.Context) (cofferdam.Scope, error) {
	var scope cofferdam.Scope
	err := s.change(ctx, "store.DefaultScope", func(tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, `SELECT o.id, p.id FROM organization o JOIN project p ON p.organization = o.id WHERE o.name = ? AND p.name = ?`, firstOrganization, firstProject)
		if err := row.Scan(&scope.Organization, &scope.Project); err != sql.ErrNoRows {
			return err
		}
		scope = cofferdam.Scope{Organization: cofferdam.OrganizationID(cofferdam.NewID("o")), Project: cofferdam.ProjectID(cofferdam.NewID("p"))}
		if _, err := tx.ExecContext(ctx, `INSERT INTO organization VALUES (?, ?, ?)`, scope.Organization, firstOrganization, now()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO project VALUES (?, ?, ?, ?)`, scope.Project, scope.Organization, firstProject, now())
		return err
	})
	return scope, err
}
