// Package vmmtest stands for monitors that are not on this host: it judges what
// the driver asks of one by a description of its published API, strictly, and
// answers as one may that is broken or hostile.
//
// It runs no machine and claims nothing of one. Its invariant: a call that its
// description does not have, or a body with one field more, one less that is
// required, or one of another kind, is refused.
package vmmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// Description is of an API: its calls, each "METHOD /path" with {name} for what
// differs, and the types of their bodies.
type Description struct {
	Source string          `json:"source"` // program, version and file that it was written after
	Calls  map[string]Call `json:"calls"`
	Types  map[string]Type `json:"types"`
}

// Call names the types of a body and of an answer; "": none.
type Call struct {
	Body   string `json:"body"`
	Answer string `json:"answer"`
}

// Type is of an object.
type Type struct {
	Required []string         `json:"required"`
	Fields   map[string]Field `json:"fields"`
}

// Field is "string", "boolean", "integer" or the name of a Type.
type Field struct {
	Type string   `json:"type"`
	List bool     `json:"list"`
	Enum []string `json:"enum"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
}

// Read reads a description, and refuses one that names what it has not.
func Read(path string) (Description, error) {
	var d Description
	data, err := os.ReadFile(path)
	if err != nil {
		return d, err
	}
	return d, d.parse(data)
}

func (d *Description) parse(data []byte) error {
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(d); err != nil {
		return err
	}
	known := func(name string) bool {
		_, ok := d.Types[name]
		return ok || slices.Contains([]string{"string", "boolean", "integer"}, name)
	}
	for name, c := range d.Calls {
		if c.Body != "" && !known(c.Body) || c.Answer != "" && !known(c.Answer) {
			return fmt.Errorf("%s: no such type", name)
		}
	}
	for name, t := range d.Types {
		for field, f := range t.Fields {
			if !known(f.Type) {
				return fmt.Errorf("%s.%s: no type %q", name, field, f.Type)
			}
		}
		for _, field := range t.Required {
			if _, ok := t.Fields[field]; !ok {
				return fmt.Errorf("%s requires %s, which it has not", name, field)
			}
		}
	}
	return nil
}

// find returns a call with what its path has for each {name}.
func (d Description) find(method, path string) (Call, map[string]string, error) {
	for name, c := range d.Calls {
		m, pattern, _ := strings.Cut(name, " ")
		want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
		if m != method || len(want) != len(got) {
			continue
		}
		values, ok := map[string]string{}, true
		for i := range want {
			if strings.HasPrefix(want[i], "{") {
				values[strings.Trim(want[i], "{}")] = got[i]
				ok = ok && got[i] != ""
			} else {
				ok = ok && want[i] == got[i]
			}
		}
		if ok {
			return c, values, nil
		}
	}
	return Call{}, nil, fmt.Errorf("the API has no %s %s", method, path)
}

// Check refuses a call that the API does not have, or whose body it would not
// take. It returns the body, nil for none.
func (d Description) Check(method, path string, body []byte) (map[string]any, error) {
	c, inPath, err := d.find(method, path)
	if err != nil {
		return nil, err
	}
	if c.Body == "" {
		if len(body) > 0 {
			return nil, fmt.Errorf("%s %s takes no body, and got %.80q", method, path, body)
		}
		return nil, nil
	}
	in := json.NewDecoder(bytes.NewReader(body))
	in.UseNumber()
	var object map[string]any
	if err := in.Decode(&object); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s %s: more than one value", method, path)
	}
	for name, value := range inPath {
		if object[name] != value {
			return nil, fmt.Errorf("%s %s: the body's %s is %v", method, path, name, object[name])
		}
	}
	if err := d.object(c.Body, object); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return object, nil
}

func (d Description) object(name string, object map[string]any) error {
	t := d.Types[name]
	for field, value := range object {
		f, ok := t.Fields[field]
		if !ok {
			return fmt.Errorf("%s has no field %q", name, field)
		}
		if err := d.field(f, value); err != nil {
			return fmt.Errorf("%s.%s: %w", name, field, err)
		}
	}
	for _, field := range t.Required {
		if _, ok := object[field]; !ok {
			return fmt.Errorf("%s lacks %q", name, field)
		}
	}
	return nil
}

func (d Description) field(f Field, value any) error {
	if f.List {
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%v is no list", value)
		}
		f.List = false
		for i, v := range list {
			if err := d.field(f, v); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return nil
	}
	ok := false
	switch v := value.(type) {
	case string:
		ok = f.Type == "string" && (len(f.Enum) == 0 || slices.Contains(f.Enum, v))
	case bool:
		ok = f.Type == "boolean"
	case json.Number:
		n, err := v.Float64()
		ok = err == nil && f.Type == "integer" && n == math.Trunc(n) && (f.Min == nil || n >= *f.Min) && (f.Max == nil || n <= *f.Max)
	case map[string]any:
		if _, object := d.Types[f.Type]; object {
			return d.object(f.Type, v)
		}
	}
	if !ok {
		return fmt.Errorf("%v is no %s %v", value, f.Type, f.Enum)
	}
	return nil
}
