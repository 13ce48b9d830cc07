package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// document makes the OpenAPI 3.1 description of the routes. Schemas come from
// the Go types by their JSON names, so they cannot differ from what is served.
func document(version string, routes []Route) []byte {
	b := &schemas{known: map[string]any{}}
	paths := map[string]map[string]any{}
	for _, r := range routes {
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = operation(b, r)
	}
	b.of(reflect.TypeFor[Problem]())
	doc := map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "Cofferdam", "version": version, "description": "Tasks for coding agents in boxes, their evidence and their merges. Answers to errors are problem documents (RFC 9457)."},
		"paths":    paths,
		"security": []any{map[string]any{"token": []any{}}},
		"components": map[string]any{
			"schemas":         b.known,
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer", "description": "needed over TCP; over the unix socket the caller is known by its user"}},
		},
	}
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(err) // cannot happen: maps, lists and text only
	}
	return append(out, '\n')
}

func operation(b *schemas, r Route) map[string]any {
	op := map[string]any{"operationId": r.ID, "summary": r.Doc}
	var params []any
	for _, name := range []string{"name", "checkpoint"} {
		if strings.Contains(r.Path, "{"+name+"}") {
			params = append(params, map[string]any{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string", "maxLength": 300}})
		}
	}
	for _, q := range r.Query {
		schema := map[string]any{"type": q.Type}
		if q.Type == "integer" {
			schema["minimum"] = 0
		}
		params = append(params, map[string]any{"name": q.Name, "in": "query", "description": q.Doc, "schema": schema})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.Body != nil {
		op["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": b.of(reflect.TypeOf(r.Body))}}}
	}
	problem := map[string]any{"description": "a problem", "content": map[string]any{"application/problem+json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Problem"}}}}
	status, answer := success(b, r)
	op["responses"] = map[string]any{status: answer, "default": problem}
	return op
}

func success(b *schemas, r Route) (string, map[string]any) {
	with := func(kind string, schema any) map[string]any {
		return map[string]any{"description": r.Doc, "content": map[string]any{kind: map[string]any{"schema": schema}}}
	}
	switch {
	case r.Raw != "":
		return "200", with(r.Raw, map[string]any{"type": "string"})
	case r.Reply == nil:
		return "204", map[string]any{"description": r.Doc}
	}
	schema := b.of(reflect.TypeOf(r.Reply))
	switch {
	case r.Stream:
		return "200", with(ndjson, schema)
	case r.List != "":
		return "200", with("application/json", map[string]any{
			"type": "object", "required": []string{"schema", "items"},
			"properties": map[string]any{"schema": map[string]any{"const": r.List}, "items": map[string]any{"type": "array", "items": schema}},
		})
	case r.Created:
		return "201", with("application/json", schema)
	}
	return "200", with("application/json", schema)
}

// schemas collects the named types it meets.
type schemas struct{ known map[string]any }

func (b *schemas) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[[]byte]():
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.of(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": b.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": b.of(t.Elem())}
	case reflect.Struct:
		return b.object(t)
	}
	return map[string]any{"type": "integer"}
}

// object puts a struct among the components and returns a reference to it.
func (b *schemas) object(t reflect.Type) map[string]any {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	ref := map[string]any{"$ref": "#/components/schemas/" + name}
	if _, done := b.known[name]; done {
		return ref
	}
	b.known[name] = nil // a type that holds itself ends here
	properties, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		properties[tag] = b.of(f.Type)
		if !strings.Contains(options, "omit") {
			required = append(required, tag)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties}
	if strings.HasSuffix(name, "Request") || strings.HasSuffix(name, "Body") {
		schema["additionalProperties"] = false
	} else {
		schema["required"] = required
	}
	b.known[name] = schema
	return ref
}
