package service

import (
	"context"
	"slices"
	"sync"

	"cofferdam"
	"cofferdam/policy"
)

// memoryPolicies keeps versions as the store does.
type memoryPolicies struct {
	mu  sync.Mutex
	all []cofferdam.PolicyVersion // in the order they were proposed
}

func (m *memoryPolicies) of(scope cofferdam.Scope) (list []cofferdam.PolicyVersion) {
	for _, v := range slices.Backward(m.all) {
		if v.Scope == scope {
			list = append(list, v)
		}
	}
	return list
}

func (m *memoryPolicies) find(scope cofferdam.Scope, is func(cofferdam.PolicyVersion) bool) (cofferdam.PolicyVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.of(scope) {
		if is(v) {
			return v, nil
		}
	}
	return cofferdam.PolicyVersion{}, notFound("policy", "")
}

// Policy implements Policies.
func (m *memoryPolicies) Policy(_ context.Context, scope cofferdam.Scope) (cofferdam.PolicyVersion, error) {
	return m.find(scope, func(v cofferdam.PolicyVersion) bool { return v.State == cofferdam.PolicyTaken })
}

// PolicyVersion implements Policies.
func (m *memoryPolicies) PolicyVersion(_ context.Context, scope cofferdam.Scope, n int64) (cofferdam.PolicyVersion, error) {
	return m.find(scope, func(v cofferdam.PolicyVersion) bool { return v.Version == n })
}

// PolicyVersions implements Policies.
func (m *memoryPolicies) PolicyVersions(_ context.Context, scope cofferdam.Scope) ([]cofferdam.PolicyVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(scope), nil
}

// PoliciesOf implements Policies.
func (m *memoryPolicies) PoliciesOf(_ context.Context, scope cofferdam.Scope, text cofferdam.Digest) (list []cofferdam.PolicyVersion, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.all {
		if v.Organization == scope.Organization && (v.Project == "" || v.Project == scope.Project) && v.State == cofferdam.PolicyTaken && v.Digest == text {
			list = append(list, v)
		}
	}
	return list, nil
}

// ProposePolicy implements Policies.
func (m *memoryPolicies) ProposePolicy(_ context.Context, v cofferdam.PolicyVersion) (cofferdam.PolicyVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v.Version, v.State = int64(len(m.of(v.Scope))+1), cofferdam.PolicyProposed
	m.all = append(m.all, v)
	return v, nil
}

// DecidePolicy implements Policies.
func (m *memoryPolicies) DecidePolicy(_ context.Context, v cofferdam.PolicyVersion) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, o := range m.all {
		if o.Scope == v.Scope && o.Version == v.Version {
			m.all[i] = v
		}
	}
	return nil
}

// memoryRecord takes every event.
type memoryRecord struct{}

func (memoryRecord) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	return e, nil
}

// grant is that of a task which was given nothing but what the documents give.
func (m *Memory) grant(_ context.Context, _ cofferdam.Scope, _ cofferdam.SessionID, d policy.Documents) (policy.Grant, error) {
	return policy.Grant{}.Under(d), m.fault()
}

// memoryQuestions are those that were asked, in the order of Ask.
type memoryQuestions struct{ *Memory }

// Ask adds a question, as a gateway would.
func (m *Memory) Ask(q cofferdam.Question) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.questions = append(m.questions, q)
}

// Question implements Questions.
func (m memoryQuestions) Question(_ context.Context, scope cofferdam.Scope, id string) (cofferdam.Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.questions {
		if q.Scope == scope && string(q.ID) == id {
			return q, m.Fail
		}
	}
	return cofferdam.Question{}, notFound("question", id)
}

// Questions implements Questions.
func (m memoryQuestions) Questions(_ context.Context, scope cofferdam.Scope, open bool, limit int) (list []cofferdam.Question, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range slices.Backward(m.questions) {
		if q.Scope == scope && (!open || q.State == cofferdam.QuestionOpen) && len(list) < limit {
			list = append(list, q)
		}
	}
	return list, m.Fail
}

// QuestionAnywhere implements Questions.
func (m memoryQuestions) QuestionAnywhere(_ context.Context, id cofferdam.QuestionID) (cofferdam.Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.questions {
		if q.ID == id {
			return q, m.Fail
		}
	}
	return cofferdam.Question{}, notFound("question", string(id))
}
