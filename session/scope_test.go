package session

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/policy"
)

// TestScopeOfHosts: a task's scope takes away what it does not name, whoever gave
// it, and gives nothing.
func TestScopeOfHosts(t *testing.T) {
	r := &Runner{o: Options{Allow: []string{"operator.test"}}}
	doc, err := policy.ParseDocument("project", []byte("[egress]\nallow = [\"project.test\", \"other.test\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		hosts []string
		reach string
	}{
		{nil, "operator.test project.test other.test task.test"},
		{[]string{"project.test", "never.test"}, "project.test"},
		{[]string{"task.test"}, "task.test"},
	} {
		p := Plan{Request: cofferdam.TaskRequest{Allow: []string{"task.test"}, Contract: &cofferdam.Contract{Hosts: c.hosts}}}
		make, err := r.workOf(p, policy.Project{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := make(policy.Documents{Project: &doc})
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.New(g)
		if err != nil {
			t.Fatal(err)
		}
		var reached []string
		for _, h := range []string{"operator.test", "project.test", "other.test", "task.test", "never.test"} {
			if set.Decide(policy.Query{Action: policy.Connect, Host: cofferdam.Host(h), Port: 443}).Verdict == cofferdam.Allowed {
				reached = append(reached, h)
			}
		}
		if got := strings.Join(reached, " "); got != c.reach {
			t.Errorf("scope %q reaches %q, want %q", c.hosts, got, c.reach)
		}
	}
	_, err = r.workOf(Plan{Request: cofferdam.TaskRequest{Contract: &cofferdam.Contract{Hosts: []string{"http://x"}}}}, policy.Project{})
	if err == nil {
		t.Error("a host that is none was taken")
	}
}
