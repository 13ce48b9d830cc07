package model

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// RuleExit is the rule by which a request is refused that would make the
// provider reach out on the box's behalf, or use what it keeps from elsewhere:
// neither can be judged, counted or recorded here. Each protocol has a function
// that names what in a request would do so. The lists are closed the other way
// around where they can be: a tool may only be one that runs at the client.
const RuleExit = "no-provider-exit"

// searching finds models that search the web by themselves, whatever tools they
// are given.
func searching(id string) string {
	id = strings.ToLower(id)
	for _, part := range []string{"search-preview", "search-api", "deep-research"} {
		if strings.Contains(id, part) {
			return "a model that searches the web by itself"
		}
	}
	base := id[strings.LastIndexByte(id, '/')+1:] // compatible servers have them behind the maker's name
	for _, family := range []string{"sonar", "compound"} {
		if base == family || strings.HasPrefix(base, family+"-") {
			return "a model that searches the web by itself"
		}
	}
	switch { // OpenRouter's words for a search before the answer, and for settings that it keeps
	case slices.Contains(strings.Split(id, ":"), "online"):
		return "a model id with :online"
	case strings.Contains(id, "@preset/"):
		return "a model id with @preset/"
	}
	return ""
}

// walk passes every object's values to look, until it finds something. What
// skip names is not entered: free text of a tool, whose words mean nothing.
func walk(n *node, skip func(o *node, name string) bool, look func(o *node, name string, v *node) string) string {
	if n == nil {
		return ""
	}
	if n.loose {
		return twoSpellings
	}
	for i, v := range n.list {
		if n.kind == '{' {
			name := n.folds[i]
			if found := look(n, name, v); found != "" {
				return found
			}
			if skip(n, name) {
				continue
			}
		}
		if found := walk(v, skip, look); found != "" {
			return found
		}
	}
	return ""
}

// twoSpellings is found where two readers could take different values.
const twoSpellings = "one key in two spellings"

func typeOf(o *node) string {
	kind, _ := o.get("type").text()
	return kind
}

// clientTool are Anthropic's own tool types that run at the client, in all their
// dated versions.
var clientTool = regexp.MustCompile(`^(bash|text_editor|computer|memory)_[0-9]{8}$`)

// anthropicExits: remote tool servers, tools that run at the provider, content
// and files fetched by address or by name.
func anthropicExits(o *node) string {
	if found := said(o, []string{"mcp_servers", "container"}); found != "" {
		return found
	}
	for _, t := range o.get("tools").elements() {
		if t.loose {
			return twoSpellings
		}
		kind := t.get("type")
		if kind == nil || kind.kind == 'n' {
			continue
		}
		name, ok := kind.text()
		if !ok || name != "custom" && !clientTool.MatchString(name) {
			return fmt.Sprintf("tool of type %.60q", strings.Trim(string(kind.raw), `"`))
		}
	}
	skip := func(o *node, name string) bool { return name == "input" && typeOf(o) == "tool_use" }
	look := func(o *node, name string, v *node) string {
		if kind := typeOf(v); name == "source" && v.kind == '{' && kind != "base64" && kind != "text" && kind != "content" {
			return fmt.Sprintf("content by %.60q", kind)
		}
		if name == "fileid" && v.says() {
			return "content by file_id"
		}
		return ""
	}
	for _, key := range []string{"messages", "system"} {
		if found := walk(o.get(key), skip, look); found != "" {
			return found
		}
	}
	return ""
}

// openaiOutside are keys of a Responses or Chat Completions request that make
// the provider reach out, work on after the answer, or use what it keeps; the
// last row has those of compatible servers. proxyOutside are those of proxies,
// whichever protocol they speak: they would send the call or its text somewhere
// else, use what is kept there, or ask for another model; what begins with one
// of proxyPrefixes is such a key too.
var (
	openaiOutside = []string{
		"background", "conversation", "prompt", "previous_response_id", "web_search_options", "mcp_servers", "vector_store_ids",
		"search_parameters", "plugins", "data_sources",
		"enable_search", "web_search", "search_options", "search_settings", "preset", "extra_body",
	}
	proxyOutside = []string{
		"api_base", "base_url", "api_key", "extra_headers", "user_config", "kv_transfer_params", "models", "fallbacks",
		"extra_query", "custom_llm_provider", "model_list", "default_fallbacks", "context_window_fallback_dict", "success_callback",
		"failure_callback", "callbacks", "guardrails",
	}
	proxyPrefixes = []string{"litellm_", "aws_", "azure_", "vertex_", "langfuse_", "langsmith_", "arize_", "gcs_"}
)

// proxied finds in an object what a proxy would send the call elsewhere for.
func proxied(o *node) string {
	for i, v := range o.list {
		for _, p := range proxyPrefixes {
			if strings.HasPrefix(o.folds[i], fold(p)) && v.says() {
				return p + "…"
			}
		}
	}
	return said(o, proxyOutside)
}

// said returns the first of keys under which an object says something.
func said(o *node, keys []string) string {
	for _, key := range keys {
		if o.get(fold(key)).says() {
			return key
		}
	}
	return ""
}

// openaiExits serves both protocols of OpenAI: their tools and parts of content
// differ in no way that matters here.
func openaiExits(o *node) string {
	if found := said(o, openaiOutside); found != "" {
		return found
	}
	for _, item := range o.get("input").elements() {
		if item.kind == '{' && !item.get("type").says() && !item.get("role").says() {
			return "content by item_reference" // the type may be left out
		}
	}
	if found := openaiTools(o.get("tools")); found != "" {
		return found
	}
	skip := func(_ *node, name string) bool { return name == "action" || name == "arguments" || name == "tools" }
	for _, key := range []string{"input", "messages", "instructions"} {
		if found := walk(o.get(key), skip, openaiContent); found != "" {
			return found
		}
	}
	return ""
}

// openaiContent finds parts of content that are somewhere else. Of an address,
// only data: is none.
func openaiContent(o *node, name string, v *node) string {
	switch name {
	case "imageurl", "videourl", "audiourl", "fileurl":
		if v.kind == '{' {
			v = v.get("url")
		}
		if text, ok := v.text(); v.says() && !(ok && strings.HasPrefix(strings.ToLower(text), "data:")) {
			return "content by " + name[:len(name)-3] + "_url"
		}
	case "fileid":
		if v.says() {
			return "content by file_id"
		}
	case "audio": // of an answer before
		if v.get("id").says() {
			return "content by audio id"
		}
	case "type":
		if kind, _ := v.text(); kind == "item_reference" {
			return "content by item_reference"
		}
	case "tools": // of an item that adds tools in the middle of a conversation
		return openaiTools(v)
	}
	return ""
}

// openaiTools finds a tool that does not run at the client. A namespace holds
// more of them.
func openaiTools(tools *node) string {
	for _, t := range tools.elements() {
		if t.loose {
			return twoSpellings
		}
		kind := t.get("type")
		if kind == nil || kind.kind == 'n' {
			if found := untyped(t); found != "" {
				return found
			}
			continue
		}
		name, _ := kind.text()
		client := slices.Contains([]string{"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"}, name)
		switch name {
		case "namespace":
			if found := openaiTools(t.get("tools")); found != "" {
				return found
			}
			client = true
		case "shell":
			client = typeOf(t.get("environment")) == "local"
		case "tool_search":
			where, _ := t.get("execution").text()
			client = where == "client"
		}
		if !client {
			return fmt.Sprintf("tool of type %.60q", strings.Trim(string(kind.raw), `"`))
		}
	}
	return ""
}

// untyped finds in a tool that has no type what no function has.
func untyped(t *node) string {
	for i, f := range t.folds {
		if !slices.Contains([]string{"type", "name", "description", "parameters", "strict", "function", "cachecontrol", "inputschema"}, f) && t.list[i].kind != 'n' {
			return fmt.Sprintf("tool %.60q", t.names[i])
		}
	}
	return ""
}

// geminiExits: all tools but functions and the client's computer, files by
// address, and content that was left at the provider before.
func geminiExits(o *node) string {
	if o.get("cachedcontent").says() {
		return "cachedContent"
	}
	for _, t := range o.get("tools").elements() {
		for i, f := range t.folds {
			if f != "functiondeclarations" && f != "computeruse" && t.list[i].kind != 'n' {
				return fmt.Sprintf("tool %.60q", t.names[i])
			}
		}
	}
	skip := func(_ *node, name string) bool { return name == "args" || name == "response" }
	look := func(_ *node, name string, v *node) string {
		if name == "filedata" && v.kind != 'n' {
			return "content by fileData"
		}
		return ""
	}
	for _, key := range []string{"contents", "systeminstruction"} {
		if found := walk(o.get(key), skip, look); found != "" {
			return found
		}
	}
	if inner := o.get("generatecontentrequest"); inner != nil {
		return geminiExits(inner)
	}
	return ""
}
