package identity

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"cofferdam"
)

// Memory is a Store in maps, and the projects beside it. Tests of faces use it; what
// holds whatever program writes is the database's.
type Memory struct {
	mu      sync.Mutex
	people  []Person
	roles   map[string][]Membership
	tokens  []Token
	factors []Factor
	steps   map[string]int64
	wrong   map[cofferdam.PersonID][]guess

	names    map[string]cofferdam.OrganizationID
	founded  []cofferdam.Organization
	projects []cofferdam.Project
	subjects map[[2]string]cofferdam.PersonID
}

// NewMemory returns one with an organisation of that name and its first project.
func NewMemory(organization string, first cofferdam.Project) *Memory {
	return &Memory{
		names:   map[string]cofferdam.OrganizationID{organization: first.Organization},
		founded: []cofferdam.Organization{{Schema: "cofferdam/organization/v1", ID: first.Organization, Name: organization, Created: first.Created}}, projects: []cofferdam.Project{first}, subjects: map[[2]string]cofferdam.PersonID{}, roles: map[string][]Membership{}, steps: map[string]int64{}, wrong: map[cofferdam.PersonID][]guess{},
	}
}

func missing() error {
	return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.NotFound, Subject: "account", Reason: "there is none", Hint: "list what there is"}
}

// Person finds one by name or id.
func (m *Memory) Person(_ context.Context, o cofferdam.OrganizationID, name string) (Person, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.people {
		if p.Organization == o && (p.Name == name || string(p.ID) == name) {
			return p, nil
		}
	}
	return Person{}, missing()
}

// People lists those of an organisation.
func (m *Memory) People(_ context.Context, o cofferdam.OrganizationID) (all []Person, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.people {
		if p.Organization == o {
			all = append(all, p)
		}
	}
	return all, nil
}

// AddPerson keeps an account.
func (m *Memory) AddPerson(_ context.Context, p Person, first Membership, invitation *Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.people = append(m.people, p)
	if first != (Membership{}) {
		m.roles[first.Member] = append(m.roles[first.Member], first)
	}
	if invitation != nil {
		m.tokens = append(m.tokens, *invitation)
	}
	return nil
}

// DisablePerson closes an account.
func (m *Memory) DisablePerson(_ context.Context, o cofferdam.OrganizationID, id cofferdam.PersonID, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.people {
		if p := &m.people[i]; p.ID == id && p.Organization == o {
			p.Disabled = at
			return nil
		}
	}
	return missing()
}

// ReopenPerson opens a closed account with nothing of before.
func (m *Memory) ReopenPerson(_ context.Context, o cofferdam.OrganizationID, s Membership, invitation *Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.people, func(p Person) bool { return string(p.ID) == s.Member && p.Organization == o })
	if i < 0 || m.people[i].Disabled.IsZero() {
		return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.Conflict, Subject: "account", Reason: "it is open", Hint: "look at it"}
	}
	id := m.people[i].ID
	m.people[i].Disabled, m.roles[s.Member] = time.Time{}, []Membership{s}
	m.factors = slices.DeleteFunc(m.factors, func(f Factor) bool { return f.Person == id })
	maps.DeleteFunc(m.subjects, func(_ [2]string, p cofferdam.PersonID) bool { return p == id })
	delete(m.wrong, id)
	m.tokens = slices.DeleteFunc(m.tokens, func(t Token) bool { return t.Member == s.Member })
	if invitation != nil {
		m.tokens = append(m.tokens, *invitation)
	}
	return nil
}

// Memberships lists the roles of a member.
func (m *Memory) Memberships(_ context.Context, member string) ([]Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.roles[member]), nil
}

// SetMembership gives a role.
func (m *Memory) SetMembership(_ context.Context, _ cofferdam.OrganizationID, s Membership) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(m.roles[s.Member], func(o Membership) bool { return o.Project == s.Project })
	if s.Role != "" {
		rest = append(rest, s)
	}
	m.roles[s.Member] = rest
	for i := range m.tokens {
		if t := &m.tokens[i]; s.Role == "" && t.Member == s.Member && (t.Project == s.Project || len(rest) == 0) && t.Revoked.IsZero() {
			t.Revoked = time.Now()
		}
	}
	return nil
}

// AddToken keeps a token.
func (m *Memory) AddToken(_ context.Context, t Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = append(m.tokens, t)
	return nil
}

// TokenByHash finds a token.
func (m *Memory) TokenByHash(_ context.Context, hash string) (Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tokens {
		if t.Hash == hash {
			return t, nil
		}
	}
	return Token{}, missing()
}

// Tokens lists those of an organisation, the newest first.
func (m *Memory) Tokens(_ context.Context, o cofferdam.OrganizationID) (all []Token, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range slices.Backward(m.tokens) {
		if t.Organization == o {
			all = append(all, t)
		}
	}
	return all, nil
}

// Token finds one of an organisation.
func (m *Memory) Token(_ context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tokens {
		if t.Organization == o && t.ID == id {
			return t, nil
		}
	}
	return Token{}, missing()
}

func (m *Memory) change(id cofferdam.TokenID, do func(*Token)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.tokens {
		if m.tokens[i].ID == id {
			do(&m.tokens[i])
			return nil
		}
	}
	return missing()
}

// RevokeToken ends a token.
func (m *Memory) RevokeToken(_ context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID, at time.Time) error {
	return m.change(id, func(t *Token) {
		if t.Organization == o && t.Revoked.IsZero() {
			t.Revoked = at
		}
	})
}

// UsedToken notes when a token was used.
func (m *Memory) UsedToken(_ context.Context, id cofferdam.TokenID, at time.Time) error {
	return m.change(id, func(t *Token) { t.Used = at })
}

// AddFactor keeps a factor.
func (m *Memory) AddFactor(_ context.Context, f Factor, have int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, old := range m.factors {
		if old.Person == f.Person {
			have--
		}
	}
	if have != 0 {
		return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.Conflict, Subject: "factor", Reason: "another was added meanwhile", Hint: "look at them"}
	}
	m.factors, m.steps[f.ID] = append(m.factors, f), f.Step
	return nil
}

// Factors lists those of a person.
func (m *Memory) Factors(_ context.Context, p cofferdam.PersonID) (all []Factor, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.factors {
		if f.Person == p {
			all = append(all, f)
		}
	}
	return all, nil
}

// CodeFactors lists those of the kind TOTP.
func (m *Memory) CodeFactors(context.Context) (all []Factor, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.factors {
		if f.Kind == TOTP {
			all = append(all, f)
		}
	}
	return all, nil
}

// SealFactor writes what one holds anew.
func (m *Memory) SealFactor(ctx context.Context, id string, data []byte) error {
	return m.ChangeFactor(ctx, id, data)
}

// Forget has nothing to forget.
func (m *Memory) Forget(context.Context) error { return nil }

// RemoveFactor forgets one.
func (m *Memory) RemoveFactor(_ context.Context, p cofferdam.PersonID, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.factors)
	m.factors = slices.DeleteFunc(m.factors, func(f Factor) bool { return f.Person == p && f.ID == id })
	if len(m.factors) == before {
		return missing()
	}
	return nil
}

// ChangeFactor writes what one holds anew.
func (m *Memory) ChangeFactor(_ context.Context, id string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.factors {
		if m.factors[i].ID == id {
			m.factors[i].Data = data
		}
	}
	return nil
}

// SpendStep marks a step as used.
func (m *Memory) SpendStep(_ context.Context, factor string, step int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if step <= m.steps[factor] {
		return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.Conflict, Subject: "code", Reason: "it was used already"}
	}
	m.steps[factor] = step
	return nil
}

// Attempt counts a proof that may be wrong.
func (m *Memory) Attempt(_ context.Context, p cofferdam.PersonID, source string, right bool, now, since time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if right {
		m.wrong[p] = slices.DeleteFunc(m.wrong[p], func(g guess) bool { return g.source == source })
		return 0, nil
	}
	m.wrong[p] = slices.DeleteFunc(m.wrong[p], func(g guess) bool { return g.at.Before(since) })
	own, all := 1, 0
	for _, g := range m.wrong[p] {
		if g.source == source {
			own++
		}
		if g.source != "" {
			all++
		}
	}
	if own > MaxWrong || source != "" && all >= MaxGuesses {
		return MaxWrong + 1, nil
	}
	m.wrong[p] = append(m.wrong[p], guess{source, now})
	return own, nil
}

// guess is a wrong proof.
type guess struct {
	source string
	at     time.Time
}

// Roles lists the roles of all members.
func (m *Memory) Roles(_ context.Context, o cofferdam.OrganizationID) (map[string][]Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := map[string][]Membership{}
	for _, p := range m.people {
		if p.Organization == o {
			of[string(p.ID)] = slices.Clone(m.roles[string(p.ID)])
		}
	}
	return of, nil
}

// Organization finds one by name.
func (m *Memory) Organization(_ context.Context, name string) (cofferdam.OrganizationID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.names[name]; ok {
		return o, nil
	}
	return "", missing()
}

// Organizations lists them.
func (m *Memory) Organizations(context.Context) ([]cofferdam.Organization, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.founded), nil
}

// AddOrganization keeps a new one.
func (m *Memory) AddOrganization(_ context.Context, f Founding) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.names[f.Organization.Name]; ok {
		return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.Conflict, Subject: "organisation " + f.Organization.Name, Reason: "there is one", Hint: "choose another name"}
	}
	m.names[f.Organization.Name], m.founded = f.Organization.ID, append(m.founded, f.Organization)
	m.projects, m.people, m.tokens = append(m.projects, f.Project), append(m.people, f.Owner), append(m.tokens, f.Invitation)
	m.roles[string(f.Owner.ID)] = []Membership{{Member: string(f.Owner.ID), Role: Owner}}
	return nil
}

// AddProject keeps a project.
func (m *Memory) AddProject(_ context.Context, p cofferdam.Project) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, have := range m.projects {
		if have.Organization == p.Organization && have.Name == p.Name {
			return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.Conflict, Subject: "project " + p.Name, Reason: "there is one", Hint: "choose another name"}
		}
	}
	m.projects = append(m.projects, p)
	return nil
}

// Project finds a project by name or id.
func (m *Memory) Project(ctx context.Context, o cofferdam.OrganizationID, name string) (cofferdam.Scope, error) {
	all, _ := m.Projects(ctx, o) // a map fails at nothing
	for _, p := range all {
		if p.Name == name || string(p.Scope.Project) == name {
			return p.Scope, nil
		}
	}
	return cofferdam.Scope{}, missing()
}

// Projects lists those of an organisation.
func (m *Memory) Projects(_ context.Context, o cofferdam.OrganizationID) (all []cofferdam.Project, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.projects {
		if p.Organization == o {
			all = append(all, p)
		}
	}
	return all, nil
}

// BindSubject binds who a provider names.
func (m *Memory) BindSubject(_ context.Context, issuer, subject string, p cofferdam.PersonID, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, bound := m.subjects[[2]string{issuer, subject}]; bound {
		return &cofferdam.Error{Op: "identity.Memory", Kind: cofferdam.Conflict, Subject: "account", Reason: "it is bound already", Hint: "sign in with it"}
	}
	m.subjects[[2]string{issuer, subject}] = p
	return nil
}

// PersonBySubject finds the person that a provider's name is bound to.
func (m *Memory) PersonBySubject(_ context.Context, issuer, subject string) (Person, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.people {
		if p.ID == m.subjects[[2]string{issuer, subject}] {
			return p, nil
		}
	}
	return Person{}, missing()
}
