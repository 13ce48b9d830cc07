package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
	"cofferdam/session"
)

// canary is in every name and text of the first organisation. No answer to
// somebody of the other one may have it.
const canary = "canary"

// names are what one organisation calls its things, or what nobody calls anything.
type names struct {
	task, short, session, repo, model, question, version, workspace, digest, person, token, project string
}

func (n names) all() []string {
	return []string{n.task, n.short, n.session, n.repo, n.model, n.question, n.workspace, n.digest, n.person, n.token, n.project}
}

// nobodys are names of the shape of real ones, and as long, that stand for nothing.
func nobodys() names {
	return names{
		task: cofferdam.NewID("t"), short: "t-9", session: cofferdam.NewID("s"), repo: "canary-nest", model: "canary-nodel", question: cofferdam.NewID("a"), version: "9",
		workspace: "w-bbbb2222", digest: "bbbb1111", person: "canary-nobot", token: cofferdam.NewID("k"), project: "canary-proj0",
	}
}

const (
	proofText  = `"proof":{"kind":"password","password":"` + service.MemoryPassword + `"}`
	commitText = `{"commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",` + proofText + `}`
	taskText   = `{"text":"x","agent":"command","command":"true","checks":[{"command":"true","must_fail_first":false}],"repo":%q}`
)

// ask is one way to name somebody else's thing in a call of a route.
type ask struct{ path, body func(n names) string }

// inPath is an ask for the route's own path with a name in it.
func inPath(name func(names) string, body string) ask {
	return ask{path: name, body: func(names) string { return body }}
}

// asks has a row for every route: how it could be asked for a thing of another
// organisation. A route without a name in it may have none: what it answers must
// be what it answered before the other had anything.
func asks() map[string][]ask {
	ofTask := []ask{inPath(func(n names) string { return n.task }, ""), inPath(func(n names) string { return n.task[:12] }, ""), inPath(func(n names) string { return n.short }, "")}
	taskWith := func(body string) (list []ask) {
		for _, a := range ofTask {
			list = append(list, ask{a.path, func(names) string { return body }})
		}
		return list
	}
	one := func(name func(names) string, body string) []ask { return []ask{inPath(name, body)} }
	session := one(func(n names) string { return n.session }, "")
	box := append(slices.Clone(ofTask), session...)
	repo := one(func(n names) string { return n.repo }, "")
	model := one(func(n names) string { return n.model }, "")
	space := append(one(func(n names) string { return n.workspace }, ""), ofTask...)
	env := one(func(n names) string { return n.digest }, "")
	inQuery := func(key string, name func(names) string) []ask {
		return []ask{{path: func(n names) string { return "?" + key + "=" + name(n) }, body: func(names) string { return "" }}}
	}
	inBody := func(format string, name func(names) string) []ask {
		return []ask{{path: func(names) string { return "" }, body: func(n names) string { return fmt.Sprintf(format, name(n)) }}}
	}
	evidence := append(slices.Clone(box), session...)
	return map[string][]ask{
		"openapi": nil, "jwks": nil, "status": nil, "doctor": nil, "viewKey": nil, "listAgents": nil, "listRepos": nil, "listModels": nil, "listMerges": nil, "listEnvironments": nil,
		"listSandboxes": nil, "listAllCheckpoints": nil, "listWorkspaces": nil, "listApprovals": nil, "listFactors": nil, "listPolicies": nil, "promotePolicy": nil, "listMembers": nil, "listProjects": nil,
		"listTokens": nil, "viewSelf": nil,
		"viewAgent":  one(func(n names) string { return n.repo }, ""),
		"createTask": append(inBody(taskText, func(n names) string { return n.repo }), inBody(taskText, func(n names) string { return n.task })...),
		"listTasks":  inQuery("repo", func(n names) string { return n.repo }), "viewTask": ofTask, "waitTask": ofTask, "followTask": ofTask, "cancelTask": ofTask, "retryTask": ofTask,
		"sendTask": taskWith(`{"text":"hello"}`), "openTask": taskWith(`{"bounds":{"entry":"a.example.com","seconds":60},` + proofText + `}`),
		// What one has does not stand in the way of what the other makes.
		"addRepo": inBody(`{"name":%q,"upstream":"https://git.example.com/x.git"}`, func(n names) string { return n.repo }), "viewRepo": repo, "removeRepo": repo,
		"addModel": inBody(`{"name":%q,"provider":"anthropic","key":"sk-other-12345678"}`, func(n names) string { return n.model }), "viewModel": model, "removeModel": model,
		"viewMerge": ofTask, "approveMerge": taskWith(commitText), "rejectMerge": taskWith(commitText), "landMerge": taskWith(`{}`),
		"listSessions": inQuery("task", func(n names) string { return n.task }), "viewSession": session,
		"viewTrace": session, "followTrace": session, "exportTrace": evidence, "viewProof": ofTask, "exportProof": ofTask,
		"viewEnvironment": env, "removeEnvironment": env, "rollbackEnvironment": env, "pruneEnvironments": inBody(`{"age":1%.0s}`, func(n names) string { return "" }),
		"viewSandbox": box, "restoreSandbox": taskWith(`{"checkpoint":"v1"}`), "createCheckpoint": taskWith(`{}`), "listCheckpoints": box,
		"viewCheckpoint": box, "removeCheckpoint": box, "diffCheckpoint": box,
		"viewWorkspace": space, "exportWorkspace": space, "workspaceBundle": space, "removeWorkspace": space,
		"viewApproval":    one(func(n names) string { return n.question }, ""),
		"answerApproval":  one(func(n names) string { return n.question }, `{"hash":"sha256:x","allow":true,`+proofText+`}`),
		"answerByWebhook": one(func(n names) string { return n.question }, `{"system":"chat","person":"u1","question":"a-1","hash":"sha256:x","allow":true}`),
		"bindWebhook":     inBody(`{"system":%q,"person":"u1",`+proofText+`}`, func(n names) string { return n.person }), "rotateWebhook": nil,
		"enroll": nil, "unenroll": one(func(n names) string { return n.token }, `{"kind":"password","password":"`+service.MemoryPassword+`"}`),
		"proposePolicy": nil,
		"viewPolicy":    one(func(n names) string { return n.version }, ""), "decidePolicy": one(func(n names) string { return n.version }, `{"hash":"sha256:x","take":true,`+proofText+`}`),
		"explainPolicy": inBody(`{"url":"https://a.example.com/","of":%q}`, func(n names) string { return n.task }),
		"replayPolicy":  inBody(`{"text":"","of":%q}`, func(n names) string { return n.task }),
		"suggestPolicy": box,
		"signIn":        inBody(`{"name":%q,"password":"not the password"}`, func(n names) string { return n.person }), "signOut": nil, "beginSignIn": nil, "beginDeviceSignIn": nil, "finishDeviceSignIn": nil, "registerPasskey": nil, "passkeyPage": nil, "passkeyScript": nil, "viewPasskey": nil, "answerPasskey": nil, "finishSignIn": nil, "bindSignIn": nil,
		"addMember":         inBody(`{"name":%q,"role":"viewer",`+proofText+`}`, func(n names) string { return n.person }),
		"viewMember":        one(func(n names) string { return n.person }, ""),
		"removeMember":      one(func(n names) string { return n.person }, `{`+proofText+`}`),
		"reopenMember":      one(func(n names) string { return n.person }, `{"role":"viewer",`+proofText+`}`),
		"listOrganizations": nil, "addOrganization": append(inBody(`{"name":%q,"owner":"eve",`+proofText+`}`, func(n names) string { return n.project }), inBody(`{"name":"default","owner":%q,`+proofText+`}`, func(n names) string { return n.person })...),
		"addProject":  inBody(`{"name":%q}`, func(n names) string { return n.project }),
		"createToken": inBody(`{"holder":%q,"role":"viewer",`+proofText+`}`, func(n names) string { return n.person }),
		"revokeToken": one(func(n names) string { return n.token }, ""),
	}
}

// call sends a request and returns status and body.
func (b *both) call(t *testing.T, token, method, path, body string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // what is followed, and should not be, goes on
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequestWithContext(ctx, method, path, nil)
	}
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Cofferdam-Project", "default")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (b *both) made(t *testing.T, path, body string, into any) {
	t.Helper()
	code, text := b.call(t, b.tokA, "POST", path, body)
	if code != 201 || into != nil && json.Unmarshal([]byte(text), into) != nil {
		t.Fatalf("POST %s: %d %s", path, code, text)
	}
}

// fill gives the first organisation one of everything.
func (b *both) fill(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	n := names{short: "t-1", repo: "canary-repo", model: "canary-model", version: "1", workspace: "w-aaaa1111", digest: "aaaa1111", person: "canary-robot", project: "canary-proj1"}
	b.made(t, "/v1/repos", `{"name":"canary-repo","upstream":"/srv/canary.git"}`, nil)
	b.made(t, "/v1/models", `{"name":"canary-model","provider":"anthropic","key":"sk-canary-12345678"}`, nil)
	b.made(t, "/v1/members", `{"name":"canary-robot","service":true,"role":"author",`+proofText+`}`, nil)
	b.made(t, "/v1/projects", `{"name":"canary-proj1"}`, nil)
	b.made(t, "/v1/policies", `{"text":"[egress]\nallow = [\"canary.example.com\"]\n","why":"canary"}`, nil)
	var login cofferdam.Login
	b.made(t, "/v1/tokens", `{"holder":"canary-robot","role":"viewer",`+proofText+`}`, &login)
	var v cofferdam.Task
	b.made(t, "/v1/tasks", strings.Replace(fmt.Sprintf(taskText, "canary-repo"), `"text":"x"`, `"text":"canary"`, 1), &v)
	repo, err := b.st.FindRepo(ctx, b.a, "canary-repo")
	if err != nil {
		t.Fatal(err)
	}
	plan := session.Plan{Scope: b.a, ID: cofferdam.SessionID(cofferdam.NewID("s")), Task: v.ID, Number: 1, Attempt: 1, Phase: gateway.Work, Repo: repo, Commit: cofferdam.Commit(strings.Repeat("a", 40))}
	if err := b.st.BeginSession(ctx, "work", 1, plan); err != nil {
		t.Fatal(err)
	}
	q := cofferdam.Question{
		Schema: "cofferdam/approval/v1", ID: cofferdam.QuestionID(cofferdam.NewID("a")), Scope: b.a, Task: v.ID, Session: plan.ID, Hash: "sha256:canary", Needs: 1,
		State: cofferdam.QuestionOpen, Resource: "canary.example.com", Created: time.Now().UTC(), Expires: time.Now().Add(time.Hour),
	}
	if err := b.st.AddQuestion(ctx, q); err != nil {
		t.Fatal(err)
	}
	n.task, n.session, n.question, n.token = string(v.ID), string(plan.ID), string(q.ID), string(login.Token.ID)
	b.theirs = n
}

var (
	ids    = regexp.MustCompile(`"request_id":"[^"]*"`)
	varied = regexp.MustCompile(`"(?:id|invitation|text|project|created|updated|expires|used|time|started|by|uptime)":"[^"]*"|\b[a-z]-[0-9a-f]{32}\b`)
)

// as is an answer without what differs from request to request, with the name
// that was asked for as NAME.
func as(body string, asked ...string) string {
	body = ids.ReplaceAllString(body, `"request_id":""`)
	slices.SortFunc(asked, func(a, b string) int { return len(b) - len(a) }) // a short one may begin a long one
	for _, n := range asked {
		if n != "" {
			body = strings.ReplaceAll(body, n, "NAME")
		}
	}
	return body
}

// address is a route's path with a name, or with what is asked behind it.
func address(r api.Route, part string) string {
	path := strings.ReplaceAll(r.Path, "{checkpoint}", "v1")
	if strings.Contains(path, "{name}") {
		path = strings.ReplaceAll(path, "{name}", part)
	} else {
		path += part
	}
	if r.ID == "waitTask" {
		path += "?timeout=0"
	}
	return path
}

// TestNothingCrosses walks every route of the API as an owner of one organisation
// on a server where another has one of everything. What it has must be there for
// it, and for the other be as if it were not: the same status, the same words to
// the byte, after the same look-ups; and lists of the other must not change.
func TestNothingCrosses(t *testing.T) {
	b := newBoth(t)
	before := map[string]string{}
	lists := func() map[string]string {
		got := map[string]string{}
		for _, r := range api.Routes() {
			if r.ID == "doctor" || r.ID == "listOrganizations" { // what the host is like, and who is on it, is for who runs it
				if code, body := b.call(t, b.tokB, "GET", r.Path, ""); code != 403 || strings.Contains(body, canary) {
					t.Errorf("%s as the other: %d %s", r.Path, code, body)
				}
				continue
			}
			if r.Method == "GET" && !strings.Contains(r.Path, "{") {
				code, body := b.call(t, b.tokB, "GET", r.Path, "")
				if code != 200 || strings.Contains(body, canary) {
					t.Errorf("GET %s as the other: %d %s", r.Path, code, body)
				}
				got[r.Path] = varied.ReplaceAllString(as(body), "")
			}
		}
		return got
	}
	before = lists()
	b.fill(t)
	theirs, nothing := b.theirs, nobodys()
	table := asks()
	for _, r := range api.Routes() {
		rows, known := table[r.ID]
		delete(table, r.ID)
		if !known {
			t.Errorf("route %s has no row: say how it could be asked for what another organisation has", r.ID)
		}
		if known && rows == nil && strings.Contains(r.Path, "{name}") {
			t.Errorf("route %s takes a name and has no way to ask for another's", r.ID)
		}
		for i, row := range rows {
			there, where := row.path(theirs), row.path(nothing)
			b.seen.taken()
			code1, body1 := b.call(t, b.tokB, r.Method, address(r, there), row.body(theirs))
			looked1 := b.seen.taken()
			code2, body2 := b.call(t, b.tokB, r.Method, address(r, where), row.body(nothing))
			looked2 := b.seen.taken()
			one, two := as(body1, append(theirs.all(), there)...), as(body2, append(nothing.all(), where)...)
			if code1 < 300 { // it was made, or is in a list: with another id at another time
				one, two = varied.ReplaceAllString(one, ""), varied.ReplaceAllString(two, "")
			}
			if code1 != code2 || one != two || code1 == 500 {
				t.Errorf("%s, way %d: what another has is told apart from what nobody has\n%d %s\n%d %s", r.ID, i, code1, one, code2, two)
			}
			if !slices.Equal(looked1, looked2) {
				t.Errorf("%s, way %d: looked for %v, and for what nobody has %v", r.ID, i, looked1, looked2)
			}
			if strings.Contains(one, canary) {
				t.Errorf("%s, way %d: %s", r.ID, i, one)
			}
		}
	}
	for id := range table {
		t.Errorf("the row %s is of no route", id)
	}
	b.unmoved(t, before)
	// How many boxes there are in all is for who runs the server.
	if strings.Contains(before["/v1/status"], `"process"`) {
		t.Errorf("the other sees the keepers: %s", before["/v1/status"])
	}
	if _, body := b.call(t, b.tokA, "GET", "/v1/status", ""); !strings.Contains(body, `"process"`) {
		t.Errorf("who runs the server does not see them: %s", body)
	}
}

// unmoved checks that the first organisation has all it had, and that lists of
// the other are as before but for what it made itself.
func (b *both) unmoved(t *testing.T, before map[string]string) {
	t.Helper()
	n := b.theirs
	for _, path := range []string{"tasks/" + n.task, "tasks/" + n.short, "sessions/" + n.session, "repos/" + n.repo, "models/" + n.model, "approvals/" + n.question, "policies/1", "members/" + n.person, "environments/" + n.digest, "workspaces/" + n.workspace} {
		if code, body := b.call(t, b.tokA, "GET", "/v1/"+path, ""); code != 200 {
			t.Errorf("its own %s: %d %s", path, code, body)
		}
	}
	if code, body := b.call(t, b.tokA, "GET", "/v1/tokens", ""); code != 200 || !strings.Contains(body, n.token) || strings.Contains(body, "revoked\":\"2") {
		t.Errorf("its tokens: %d %s", code, body)
	}
	var q cofferdam.Question
	if _, body := b.call(t, b.tokA, "GET", "/v1/approvals/"+n.question, ""); json.Unmarshal([]byte(body), &q) != nil || q.State != cofferdam.QuestionOpen || len(q.Answers) != 0 {
		t.Errorf("its question: %+v", q)
	}
	for _, name := range []string{"/v1/tasks", "/v1/sessions", "/v1/approvals", "/v1/merges", "/v1/policies", "/v1/environments", "/v1/workspaces", "/v1/sandboxes", "/v1/checkpoints", "/v1/status"} {
		_, body := b.call(t, b.tokB, "GET", name, "")
		if got := varied.ReplaceAllString(as(body), ""); got != before[name] {
			t.Errorf("%s of the other was %s and is %s", name, before[name], got)
		}
	}
}

// A request names its project in its header. That of another organisation, by
// name or id, is none.
func TestProjectOfARequest(t *testing.T) {
	b := newBoth(t)
	b.fill(t)
	in := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Cofferdam-Project", name) }
	}
	for _, name := range []string{"default", string(b.b.Project), string(b.b.Project)[:12]} {
		if code, body := b.call(t, b.tokB, "GET", "/v1/tasks", "", in(name)); code != 200 || strings.Contains(body, canary) {
			t.Errorf("its own project %s: %d %s", name, code, body)
		}
	}
	none := nobodys()
	_, want := b.call(t, b.tokB, "GET", "/v1/tasks", "", in(none.project))
	for _, name := range []string{"canary-proj1", string(b.a.Project), string(b.a.Project)[:12], string(b.a.Organization)} {
		code, body := b.call(t, b.tokB, "GET", "/v1/tasks", "", in(name))
		if code != 404 || as(body, name) != as(want, none.project) {
			t.Errorf("project %s: %d %s, not %s", name, code, body, want)
		}
	}
	// A member of one project alone is in no other of the same organisation.
	var login cofferdam.Login
	b.made(t, "/v1/tokens", `{"holder":"canary-robot","role":"author","level":"organization",`+proofText+`}`, &login)
	if code, body := b.call(t, login.Text, "GET", "/v1/tasks", "", in("canary-proj1")); code != 404 {
		t.Errorf("a program of one project in another: %d %s", code, body)
	}
	if code, body := b.call(t, login.Text, "GET", "/v1/tasks", "", func(r *http.Request) { r.Header.Del("Cofferdam-Project") }); code != 200 || !strings.Contains(body, canary) {
		t.Errorf("in its own: %d %s", code, body)
	}
	if code, _ := b.call(t, login.Text, "DELETE", "/v1/repos/canary-repo", ""); code != 403 {
		t.Errorf("an author removes a repository: %d", code)
	}
}
