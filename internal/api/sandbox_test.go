package api_test

import (
	"strings"
	"testing"

	"cofferdam"
)

// TestSandboxPaths: boxes and checkpoints over the API, and what is wrong with a request.
func TestSandboxPaths(t *testing.T) {
	h, m := world(t)
	do(t, h, "POST", "/v1/repos", shop)
	if w, p := do(t, h, "POST", "/v1/tasks", work); w.Code != 201 {
		t.Fatalf("%d %+v", w.Code, p)
	}
	w, _ := do(t, h, "GET", "/v1/tasks/t-1", "")
	_, id, _ := strings.Cut(w.Body.String(), `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	m.AddSession(cofferdam.Session{ID: "s-00000001", Task: cofferdam.TaskID(id), Attempt: 1, Phase: "work"})
	const of = "/v1/sandboxes/t-1/checkpoints"
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"GET", "/v1/sandboxes", "", 200, `"schema":"cofferdam/sandbox-list/v1"`},
		{"GET", "/v1/sandboxes/t-1", "", 200, `"state":"busy"`},
		{"GET", "/v1/sandboxes/t-9", "", 404, ""},
		{"POST", of, `{"comment":"x"}`, 201, `"name":"v0"`},
		{"POST", of, ``, 400, ""},
		{"POST", of, `{"comment":"x","order":7}`, 400, "unknown field"},
		{"POST", of, `{"comment":7}`, 400, "where text"},
		{"GET", of, "", 200, `"name":"v0"`},
		{"GET", "/v1/checkpoints", "", 200, `"schema":"cofferdam/checkpoint-list/v1"`},
		{"GET", of + "/v0", "", 200, `"signature":"good"`},
		{"GET", of + "/" + strings.Repeat("v", 400), "", 400, "longer"},
		{"GET", of + "/..%2f..%2fetc", "", 404, ""},
		{"GET", of + "/v0/diff", "", 200, `"to":"now"`},
		{"GET", of + "/v0/diff?to=v0&to=v1", "", 400, "twice"},
		{"GET", of + "/v7/diff", "", 404, ""},
		{"POST", "/v1/sandboxes/t-1/restore", `{"checkpoint":"v0"}`, 200, `"undo":"v1"`},
		{"POST", "/v1/sandboxes/t-1/restore", `{"checkpoint":"v9"}`, 404, ""},
		{"POST", "/v1/sandboxes/t-1/restore", `{"checkpoint":null}`, 400, "null"},
		{"DELETE", of + "/v1", "", 204, ""},
		{"DELETE", of + "/v1", "", 404, ""},
		{"DELETE", of, "", 400, "takes"},
	} {
		if w, p := do(t, h, c.method, c.path, c.body); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %.80s %s: %d %+v\n%.300s", c.method, c.path, c.body, w.Code, p, w.Body)
		}
	}
	if w, _ := do(t, h, "GET", "/v1/openapi.json", ""); !strings.Contains(w.Body.String(), `"name": "checkpoint"`) && !strings.Contains(w.Body.String(), `"name":"checkpoint"`) {
		t.Error("the description does not name the second part of a path")
	}
}
