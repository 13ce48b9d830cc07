package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/cedar-policy/cedar-go"
)

// Bounds of a tool's arguments as policy sees them. What is beyond is refused,
// since a rule about a part that was left out would not hold.
const (
	maxArgs  = 256 << 10 // bytes of JSON
	maxTags  = 4096      // values in it
	maxDepth = 64
)

// flatten returns the arguments of a tool as tags: a.b for the value of b in a,
// a.0 for the first of a list, each as text. Two that would have one name are an
// error, as is what a rule could not see whole: a key that is there twice is read
// by some as the first and by others as the last.
func flatten(args json.RawMessage) (cedar.RecordMap, error) {
	f := flattened{tags: cedar.RecordMap{}}
	if len(args) == 0 {
		return f.tags, nil
	}
	if len(args) > maxArgs {
		return nil, fmt.Errorf("the arguments are %d bytes, more than the %d that a rule sees whole; what is larger is made in several calls, or by a command", len(args), maxArgs)
	}
	f.d = json.NewDecoder(bytes.NewReader(args))
	f.d.UseNumber()
	if t, err := f.d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("the arguments are no JSON object")
	}
	if err := f.object("", 1); err != nil {
		return nil, err
	}
	if _, err := f.d.Token(); err != io.EOF {
		return nil, fmt.Errorf("the arguments are not one JSON value")
	}
	return f.tags, nil
}

// flattened are the tags so far, in the order of the text: what is wrong first is
// told, each time the same.
type flattened struct {
	d    *json.Decoder
	tags cedar.RecordMap
	keys int // seen, of all objects
}

// object reads the members of one whose brace is read.
func (f *flattened) object(at string, depth int) error {
	seen := map[string]bool{}
	for f.d.More() {
		t, err := f.d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return fmt.Errorf("the arguments are not one JSON value")
		}
		if seen[key] {
			return fmt.Errorf("the argument %q is there twice", shorten(key))
		}
		if key == "" && at == "" { // it would pass for what is in it
			return fmt.Errorf("an argument has no name")
		}
		seen[key] = true
		if err := f.value(below(at, key), depth); err != nil {
			return err
		}
	}
	return f.end()
}

func (f *flattened) list(at string, depth int) error {
	for i := 0; f.d.More(); i++ {
		if err := f.value(below(at, strconv.Itoa(i)), depth); err != nil {
			return err
		}
	}
	return f.end()
}

func (f *flattened) end() error {
	if _, err := f.d.Token(); err != nil {
		return fmt.Errorf("the arguments are not one JSON value")
	}
	return nil
}

func below(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

func (f *flattened) value(at string, depth int) error {
	if f.keys++; depth > maxDepth || f.keys > maxTags {
		return fmt.Errorf("the arguments have more than %d values, or more than %d levels", maxTags, maxDepth)
	}
	t, err := f.d.Token()
	switch {
	case err != nil:
		return fmt.Errorf("the arguments are not one JSON value")
	case t == json.Delim('{'):
		return f.object(at, depth+1)
	case t == json.Delim('['):
		return f.list(at, depth+1)
	}
	if _, twice := f.tags[cedar.String(at)]; twice {
		return fmt.Errorf("two arguments are called %q", shorten(at))
	}
	text := "null"
	switch v := t.(type) {
	case nil:
	case string:
		text = v
	default: // a number as it is written, true or false
		text = fmt.Sprint(v)
	}
	f.tags[cedar.String(at)] = cedar.String(text)
	return nil
}
