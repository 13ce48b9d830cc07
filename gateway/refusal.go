package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

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
	newAnswer(err, false).write(w)
}

// AnswerRefusal is WriteRefusal for a request whose client can be seen. One
// that asks for JSON, as npm does, gets a JSON object with the members error,
// reason, hint and rule. Where the connection can be taken over, the reason
// also stands in the status line, which apt, wget and Python show, and the
// connection ends.
func AnswerRefusal(w http.ResponseWriter, r *http.Request, err error) {
	a := newAnswer(err, wantsJSON(r))
	if pipIndex(r) {
		a.forPip(err)
	}
	if r.Method == http.MethodHead {
		a.body = ""
	}
	if !a.take(w) {
		a.write(w)
	}
}

// answer is a refusal as HTTP has it.
type answer struct {
	status int
	phrase string // after the number in the status line
	header http.Header
	body   string
}

func newAnswer(err error, asJSON bool) answer {
	reason, hint := Explain(err)
	d, _ := DecisionOf(err)
	status := cofferdam.Kinds()[cofferdam.KindOf(err)].HTTP
	a := answer{
		status: status, phrase: http.StatusText(status) + ": " + reason, header: http.Header{},
		body: "cofferdam: " + reason + "\nhint: " + hint + "\n",
	}
	kind := "text/plain; charset=utf-8"
	if asJSON {
		b, _ := json.Marshal(map[string]string{ // strings always marshal
			"error": "cofferdam: " + reason + " (hint: " + hint + ")", "reason": reason, "hint": hint, "rule": d.Rule,
		})
		a.body, kind = string(b)+"\n", "application/json"
	}
	a.header.Set("Content-Type", kind)
	a.header.Set("Content-Length", strconv.Itoa(len(a.body)))
	a.header.Set("X-Content-Type-Options", "nosniff")
	a.header.Set("Cache-Control", "no-store")
	if d.Rule != "" {
		a.header.Set(RuleHeader, d.Rule)
	}
	return a
}

// forPip makes pip say the reason. It takes an index that answers 403 for one
// that has no such package and tells nobody; only of an answer that is no
// index page does it show the content type. 300 is no success to any client,
// and leads nowhere.
func (a *answer) forPip(err error) {
	reason, _ := Explain(err)
	a.status, a.phrase = http.StatusMultipleChoices, "Refused: "+reason
	a.header.Set("Content-Type", mime.FormatMediaType("text/plain", map[string]string{"refused": visible(reason)}))
}

// pipIndex says whether r is pip asking for a page of a package index.
func pipIndex(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "pip/") && strings.Contains(r.Header.Get("Accept"), "application/vnd.pypi.simple")
}

// write answers through net/http.
func (a answer) write(w http.ResponseWriter) {
	for k, v := range a.header {
		w.Header()[k] = v
	}
	w.WriteHeader(a.status)
	io.WriteString(w, a.body) // the client may be gone; then nobody is left to tell
}

// Bounds of what a refused client may still send. Closing a connection with
// unread bytes would destroy the answer on its way.
const (
	drainBytes   = 64 << 20
	drainTimeout = 10 * time.Second
	maxPhrase    = 300
)

// take answers on the connection itself, with a status line of our own; false
// if it cannot be taken over, and then nothing was written.
func (a answer) take(w http.ResponseWriter) bool {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(drainTimeout))
	phrase := visible(a.phrase)
	a.header.Set("Connection", "close")
	a.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	fmt.Fprintf(rw, "HTTP/1.1 %03d %s\r\n", a.status, phrase[:min(len(phrase), maxPhrase)])
	_ = a.header.Write(rw) // Flush says whether it could be written
	_, _ = rw.WriteString("\r\n" + a.body)
	if rw.Flush() != nil {
		return true // the client is gone
	}
	if c, ok := conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(rw, drainBytes))
	}
	return true
}

// visible keeps to what a header or status line may hold: printable ASCII.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// wantsJSON says whether the client's first accepted type is some kind of JSON.
func wantsJSON(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	kind, _, err := mime.ParseMediaType(first)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}
