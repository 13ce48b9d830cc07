package secret

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/redact"
)

const canary = "sk-ant-canary-0123456789"

var scope = cofferdam.Scope{Organization: "o-1", Project: "p-1"}

// memory is a Backend in a map.
type memory map[string]Sealed

func place(s cofferdam.Scope, name string) string {
	return string(s.Organization) + "|" + string(s.Project) + "|" + name
}

func (m memory) PutSecret(_ context.Context, s Sealed) error {
	m[place(s.Scope, s.Name)] = s
	return nil
}

func (m memory) GetSecret(_ context.Context, s cofferdam.Scope, name string) (Sealed, error) {
	row, ok := m[place(s, name)]
	if !ok {
		return Sealed{}, &cofferdam.Error{Op: "memory.GetSecret", Kind: cofferdam.NotFound, Subject: name, Reason: "there is none"}
	}
	return row, nil
}

func (m memory) ListSecrets(context.Context) ([]Sealed, error) {
	var out []Sealed
	for _, s := range m {
		out = append(out, s)
	}
	return out, nil
}

func (m memory) RemoveSecret(_ context.Context, s cofferdam.Scope, name string) error {
	delete(m, place(s, name))
	return nil
}

func openVault(t *testing.T, dir string, b Backend) *Vault {
	t.Helper()
	v, err := Open(t.Context(), dir, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPutGetAttach(t *testing.T) {
	dir, rows := t.TempDir(), memory{}
	v := openVault(t, dir, rows)
	if err := v.Put(t.Context(), scope, "model/anthropic", NewValue([]byte(canary))); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if redact.New([][]byte{[]byte(canary)}).Found(row.Data) {
			t.Error("the row holds the value in clear")
		}
	}
	v = openVault(t, dir, rows) // another process
	got, err := v.Get(t.Context(), scope, "model/anthropic")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"X-Api-Key": {"the box's own", "and another"}}
	if err := got.SetHeader(h, "X-Api-Key", "%s"); err != nil || h.Get("X-Api-Key") != canary || len(h["X-Api-Key"]) != 1 {
		t.Errorf("header = %v, %v", h, err)
	}
	if err := got.SetBasicAuth(h, "git"); err != nil || h.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("git:"+canary)) {
		t.Errorf("header = %v, %v", h, err)
	}
	if err := v.Remove(t.Context(), scope, "model/anthropic"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(t.Context(), scope, "model/anthropic"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("after Remove: %v", err)
	}
}

func TestAttachRefuses(t *testing.T) {
	h := http.Header{}
	for _, format := range []string{"", "Bearer", "%s%s", "%d", "%s%%", "%v"} {
		if err := NewValue([]byte(canary)).SetHeader(h, "A", format); err == nil {
			t.Errorf("format %q was taken", format)
		}
	}
	for _, value := range []string{"", "a\r\nX-Evil: 1", "a\x00b", "line\n"} {
		err := NewValue([]byte(value)).SetHeader(h, "A", "Bearer %s")
		if err == nil || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("value %q: %v", value, err)
		}
	}
	if err := NewValue([]byte(canary)).SetBasicAuth(h, "a:b"); err == nil {
		t.Error("a user name with a colon was taken")
	}
	if err := (Value{}).SetHeader(h, "A", "%s"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("zero value: %v", err)
	}
	if len(h) != 0 {
		t.Errorf("headers were set: %v", h)
	}
}

// TestNoSecretsPrinted greps every printed form of a value for the value.
func TestNoSecretsPrinted(t *testing.T) {
	v := NewValue([]byte(canary))
	type holder struct {
		V Value
		P *Value
		M map[string]Value
		S []Value
		I any
	}
	h := holder{v, &v, map[string]Value{"k": v}, []Value{v}, v}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T", "%c", "%10.3s", "%!"} {
		fmt.Fprintf(&out, verb+"\n", v)
		fmt.Fprintf(&out, verb+"\n", &v)
		fmt.Fprintf(&out, verb+"\n", h)
		fmt.Fprintf(&out, verb+"\n", fmt.Errorf("wrapped: %v", v))
	}
	j, err := json.Marshal(h)
	if err != nil || string(j) != `{"V":"[redacted]","P":"[redacted]","M":{"k":"[redacted]"},"S":["[redacted]"],"I":"[redacted]"}` {
		t.Errorf("JSON = %s, %v", j, err)
	}
	out.Write(j)
	x, _ := xml.Marshal(struct{ V Value }{v})
	out.Write(x)
	_ = gob.NewEncoder(&out).Encode(struct{ V Value }{v})
	text, _ := v.MarshalText()
	out.Write(text)
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("x", "v", v, "p", &v, "h", h, slog.Group("g", "v", v))
	}
	fmt.Fprintln(&out, v, v.String(), v.GoString(), v.Matcher("k"))
	if redact.New([][]byte{[]byte(canary)}).Found(out.Bytes()) || strings.Contains(out.String(), "canary") {
		t.Errorf("the value is in\n%s", out.String())
	}
}

func TestRowsDoNotMove(t *testing.T) {
	dir, rows := t.TempDir(), memory{}
	v := openVault(t, dir, rows)
	if err := v.Put(t.Context(), scope, "repo/one", NewValue([]byte(canary))); err != nil {
		t.Fatal(err)
	}
	good := rows[place(scope, "repo/one")]
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	moved := good
	moved.Scope = other
	rows[place(other, "repo/one")] = moved
	if _, err := v.Get(t.Context(), other, "repo/one"); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("row moved to another project: %v", err)
	}
	moved = good
	moved.Name = "repo/two"
	rows[place(scope, "repo/two")] = moved
	if _, err := v.Get(t.Context(), scope, "repo/two"); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("row moved to another name: %v", err)
	}
	for i := range good.Data {
		bad := good
		bad.Data = bytes.Clone(good.Data)
		bad.Data[i] ^= 1
		rows[place(scope, "repo/one")] = bad
		if _, err := v.Get(t.Context(), scope, "repo/one"); cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}

func TestPutRefuses(t *testing.T) {
	v := openVault(t, t.TempDir(), memory{})
	for name, value := range map[string]string{
		"": canary, "../x": canary, "a b": canary, "a\n": canary, strings.Repeat("a", 129): canary,
		"empty": "", "short": "1234567", "long": strings.Repeat("x", redact.MaxLength+1),
	} {
		err := v.Put(t.Context(), scope, name, NewValue([]byte(value)))
		if cofferdam.KindOf(err) != cofferdam.Invalid || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("Put(%.20q, %d bytes) = %v, want invalid", name, len(value), err)
		}
	}
	if err := v.Put(t.Context(), scope, "max", NewValue(bytes.Repeat([]byte("x"), redact.MaxLength))); err != nil {
		t.Error(err)
	}
	if got, err := v.Get(t.Context(), scope, "max"); err != nil || len(got.bytes()) != redact.MaxLength {
		t.Errorf("longest value: %v", err)
	}
}

func TestFeed(t *testing.T) {
	dir, rows := t.TempDir(), memory{}
	v := openVault(t, dir, rows)
	put := func(name, value string) {
		t.Helper()
		if err := v.Put(t.Context(), scope, name, NewValue([]byte(value))); err != nil {
			t.Fatal(err)
		}
	}
	put("before", "value-before")
	r := redact.New(nil)
	if err := v.Feed(r); err != nil {
		t.Fatal(err)
	}
	put("after", "value-after")
	put("after", "value-anew") // the old one may still be in use
	if got := r.String("value-before value-after value-anew"); got != "[redacted:before] [redacted:after] [redacted:after]" {
		t.Errorf("got %q", got)
	}
	v = openVault(t, dir, rows)
	if err := v.Feed(r); err != nil {
		t.Fatal(err)
	}
	if got := r.String("value-before value-after value-anew"); got != "[redacted:before] value-after [redacted:after]" {
		t.Errorf("opened again: got %q", got)
	}
}

func TestKeyFile(t *testing.T) {
	dir, rows := t.TempDir(), memory{}
	v := openVault(t, dir, rows)
	path := filepath.Join(dir, identityFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("key file: %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".identity-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := v.Put(t.Context(), scope, "a", NewValue([]byte(canary))); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func() error{
		"open to all": func() error { return os.Chmod(path, 0o644) },
		"garbage":     func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"long":        func() error { return os.WriteFile(path, make([]byte, 5000), 0o600) },
		"missing":     func() error { return os.Remove(path) },
		"a link":      func() error { return os.Symlink("/etc/hostname", path) },
	} {
		os.Remove(path)
		if err := os.WriteFile(path, key, 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "a link" {
			os.Remove(path)
		}
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, rows); cofferdam.KindOf(err) != cofferdam.Unavailable {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "AGE-SECRET") {
			t.Errorf("%s: the error holds the key", name)
		}
	}
	os.Remove(path)
	if _, err := Open(t.Context(), t.TempDir(), rows); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("another folder's key: %v", err)
	}
	other := t.TempDir()
	openVault(t, other, memory{})
	if _, err := Open(t.Context(), other, rows); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("another key: %v", err)
	}
}

// TestSealedElsewhere: what another room keeps opens under its own name alone, is no
// secret of the vault, and says nothing without the key.
func TestSealedElsewhere(t *testing.T) {
	m := memory{}
	v := openVault(t, t.TempDir(), m)
	sealed, err := v.Seal("f-1", []byte(canary))
	if err != nil || bytes.Contains(sealed, []byte(canary)) {
		t.Fatalf("%q, %v", sealed, err)
	}
	if got, err := v.Unseal("f-1", sealed); err != nil || string(got) != canary {
		t.Errorf("%q, %v", got, err)
	}
	row, err := v.seal(scope, "f-1", NewValue([]byte(canary)))
	if err != nil {
		t.Fatal(err)
	}
	own, err := v.seal(cofferdam.Scope{}, "f-1", NewValue([]byte(canary)))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		v      *Vault
		name   string
		sealed []byte
	}{
		"another name": {v, "f-2", sealed}, "no name": {v, "", sealed}, "another vault": {openVault(t, t.TempDir(), memory{}), "f-1", sealed}, "plain text": {v, "f-1", []byte(canary)},
		"a row of the vault": {v, "f-1", row}, "one of no project": {v, "f-1", own}, "nothing": {v, "f-1", nil},
	} {
		if got, err := c.v.Unseal(c.name, c.sealed); cofferdam.KindOf(err) != cofferdam.Tampered || got != nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if err := v.Put(t.Context(), scope, elsewhere+"f-1", NewValue([]byte(canary))); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a secret may be called so: %v", err)
	}
}
