package model

import (
	"strings"
	"testing"
)

// TestHiddenWaysOut: ways to make a provider, or a proxy that speaks its
// protocol, reach out that have no name of their own in the protocol.
func TestHiddenWaysOut(t *testing.T) {
	for _, c := range []struct {
		provider, op, body string
		out                bool
	}{
		// An item without a type is a reference, if it has nothing but an id.
		{openai, opResponses, `{"input":[{"id":"msg_1"}]}`, true},
		{openai, opResponses, `{"input":[{"type":null,"id":"msg_1"}]}`, true},
		{openai, opResponses, `{"input":{"ID":"msg_1"}}`, true},
		{openai, opResponses, `{"input":[{"id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x"}]}]}`, false},
		{openai, opResponses, `{"input":[{"id":"x","type":"reasoning","summary":[],"encrypted_content":"AA"}]}`, false},
		{openai, opChat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, true},
		{openai, opChat, `{"messages":[{"role":"assistant","audio":null,"content":[{"type":"input_audio","input_audio":{"data":"AA"}}]}]}`, false},
		// A tool without a type is whatever a server takes it for.
		{openai, opChat, `{"tools":[{"google_search":{}}]}`, true},
		{openai, opChat, `{"tools":[{"name":"x","web_search":{"enable":true}}]}`, true},
		{openai, opChat, `{"tools":[{"type":null,"function":{"name":"x"}}]}`, false},
		{openai, opResponses, `{"tools":[{"name":"x","description":"y","parameters":{},"strict":true}]}`, false},
		{anthropic, opMessages, `{"tools":[{"type":"bash_code_execution_20250825","name":"x"}]}`, true},
		{anthropic, opMessages, `{"tools":[{"type":"computer_search_20990101x"}]}`, true},
		{anthropic, opMessages, `{"tools":[{"type":"memory_20250818"},{"type":"bash_20250124"},{"type":"text_editor_20250728"},{"type":"computer_20251124"},{"type":"custom"},{"name":"x","input_schema":{}}]}`, false},
		// Models and words of compatible servers that search, send on or log elsewhere.
		{openai, opChat, `{"model":"O3-Deep-Research"}`, true},
		{openai, opChat, `{"model":"x/y:online:free"}`, true},
		{openai, opChat, `{"model":"perplexity/sonar-pro"}`, true},
		{openai, opChat, `{"model":"sonar"}`, true},
		{openai, opChat, `{"model":"groq/compound-mini"}`, true},
		{openai, opChat, `{"model":"@preset/searching"}`, true},
		{openai, opChat, `{"model":"x/y@preset/searching"}`, true},
		{openai, opChat, `{"model":"my-compounds-model"}`, false},
		{openai, opChat, `{"preset":"searching"}`, true},
		{openai, opChat, `{"extra_body":{"google":{"cached_content":"cachedContents/1"}}}`, true},
		{openai, opChat, `{"enable_search":true}`, true},
		{openai, opChat, `{"enable_search":false}`, false},
		{openai, opChat, `{"custom_llm_provider":"bedrock"}`, true},
		{openai, opChat, `{"aws_bedrock_runtime_endpoint":"https://evil.example"}`, true},
		{openai, opChat, `{"langfuse_host":"https://evil.example"}`, true},
		{openai, opChat, `{"metadata":{"langfuse_host":"a word"}}`, false},
		{anthropic, opMessages, `{"litellm_params":{"api_base":"https://evil.example"}}`, true},
		{gemini, opGenerate, `{"api_base":"https://evil.example"}`, true},
		{gemini, opGenerate, `{"vertex_project":"another"}`, true},
	} {
		q, err := readRequest(protocols[c.provider], call{op: c.op}, []byte(c.body))
		if err != nil || (q.exit != "") != c.out {
			t.Errorf("%s: %q %v", c.body, q.exit, err)
		}
	}
}

// TestQueriesThatChangeWhatIsAsked: Google's own parameters can leave the counts
// out of an answer, put it into another form, or override method and headers.
func TestQueriesThatChangeWhatIsAsked(t *testing.T) {
	for query, ok := range map[string]bool{
		"alt=sse": true, "alt=json": true, "$alt=sse": true, "beta=true&z=%2f&a=1": true, "key=k&pageSize=5&pageToken=a%2Bb%3D": true, "prettyPrint=false": true,
		"alt=sse&fields=candidates": false, "%66ields=candidates": false, "$fields=candidates": false, "Fields=x": false,
		"alt=proto": false, "alt=media": false, "%24alt=proto": false, "alt=sse&alt=proto": false, "beta=true;fields=candidates": false,
		"$httpHeaders=X-Goog-User-Project%3Aother": false, "$httpMethod=DELETE": false, "callback=x": false, "upload_protocol=raw": false,
		"api_base=https://evil.example": false, "custom_llm_provider=x": false,
	} {
		if _, got := withoutKey(query); got != ok {
			t.Errorf("%q: taken %v", query, got)
		}
	}
}

// TestWhatAModelsPathMayBe: at Google more than models stands below /models/.
func TestWhatAModelsPathMayBe(t *testing.T) {
	for _, c := range []struct {
		provider, method, path string
		ok                     bool
	}{
		{gemini, "GET", "/v1beta/models/veo-3/operations/of-another-session", false},
		{gemini, "POST", "/v1beta/models/a/b:generateContent", false},
		{gemini, "POST", "/v1beta/models/a:b:generateContent", false},
		{gemini, "GET", "/v1beta/models/gemini-2.5-pro", true},
		{gemini, "POST", "/v1beta/models/gemini-2.5-pro:countTokens", true},
		{openai, "GET", "/v1/models/org/name:8b", true},
		{openai, "GET", "/v1/models/a/%2e%2e/files", false},
	} {
		if _, ok := protocols[c.provider].read(c.method, c.path); ok != c.ok {
			t.Errorf("%s %s: served %v", c.method, c.path, ok)
		}
	}
}

// TestFiguresInEverySpelling: what an answer may cost at most is found however
// it is written, wherever a lenient server would.
func TestFiguresInEverySpelling(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		provider, op, body string
		output, answers    int64
	}{
		{gemini, opGenerate, `{"generationConfig":{"maxOutputTokens":"9","candidateCount":"8"}}`, 0, 8},
		{gemini, opGenerate, `{"generationConfig":{"maxOutputTokens":9,"candidateCount":8,"responseSchema":{"description":"` + long + `"}}}`, 9, 8},
		{gemini, opGenerate, `{"generation_config":{"max_output_tokens":9,"candidate_count":8.0}}`, 9, 8},
		{openai, opChat, `{"max_tokens":5,"n":"8"}`, 5, 8},
		{openai, opChat, `{"max_tokens":5,"N":8}`, 5, 8},
		{openai, opChat, `{"max_tokens":5,"max_completion_tokens":500,"n":8e0}`, 500, 8},
		{openai, opChat, `{"max_tokens":5,"best_of":8}`, 5, 8},
		{openai, opChat, `{"max_tokens":null,"n":[8]}`, 0, 0},
		{openai, opResponses, `{"max_output_tokens":"1e2"}`, 0, 1}, // to most servers that is none
		{openai, opChat, `{"MAX_TOKENS":5}`, 0, 1},
		{anthropic, opMessages, `{"max_tokens":-5}`, 0, 1},
		{anthropic, opMessages, `{"max_tokens":1e400}`, 0, 1},
	} {
		q, err := readRequest(protocols[c.provider], call{op: c.op}, []byte(c.body))
		if err != nil || q.output != c.output || max(q.answers, 1) != max(c.answers, 1) {
			t.Errorf("%.100s: %d tokens, %d answers, %v", c.body, q.output, q.answers, err)
		}
	}
}

// TestDearerWaysToAsk: what a model's list price is not for.
func TestDearerWaysToAsk(t *testing.T) {
	for _, c := range []struct {
		provider, body string
		dear           bool
	}{
		{anthropic, `{"speed":"fast"}`, true},
		{anthropic, `{"Speed":"fast"}`, true},
		{anthropic, `{"speed":"standard","service_tier":"auto"}`, false},
		{anthropic, `{"service_tier":"standard_only"}`, false},
		{anthropic, `{"inference_geo":"us"}`, true},
		{openai, `{"service_tier":"priority"}`, true},
		{openai, `{"service_tier":"fast"}`, true},
		{openai, `{"service_tier":{"x":1}}`, true},
		{openai, `{"service_tier":"flex"}`, false},
		{openai, `{"service_tier":"default"}`, false},
		{openai, `{"service_tier":null}`, false},
		{openai, `{"modalities":["text","audio"]}`, true},
		{openai, `{"modalities":["text"]}`, false},
		{gemini, `{"serviceTier":"PRIORITY"}`, true},
		{gemini, `{"generationConfig":{"responseModalities":["IMAGE"]}}`, true},
		{gemini, `{"generationConfig":{"responseModalities":"AUDIO"}}`, true},
		{gemini, `{"generationConfig":{"responseModalities":["TEXT"]}}`, false},
		{gemini, `{"contents":[{"parts":[{"inline_data":{"mime_type":"audio/wav","data":"AA"}}]}]}`, true},
		{gemini, `{"contents":{"parts":{"inlineData":{"mimeType":"Video/mp4","data":"AA"}}}}`, true},
		{gemini, `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA"}}]}]}`, false},
	} {
		op := map[string]string{anthropic: opMessages, openai: opChat, gemini: opGenerate}[c.provider]
		q, err := readRequest(protocols[c.provider], call{op: op}, []byte(c.body))
		if err != nil || (q.dear != "") != c.dear {
			t.Errorf("%s: %q %v", c.body, q.dear, err)
		}
	}
}
