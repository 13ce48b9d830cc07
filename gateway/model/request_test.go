package model

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"cofferdam"
)

// FuzzRequest: what is accepted means the same to the usual JSON reader, a
// request that names a way out is never taken for one that does not, and an
// alias changes the model's id and nothing else.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","stream":true,"tools":[{"type":"web_fetch_1"}]}`, `{"mcp_servers":[{}]}`, `{"a":1,"a":2}`, `{"a":1,"A":2}`,
		`{"messages":[{"content":[{"type":"image","source":{"type":"url"}}]}]}`, "{\"model\":\"\xff\"}", `{"model":"\ud800"}`,
		`{"mod\u0065l":"a\"b","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}],"n":-1.5e3}`, `{"model":"models/x","contents":[{"parts":[{"file_data":{}}]}]}`,
	} {
		for i := range 3 {
			f.Add([]byte(seed), i)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, which int) {
		p := protocols[[]string{anthropic, openai, gemini}[uint(which)%3]]
		c := call{op: opMessages}
		if p.name == gemini {
			c = call{op: opGenerate, model: "x"}
		}
		q, err := readRequest(p, c, body)
		if err != nil {
			// Nothing is refused as bad JSON that the usual reader takes.
			if text := err.Error(); json.Valid(body) && strings.Contains(text, "not plain JSON") && !strings.Contains(text, "twice") && !strings.Contains(text, "deeper") {
				t.Errorf("refused, and JSON: %v", err)
			}
			return
		}
		var plain map[string]any
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("accepted, and not JSON: %v", err)
		}
		if name, _ := plain["model"].(string); p.name != gemini && name != q.Asked && len(q.spots) > 0 && !folded(plain, "model") {
			t.Errorf("model %q, read as %q", name, q.Asked)
		}
		for key, list := range map[string]any{"mcp_servers": plain["mcp_servers"], "cachedContent": plain["cachedContent"]} {
			if l, ok := list.([]any); ok && len(l) > 0 && q.exit == "" && (p.name == gemini) == (key == "cachedContent") {
				t.Errorf("%s was let through", key)
			}
		}
		renamed := q.rename(p, body, "another")
		if len(q.spots) == 0 {
			return
		}
		var after map[string]any
		if err := json.Unmarshal(renamed, &after); err != nil {
			t.Fatalf("renamed, and not JSON: %v: %s", err, renamed)
		}
		again, err := readRequest(p, call{op: c.op, model: map[bool]string{true: "another"}[p.name == gemini]}, renamed)
		if err != nil || q.Asked != "another" && again.Asked != "another" || again.exit == "" != (q.exit == "") && searching(q.Asked) == "" {
			t.Errorf("renamed to %q (%v): %s", again.Asked, err, renamed)
		}
	})
}

// folded says whether o has the key in another spelling than its own.
func folded(o map[string]any, key string) bool {
	for name := range o {
		if name != key && fold(name) == key {
			return true
		}
	}
	return false
}

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		provider, method, path, base, want string
	}{
		{anthropic, "POST", "/v1/messages", "https://a.test", "https://a.test/v1/messages"},
		{anthropic, "POST", "//v1//messages/", "https://a.test/", "https://a.test/v1/messages"},
		{anthropic, "POST", "/v1/v1/messages/count_tokens", "https://a.test/v1", "https://a.test/v1/messages/count_tokens"},
		{anthropic, "POST", "/messages", "https://a.test/proxy/anthropic/", "https://a.test/proxy/anthropic/v1/messages"},
		{anthropic, "GET", "/v1/models", "https://a.test", "https://a.test/v1/models"},
		{anthropic, "GET", "/v1/models/claude-x", "https://a.test", "https://a.test/v1/models/claude-x"},
		{anthropic, "POST", "/v1/responses", "https://a.test", ""},
		{anthropic, "POST", "/v1/models", "https://a.test", ""},
		{anthropic, "GET", "/v1/messages", "https://a.test", ""},
		{anthropic, "POST", "/v1/../v1/messages", "https://a.test", ""},
		{anthropic, "GET", "/v1/models/../../x", "https://a.test", ""},
		{anthropic, "POST", "/", "https://a.test", ""},
		{openai, "POST", "/v1/chat/completions", "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/chat/completions"},
		{openai, "POST", "/chat/completions", "http://127.0.0.1:1", "http://127.0.0.1:1/v1/chat/completions"},
		{openai, "POST", "/v1/chat/completions", "https://a.test/api/v3/", "https://a.test/api/v3/chat/completions"},
		{openai, "POST", "/v1/responses", "https://a.test/openai", "https://a.test/openai/v1/responses"},
		{openai, "POST", "/v1/responses/compact", "https://a.test", "https://a.test/v1/responses/compact"},
		{openai, "GET", "/v1/models/org/name:8b", "https://a.test", "https://a.test/v1/models/org/name:8b"},
		{openai, "GET", "/v1/responses/resp_1", "https://a.test", ""},
		{openai, "POST", "/v1/files", "https://a.test", ""},
		{gemini, "POST", "/v1beta/models/g-2:generateContent", "https://g.test", "https://g.test/v1beta/models/g-2:generateContent"},
		{gemini, "POST", "/v1beta//v1beta/models/g-2:streamGenerateContent", "https://g.test/v1beta", "https://g.test/v1beta/models/g-2:streamGenerateContent"},
		{gemini, "POST", "/v1beta/v1/models/g-2:countTokens", "https://g.test/", "https://g.test/v1/models/g-2:countTokens"},
		{gemini, "POST", "/v1alpha/models/g-2:generateContent", "https://g.test/x", "https://g.test/x/v1alpha/models/g-2:generateContent"},
		{gemini, "POST", "/models/g-2:generateContent", "https://g.test", "https://g.test/v1beta/models/g-2:generateContent"},
		{gemini, "GET", "/v1beta/models", "https://g.test", "https://g.test/v1beta/models"},
		{gemini, "POST", "/v1beta/models/g-2:predict", "https://g.test", ""},
		{gemini, "POST", "/v1beta/models/g-2", "https://g.test", ""},
		{gemini, "POST", "/v1beta/models/:generateContent", "https://g.test", ""},
		{gemini, "POST", "/v1beta/cachedContents", "https://g.test", ""},
	} {
		p := protocols[c.provider]
		got, ok := p.read(c.method, c.path)
		if !ok {
			if c.want != "" {
				t.Errorf("%s %s: not served", c.method, c.path)
			}
			continue
		}
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		if u := p.address(base, got, got.model, ""); u.String() != c.want {
			t.Errorf("%s %s at %s: %s, want %q", c.method, c.path, c.base, u, c.want)
		}
	}
}

func TestQueryLosesItsKeyAndNothingElse(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "beta=true": "beta=true", "alt=sse&key=k": "alt=sse", "key=k": "", "b=2&%6bey=k&a=%20+1&b=1": "b=2&a=%20+1&b=1",
		"$key=k&$alt=sse": "$alt=sse", "access_token=k&x": "x", "key": "", "monkey=1": "monkey=1", "api-key=1&apiKey=2": "api-key=1",
	} {
		if got, ok := withoutKey(query); !ok || got != want {
			t.Errorf("%q: %q %v, want %q", query, got, ok, want)
		}
	}
	if _, ok := withoutKey("a=1&%zz=k"); ok {
		t.Error("a query that cannot be read was taken")
	}
}

func TestAliasChangesTheIDAndNothingElse(t *testing.T) {
	for _, c := range []struct{ provider, path, body, want string }{
		{anthropic, "/v1/messages", " { \"a\" : 1 ,\t\"model\" :\n \"s\\u006dall\" , \"text\":\"\\\"model\\\":\\\"small\\\"\" } ", " { \"a\" : 1 ,\t\"model\" :\n \"big-1\" , \"text\":\"\\\"model\\\":\\\"small\\\"\" } "},
		{openai, "/v1/responses", `{"input":{"model":"small"},"model":"small"}`, `{"input":{"model":"small"},"model":"big-1"}`},
		{gemini, "/v1beta/models/small:countTokens", `{"generateContentRequest":{"model":"models/small"}}`, `{"generateContentRequest":{"model":"models/big-1"}}`},
		{gemini, "/v1beta/models/small:generateContent", `{"contents":[]}`, `{"contents":[]}`},
	} {
		p := protocols[c.provider]
		at, ok := p.read("POST", c.path)
		if !ok {
			t.Fatal(c.path)
		}
		q, err := readRequest(p, at, []byte(c.body))
		if err != nil || q.Asked != "small" {
			t.Errorf("%s: %q %v", c.body, q.Asked, err)
			continue
		}
		if got := string(q.rename(p, []byte(c.body), "big-1")); got != c.want {
			t.Errorf("%s\n became %s", c.body, got)
		}
	}
}

func TestAllowList(t *testing.T) {
	m := cofferdam.Model{Name: "work", Allow: []string{"big-*", "exact"}, Alias: map[string]string{"small": "big-1", "wild": "else"}}
	for asked, want := range map[string]bool{"big-2": true, "exact": true, "exact-not": false, "small": true, "wild": false, "": false, "bi": false} {
		if target, allowed := resolve(m, asked); allowed != want {
			t.Errorf("%q, which is %q: %v", asked, target, allowed)
		}
	}
	if _, allowed := resolve(cofferdam.Model{}, "any"); !allowed {
		t.Error("without a list all are allowed")
	}
	reason, hint := notAllowed(m, "wild", "else")
	if !strings.Contains(reason, `"else"`) || !strings.Contains(reason, `"wild"`) || hint != "allowed: big-*, exact; also as: small, wild" {
		t.Errorf("%s\n%s", reason, hint)
	}
}

// TestWaysOut: what would make a provider reach out is found in each protocol,
// in every spelling that a reader might take, and what runs at the client is not.
func TestWaysOut(t *testing.T) {
	for _, c := range []struct {
		provider, op, body string
		out                bool
	}{
		{openai, opResponses, `{"tools":[{"type":"web_search"}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"web_search_preview_2025_03_11"}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"mcp","server_url":"https://evil.example"}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"file_search"}]}`, true},
		{openai, opResponses, `{"tools":{"type":"file_search"}}`, true},
		{openai, opResponses, `{"tools":[{"type":"function","Type":"mcp"}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"shell"}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"namespace","tools":[{"type":"function"},{"type":"web_search"}]}]}`, true},
		{openai, opResponses, `{"tools":[{"type":"namespace","tools":[{"type":"namespace","tools":[{"type":"function"}]},{"type":"mcp"}]}]}`, true},
		{openai, opResponses, `{"input":[{"type":"additional_tools","tools":[{"type":"web_search"}]}]}`, true},
		{openai, opResponses, `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/?x"}]}]}`, true},
		{openai, opResponses, `{"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://evil.example"}]}]}`, true},
		{openai, opResponses, `{"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`, true},
		{openai, opResponses, `{"input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"http://x"}]}]}`, true},
		{openai, opResponses, `{"input":[{"type":"item_reference","id":"msg_1"}]}`, true},
		{openai, opResponses, `{"previous_response_id":"resp_1"}`, true},
		{openai, opResponses, `{"conversation":"conv_1"}`, true},
		{openai, opResponses, `{"prompt":{"id":"pmpt_1"}}`, true},
		{openai, opResponses, `{"background":true}`, true},
		{openai, opResponses, `{"model":"o4-mini-deep-research"}`, true},
		{openai, opChat, `{"web_search_options":{"user_location":1}}`, true},
		{openai, opChat, `{"model":"x/y:online"}`, true},
		{openai, opChat, `{"plugins":[{"id":"web"}]}`, true},
		{openai, opChat, `{"api_base":"https://evil.example"}`, true},
		{openai, opChat, `{"models":["another"]}`, true},
		{openai, opChat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://evil.example"}}]}]}`, true},
		{openai, opChat, `{"messages":[{"content":[{"type":"image_url","IMAGE_URL":{"URL":"https://evil.example"}}]}]}`, true},
		{openai, opChat, `{"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}`, true},

		{openai, opResponses, `{"store":false,"background":false,"previous_response_id":null,"conversation":null,"tools":[{"type":"function","name":"f","parameters":{"properties":{"file_id":{},"fileId":{}}}},{"type":"custom"},{"type":"local_shell"},{"type":"shell","environment":{"type":"local"}},{"type":"namespace","tools":[{"type":"function"}]},{"type":"tool_search","execution":"client"}]}`, false},
		{openai, opResponses, `{"input":[{"type":"additional_tools","tools":[{"type":"namespace","tools":[{"type":"custom"}]}]},{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA"}]},{"type":"local_shell_call","action":{"env":{"FILE_ID":"1"}}}]}`, false},
		{openai, opResponses, `{"input":"see https://example.com","tools":[]}`, false},
		{openai, opChat, `{"messages":[{"role":"user","content":"image_url"}],"tools":[{"type":"function","function":{"name":"x"}}]}`, false},

		{gemini, opGenerate, `{"tools":[{"googleSearch":{}}]}`, true},
		{gemini, opGenerate, `{"tools":[{"google_search":{}}]}`, true},
		{gemini, opGenerate, `{"tools":[{"functionDeclarations":[]},{"urlContext":{}}]}`, true},
		{gemini, opGenerate, `{"tools":{"codeExecution":{}}}`, true},
		{gemini, opGenerate, `{"tools":[{"googleMaps":{}}]}`, true},
		{gemini, opGenerate, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://youtube.example"}}]}]}`, true},
		{gemini, opGenerate, `{"contents":{"parts":{"file_data":{"file_uri":"gs://x"}}}}`, true},
		{gemini, opGenerate, `{"contents":[{"parts":[{"functionResponse":{"parts":[{"fileData":{}}]}}]}]}`, true},
		{gemini, opGenerate, `{"systemInstruction":{"parts":[{"fileData":{}}]}}`, true},
		{gemini, opGenerate, `{"cachedContent":"cachedContents/1"}`, true},
		{gemini, opCountTokens, `{"generateContentRequest":{"tools":[{"googleSearch":{}}]}}`, true},
		{gemini, opGenerate, `{"tools":[{"functionDeclarations":[{"name":"google_search","parameters":{"properties":{"fileData":{}}}}]}],"contents":[{"parts":[{"inlineData":{"data":"AA"}},{"functionCall":{"args":{"fileData":1}},"thoughtSignature":"a+/="},{"functionResponse":{"response":{"fileData":{}}}}]}]}`, false},

		{anthropic, opMessages, `{"messages":[{"content":[{"type":"container_upload","file_id":"f"}]}]}`, true},
		{anthropic, opMessages, `{"base_url":"https://evil.example"}`, true},
		{anthropic, opMessages, `{"tools":[{"type":"custom","Type":"web_fetch_1"}]}`, true},
		{anthropic, opMessages, `{"messages":[{"content":[{"type":"image","Source":{"type":"url"}}]}]}`, true},
		{anthropic, opMessages, `{"messages":[{"content":[{"type":"tool_use","input":{"file_id":"x","source":{"type":"url"},"fileId":1}}]}]}`, false},
	} {
		at := call{op: c.op}
		q, err := readRequest(protocols[c.provider], at, []byte(c.body))
		if err != nil || (q.exit != "") != c.out {
			t.Errorf("%s: %q %v", c.body, q.exit, err)
		}
	}
}

func TestFiguresOfARequest(t *testing.T) {
	q, err := readRequest(protocols[openai], call{op: opChat}, []byte(`{"model":"m","stream":true,"max_tokens":7,"n":3,"stream_options":{"include_usage":true}}`))
	if err != nil || !q.Stream || q.output != 7 || q.answers != 3 {
		t.Errorf("%+v %v", q, err)
	}
	q, err = readRequest(protocols[gemini], call{op: opGenerate, model: "g", stream: true}, []byte(`{"generationConfig":{"maxOutputTokens":9,"candidateCount":2}}`))
	if err != nil || !q.Stream || q.output != 9 || q.answers != 2 || q.Asked != "g" {
		t.Errorf("%+v %v", q, err)
	}
	if _, err := readRequest(protocols[gemini], call{op: opGenerate, model: "g"}, []byte(`{"model":"models/other"}`)); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("two models: %v", err)
	}
}

// TestLargeRequestsWaitForEachOther: whoever's they are, and no longer than
// their clients do; small ones do not wait.
func TestLargeRequestsWaitForEachOther(t *testing.T) {
	r := make(readers, maxReaders)
	var leave []func()
	for range maxReaders {
		done, err := r.wait(t.Context(), readAlone)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.wait(gone, readAlone); err == nil {
		t.Error("one too many was let in")
	}
	if _, err := r.wait(gone, readAlone-1); err != nil {
		t.Errorf("a small one waited: %v", err)
	}
	for _, done := range leave {
		done()
	}
	if _, err := r.wait(t.Context(), readAlone); err != nil {
		t.Error(err)
	}
}

// FuzzPath: whatever path is served leads below the registration's own address.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/v1/messages", "//v1/../x", "/v1beta/models/a%2f..:generateContent", "/models/x?y#z", "/v1/models/\x00"} {
		f.Add(seed)
	}
	base, _ := url.Parse("https://a.test/prefix/v1")
	f.Fuzz(func(t *testing.T, path string) {
		for _, p := range protocols {
			for _, method := range []string{"GET", "POST"} {
				c, ok := p.read(method, path)
				if !ok {
					continue
				}
				text := p.address(base, c, c.model, "").String()
				u, err := url.Parse(text)
				if err != nil || u.Host != "a.test" || !strings.HasPrefix(u.Path, "/prefix/v1/") || strings.Contains(u.Path, "..") && !strings.Contains(path, "..") ||
					strings.Contains(u.Path, "/../") || strings.Contains(u.Path, "//") || u.RawQuery != "" || u.Fragment != "" {
					t.Errorf("%q leads to %s (%v)", path, text, err)
				}
			}
		}
	})
}
