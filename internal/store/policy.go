package store

import (
	"context"
	"database/sql"
	"fmt"

	"cofferdam"
)

// Bounds of versions of one document. Source: docs/SPECIFICATION.md, "Policy".
const (
	maxPolicies  = 1000   // in a list
	maxProposals = 32     // that wait for a person
	maxVersions  = 10_000 // in all
)

const policyColumns = `SELECT organization, project, version, text, digest, why, state, proposed_by, proposed, decided_by, decided, signature FROM policy `

func scanPolicy(r *sql.Rows) (v cofferdam.PolicyVersion, err error) {
	var proposed, decided string
	v.Schema = "cofferdam/policy/v1"
	if err := r.Scan(&v.Organization, &v.Project, &v.Version, &v.Text, &v.Digest, &v.Why, &v.State, &v.ProposedBy, &proposed, &v.DecidedBy, &decided, &v.Signature); err != nil {
		return v, err
	}
	if v.Proposed, err = clock(proposed); err == nil {
		v.Decided, err = clock(decided)
	}
	return v, err
}

// Policy returns the document that counts for a project, or with project "" for
// the organisation; NotFound if there is none.
func (s *Store) Policy(ctx context.Context, scope cofferdam.Scope) (cofferdam.PolicyVersion, error) {
	const op = "store.Policy"
	v, err := one(ctx, s.read, op, "policy", scanPolicy, policyColumns+`WHERE organization = ? AND project = ? AND state = 'taken' ORDER BY version DESC LIMIT 1`, scope.Organization, scope.Project)
	return v, broken(op, s.path, err)
}

// PolicyVersion returns one version, whatever became of it.
func (s *Store) PolicyVersion(ctx context.Context, scope cofferdam.Scope, version int64) (cofferdam.PolicyVersion, error) {
	const op = "store.PolicyVersion"
	v, err := one(ctx, s.read, op, "version of the policy", scanPolicy, policyColumns+`WHERE organization = ? AND project = ? AND version = ?`, scope.Organization, scope.Project, version)
	return v, broken(op, s.path, err)
}

// PolicyVersions lists them, the newest first.
func (s *Store) PolicyVersions(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.PolicyVersion, error) {
	list, err := all(ctx, s.read, scanPolicy, policyColumns+`WHERE organization = ? AND project = ? ORDER BY version DESC LIMIT ?`, scope.Organization, scope.Project, maxPolicies)
	return list, broken("store.PolicyVersions", s.path, err)
}

// PoliciesOf returns the versions of an organisation's and a project's documents
// that were taken and have this text, the oldest first.
func (s *Store) PoliciesOf(ctx context.Context, scope cofferdam.Scope, text cofferdam.Digest) ([]cofferdam.PolicyVersion, error) {
	list, err := all(ctx, s.read, scanPolicy, policyColumns+`WHERE organization = ? AND project IN ('', ?) AND state = 'taken' AND digest = ? ORDER BY project, version LIMIT ?`,
		scope.Organization, scope.Project, text, maxPolicies)
	return list, broken("store.PoliciesOf", s.path, err)
}

// ProposePolicy keeps a proposal as the next version.
func (s *Store) ProposePolicy(ctx context.Context, v cofferdam.PolicyVersion) (cofferdam.PolicyVersion, error) {
	const op = "store.ProposePolicy"
	v.State = cofferdam.PolicyProposed
	err := s.change(ctx, op, func(tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) + 1 FROM policy WHERE organization = ? AND project = ?`, v.Organization, v.Project)
		if err := row.Scan(&v.Version); err != nil {
			return err
		}
		waiting := 0
		row = tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM policy WHERE organization = ? AND project = ? AND state = 'proposed' AND version > (
			SELECT COALESCE(MAX(version), 0) FROM policy WHERE organization = ? AND project = ? AND state = 'taken')`, v.Organization, v.Project, v.Organization, v.Project)
		if err := row.Scan(&waiting); err != nil {
			return err
		}
		if waiting >= maxProposals || v.Version > maxVersions {
			return &cofferdam.Error{
				Op: op, Kind: cofferdam.Exhausted, Subject: "proposal", Reason: fmt.Sprintf("%d wait already, or there are %d versions", maxProposals, maxVersions),
				Hint: "an owner rejects what is not wanted with cofferdam policy reject",
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO policy VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', '')`,
			v.Organization, v.Project, v.Version, v.Text, v.Digest, v.State, v.Why, v.ProposedBy, stamp(v.Proposed))
		return err
	})
	return v, err
}

// DecidePolicy takes or rejects a proposal, once.
func (s *Store) DecidePolicy(ctx context.Context, v cofferdam.PolicyVersion) error {
	const op = "store.DecidePolicy"
	n, err := s.exec(ctx, op, `UPDATE policy SET state = ?, decided_by = ?, decided = ?, signature = ? WHERE organization = ? AND project = ? AND version = ?`,
		v.State, v.DecidedBy, stamp(v.Decided), v.Signature, v.Organization, v.Project, v.Version)
	if err == nil && n == 0 {
		return notFound(op, "version of the policy")
	}
	return err
}
