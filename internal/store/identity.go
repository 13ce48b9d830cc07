package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

// Bounds of lists of accounts.
const (
	maxPeople = 10_000
	maxTokens = 10_000
)

const personColumns = `SELECT id, organization, name, service, created, disabled FROM person `

func scanPerson(r *sql.Rows) (identity.Person, error) {
	p, created, disabled := identity.Person{Schema: "cofferdam/person/v1"}, "", ""
	err := r.Scan(&p.ID, &p.Organization, &p.Name, &p.Service, &created, &disabled)
	if err == nil {
		p.Created, err = clock(created)
	}
	if err == nil {
		p.Disabled, err = clock(disabled)
	}
	return p, err
}

// Person finds a person or service account of an organisation by name, id or a
// unique prefix of it.
func (s *Store) Person(ctx context.Context, o cofferdam.OrganizationID, name string) (identity.Person, error) {
	const op = "store.Person"
	subject := "person " + show(name)
	if lo, hi, ok := prefix("u", name); ok {
		p, err := one(ctx, s.read, op, subject, scanPerson, personColumns+`WHERE organization = ? AND id >= ? AND id < ? LIMIT 2`, o, lo, hi)
		return p, broken(op, s.path, err)
	}
	p, err := one(ctx, s.read, op, subject, scanPerson, personColumns+`WHERE organization = ? AND name = ?`, o, name)
	return p, broken(op, s.path, err)
}

// People lists those of an organisation, by name.
func (s *Store) People(ctx context.Context, o cofferdam.OrganizationID) ([]identity.Person, error) {
	list, err := all(ctx, s.read, scanPerson, personColumns+`WHERE organization = ? ORDER BY name LIMIT ?`, o, maxPeople)
	return list, broken("store.People", s.path, err)
}

// AddPerson keeps a new account with its first role and invitation, all or
// nothing; a Conflict if the name is taken.
func (s *Store) AddPerson(ctx context.Context, p identity.Person, m identity.Membership, invitation *identity.Token) error {
	return s.change(ctx, "store.AddPerson", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO person VALUES (?, ?, ?, ?, ?, ?)`, p.ID, p.Organization, p.Name, p.Service, stamp(p.Created), stamp(p.Disabled))
		if err == nil && m != (identity.Membership{}) {
			_, err = tx.ExecContext(ctx, `INSERT INTO membership VALUES (?, ?, ?, ?)`, p.Organization, m.Member, m.Project, m.Role)
		}
		if err == nil && invitation != nil {
			err = addToken(ctx, tx, *invitation)
		}
		return err
	})
}

// ReopenPerson opens a closed account again with one role and, of a person, an
// invitation: nothing else of what it had, or could be known by, is left. A Conflict
// if it is open.
func (s *Store) ReopenPerson(ctx context.Context, o cofferdam.OrganizationID, m identity.Membership, invitation *identity.Token) error {
	const op = "store.ReopenPerson"
	return s.change(ctx, op, func(tx *sql.Tx) error {
		p, err := one(ctx, tx, op, "member "+show(m.Member), scanPerson, personColumns+`WHERE organization = ? AND id = ?`, o, m.Member)
		if err != nil {
			return err
		}
		if p.Disabled.IsZero() {
			return conflict(op, "account "+p.Name, "it is open")
		}
		for _, forget := range []string{`DELETE FROM membership WHERE member = ?`, `DELETE FROM factor WHERE person = ?`, `DELETE FROM subject WHERE person = ?`, `DELETE FROM attempt WHERE person = ?`} {
			if _, err := tx.ExecContext(ctx, forget, p.ID); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE token SET revoked = ? WHERE member = ? AND revoked = ''`, now(), p.ID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE person SET disabled = '' WHERE id = ?`, p.ID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO membership VALUES (?, ?, ?, ?)`, o, m.Member, m.Project, m.Role); err != nil || invitation == nil {
			return err
		}
		return addToken(ctx, tx, *invitation)
	})
}

// DisablePerson closes an account from then on.
func (s *Store) DisablePerson(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.PersonID, at time.Time) error {
	const op = "store.DisablePerson"
	n, err := s.exec(ctx, op, `UPDATE person SET disabled = ? WHERE organization = ? AND id = ?`, stamp(at), o, id)
	if err == nil && n == 0 {
		return notFound(op, "person "+show(string(id)))
	}
	return err
}

const membershipColumns = `SELECT member, project, role FROM membership `

func scanMembership(r *sql.Rows) (m identity.Membership, err error) {
	return m, r.Scan(&m.Member, &m.Project, &m.Role)
}

// Memberships lists the roles of a member.
func (s *Store) Memberships(ctx context.Context, member string) ([]identity.Membership, error) {
	list, err := all(ctx, s.read, scanMembership, membershipColumns+`WHERE member = ? ORDER BY project`, member)
	return list, broken("store.Memberships", s.path, err)
}

// Roles lists the roles of all members of an organisation.
func (s *Store) Roles(ctx context.Context, o cofferdam.OrganizationID) (map[string][]identity.Membership, error) {
	list, err := all(ctx, s.read, scanMembership, membershipColumns+`WHERE organization = ? ORDER BY member, project LIMIT ?`, o, 10*maxPeople)
	of := map[string][]identity.Membership{}
	for _, m := range list {
		of[m.Member] = append(of[m.Member], m)
	}
	return of, broken("store.Roles", s.path, err)
}

// SetMembership gives a role, or with role "" takes it away, with the tokens for
// there, and once there is none left with all of them: none of before counts for who
// comes back. The last owner of an organisation stays.
func (s *Store) SetMembership(ctx context.Context, o cofferdam.OrganizationID, m identity.Membership) error {
	const op = "store.SetMembership"
	return s.change(ctx, op, func(tx *sql.Tx) error {
		if _, err := one(ctx, tx, op, "member "+show(m.Member), scanPerson, personColumns+`WHERE organization = ? AND id = ?`, o, m.Member); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM membership WHERE member = ? AND project = ?`, m.Member, m.Project); err != nil {
			return err
		}
		if m.Role != "" {
			if _, err := tx.ExecContext(ctx, `INSERT INTO membership VALUES (?, ?, ?, ?)`, o, m.Member, m.Project, m.Role); err != nil {
				return err
			}
		} else if _, err := tx.ExecContext(ctx, `UPDATE token SET revoked = ? WHERE member = ? AND revoked = ''
			AND (project = ? OR NOT EXISTS (SELECT 1 FROM membership WHERE member = token.member))`, now(), m.Member, m.Project); err != nil {
			return err
		}
		var owners int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM membership m JOIN person p ON p.id = m.member
			WHERE m.organization = ? AND m.project = '' AND m.role = 'owner' AND p.disabled = '' AND p.service = 0`, o).Scan(&owners); err != nil {
			return err
		}
		if owners == 0 {
			return &cofferdam.Error{
				Op: op, Kind: cofferdam.Conflict, Subject: "membership", Reason: "the organisation would have no owner",
				Hint: "make somebody else an owner first: cofferdam admin user add NAME --role owner --organization",
			}
		}
		return nil
	})
}

const tokenColumns = `SELECT hash, revoked, used, body FROM token `

func scanToken(r *sql.Rows) (t identity.Token, err error) {
	var hash, revoked, used, body string
	if err := r.Scan(&hash, &revoked, &used, &body); err != nil {
		return t, err
	}
	if err := json.Unmarshal([]byte(body), &t); err != nil {
		return t, err
	}
	t.Hash = hash
	if t.Revoked, err = clock(revoked); err == nil {
		t.Used, err = clock(used)
	}
	return t, err
}

// AddToken keeps a token by its hash.
func (s *Store) AddToken(ctx context.Context, t identity.Token) error {
	return s.change(ctx, "store.AddToken", func(tx *sql.Tx) error { return addToken(ctx, tx, t) })
}

// tokenKept is how long one is kept that counts no more, for who looks what it was.
// Source: docs/SPECIFICATION.md, "Identity".
const tokenKept = 90 * 24 * time.Hour

func addToken(ctx context.Context, tx *sql.Tx, t identity.Token) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	old := stamp(t.Created.Add(-tokenKept))
	if _, err := tx.ExecContext(ctx, `DELETE FROM token WHERE organization = ? AND (expires < ? OR revoked <> '' AND revoked < ?)`, t.Organization, old, old); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, '', '', ?, ?)`,
		t.ID, t.Hash, t.Organization, t.Project, t.Member, stamp(t.Expires), stamp(t.Created), string(body))
	return err
}

// Token finds one of an organisation by its whole id.
func (s *Store) Token(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (identity.Token, error) {
	const op = "store.Token"
	t, err := one(ctx, s.read, op, "token "+show(string(id)), scanToken, tokenColumns+`WHERE organization = ? AND id = ?`, o, id)
	return t, broken(op, s.path, err)
}

// TokenByHash finds a token of whatever organisation.
func (s *Store) TokenByHash(ctx context.Context, hash string) (identity.Token, error) {
	const op = "store.TokenByHash"
	t, err := one(ctx, s.read, op, "token", scanToken, tokenColumns+`WHERE hash = ?`, hash)
	return t, broken(op, s.path, err)
}

// Tokens lists those of an organisation, the newest first.
func (s *Store) Tokens(ctx context.Context, o cofferdam.OrganizationID) ([]identity.Token, error) {
	list, err := all(ctx, s.read, scanToken, tokenColumns+`WHERE organization = ? ORDER BY created DESC, id LIMIT ?`, o, maxTokens)
	return list, broken("store.Tokens", s.path, err)
}

// RevokeToken ends a token; one that is revoked stays so.
func (s *Store) RevokeToken(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID, at time.Time) error {
	const op = "store.RevokeToken"
	n, err := s.exec(ctx, op, `UPDATE token SET revoked = CASE WHEN revoked = '' THEN ? ELSE revoked END WHERE organization = ? AND id = ?`, stamp(at), o, id)
	if err == nil && n == 0 {
		return notFound(op, "token "+show(string(id)))
	}
	return err
}

// UsedToken notes when a token was used last.
func (s *Store) UsedToken(ctx context.Context, id cofferdam.TokenID, at time.Time) error {
	_, err := s.exec(ctx, "store.UsedToken", `UPDATE token SET used = ? WHERE id = ?`, stamp(at), id)
	return err
}

// AddFactor keeps what a person proves themselves by; a Conflict if they have not
// so many.
func (s *Store) AddFactor(ctx context.Context, f identity.Factor, have int) error {
	const op = "store.AddFactor"
	n, err := s.exec(ctx, op, `INSERT INTO factor SELECT ?, ?, ?, ?, ?, ?, ? WHERE (SELECT COUNT(*) FROM factor WHERE person = ?) = ?`,
		f.ID, f.Person, f.Kind, f.Name, f.Data, f.Step, stamp(f.Created), f.Person, have)
	if err == nil && n == 0 {
		return conflict(op, "factor", "another was added or taken away meanwhile; look at them")
	}
	return err
}

const factorColumns = `SELECT id, person, kind, name, data, created FROM factor `

func scanFactor(r *sql.Rows) (f identity.Factor, err error) {
	var created string
	if err := r.Scan(&f.ID, &f.Person, &f.Kind, &f.Name, &f.Data, &created); err != nil {
		return f, err
	}
	f.Created, err = clock(created)
	return f, err
}

// Factors lists those of a person, the oldest first.
func (s *Store) Factors(ctx context.Context, p cofferdam.PersonID) ([]identity.Factor, error) {
	list, err := all(ctx, s.read, scanFactor, factorColumns+`WHERE person = ? ORDER BY created, id`, p)
	return list, broken("store.Factors", s.path, err)
}

// CodeFactors lists the secrets for codes of everybody.
func (s *Store) CodeFactors(ctx context.Context) ([]identity.Factor, error) {
	list, err := all(ctx, s.read, scanFactor, factorColumns+`WHERE kind = 'totp'`)
	return list, broken("store.CodeFactors", s.path, err)
}

// SealFactor writes what a factor holds anew. What it held is nowhere in the file then:
// it is overwritten, where SQLite would keep it in what it has freed. Forget takes it
// out of the journal.
func (s *Store) SealFactor(ctx context.Context, id string, data []byte) error {
	const op = "store.SealFactor"
	if _, err := s.write.ExecContext(ctx, `PRAGMA secure_delete = ON`); err != nil {
		return broken(op, s.path, err)
	}
	n, err := s.exec(ctx, op, `UPDATE factor SET data = ? WHERE id = ?`, data, id)
	if err == nil && n == 0 {
		return notFound(op, "factor "+show(id))
	}
	return broken(op, s.path, err)
}

// Forget empties the journal, which keeps pages as they were.
func (s *Store) Forget(ctx context.Context) error {
	_, err := s.write.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	return broken("store.Forget", s.path, err)
}

// RemoveFactor forgets one; NotFound if the person has none of that id.
func (s *Store) RemoveFactor(ctx context.Context, p cofferdam.PersonID, id string) error {
	const op = "store.RemoveFactor"
	n, err := s.exec(ctx, op, `DELETE FROM factor WHERE person = ? AND id = ?`, p, id)
	if err == nil && n == 0 {
		return notFound(op, "factor "+show(id))
	}
	return err
}

// ChangeFactor writes what a factor holds anew: a passkey counts its uses.
func (s *Store) ChangeFactor(ctx context.Context, id string, data []byte) error {
	_, err := s.exec(ctx, "store.ChangeFactor", `UPDATE factor SET data = ? WHERE id = ?`, data, id)
	return err
}

// SpendStep marks a step as used; a Conflict if it was, or a later one.
func (s *Store) SpendStep(ctx context.Context, factor string, step int64) error {
	const op = "store.SpendStep"
	n, err := s.exec(ctx, op, `UPDATE factor SET step = ? WHERE id = ? AND step < ?`, step, factor, step)
	if err == nil && n == 0 {
		return conflict(op, "code", "it was used already")
	}
	return err
}

// Attempt counts a proof from a source that may be wrong; right forgets those of
// the source. All sources but "" together have a bound too.
func (s *Store) Attempt(ctx context.Context, p cofferdam.PersonID, source string, right bool, now, since time.Time) (wrong int, err error) {
	err = s.change(ctx, "store.Attempt", func(tx *sql.Tx) error {
		if right {
			_, err := tx.ExecContext(ctx, `DELETE FROM attempt WHERE person = ? AND source = ?`, p, source)
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM attempt WHERE person = ? AND time < ?`, p, stamp(since)); err != nil {
			return err
		}
		var guesses int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FILTER (WHERE source = ?), COUNT(*) FILTER (WHERE source <> '') FROM attempt WHERE person = ?`,
			source, p).Scan(&wrong, &guesses); err != nil {
			return err
		}
		if wrong++; source != "" && guesses >= identity.MaxGuesses {
			wrong = identity.MaxWrong + 1
		}
		if wrong > identity.MaxWrong { // none above it is kept: they would only lock for longer
			return nil
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO attempt VALUES (?, ?, ?)`, p, source, stamp(now))
		return err
	})
	return wrong, err
}

// BindSubject binds who a provider names to a person; a Conflict if it is bound.
func (s *Store) BindSubject(ctx context.Context, issuer, subject string, p cofferdam.PersonID, at time.Time) error {
	_, err := s.exec(ctx, "store.BindSubject", `INSERT INTO subject VALUES (?, ?, ?, ?)`, issuer, subject, p, stamp(at))
	return err
}

// PersonBySubject finds the person that a provider's name is bound to.
func (s *Store) PersonBySubject(ctx context.Context, issuer, subject string) (identity.Person, error) {
	const op = "store.PersonBySubject"
	p, err := one(ctx, s.read, op, "account", scanPerson, personColumns+`WHERE id = (SELECT person FROM subject WHERE issuer = ? AND subject = ?)`, issuer, subject)
	return p, broken(op, s.path, err)
}
