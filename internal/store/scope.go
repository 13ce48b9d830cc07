package store

import (
	"context"
	"database/sql"

	"cofferdam"
	"cofferdam/identity"
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

const projectColumns = `SELECT id, organization, name, created FROM project `

func scanProject(r *sql.Rows) (cofferdam.Project, error) {
	p, created := cofferdam.Project{Schema: "cofferdam/project/v1"}, ""
	err := r.Scan(&p.Scope.Project, &p.Organization, &p.Name, &created)
	if err == nil {
		p.Created, err = clock(created)
	}
	return p, err
}

// Project finds a project of an organisation by name, id or a unique prefix of
// it; NotFound says the same of what another organisation has.
func (s *Store) Project(ctx context.Context, o cofferdam.OrganizationID, name string) (cofferdam.Scope, error) {
	const op = "store.Project"
	subject := "project " + show(name)
	query, args := projectColumns+`WHERE organization = ? AND name = ?`, []any{o, name}
	if lo, hi, ok := prefix("p", name); ok {
		query, args = projectColumns+`WHERE organization = ? AND id >= ? AND id < ? LIMIT 2`, []any{o, lo, hi}
	}
	p, err := one(ctx, s.read, op, subject, scanProject, query, args...)
	return p.Scope, broken(op, s.path, err)
}

// Projects lists those of an organisation, by name.
func (s *Store) Projects(ctx context.Context, o cofferdam.OrganizationID) ([]cofferdam.Project, error) {
	list, err := all(ctx, s.read, scanProject, projectColumns+`WHERE organization = ? ORDER BY name LIMIT ?`, o, maxPeople)
	return list, broken("store.Projects", s.path, err)
}

// AddProject keeps a new project; a Conflict if the name is taken.
func (s *Store) AddProject(ctx context.Context, p cofferdam.Project) error {
	_, err := s.exec(ctx, "store.AddProject", `INSERT INTO project VALUES (?, ?, ?, ?)`, p.Scope.Project, p.Organization, p.Name, stamp(p.Created))
	return err
}

// Organization finds one by its name; it is no secret whether there is one, but
// nothing of it is told.
func (s *Store) Organization(ctx context.Context, name string) (cofferdam.OrganizationID, error) {
	const op = "store.Organization"
	id, err := one(ctx, s.read, op, "organisation", func(r *sql.Rows) (id cofferdam.OrganizationID, err error) { return id, r.Scan(&id) }, `SELECT id FROM organization WHERE name = ?`, name)
	return id, broken(op, s.path, err)
}

// Organizations lists those of this server, by name.
func (s *Store) Organizations(ctx context.Context) ([]cofferdam.Organization, error) {
	list, err := all(ctx, s.read, func(r *sql.Rows) (cofferdam.Organization, error) {
		o, created := cofferdam.Organization{Schema: "cofferdam/organization/v1"}, ""
		err := r.Scan(&o.ID, &o.Name, &created)
		if err == nil {
			o.Created, err = clock(created)
		}
		return o, err
	}, `SELECT id, name, created FROM organization ORDER BY name LIMIT ?`, maxPeople)
	return list, broken("store.Organizations", s.path, err)
}

// AddOrganization keeps a new one with its first project, and the owner with the
// invitation; a Conflict if the name is taken.
func (s *Store) AddOrganization(ctx context.Context, f identity.Founding) error {
	const op = "store.AddOrganization"
	p := f.Owner
	return s.change(ctx, op, func(tx *sql.Tx) error {
		for _, row := range []struct {
			query string
			args  []any
		}{
			{`INSERT INTO organization VALUES (?, ?, ?)`, []any{f.Organization.ID, f.Organization.Name, stamp(f.Organization.Created)}},
			{`INSERT INTO project VALUES (?, ?, ?, ?)`, []any{f.Project.Scope.Project, f.Project.Organization, f.Project.Name, stamp(f.Project.Created)}},
			{`INSERT INTO person VALUES (?, ?, ?, ?, ?, ?)`, []any{p.ID, p.Organization, p.Name, p.Service, stamp(p.Created), stamp(p.Disabled)}},
			{`INSERT INTO membership VALUES (?, ?, '', ?)`, []any{p.Organization, p.ID, identity.Owner}},
		} {
			if _, err := tx.ExecContext(ctx, row.query, row.args...); err != nil {
				return err
			}
		}
		return addToken(ctx, tx, f.Invitation)
	})
}
