package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"cofferdam"
	"cofferdam/internal/redact"
)

const hidden = "[redacted]"

// Value is a secret value. It never gives itself away: it prints as [redacted]
// in every form and encoding, and instead of being read it is told to put
// itself where it belongs. The zero Value is empty.
type Value struct{ p *[]byte } // behind a pointer, so that reflection by printers stops there

// NewValue returns the Value that holds a copy of p.
func NewValue(p []byte) Value {
	c := append([]byte(nil), p...)
	return Value{p: &c}
}

// IsZero says whether v holds nothing.
func (v Value) IsZero() bool { return v.p == nil || len(*v.p) == 0 }

// SetHeader sets h[name] to format with the value in place of its one %s:
// SetHeader(h, "Authorization", "Bearer %s"). Other values of name go.
func (v Value) SetHeader(h http.Header, name, format string) error {
	if strings.Count(format, "%s") != 1 || strings.Count(format, "%") != 1 {
		return fmt.Errorf("attach secret to %s: format %q has not exactly one %%s", name, format)
	}
	return v.set(h, name, strings.Replace(format, "%s", string(v.bytes()), 1))
}

// SetBasicAuth sets the Authorization header for user, with v as the password.
func (v Value) SetBasicAuth(h http.Header, user string) error {
	if strings.Contains(user, ":") {
		return fmt.Errorf("attach secret: a user name holds no colon")
	}
	pair := user + ":" + string(v.bytes())
	return v.set(h, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
}

func (v Value) set(h http.Header, name, text string) error {
	if v.IsZero() {
		return &cofferdam.Error{
			Op: "secret.SetHeader", Kind: cofferdam.NotFound, Subject: "attach secret to " + name,
			Reason: "there is no value",
		}
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return &cofferdam.Error{
			Op: "secret.SetHeader", Kind: cofferdam.Invalid, Subject: "attach secret to " + name,
			Reason: "the value holds control characters, which no header may carry",
			Hint:   "store it again, without a line break at its end",
		}
	}
	h.Set(name, text)
	return nil
}

// Variable returns NAME=value, for the environment of a command of a repository's
// setup that insists on the value itself. Nothing else may be given it.
func (v Value) Variable(name string) string { return name + "=" + string(v.bytes()) }

// KeyPrefix begins a secret of a webhook; its bytes in base64 follow. Source: the
// Standard Webhooks specification.
const KeyPrefix = "whsec_"

// Sign returns the HMAC-SHA256 of a message under v, which is a secret of a webhook.
func (v Value) Sign(message []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(v.bytes()), KeyPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < sha256.Size {
		return nil, &cofferdam.Error{Op: "secret.Sign", Kind: cofferdam.Invalid, Subject: "secret of a webhook", Reason: "it is none", Hint: "cofferdam approval webhook makes one"}
	}
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil), nil
}

// Matcher returns what internal/redact needs to find v.
func (v Value) Matcher(name string) redact.Secret { return redact.Secret{Name: name, Value: v.bytes()} }

func (v Value) bytes() []byte {
	if v.p == nil {
		return nil
	}
	return *v.p
}

// String returns [redacted].
func (v Value) String() string { return hidden }

// GoString returns [redacted].
func (v Value) GoString() string { return hidden }

// Format writes [redacted], whatever the verb.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// MarshalText returns [redacted]; there is no way back.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON returns "[redacted]".
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalBinary returns [redacted].
func (v Value) MarshalBinary() ([]byte, error) { return []byte(hidden), nil }

// LogValue returns [redacted].
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }
