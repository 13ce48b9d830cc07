package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"cofferdam"
)

// issue asks for a token by token and returns what came of it.
func (b *both) issue(t *testing.T, by, body string) (int, string) {
	t.Helper()
	code, text := b.call(t, by, "POST", "/v1/tokens", strings.TrimSuffix(body, "}")+","+proofText+"}")
	var l cofferdam.Login
	if code == 201 && json.Unmarshal([]byte(text), &l) != nil {
		t.Fatal(text)
	}
	return code, l.Text
}

// A token gives no more than who asks has: by none of its bounds can somebody with
// a small one come by a larger one, and nobody without a proof by any.
func TestTokensDoNotGrow(t *testing.T) {
	b := newBoth(t)
	if code, text := b.call(t, b.tokA, "POST", "/v1/members", `{"name":"robot","service":true,"role":"author",`+proofText+`}`); code != 201 {
		t.Fatal(text)
	}
	if code, text := b.call(t, b.tokA, "POST", "/v1/members", `{"name":"carl","role":"reviewer",`+proofText+`}`); code != 201 {
		t.Fatal(text)
	}
	for _, body := range []string{`{"role":"owner"}`, `{"role":"owner","proof":{"kind":"password","password":"wrong"}}`} {
		if code, _ := b.call(t, b.tokA, "POST", "/v1/tokens", body); code != 403 {
			t.Errorf("without a proof: %d", code)
		}
	}
	_, author := b.issue(t, b.tokA, `{"role":"author"}`)
	_, viewer := b.issue(t, b.tokA, `{"role":"viewer","level":"organization"}`)
	_, verbs := b.issue(t, b.tokA, `{"role":"owner","verbs":["token.create","task.list"]}`)
	_, robot := b.issue(t, b.tokA, `{"role":"owner","holder":"robot"}`)
	for name, c := range map[string]struct {
		by, body string
		want     int
	}{
		"a higher role":                  {author, `{"role":"reviewer"}`, 403},
		"the same role":                  {author, `{"role":"author"}`, 201},
		"of one project for all":         {author, `{"role":"author","level":"organization"}`, 403},
		"for somebody else":              {author, `{"role":"viewer","holder":"robot"}`, 403},
		"viewer for more":                {viewer, `{"role":"author","level":"organization"}`, 403},
		"from some verbs to all":         {verbs, `{"role":"owner"}`, 403},
		"from some verbs to another":     {verbs, `{"role":"owner","verbs":["task.run"]}`, 403},
		"from some verbs to one of them": {verbs, `{"role":"viewer","verbs":["task.list"]}`, 201},
		"by a program":                   {robot, `{"role":"viewer"}`, 403},
		"of a person by an owner":        {b.tokA, `{"role":"viewer","holder":"carl"}`, 403},
		"no role":                        {b.tokA, `{"role":""}`, 400},
		"unknown role":                   {b.tokA, `{"role":"root"}`, 400},
		"unknown verb":                   {b.tokA, `{"role":"owner","verbs":["all"]}`, 400},
		"two years":                      {b.tokA, `{"role":"owner","seconds":63072000}`, 400},
		"a second":                       {b.tokA, `{"role":"owner","seconds":1}`, 400},
		"before now":                     {b.tokA, `{"role":"owner","seconds":-60}`, 400},
		"unknown level":                  {b.tokA, `{"role":"owner","level":"world"}`, 400},
		"of nobody":                      {b.tokA, `{"role":"owner","holder":"nobody"}`, 404},
	} {
		if code, _ := b.issue(t, c.by, c.body); code != c.want {
			t.Errorf("%s: %d, not %d", name, code, c.want)
		}
	}
	// What a token says it may, its holder has to be allowed as well.
	if code, _ := b.call(t, robot, "DELETE", "/v1/repos/x", ""); code != 403 {
		t.Errorf("a program that is an author removes a repository: %d", code)
	}
	for _, path := range []string{"/v1/members", "/v1/projects"} {
		if code, text := b.call(t, author, "POST", path, fmt.Sprintf(`{"name":"mine","role":"owner",%s}`, proofText)); code/100 == 2 {
			t.Errorf("POST %s by an author: %d %s", path, code, text)
		}
	}
	// One that is revoked, and one whose holder left, count no more.
	var all struct{ Items []cofferdam.Token }
	if _, text := b.call(t, b.tokA, "GET", "/v1/tokens", ""); json.Unmarshal([]byte(text), &all) != nil || len(all.Items) < 5 {
		t.Fatal(text)
	}
	for _, v := range all.Items {
		if v.Role == "author" && v.Holder != "service:robot" {
			if code, text := b.call(t, b.tokA, "DELETE", "/v1/tokens/"+string(v.ID), ""); code != 204 {
				t.Errorf("%d %s", code, text)
			}
		}
	}
	if code, _ := b.call(t, author, "GET", "/v1/tasks", ""); code != 401 {
		t.Errorf("a token that was revoked: %d", code)
	}
	if code, text := b.call(t, b.tokA, "POST", "/v1/members/robot/remove", `{"level":"organization",`+proofText+`}`); code != 204 {
		t.Fatal(text)
	}
	if code, _ := b.call(t, robot, "GET", "/v1/tasks", ""); code != 401 {
		t.Errorf("a token of a closed account: %d", code)
	}
}
