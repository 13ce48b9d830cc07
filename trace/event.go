package trace

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"cofferdam"
	"cofferdam/internal/redact"
)

// MaxEvent bounds one event as stored. A field of 128 KiB fits whatever it
// holds: JSON makes at most six bytes of one.
const MaxEvent = 1 << 20

// maxFields bounds the number of fields of an event, maxKind the length of its
// kind, source and field names: those are the platform's words, not a box's.
const (
	maxFields = 256
	maxKind   = 64
)

// base64Key marks a field whose value was not valid UTF-8.
const base64Key = ":base64"

// Bytes returns the field key of e as it was recorded, whatever bytes it held.
func Bytes(e cofferdam.Event, key string) ([]byte, bool) {
	if v, ok := e.Fields[key]; ok {
		return []byte(v), true
	}
	v, ok := e.Fields[key+base64Key]
	if !ok {
		return nil, false
	}
	b, err := base64.StdEncoding.DecodeString(v)
	return b, err == nil
}

// clean returns e as it is stored: checked, redacted, in UTF-8.
func clean(e cofferdam.Event, red *redact.Redactor) (cofferdam.Event, error) {
	if err := check(e); err != nil {
		return e, err
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC().Round(0)
	text := func(s string) string { return strings.ToValidUTF8(red.String(s), "\uFFFD") }
	e.Actor.Name = text(e.Actor.Name)
	e.Resource, e.Rule, e.Reason, e.Outcome = text(e.Resource), text(e.Rule), text(e.Reason), text(e.Outcome)
	if len(e.Fields) > 0 {
		fields := make(map[string]string, len(e.Fields))
		for k, v := range e.Fields {
			if v = red.String(v); utf8.ValidString(v) {
				fields[text(k)] = v
			} else {
				fields[text(k)+base64Key] = base64.StdEncoding.EncodeToString([]byte(v))
			}
		}
		e.Fields = fields
	}
	return e, nil
}

// check refuses events that no room of this program makes.
func check(e cofferdam.Event) error {
	bad := func(reason string) error {
		return &cofferdam.Error{
			Op: "trace.Record", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("record event %.80q", e.Kind), Reason: reason,
		}
	}
	noun, verb, ok := strings.Cut(e.Kind, ".")
	switch {
	case !ok || noun == "" || verb == "" || len(e.Kind) > maxKind || !word(noun) || !word(verb):
		return bad("the kind is not noun.verb")
	case len(e.Source) > maxKind || len(e.Actor.Kind) > maxKind || len(e.Verdict) > maxKind:
		return bad("its source, actor or verdict is too long")
	case len(e.Fields) > maxFields:
		return bad(fmt.Sprintf("it has %d fields, and %d are allowed", len(e.Fields), maxFields))
	}
	for k := range e.Fields {
		if k == "" || len(k) > maxKind || strings.HasSuffix(k, base64Key) {
			return bad(fmt.Sprintf("the field name %.80q is not one", k))
		}
	}
	return nil
}

func word(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' && r != '_' })
}

// seqPrefix is how every stored event starts; the number follows.
var seqPrefix = []byte(`{"seq":`)

// encode returns e as its line without the number: what comes after seqPrefix
// and the number. So the costly part is done before the log is locked.
func encode(e cofferdam.Event) ([]byte, error) {
	e.Seq = 0
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // ends the line with a newline
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("record event %s: %w", e.Kind, err)
	}
	if b.Len() > MaxEvent-20 { // the longest number has 20 digits
		return nil, &cofferdam.Error{
			Op: "trace.Record", Kind: cofferdam.Invalid, Subject: "record event " + e.Kind,
			Reason: fmt.Sprintf("it is %d bytes long, and %d are allowed", b.Len(), MaxEvent),
		}
	}
	return b.Bytes()[len(seqPrefix)+1:], nil
}

// parse reads one stored line, without its newline.
func parse(line []byte) (e cofferdam.Event, err error) {
	if !bytes.HasPrefix(line, seqPrefix) {
		return e, fmt.Errorf("line does not start with %s", seqPrefix)
	}
	err = json.Unmarshal(line, &e)
	return e, err
}
