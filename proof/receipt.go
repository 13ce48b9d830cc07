package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"cofferdam"
)

// ReceiptSchema is the schema of the receipts that Sign writes. Those of the
// version before, which say nothing of Terms, hold as well.
const (
	ReceiptSchema = "cofferdam/receipt/v2"
	receiptBefore = "cofferdam/receipt/v1"
)

// maxReceipt bounds a receipt's JSON; note.Open takes notes up to 1,000,000 bytes.
// A task's scope alone may have 400 KiB. Source: docs/SPECIFICATION.md, "Trace and proof".
const maxReceipt = 900 << 10

// receiptTitles are the first lines of receipts, by schema.
var receiptTitles = map[string]string{ReceiptSchema: "cofferdam receipt v2", receiptBefore: "cofferdam receipt v1"}

// Receipt says what the platform saw when it ran the checks of a task on one
// commit, in what, under which policy, and which traces show it.
type Receipt struct {
	Schema string              `json:"schema"` // set by Sign
	ID     cofferdam.ReceiptID `json:"id"`
	cofferdam.Scope
	Task        cofferdam.TaskID        `json:"task"`
	Number      int64                   `json:"number"`
	Attempt     int                     `json:"attempt"`
	Repo        cofferdam.RepoID        `json:"repo"`
	Branch      cofferdam.Ref           `json:"branch"`
	Base        cofferdam.Commit        `json:"base"`
	Commit      cofferdam.Commit        `json:"commit"`
	Checks      []cofferdam.CheckResult `json:"checks"` // with exits on the base and on the commit, and output hashes
	Environment cofferdam.Digest        `json:"environment"`
	Image       string                  `json:"image"`
	Tier        string                  `json:"tier"`
	Kernel      string                  `json:"kernel"`
	Policy      cofferdam.Digest        `json:"policy"`
	Sessions    []Head                  `json:"sessions"` // sealed heads: work, checks on the base, checks on the commit
	// RegressionOnly: no check failed on the base, so the receipt shows only
	// that nothing broke.
	RegressionOnly bool      `json:"regression_only"`
	Time           time.Time `json:"time"`
	Terms          *Terms    `json:"terms,omitempty"` // nil in receipts of the version before, and in no other
}

// Terms are what bound the work that a receipt is for, and what it took.
type Terms struct {
	// Judged are the policies by which its sessions were judged, in order, those
	// included that counted only for a while.
	Judged []cofferdam.Judged `json:"judged"`
	// Passed are the answers of people by which acts passed, and what they opened.
	Passed   []cofferdam.Passed  `json:"passed,omitempty"`
	Contract *cofferdam.Contract `json:"contract,omitempty"` // the task's scope
	Strays   cofferdam.Strays    `json:"strays"`             // what went beyond it
	Budget   *cofferdam.Budget   `json:"budget,omitempty"`   // of the task; nil: it had no limit
	Used     cofferdam.Usage     `json:"used"`               // by all attempts until then
}

// Report returns what the receipt says of the checks.
func (r Receipt) Report() cofferdam.CheckReport {
	held := len(r.Checks) > 0
	for _, c := range r.Checks {
		held = held && c.Held
	}
	return cofferdam.CheckReport{
		Commit: r.Commit, Base: r.Base, RegressionOnly: r.RegressionOnly, Checks: r.Checks, Held: held,
	}
}

// Sign returns r as a signed note.
func (s Signer) Sign(r Receipt) ([]byte, error) {
	r.Schema, r.Time = ReceiptSchema, r.Time.UTC()
	if r.Terms == nil {
		r.Terms = &Terms{}
	}
	if r.Commit == "" || r.Base == "" || r.Task == "" || r.ID == "" {
		return nil, &cofferdam.Error{
			Op: "proof.Sign", Kind: cofferdam.Invalid, Subject: "sign receipt",
			Reason: "a receipt names its task, its base and its commit",
		}
	}
	line, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("sign receipt: %w", err)
	}
	if len(line) > maxReceipt {
		return nil, &cofferdam.Error{
			Op: "proof.Sign", Kind: cofferdam.Exhausted, Subject: "sign receipt",
			Reason: fmt.Sprintf("it is %d bytes long, and %d are allowed", len(line), maxReceipt),
		}
	}
	return s.sign(receiptTitles[r.Schema] + "\n" + string(line) + "\n")
}

// OpenReceipt checks a signed receipt against a public key.
func OpenReceipt(msg []byte, public string) (Receipt, error) {
	v, err := verifier(public)
	if err != nil {
		return Receipt{}, err
	}
	text, err := open(msg, v)
	if err != nil {
		return Receipt{}, tampered("check receipt", err)
	}
	r, err := parseReceipt(text)
	if err != nil {
		return Receipt{}, tampered("check receipt", err)
	}
	return r, nil
}

func parseReceipt(text string) (r Receipt, err error) {
	title, body, _ := strings.Cut(text, "\n")
	if title != receiptTitles[ReceiptSchema] && title != receiptTitles[receiptBefore] || strings.Count(body, "\n") != 1 {
		return r, fmt.Errorf("signed text is no receipt")
	}
	if err := decode([]byte(strings.TrimSuffix(body, "\n")), &r); err != nil {
		return r, fmt.Errorf("receipt: %w", err)
	}
	if receiptTitles[r.Schema] != title || (r.Schema == ReceiptSchema) != (r.Terms != nil) {
		return r, fmt.Errorf("receipt has the schema %.80q, which is not that of %q or not what it says", r.Schema, title)
	}
	return r, nil
}

// encode returns v as one line of JSON, the only spelling that decode accepts.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode parses p into v, a pointer, and refuses every spelling but encode's:
// unknown or repeated keys, other case, other order, spaces, other escapes.
func decode(p []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	again, err := encode(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(p, again) {
		return fmt.Errorf("not in canonical form")
	}
	return nil
}
