package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// RuleExit is the rule by which a request is refused that would make the
// provider reach out on the box's behalf.
const RuleExit = "no-provider-exit"

// maxDepth bounds the nesting of a request. Conversations nest four deep, tool
// schemas some more.
const maxDepth = 200

// request is what we read of the body of a call.
type request struct {
	Model  string
	Stream bool
	exit   string // what in it would make the provider reach out; "" for nothing
}

// readRequest reads a body. The body is hostile: what two JSON readers could
// understand differently is refused, so that what is judged is what is meant.
func readRequest(op string, body []byte) (request, error) {
	var q request
	if op == "models" {
		if len(body) > 0 {
			return q, invalid("a list of models is asked for without a body", "send none")
		}
		return q, nil
	}
	if !utf8.Valid(body) {
		return q, invalid("the request is not UTF-8", "send JSON in UTF-8")
	}
	s := &scanner{dec: json.NewDecoder(bytes.NewReader(body))}
	s.dec.UseNumber()
	v, err := s.value(0)
	if err == nil {
		if _, end := s.dec.Token(); end != io.EOF {
			err = errors.New("something follows the JSON value")
		}
	}
	if err != nil {
		return q, invalid("the request is not plain JSON: "+err.Error(), "send one JSON object")
	}
	o, ok := v.(map[string]any)
	if !ok {
		return q, invalid("the request is not a JSON object", "send one JSON object")
	}
	q.Model, _ = o["model"].(string)
	q.Model = clip(q.Model)
	q.Stream, _ = o["stream"].(bool)
	q.exit = exits(o)
	return q, nil
}

// scanner reads JSON strictly: no key twice, bounded depth.
type scanner struct{ dec *json.Decoder }

func (s *scanner) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	t, err := s.dec.Token()
	if err != nil {
		return nil, plainError(err)
	}
	d, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if d == '{' {
		return s.object(depth)
	}
	list := []any{}
	for s.dec.More() {
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err = s.dec.Token()
	return list, plainError(err)
}

func (s *scanner) object(depth int) (any, error) {
	o := map[string]any{}
	for s.dec.More() {
		t, err := s.dec.Token()
		if err != nil {
			return nil, plainError(err)
		}
		name, _ := t.(string) // Token has checked that a key is a string
		if _, twice := o[name]; twice {
			return nil, fmt.Errorf("the key %q occurs twice", clip(name))
		}
		if o[name], err = s.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err := s.dec.Token()
	return o, plainError(err)
}

// plainError keeps the decoder's position out of the text and the end of the
// input from being mistaken for a good end.
func plainError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// exits names what in a request would make the provider itself connect
// somewhere: remote tool servers, tools that run at the provider, content and
// files fetched by address. The list is closed the other way around where it
// can be: a tool may only be one that runs at the client.
func exits(o map[string]any) string {
	for _, key := range []string{"mcp_servers", "container"} {
		if v := o[key]; v != nil && !empty(v) {
			return key
		}
	}
	tools, _ := o["tools"].([]any)
	for _, t := range tools {
		tool, _ := t.(map[string]any)
		if kind, ok := tool["type"]; ok && kind != nil && !atClient(kind) {
			return fmt.Sprintf("tool of type %.60q", fmt.Sprint(kind))
		}
	}
	for _, key := range []string{"messages", "system"} {
		if found := addressed(o[key], false); found != "" {
			return found
		}
	}
	return ""
}

func empty(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) == 0
}

// clientTools are the provider's own tool types that run at the client; each
// stands for all its dated versions.
var clientTools = []string{"bash_", "text_editor_", "computer_", "memory_"}

func atClient(kind any) bool {
	name, ok := kind.(string)
	return ok && (name == "custom" || slices.ContainsFunc(clientTools, func(p string) bool { return strings.HasPrefix(name, p) }))
}

// addressed finds content that the provider would fetch: a source of type url
// or file. What a tool was called with is only text to the provider.
func addressed(v any, source bool) string {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if found := addressed(e, false); found != "" {
				return found
			}
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		if source && kind != "base64" && kind != "text" && kind != "content" {
			return fmt.Sprintf("content by %.60q", kind)
		}
		for key, e := range v {
			if key == "input" && kind == "tool_use" {
				continue
			}
			if found := addressed(e, key == "source"); found != "" {
				return found
			}
		}
	}
	return ""
}
