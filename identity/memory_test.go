package identity

import (
	"context"
	"slices"
	"sync"
	"time"

	"cofferdam"
)

// memory is the Store of these tests.
type memory struct {
	mu      sync.Mutex
	people  []Person
	roles   map[string][]Membership
	tokens  []Token
	factors []Factor
	steps   map[string]int64
	wrong   map[cofferdam.PersonID][]time.Time
}

func newMemory() *memory {
	return &memory{roles: map[string][]Membership{}, steps: map[string]int64{}, wrong: map[cofferdam.PersonID][]time.Time{}}
}

func missing() error { return &cofferdam.Error{Kind: cofferdam.NotFound} }

func (m *memory) Person(_ context.Context, o cofferdam.OrganizationID, name string) (Person, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.people {
		if p.Organization == o && (p.Name == name || string(p.ID) == name) {
			return p, nil
		}
	}
	return Person{}, missing()
}

func (m *memory) People(_ context.Context, o cofferdam.OrganizationID) (all []Person, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.people {
		if p.Organization == o {
			all = append(all, p)
		}
	}
	return all, nil
}

func (m *memory) AddPerson(_ context.Context, p Person) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.people = append(m.people, p)
	return nil
}

func (m *memory) DisablePerson(_ context.Context, o cofferdam.OrganizationID, id cofferdam.PersonID, at time.Time) error {
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

func (m *memory) Memberships(_ context.Context, member string) ([]Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.roles[member]), nil
}

func (m *memory) SetMembership(_ context.Context, _ cofferdam.OrganizationID, s Membership) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(m.roles[s.Member], func(o Membership) bool { return o.Project == s.Project })
	if s.Role != "" {
		rest = append(rest, s)
	}
	m.roles[s.Member] = rest
	return nil
}

func (m *memory) AddToken(_ context.Context, t Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = append(m.tokens, t)
	return nil
}

func (m *memory) TokenByHash(_ context.Context, hash string) (Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tokens {
		if t.Hash == hash {
			return t, nil
		}
	}
	return Token{}, missing()
}

func (m *memory) Tokens(context.Context, cofferdam.OrganizationID) ([]Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tokens), nil
}

func (m *memory) change(id cofferdam.TokenID, do func(*Token)) error {
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

func (m *memory) RevokeToken(_ context.Context, _ cofferdam.OrganizationID, id cofferdam.TokenID, at time.Time) error {
	return m.change(id, func(t *Token) { t.Revoked = at })
}

func (m *memory) UsedToken(_ context.Context, id cofferdam.TokenID, at time.Time) error {
	return m.change(id, func(t *Token) { t.Used = at })
}

func (m *memory) AddFactor(_ context.Context, f Factor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.factors = append(m.factors, f)
	return nil
}

func (m *memory) Factors(_ context.Context, p cofferdam.PersonID) (all []Factor, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.factors {
		if f.Person == p {
			all = append(all, f)
		}
	}
	return all, nil
}

func (m *memory) RemoveFactor(context.Context, cofferdam.PersonID, string) error { return nil }

func (m *memory) ChangeFactor(context.Context, string, []byte) error { return nil }

func (m *memory) SpendStep(_ context.Context, factor string, step int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if step <= m.steps[factor] {
		return &cofferdam.Error{Kind: cofferdam.Conflict}
	}
	m.steps[factor] = step
	return nil
}

func (m *memory) Attempt(_ context.Context, p cofferdam.PersonID, right bool, now, since time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if right {
		delete(m.wrong, p)
		return 0, nil
	}
	m.wrong[p] = append(slices.DeleteFunc(m.wrong[p], func(t time.Time) bool { return t.Before(since) }), now)
	return len(m.wrong[p]), nil
}
