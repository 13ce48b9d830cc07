package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cofferdam"
)

func invalid(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "api.Decode", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// decode reads a body strictly into v, a pointer to a struct.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	const hint = "send one JSON object as /v1/openapi.json describes it"
	if ct, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || ct != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return invalid("request", "Content-Type is not application/json", hint)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return invalid("request", "an encoded body is not taken", "send it without Content-Encoding")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return invalid("request body", fmt.Sprintf("is larger than %d bytes", large.Limit), hint)
	case err != nil:
		return invalid("request body", "could not be read to its end", hint)
	}
	limitBody(w, r, 0) // it is in: what comes next may take its time
	switch {
	case !utf8.Valid(body):
		return invalid("request body", "is not UTF-8 text", hint)
	}
	if err := checkShape(body); err != nil {
		return invalid("request body", err.Error(), hint)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return invalid("request body", plain(err), hint)
	}
	return nil
}

// limitBody lets a body that trickles in hold its connection only so long,
// also one that is refused unread: net/http reads its rest before it goes on. A
// request without a body gets no limit: it would end a stream.
func limitBody(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	if r.ContentLength == 0 {
		return
	}
	var at time.Time
	if limit > 0 {
		at = time.Now().Add(limit)
	}
	_ = http.NewResponseController(w).SetReadDeadline(at) // recorders in tests have none
}

// plain says what is wrong with a body in words for people.
func plain(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return fmt.Sprintf("field %q: %s where %s should be", t.Field, t.Value, kindName(t.Type.Kind().String()))
	}
	return visible(strings.TrimPrefix(err.Error(), "json: "))
}

func kindName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"), strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "string":
		return "text"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "a list"
	}
	return "an object"
}

// maxDepth is far more than any body of ours nests.
const maxDepth = 32

// checkShape refuses what encoding/json would let pass: a body that is no
// object, keys given twice (whichever their case, for they match without it),
// null where a value should be, trailing data, deep nesting.
func checkShape(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		return errors.New("is no JSON")
	}
	if tok != json.Delim('{') {
		return errors.New("is no JSON object")
	}
	if err := walk(dec, '{', 1); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("goes on after its end")
	}
	return nil
}

func walk(dec *json.Decoder, in json.Delim, depth int) error {
	if depth > maxDepth {
		return errors.New("is nested too deeply")
	}
	seen := map[string]bool{}
	for key := in == '{'; ; key = in == '{' && !key {
		tok, err := dec.Token()
		if err != nil {
			return errors.New("is no JSON: it breaks off or is misspelt")
		}
		switch tok := tok.(type) {
		case json.Delim:
			if tok == '}' || tok == ']' {
				return nil
			}
			if err := walk(dec, tok, depth+1); err != nil {
				return err
			}
		case string:
			if !key {
				continue
			}
			if low := strings.ToLower(tok); seen[low] {
				return fmt.Errorf("has the key %q twice", visible(tok))
			} else {
				seen[low] = true
			}
		case nil:
			return errors.New("holds null; leave the key away instead")
		}
	}
}

// query reads the parameters of a route; unknown and doubled ones are refused.
func query(r *http.Request, known []Param) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("query", "is misspelt", "see /v1/openapi.json")
	}
	for name, values := range q {
		i := slices.IndexFunc(known, func(p Param) bool { return p.Name == name })
		switch {
		case i < 0:
			return nil, invalid("query", fmt.Sprintf("unknown parameter %q", visible(name)), "see /v1/openapi.json")
		case len(values) > 1:
			return nil, invalid("query", fmt.Sprintf("parameter %q is given twice", name), "give it once")
		case len(values[0]) > 300:
			return nil, invalid("query", fmt.Sprintf("parameter %q is longer than 300 bytes", name), "see /v1/openapi.json")
		case known[i].Type == "integer":
			if _, err := strconv.ParseUint(values[0], 10, 63); err != nil {
				return nil, invalid("query", fmt.Sprintf("parameter %q is no whole number from 0 on", name), "see /v1/openapi.json")
			}
		}
	}
	return q, nil
}

// number returns a parameter that query has checked; 0 if it was not given.
func number(q url.Values, name string) uint64 {
	n, _ := strconv.ParseUint(q.Get(name), 10, 63) // checked by query
	return n
}

// visible makes control and direction characters of hostile text harmless.
func visible(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strings.Trim(strconv.QuoteToASCII(s), `"`)
}
