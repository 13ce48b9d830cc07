package store

import (
	"context"
	"database/sql"

	"cofferdam"
)

const repoColumns = `SELECT id, organization, project, name, upstream, base, user, created FROM repo `

func scanRepo(r *sql.Rows) (cofferdam.Repo, error) {
	v, created := cofferdam.Repo{Schema: "cofferdam/repo/v1"}, ""
	err := r.Scan(&v.ID, &v.Organization, &v.Project, &v.Name, &v.Upstream, &v.Base, &v.User, &created)
	if err == nil {
		v.Created, err = clock(created)
	}
	return v, err
}

// AddRepo keeps a new repository; its name must be free in its project.
func (s *Store) AddRepo(ctx context.Context, r cofferdam.Repo) error {
	const op = "store.AddRepo"
	return s.change(ctx, op, func(tx *sql.Tx) error {
		taken, err := all(ctx, tx, scanRepo, repoColumns+`WHERE organization = ? AND project = ? AND name = ? AND removed IS NULL`, r.Organization, r.Project, r.Name)
		if err != nil {
			return err
		}
		if len(taken) > 0 {
			return conflict(op, "repository "+r.Name, "there is one of this name")
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO repo VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
			r.ID, r.Organization, r.Project, r.Name, r.Upstream, r.Base, r.User, stamp(r.Created))
		return err
	})
}

// FindRepo finds a repository by name, id or unique prefix of an id.
func (s *Store) FindRepo(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Repo, error) {
	const op = "store.FindRepo"
	v, err := one(ctx, s.read, op, "repository "+show(name), scanRepo,
		repoColumns+`WHERE organization = ? AND project = ? AND removed IS NULL AND name = ?`, scope.Organization, scope.Project, name)
	if lo, hi, ok := prefix("r", name); ok && cofferdam.KindOf(err) == cofferdam.NotFound {
		v, err = one(ctx, s.read, op, "repository "+show(name), scanRepo,
			repoColumns+`WHERE organization = ? AND project = ? AND removed IS NULL AND id >= ? AND id < ? LIMIT 2`, scope.Organization, scope.Project, lo, hi)
	}
	return v, broken(op, s.path, err)
}

// RepoByID finds a repository of any scope, also one that was removed while a
// task still worked on it; for the platform, not for faces.
func (s *Store) RepoByID(ctx context.Context, id cofferdam.RepoID) (cofferdam.Repo, error) {
	const op = "store.RepoByID"
	v, err := one(ctx, s.read, op, "repository "+show(string(id)), scanRepo, repoColumns+`WHERE id = ?`, id)
	return v, broken(op, s.path, err)
}

// Repos lists the repositories of a project by name.
func (s *Store) Repos(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Repo, error) {
	v, err := all(ctx, s.read, scanRepo, repoColumns+`WHERE organization = ? AND project = ? AND removed IS NULL ORDER BY name`, scope.Organization, scope.Project)
	return v, broken("store.Repos", s.path, err)
}

// RemoveRepo forgets a repository; rows of tasks that worked on it stay.
func (s *Store) RemoveRepo(ctx context.Context, scope cofferdam.Scope, id cofferdam.RepoID) error {
	const op = "store.RemoveRepo"
	n, err := s.exec(ctx, op, `UPDATE repo SET removed = ? WHERE organization = ? AND project = ? AND id = ? AND removed IS NULL`, now(), scope.Organization, scope.Project, id)
	if err == nil && n == 0 {
		return notFound(op, "repository "+show(string(id)))
	}
	return err
}
