package model

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The protocols, as cofferdam.Model.Provider names them.
const (
	anthropic = "anthropic"
	openai    = "openai"
	gemini    = "gemini"
)

// Operations. What spends is in the first half.
const (
	opMessages  = "messages"         // Anthropic
	opResponses = "responses"        // OpenAI
	opCompact   = "compact"          // OpenAI: /v1/responses/compact
	opChat      = "chat_completions" // OpenAI and what is compatible
	opGenerate  = "generate_content" // Gemini, streamed and not

	opCountTokens = "count_tokens"
	opInputTokens = "input_tokens" // OpenAI's word for the same
	opModels      = "models"
	opModel       = "model"
)

// protocol is what differs between providers, as data.
type protocol struct {
	name    string
	version string // the path begins with it, unless client or registration say another
	// The header of the provider's key, and its form.
	keyHeader, keyFormat string
	// headers are the box's that are passed on besides Accept, Content-Type and
	// User-Agent. Not among them: any credential, and whatever names an account
	// (OpenAI-Organization, X-Goog-User-Project), because that is the operator's.
	headers []string
	served  string // for people
	posts   map[string]string
	exits   func(o *node) string
}

var protocols = map[string]*protocol{
	anthropic: {
		name: anthropic, version: "v1", keyHeader: "X-Api-Key", keyFormat: "%s",
		headers: []string{"Anthropic-Version", "Anthropic-Beta"},
		served:  "POST /v1/messages, POST /v1/messages/count_tokens, GET /v1/models and GET /v1/models/ID",
		posts:   map[string]string{"messages": opMessages, "messages/count_tokens": opCountTokens},
		exits:   anthropicExits,
	},
	openai: {
		name: openai, version: "v1", keyHeader: "Authorization", keyFormat: "Bearer %s",
		// The two of codex say how a body is to be read, not who sends it.
		headers: []string{"Openai-Beta", "X-Openai-Internal-Codex-Responses-Lite", "X-Codex-Beta-Features"},
		served: "POST /v1/responses, POST /v1/responses/compact, POST /v1/responses/input_tokens, POST /v1/chat/completions, " +
			"GET /v1/models and GET /v1/models/ID",
		posts: map[string]string{
			"responses": opResponses, "responses/compact": opCompact, "responses/input_tokens": opInputTokens, "chat/completions": opChat,
		},
		exits: openaiExits,
	},
	gemini: {
		name: gemini, version: "v1beta", keyHeader: "X-Goog-Api-Key", keyFormat: "%s",
		served: "POST /v1beta/models/ID:generateContent, :streamGenerateContent and :countTokens, GET /v1beta/models and GET /v1beta/models/ID",
		posts:  map[string]string{"generateContent": opGenerate, "streamGenerateContent": opGenerate, "countTokens": opCountTokens},
		exits:  geminiExits,
	},
}

// speaks returns the protocol of a registration. A caller that has no model is
// refused by policy, in the shape that its request's path suggests.
func speaks(provider, path string) *protocol {
	if p := protocols[provider]; p != nil {
		return p
	}
	return guess(path)
}

func guess(path string) *protocol {
	switch {
	case strings.Contains(path, "/responses"), strings.Contains(path, "/chat/completions"):
		return protocols[openai]
	case strings.Contains(path, "/v1beta"), strings.Contains(path, "/v1alpha"), strings.Contains(path, "enerateContent"):
		return protocols[gemini]
	}
	return protocols[anthropic]
}

// KeyHeader returns the name of the header that carries a provider's key, and
// its form with one %s for the key; ok is false for no known protocol.
func KeyHeader(provider string) (name, format string, ok bool) {
	p := protocols[provider]
	if p == nil {
		return "", "", false
	}
	return p.keyHeader, p.keyFormat, true
}

// call is where a request goes: its path, read.
type call struct {
	op      string
	version string // as the client has it; "" if it has none
	rest    string // behind the version; a model's id left out
	model   string // in the path; "" if it is in the body
	verb    string // gemini: behind the colon
	stream  bool   // gemini: of the verb
}

func (c call) hasBody() bool { return c.op != opModels && c.op != opModel }

var (
	versionSegment = regexp.MustCompile(`^v[0-9]{1,2}((alpha|beta)[0-9]{0,2})?$`)
	pathModel      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,255}$`)
	geminiModel    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,255}$`) // behind another slash Google has more than models
)

// read understands a path as loosely as clients join it: slashes that are
// doubled or left over and versions given twice, the last of which is meant.
func (p *protocol) read(method, path string) (call, bool) {
	var c call
	parts := slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
	for len(parts) > 0 && versionSegment.MatchString(parts[0]) {
		c.version, parts = parts[0], parts[1:]
	}
	if slices.Contains(parts, "..") || slices.Contains(parts, ".") || len(parts) == 0 {
		return c, false
	}
	rest := strings.Join(parts, "/")
	switch {
	case method == http.MethodGet && rest == "models":
		c.op, c.rest = opModels, rest
		return c, true
	case method == http.MethodGet && parts[0] == "models":
		c.op, c.rest, c.model = opModel, "models/", strings.Join(parts[1:], "/")
		return c, p.mayBeModel(c.model)
	case method != http.MethodPost:
		return c, false
	case p.name != gemini:
		c.op, c.rest = p.posts[rest], rest
		return c, c.op != ""
	case parts[0] != "models" || len(parts) < 2:
		return c, false
	}
	id := strings.Join(parts[1:], "/")
	colon := strings.LastIndexByte(id, ':')
	if colon < 0 {
		return c, false
	}
	c.rest, c.model, c.verb = "models/", id[:colon], id[colon+1:]
	c.op, c.stream = p.posts[c.verb], c.verb == "streamGenerateContent"
	return c, c.op != "" && p.mayBeModel(c.model)
}

// mayBeModel says whether a model's id may stand in a path.
func (p *protocol) mayBeModel(id string) bool {
	if p.name == gemini {
		return geminiModel.MatchString(id)
	}
	return pathModel.MatchString(id)
}

// address is where a call goes at a provider: base may be bare, have a prefix,
// and end in a version, which then is the one that counts.
func (p *protocol) address(base *url.URL, c call, model, query string) *url.URL {
	prefix := strings.TrimRight(base.Path, "/")
	version := c.version
	if version == "" {
		version = p.version
	}
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 && versionSegment.MatchString(prefix[i+1:]) {
		prefix, version = prefix[:i], prefix[i+1:]
	}
	path := prefix + "/" + version + "/" + c.rest
	if c.model != "" {
		path += model
	}
	if c.verb != "" {
		path += ":" + c.verb
	}
	u := *base
	u.Path, u.RawPath, u.RawQuery = path, "", query
	return &u
}

// withoutKey returns a query without the credentials that some clients put
// there. All else stays as it is, in its order; ok is false if it cannot be read
// or would change what is asked for.
func withoutKey(query string) (string, bool) {
	var kept []string
	for _, part := range strings.Split(query, "&") {
		credential := false
		for _, pair := range strings.Split(part, ";") { // which some servers read as &
			name, value, _ := strings.Cut(pair, "=")
			name, err := url.QueryUnescape(name)
			name = fold(strings.TrimPrefix(name, "$"))
			if err != nil || changes(name, value) {
				return "", false
			}
			credential = credential || slices.Contains([]string{"key", "apikey", "accesstoken", "oauthtoken"}, name)
		}
		if !credential {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&"), true
}

// changes says whether a parameter would change what is asked for, or hide what
// it costs. Google's own can leave the counts out of an answer, put it into
// another form, or override method and headers; those of proxies are the same as
// in a body.
func changes(name, value string) bool {
	switch name {
	case "alt":
		return value != "sse" && value != "json"
	case "fields", "callback", "httpheaders", "httpmethod", "ct", "outputdefaults", "uploadtype", "uploadprotocol":
		return true
	}
	return slices.ContainsFunc(proxyOutside, func(key string) bool { return fold(key) == name && key != "api_key" })
}
