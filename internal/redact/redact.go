package redact

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"cofferdam"
)

// MinLength is the length in bytes under which a value is not looked for: it
// would be found by chance in ordinary text. The vault refuses such values.
const MinLength = 8

// MaxLength is the longest value that is looked for; it bounds what a Writer
// may have to hold back. The vault refuses longer ones.
const MaxLength = 64 << 10

// MaxSecrets bounds the number of values looked for at a time.
const MaxSecrets = 4096

// Secret is one value to look for. It prints as its name in every form.
type Secret struct {
	Name  string
	Value []byte
}

// String returns the marker that stands for s.
func (s Secret) String() string { return string(s.marker()) }

// GoString returns the marker that stands for s.
func (s Secret) GoString() string { return s.String() }

// Format writes the marker that stands for s, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText returns the marker that stands for s.
func (s Secret) MarshalText() ([]byte, error) { return s.marker(), nil }

// LogValue returns the marker that stands for s.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s Secret) marker() []byte {
	if s.Name == "" {
		return []byte("[redacted]")
	}
	return []byte("[redacted:" + s.Name + "]")
}

// Redactor looks for a set of secrets, which may be swapped at any time. A nil
// or zero Redactor finds nothing. Safe for concurrent use.
type Redactor struct{ set atomic.Pointer[matcher] }

// New returns a Redactor for values without names; what is too short or too
// long is left out (Set says so).
func New(secrets [][]byte) *Redactor {
	r := new(Redactor)
	named := make([]Secret, len(secrets))
	for i, s := range secrets {
		named[i] = Secret{Value: s}
	}
	_ = r.Set(named) // the doc comment says what becomes of unfit values
	return r
}

// Set replaces the secrets that r looks for, at once for everybody. Values that
// cannot be looked for are left out and named in the error; the others count.
func (r *Redactor) Set(secrets []Secret) error {
	m, unfit := compile(secrets)
	r.set.Store(m)
	if len(unfit) > 0 {
		return &cofferdam.Error{
			Op: "redact.Set", Kind: cofferdam.Invalid, Subject: "redact " + strings.Join(unfit, ", "),
			Reason: fmt.Sprintf("a secret has %d to %d bytes, and there are at most %d", MinLength, MaxLength, MaxSecrets),
			Hint:   "make the value longer where it is issued",
		}
	}
	return nil
}

// String returns s with every secret replaced.
func (r *Redactor) String(s string) string {
	m := r.matcher()
	if m == nil || len(s) < MinLength {
		return s
	}
	b := []byte(s)
	found := m.find(b)
	if len(found) == 0 {
		return s
	}
	return string(m.replace(b, found))
}

// Bytes returns p with every secret replaced. It returns p itself when there
// is none, and never changes it.
func (r *Redactor) Bytes(p []byte) []byte {
	m := r.matcher()
	if m == nil || len(p) < MinLength {
		return p
	}
	found := m.find(p)
	if len(found) == 0 {
		return p
	}
	return m.replace(p, found)
}

// Found says whether p holds any of the secrets.
func (r *Redactor) Found(p []byte) bool {
	m := r.matcher()
	return m != nil && len(m.find(p)) > 0
}

func (r *Redactor) matcher() *matcher {
	if r == nil {
		return nil
	}
	return r.set.Load()
}
