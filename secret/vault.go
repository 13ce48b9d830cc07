// Package secret is the credential broker: it keeps values sealed, hands them
// out as Values that attach themselves to a request, and compiles what others
// need to find and remove a value without knowing it.
//
// It never returns a value as text or bytes to the rooms above it, but for
// Value.Variable, which puts one into a command of a setup, and Unseal, to who had
// it sealed; and it writes none anywhere but sealed by age (X25519) under a key in a
// file of its own, apart from the store. The invariant: a row of the store is worth nothing
// without that file, nor under another name or in another project than it was
// sealed for.
package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"filippo.io/age"

	"cofferdam"
	"cofferdam/internal/redact"
)

// MaxSecrets bounds the vault; every value costs the redactor time.
const MaxSecrets = 1000

// identityFile is the name of the key file in the vault's folder.
const identityFile = "identity.age"

// maxSealed bounds a row: the longest value in JSON's base64, its name and
// age's header.
const maxSealed = 2*redact.MaxLength + 4096

// Sealed is one row of the vault as the store keeps it. Data means nothing
// without the vault's key.
type Sealed struct {
	cofferdam.Scope
	Name    string
	Data    []byte
	Created time.Time
}

// Backend stores sealed values. Get and Remove of an unknown name are errors of
// kind NotFound; Put replaces.
type Backend interface {
	PutSecret(ctx context.Context, s Sealed) error
	GetSecret(ctx context.Context, scope cofferdam.Scope, name string) (Sealed, error)
	// ListSecrets returns every row of every project.
	ListSecrets(ctx context.Context) ([]Sealed, error)
	RemoveSecret(ctx context.Context, scope cofferdam.Scope, name string) error
}

// Vault keeps secrets. Safe for concurrent use.
type Vault struct {
	backend  Backend
	identity *age.X25519Identity

	mu    sync.Mutex
	known []redact.Secret    // guarded by mu; every value seen since Open, replaced ones too
	feeds []*redact.Redactor // guarded by mu; told of every change
}

// Open opens the vault whose key lies in dir, and makes the key when the vault
// is new.
func Open(ctx context.Context, dir string, backend Backend) (*Vault, error) {
	rows, err := backend.ListSecrets(ctx)
	if err != nil {
		return nil, fmt.Errorf("open vault: %w", err)
	}
	id, err := openIdentity(filepath.Join(dir, identityFile), len(rows) == 0)
	if err != nil {
		return nil, err
	}
	v := &Vault{backend: backend, identity: id}
	if v.known, err = v.Matchers(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// Feed makes r look for every value of the vault, now and after each Put.
func (v *Vault) Feed(r *redact.Redactor) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.feeds = append(v.feeds, r)
	return r.Set(v.known)
}

// nameForm is what a secret may be called: it shows in markers and in the
// record. "model/NAME" and "repo/NAME" are the platform's own.
var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/-]{0,127}$`)

// Put seals value under name in scope; an older value of that name is gone.
// Redactors fed by this vault know the value before it is stored.
func (v *Vault) Put(ctx context.Context, scope cofferdam.Scope, name string, value Value) error {
	if err := checkPut(name, value); err != nil {
		return err
	}
	rows, err := v.backend.ListSecrets(ctx)
	if err != nil {
		return fmt.Errorf("store secret %s: %w", name, err)
	}
	if len(rows) >= MaxSecrets {
		return &cofferdam.Error{
			Op: "secret.Put", Kind: cofferdam.Exhausted, Subject: "store secret " + name,
			Reason: fmt.Sprintf("the vault holds %d secrets already", len(rows)), Hint: "remove what is not used",
		}
	}
	data, err := v.seal(scope, name, value)
	if err != nil {
		return fmt.Errorf("store secret %s: %w", name, err)
	}
	if err := v.learn(value.Matcher(name)); err != nil {
		return fmt.Errorf("store secret %s: %w", name, err)
	}
	row := Sealed{Scope: scope, Name: name, Data: data, Created: time.Now().UTC()}
	if err := v.backend.PutSecret(ctx, row); err != nil {
		return fmt.Errorf("store secret %s: %w", name, err)
	}
	return nil
}

// Get returns the value of name in scope.
func (v *Vault) Get(ctx context.Context, scope cofferdam.Scope, name string) (Value, error) {
	row, err := v.backend.GetSecret(ctx, scope, name)
	if err != nil {
		return Value{}, err
	}
	return v.open(row, scope, name)
}

// Made returns when name in scope was stored last.
func (v *Vault) Made(ctx context.Context, scope cofferdam.Scope, name string) (time.Time, error) {
	row, err := v.backend.GetSecret(ctx, scope, name)
	return row.Created, err
}

// Watch has redactors look for a value that the vault does not keep.
func (v *Vault) Watch(name string, value Value) error {
	if err := checkPut(name, value); err != nil {
		return err
	}
	return v.learn(value.Matcher(name))
}

// Remove forgets name in scope. Redactors keep looking for the value until the
// vault is opened again: it may still be in use by what runs.
func (v *Vault) Remove(ctx context.Context, scope cofferdam.Scope, name string) error {
	return v.backend.RemoveSecret(ctx, scope, name)
}

// Matchers returns what is needed to find every value of the vault in bytes.
func (v *Vault) Matchers(ctx context.Context) ([]redact.Secret, error) {
	rows, err := v.backend.ListSecrets(ctx)
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	out := make([]redact.Secret, 0, len(rows))
	for _, row := range rows {
		value, err := v.open(row, row.Scope, row.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, value.Matcher(row.Name))
	}
	return out, nil
}

// learn tells every fed redactor of one more value.
func (v *Vault) learn(s redact.Secret) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range v.known {
		if k.Name == s.Name && bytes.Equal(k.Value, s.Value) {
			return nil
		}
	}
	if len(v.known) >= redact.MaxSecrets {
		return &cofferdam.Error{
			Op: "secret.Put", Kind: cofferdam.Exhausted, Subject: "learn secret " + s.Name,
			Reason: "too many values were replaced since the server started", Hint: "start the server again",
		}
	}
	v.known = append(v.known, s)
	for _, r := range v.feeds {
		if err := r.Set(v.known); err != nil {
			return err
		}
	}
	return nil
}

func checkPut(name string, value Value) error {
	e := &cofferdam.Error{Op: "secret.Put", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("store secret %.80q", name)}
	n := len(value.bytes())
	switch {
	case !nameForm.MatchString(name):
		e.Reason, e.Hint = "the name is not one", "use letters, digits and . _ / - , at most 128"
	case n == 0:
		e.Reason, e.Hint = "the value is empty", "give it on standard input"
	case n < redact.MinLength:
		e.Reason = fmt.Sprintf("the value has %d bytes: under %d it could not be found and removed in what agents print", n, redact.MinLength)
		e.Hint = "use a longer value"
	case n > redact.MaxLength:
		e.Reason, e.Hint = fmt.Sprintf("the value has %d bytes, and %d are allowed", n, redact.MaxLength), "store a file's path instead"
	default:
		return nil
	}
	return e
}

// box is what is sealed: the value and for whom. Age binds no context of its
// own, so the row's place is inside, and open compares it.
type box struct {
	cofferdam.Scope
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

func (v *Vault) seal(scope cofferdam.Scope, name string, value Value) ([]byte, error) {
	plain, err := json.Marshal(box{Scope: scope, Name: name, Value: value.bytes()})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, v.identity.Recipient())
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Seal seals p for who keeps it themselves, under a name that Unseal has to be given
// again. No secret of the vault has such a name.
func (v *Vault) Seal(name string, p []byte) ([]byte, error) {
	return v.seal(cofferdam.Scope{}, elsewhere+name, NewValue(p))
}

// Unseal opens what Seal sealed under this name.
func (v *Vault) Unseal(name string, sealed []byte) ([]byte, error) {
	value, err := v.open(Sealed{Data: sealed}, cofferdam.Scope{}, elsewhere+name)
	if err != nil {
		return nil, err
	}
	return value.bytes(), nil
}

// elsewhere is before the names of what others keep; names in the vault do not begin
// so.
const elsewhere = "/"

func (v *Vault) open(row Sealed, scope cofferdam.Scope, name string) (Value, error) {
	broken := &cofferdam.Error{
		Op: "secret.Get", Kind: cofferdam.Tampered, Subject: "open secret " + name,
		Reason: "it was not sealed by this vault's key, or was changed",
		Hint:   "restore " + identityFile + " together with the store, or set the secret again",
	}
	if len(row.Data) > maxSealed {
		broken.Err = fmt.Errorf("%d bytes of sealed data", len(row.Data))
		return Value{}, broken
	}
	r, err := age.Decrypt(bytes.NewReader(row.Data), v.identity)
	if err != nil {
		broken.Err = err
		return Value{}, broken
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxSealed))
	if err != nil {
		broken.Err = err
		return Value{}, broken
	}
	var b box
	if err := json.Unmarshal(plain, &b); err != nil {
		broken.Err = errors.New("sealed text is not a secret") // never the text itself
		return Value{}, broken
	}
	if b.Scope != scope || b.Name != name {
		broken.Reason = "it was sealed for another name or project"
		return Value{}, broken
	}
	return Value{p: &b.Value}, nil
}

// openIdentity reads the vault's key, or makes it if fresh.
func openIdentity(path string, fresh bool) (*age.X25519Identity, error) {
	fail := &cofferdam.Error{Op: "secret.Open", Kind: cofferdam.Unavailable, Subject: "open vault key " + path}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && fresh:
		return makeIdentity(path)
	case errors.Is(err, os.ErrNotExist):
		fail.Reason, fail.Hint = "the file is missing, and the store holds secrets sealed by it", "restore it from a backup; without it every secret must be set again"
		return nil, fail
	case err != nil:
		fail.Err = err
		return nil, fail
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0:
		fail.Reason, fail.Hint = fmt.Sprintf("it is open to other users (mode %s)", info.Mode()), "chmod 600 "+path
		return nil, fail
	case info.Size() > 4096:
		fail.Reason = "it is too long for a key"
		return nil, fail
	}
	text, err := os.ReadFile(path)
	if err != nil {
		fail.Err = err
		return nil, fail
	}
	id, err := age.ParseX25519Identity(string(bytes.TrimSpace(text)))
	if err != nil {
		fail.Reason, fail.Hint = "it holds no age identity", "restore it from a backup"
		return nil, fail
	}
	return id, nil
}

// makeIdentity writes a new key: complete and synced under another name first,
// so that a crash leaves no half a key; linked, so that it replaces none.
func makeIdentity(path string) (*age.X25519Identity, error) {
	fail := func(err error) error {
		return &cofferdam.Error{
			Op: "secret.Open", Kind: cofferdam.Unavailable, Subject: "make vault key " + path,
			Reason: "the state folder cannot be written", Hint: "check space and permissions of " + filepath.Dir(path), Err: err,
		}
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fail(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fail(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".identity-*") // mode 0600
	if err != nil {
		return nil, fail(err)
	}
	defer os.Remove(f.Name())
	_, werr := io.WriteString(f, id.String()+"\n")
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return nil, fail(err)
	}
	if err := os.Link(f.Name(), path); err != nil {
		return nil, fail(err)
	}
	return id, nil
}
