package vmmtest

import "testing"

const small = `{"source": "x", "calls": {"PUT /a/{id}": {"body": "A"}, "PUT /go": {}}, "types": {
	"A": {"required": ["id"], "fields": {"id": {"type": "string"}, "n": {"type": "integer", "min": 1, "max": 3}, "b": {"type": "boolean"},
		"e": {"type": "string", "enum": ["x"]}, "l": {"type": "B", "list": true}}},
	"B": {"required": ["k"], "fields": {"k": {"type": "integer"}}}}}`

// TestDescriptionIsStrict wants each way refused in which a call may be wrong.
func TestDescriptionIsStrict(t *testing.T) {
	var d Description
	if err := d.parse([]byte(small)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		good               bool
	}{
		{"PUT", "/a/1", `{"id": "1", "n": 3, "b": true, "e": "x", "l": [{"k": 1}, {"k": 2}]}`, true},
		{"PUT", "/go", ``, true},
		{"PUT", "/go", `{}`, false},
		{"GET", "/go", ``, false},
		{"PUT", "/gone", ``, false},
		{"PUT", "/a/", `{"id": ""}`, false},
		{"PUT", "/a/1", `{"id": "2"}`, false},
		{"PUT", "/a/1", `{}`, false},
		{"PUT", "/a/1", ``, false},
		{"PUT", "/a/1", `[]`, false},
		{"PUT", "/a/1", `{"id": "1"} {}`, false},
		{"PUT", "/a/1", `{"id": "1", "more": 1}`, false},
		{"PUT", "/a/1", `{"id": "1", "n": "1"}`, false},
		{"PUT", "/a/1", `{"id": "1", "n": 1.5}`, false},
		{"PUT", "/a/1", `{"id": "1", "n": 0}`, false},
		{"PUT", "/a/1", `{"id": "1", "n": 4}`, false},
		{"PUT", "/a/1", `{"id": "1", "b": 1}`, false},
		{"PUT", "/a/1", `{"id": "1", "b": null}`, false},
		{"PUT", "/a/1", `{"id": "1", "e": "y"}`, false},
		{"PUT", "/a/1", `{"id": "1", "l": {"k": 1}}`, false},
		{"PUT", "/a/1", `{"id": "1", "l": [{}]}`, false},
		{"PUT", "/a/1", `{"id": "1", "l": [{"k": 1, "x": 1}]}`, false},
	} {
		if _, err := d.Check(c.method, c.path, []byte(c.body)); (err == nil) != c.good {
			t.Errorf("%s %s %s: %v", c.method, c.path, c.body, err)
		}
	}
	for _, bad := range []string{
		`{"calls": {"PUT /a": {"body": "None"}}}`, `{"types": {"A": {"fields": {"x": {"type": "float"}}}}}`,
		`{"types": {"A": {"required": ["x"]}}}`, `{"more": 1}`, `[]`, ``,
	} {
		if err := new(Description).parse([]byte(bad)); err == nil {
			t.Errorf("a description %s is taken", bad)
		}
	}
}
