package store

import (
	"context"
	"database/sql"

	"cofferdam"
	"cofferdam/secret"
)

var _ secret.Backend = (*Store)(nil)

const secretColumns = `SELECT organization, project, name, data, created FROM secret `

func scanSecret(r *sql.Rows) (secret.Sealed, error) {
	var v secret.Sealed
	created := ""
	err := r.Scan(&v.Organization, &v.Project, &v.Name, &v.Data, &created)
	if err == nil {
		v.Created, err = clock(created)
	}
	return v, err
}

// PutSecret keeps a sealed value and replaces an older one of its name.
func (s *Store) PutSecret(ctx context.Context, v secret.Sealed) error {
	_, err := s.exec(ctx, "store.PutSecret", `INSERT INTO secret VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (organization, project, name) DO UPDATE SET data = excluded.data, created = excluded.created`,
		v.Organization, v.Project, v.Name, v.Data, stamp(v.Created))
	return err
}

// GetSecret finds a sealed value.
func (s *Store) GetSecret(ctx context.Context, scope cofferdam.Scope, name string) (secret.Sealed, error) {
	const op = "store.GetSecret"
	v, err := one(ctx, s.read, op, "secret "+show(name), scanSecret, secretColumns+`WHERE organization = ? AND project = ? AND name = ?`, scope.Organization, scope.Project, name)
	return v, broken(op, s.path, err)
}

// ListSecrets returns every sealed value of every project.
func (s *Store) ListSecrets(ctx context.Context) ([]secret.Sealed, error) {
	v, err := all(ctx, s.read, scanSecret, secretColumns+`ORDER BY organization, project, name`)
	return v, broken("store.ListSecrets", s.path, err)
}

// RemoveSecret forgets a sealed value.
func (s *Store) RemoveSecret(ctx context.Context, scope cofferdam.Scope, name string) error {
	const op = "store.RemoveSecret"
	n, err := s.exec(ctx, op, `DELETE FROM secret WHERE organization = ? AND project = ? AND name = ?`, scope.Organization, scope.Project, name)
	if err == nil && n == 0 {
		return notFound(op, "secret "+show(name))
	}
	return err
}
