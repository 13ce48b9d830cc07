package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"cofferdam"
)

// RuleHeader names the rule that refused, in every refusal over HTTP.
const RuleHeader = "X-Cofferdam-Rule"

// refusal carries the decision inside an error.
type refusal struct{ decision cofferdam.Decision }

func (r *refusal) Error() string { return "refused by rule " + r.decision.Rule }

// Refuse returns the error that stands for a decision to refuse: Denied, or
// Exhausted where a ceiling refused, with the decision's reason and hint.
func Refuse(r Request, d cofferdam.Decision) error {
	kind := cofferdam.Denied
	if d.Rule == RuleActs {
		kind = cofferdam.Exhausted
	}
	return &cofferdam.Error{
		Op: "gateway.Handle", Kind: kind, Subject: r.Resource,
		Reason: d.Reason, Hint: d.Hint, Err: &refusal{d},
	}
}

// DecisionOf returns the decision inside err, if a decision refused.
func DecisionOf(err error) (cofferdam.Decision, bool) {
	var r *refusal
	if errors.As(err, &r) {
		return r.decision, true
	}
	return cofferdam.Decision{}, false
}

// Explain returns reason and hint of err as people inside a box are told them:
// without causes, which may name addresses of this machine.
func Explain(err error) (reason, hint string) {
	var e *cofferdam.Error
	if !errors.As(err, &e) {
		return "the request could not be served", cofferdam.HintOf(err)
	}
	reason = e.Reason
	if reason == "" {
		reason = e.Kind.String()
	}
	return reason, cofferdam.HintOf(err)
}

// WriteRefusal answers a request that is not let through: the status of the
// error's kind (403 for a refusal), the rule in a header, and as plain text
// the reason and a line with the hint. git, go and curl show such text as it
// is.
func WriteRefusal(w http.ResponseWriter, err error) {
	writeRefusal(w, err, false)
}

// AnswerRefusal is WriteRefusal for a request whose client can be seen: one
// that asks for JSON, as npm does, gets a JSON object with the members error,
// reason, hint and rule.
func AnswerRefusal(w http.ResponseWriter, r *http.Request, err error) {
	writeRefusal(w, err, wantsJSON(r))
}

func writeRefusal(w http.ResponseWriter, err error, asJSON bool) {
	reason, hint := Explain(err)
	d, _ := DecisionOf(err)
	body, kind := "cofferdam: "+reason+"\nhint: "+hint+"\n", "text/plain; charset=utf-8"
	if asJSON {
		b, _ := json.Marshal(map[string]string{ // strings always marshal
			"error": "cofferdam: " + reason + " (hint: " + hint + ")", "reason": reason, "hint": hint, "rule": d.Rule,
		})
		body, kind = string(b)+"\n", "application/json"
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if d.Rule != "" {
		h.Set(RuleHeader, d.Rule)
	}
	w.WriteHeader(cofferdam.Kinds()[cofferdam.KindOf(err)].HTTP)
	io.WriteString(w, body) // the client may be gone; then nobody is left to tell
}

// wantsJSON says whether the client's first accepted type is some kind of JSON.
func wantsJSON(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	kind, _, err := mime.ParseMediaType(first)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}
