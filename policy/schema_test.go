package policy

import (
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

// What we generate ourselves has to be valid by the schema that we publish, and
// so does what Cedar is asked.
func TestSchemaFitsWhatIsGenerated(t *testing.T) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(Schema)); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	v := validate.New(resolved)
	check := func(name, text string) {
		t.Helper()
		list, err := cedar.NewPolicyListFromBytes(name, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		for i, p := range list {
			if err := v.Policy(name, (*ast.Policy)(p.AST())); err != nil {
				t.Errorf("%s, policy %d: %v\n%s", name, i, err, text)
			}
		}
	}
	check("builtin", string(builtin))
	d := everyRule(t)
	for _, r := range d.Rules {
		check(r.ID, r.cedar())
	}
	for _, q := range everyQuery() {
		e := q.entity()
		if err := v.Request(q.request(cedar.NewEntityUID("Session", "self"), e.UID)); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
		if err := v.Entity(e); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// everyRule has each effect in each section, with and without conditions.
func everyRule(t *testing.T) Document {
	t.Helper()
	d, err := ParseDocument("every", []byte(`
[egress]
deny = ["a.test", "*.b.test:8443"]
ask = ["c.test", "*.d.test:8443"]
allow = ["e.test", "splice:*.f.test:8443"]
limit = ["*.g.test"]
[[egress.rule]]
id = "one"
effect = "allow"
hosts = ["h.test", "*.i.test:81"]
methods = ["GET", "HEAD"]
paths = ["/a/*", "/b"]
[[egress.rule]]
id = "two"
effect = "ask"
hosts = ["j.test"]
methods = ["POST"]
[[egress.rule]]
id = "three"
effect = "deny"
hosts = ["k.test"]
paths = ["/admin*"]
mode = "log-only"
[git]
deny = ["push:refs/heads/release/*"]
ask = ["fetch:r-1"]
[model]
allow = ["m*"]
[tool]
allow = ["github:list_*", "files:**"]
ask = ["github:create_issue"]
[secret]
ask = ["npm-token"]
[exec]
deny = ["person"]
[file]
allow = ["read:/work/**"]
deny = ["write:/work/.git/**"]
[port]
allow = ["8080"]
[box]
deny = ["fork:**"]
[merge]
ask = ["refs/heads/main"]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// everyQuery has a question of each action.
func everyQuery() []Query {
	return []Query{
		{Action: Resolve, Host: "a.test"},
		{Action: Connect, Host: "a.test", Port: 443, Splice: true},
		{Action: HTTP, Host: "a.test", Port: 443, Method: "GET", Path: "/"},
		{Action: Fetch, Repo: "r-1"},
		{Action: Push, Repo: "r-1", Ref: "refs/heads/x", Create: true},
		{Action: Land, Ref: "refs/heads/main"},
		{Action: Call, Model: "m"},
		{Action: Invoke, Name: "github:list_issues", Args: []byte(`{"owner":"acme","labels":["a","b"],"n":1.5,"deep":{"x":true,"y":null}}`)},
		{Action: Use, Name: "npm-token"},
		{Action: Run, Name: ByPerson},
		{Action: Read, Name: "/work/a"},
		{Action: Write, Name: "/work/a"},
		{Action: Expose, Name: "8080"},
		{Action: Fork, Name: "snap"},
		{Action: Restore, Name: "snap"},
	}
}
