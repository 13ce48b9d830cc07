package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"cofferdam"
)

const modelColumns = `SELECT id, organization, project, name, provider, url, rehearsal, default_id, allow, alias, fallback, keep_text, no_key, created FROM model `

func scanModel(r *sql.Rows) (cofferdam.Model, error) {
	v := cofferdam.Model{Schema: "cofferdam/model/v1"}
	var allow, alias, fallback, created string
	err := r.Scan(&v.ID, &v.Organization, &v.Project, &v.Name, &v.Provider, &v.URL, &v.Rehearsal, &v.Default, &allow, &alias, &fallback, &v.KeepText, &v.NoKey, &created)
	if err != nil {
		return v, err
	}
	if err := errors.Join(json.Unmarshal([]byte(allow), &v.Allow), json.Unmarshal([]byte(alias), &v.Alias), json.Unmarshal([]byte(fallback), &v.Fallback)); err != nil {
		return v, err
	}
	v.Created, err = clock(created)
	return v, err
}

// AddModel keeps a new model provider; its name must be free in its project.
func (s *Store) AddModel(ctx context.Context, m cofferdam.Model) error {
	const op = "store.AddModel"
	return s.change(ctx, op, func(tx *sql.Tx) error {
		taken, err := all(ctx, tx, scanModel, modelColumns+`WHERE organization = ? AND project = ? AND name = ? AND removed IS NULL`, m.Organization, m.Project, m.Name)
		if err != nil {
			return err
		}
		if len(taken) > 0 {
			return conflict(op, "model "+m.Name, "there is one of this name")
		}
		allow, err1 := json.Marshal(m.Allow)
		alias, err2 := json.Marshal(m.Alias)
		fallback, err3 := json.Marshal(m.Fallback)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO model (id, organization, project, name, provider, url, rehearsal, default_id, allow, alias, fallback, keep_text, no_key, created)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			m.ID, m.Organization, m.Project, m.Name, m.Provider, m.URL, m.Rehearsal, m.Default, string(allow), string(alias), string(fallback), m.KeepText, m.NoKey, stamp(m.Created))
		return err
	})
}

// FindModel finds a model provider by name, id or unique prefix of an id.
func (s *Store) FindModel(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Model, error) {
	const op = "store.FindModel"
	v, err := one(ctx, s.read, op, "model "+show(name), scanModel,
		modelColumns+`WHERE organization = ? AND project = ? AND removed IS NULL AND name = ?`, scope.Organization, scope.Project, name)
	if lo, hi, ok := prefix("m", name); ok && cofferdam.KindOf(err) == cofferdam.NotFound {
		v, err = one(ctx, s.read, op, "model "+show(name), scanModel,
			modelColumns+`WHERE organization = ? AND project = ? AND removed IS NULL AND id >= ? AND id < ? LIMIT 2`, scope.Organization, scope.Project, lo, hi)
	}
	return v, broken(op, s.path, err)
}

// Models lists the model providers of a project by name.
func (s *Store) Models(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Model, error) {
	v, err := all(ctx, s.read, scanModel, modelColumns+`WHERE organization = ? AND project = ? AND removed IS NULL ORDER BY name`, scope.Organization, scope.Project)
	return v, broken("store.Models", s.path, err)
}

// RemoveModel forgets a model provider.
func (s *Store) RemoveModel(ctx context.Context, scope cofferdam.Scope, id cofferdam.ModelID) error {
	const op = "store.RemoveModel"
	n, err := s.exec(ctx, op, `UPDATE model SET removed = ? WHERE organization = ? AND project = ? AND id = ? AND removed IS NULL`, now(), scope.Organization, scope.Project, id)
	if err == nil && n == 0 {
		return notFound(op, "model "+show(string(id)))
	}
	return err
}
