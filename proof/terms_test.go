package proof

import (
	"bytes"
	"strings"
	"testing"

	"cofferdam"
)

const documentText = "[egress]\ndeny = [\"evil.test\"]\n"

// judgedEvidence is evidence of a session that was judged by a document, which is
// there with its signed change.
func judgedEvidence(t testing.TB, key Signer) (*evidence, cofferdam.Judged) {
	t.Helper()
	v := &evidence{sessions: map[cofferdam.SessionID][][]byte{}, seals: map[cofferdam.SessionID][]byte{}, order: []cofferdam.SessionID{"s-1"}}
	digest := DigestOf([]byte(documentText))
	j := cofferdam.Judged{Session: "s-1", From: 0, Policy: "sha256:whole", Project: digest}
	events := [][]byte{
		stored(t, cofferdam.Event{Session: "s-1", Task: "t-1", Kind: cofferdam.EventSessionState, Resource: cofferdam.StepPolicy, Fields: map[string]string{
			cofferdam.FieldPolicy: "sha256:whole", cofferdam.FieldProjectText: string(digest), "step": "policy",
		}}),
		stored(t, cofferdam.Event{Seq: 1, Session: "s-1", Task: "t-1", Kind: "egress.connect", Verdict: cofferdam.Refused, Fields: map[string]string{cofferdam.FieldPolicy: "sha256:whole"}}),
	}
	var tree Tree
	var tally Tally
	tally.Add(cofferdam.EventSessionState, "")
	tally.Add("egress.connect", cofferdam.Refused)
	events = append(events, stored(t, cofferdam.Event{Seq: 2, Session: "s-1", Task: "t-1", Kind: cofferdam.EventSessionSeal, Fields: tally.Fields()}))
	for _, e := range events {
		tree.Append(e)
	}
	head := HeadOf("s-1", &tree, testTime)
	v.sessions["s-1"], v.seals["s-1"] = events, must(t)(key.SignHead(head))
	v.policies = []SignedPolicy{{Text: documentText, Note: must(t)(key.SignPolicy(PolicyChange{
		Scope: cofferdam.Scope{Organization: "o-1", Project: "p-1"}, Version: 3, Digest: digest, ProposedBy: "person:ann", DecidedBy: "person:bob", Time: testTime,
	}))}}
	r := testReceipt(head)
	r.Terms = &Terms{
		Judged: []cofferdam.Judged{j}, Contract: &cofferdam.Contract{Paths: []string{"src/"}}, Budget: &cofferdam.Budget{Tokens: 5000},
		Used: cofferdam.Usage{InputTokens: 70}, Passed: []cofferdam.Passed{{Session: "s-1", Question: "a-1", By: "person:ann", Acts: 1}},
	}
	v.receipts = [][]byte{must(t)(key.Sign(r))}
	v.host = [][]byte{stored(t, cofferdam.Event{Task: "t-0", Kind: "task.state"}), sealEvent(t, 1, head)}
	return v, j
}

// TestPolicyOfASession: from what a decision names an auditor gets to the text that
// was signed, with the file and the key alone; a text of which one byte is another,
// a document that is missing, one that somebody else signed, and a receipt that names
// a policy which its trace does not, hold against nobody, whoever signed the export.
func TestPolicyOfASession(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	v, j := judgedEvidence(t, key)
	file := v.export(t, key)
	report, err := Verify(bytes.NewReader(file), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Policies) != 1 || report.Policies[0].Version != 3 || report.Policies[0].Digest != j.Project || report.Policies[0].DecidedBy != "person:bob" {
		t.Errorf("policies %+v", report.Policies)
	}
	if r := report.Receipts[0]; r.Terms == nil || len(r.Terms.Judged) != 1 || r.Terms.Judged[0] != j || r.Terms.Used.InputTokens != 70 || r.Terms.Contract.Paths[0] != "src/" {
		t.Errorf("receipt %+v", r.Terms)
	}
	fails := func(name, says string, file []byte) {
		t.Helper()
		if _, err := Verify(bytes.NewReader(file), key.Public()); cofferdam.KindOf(err) != cofferdam.Tampered || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want tampered with %q", name, err, says)
		}
	}
	at := bytes.Index(file, []byte("evil.test"))
	bad := bytes.Clone(file)
	bad[at] = 'E'
	fails("a byte of the text", "is not the one that was signed", bad)
	// What follows is signed anew by who has the key of exports.
	change := func(name, says string, forge func(v *evidence)) {
		t.Helper()
		v, _ := judgedEvidence(t, key)
		forge(v)
		fails(name, says, v.export(t, key))
	}
	change("another text", "is not the one that was signed", func(v *evidence) { v.policies[0].Text += " " })
	change("no document", "whose signed version is not here", func(v *evidence) { v.policies = nil })
	change("a stranger's document", "signed by", func(v *evidence) {
		v.policies[0].Note = must(t)(newSigner(t, "cofferdam/other").SignPolicy(PolicyChange{
			Scope: cofferdam.Scope{Organization: "o-1"}, Version: 1, Digest: j.Project, ProposedBy: "x", DecidedBy: "x", Time: testTime,
		}))
	})
	change("a receipt in its place", "no change of policy", func(v *evidence) { v.policies[0].Note = v.receipts[0] })
	change("a policy that the trace does not name", "its trace does not", func(v *evidence) {
		r, err := OpenReceipt(v.receipts[0], key.Public())
		if err != nil {
			t.Fatal(err)
		}
		r.Terms.Judged[0].Policy = "sha256:other"
		v.receipts[0] = must(t)(key.Sign(r))
	})
}

// TestEvidenceOfTheVersionBefore: a receipt and an export as they were written until
// now hold, and neither passes for one of the other version.
func TestEvidenceOfTheVersionBefore(t *testing.T) {
	key, _ := signerOf8032(t, "cofferdam/test")
	const old = `{"schema":"cofferdam/receipt/v1","id":"c-1","organization":"","project":"","task":"t-1","number":1,"attempt":1,"repo":"","branch":"","base":"aaaa","commit":"bbbb","checks":[],"environment":"","image":"","tier":"gvisor","kernel":"","policy":"","sessions":null,"regression_only":false,"time":"2026-11-29T23:00:00.12Z"}`
	sign := func(title, body string) []byte { return must(t)(key.sign(title + "\n" + body + "\n")) }
	r, err := OpenReceipt(sign("cofferdam receipt v1", old), key.Public())
	if err != nil || r.Commit != "bbbb" || r.Terms != nil {
		t.Errorf("%+v, %v", r, err)
	}
	// Ed25519 signs the same the same way: this is a note that the version before wrote.
	const note = "cofferdam receipt v1\n" + old + "\n\n— cofferdam/test "
	if !strings.HasPrefix(string(sign("cofferdam receipt v1", old)), note) {
		t.Error("a receipt is no note as it was before")
	}
	withTerms := strings.TrimSuffix(old, "}") + `,"terms":{"judged":null,"strays":{"refused":0},"used":{"input_tokens":0,"output_tokens":0,"model_calls":0,"refused":0,"cost_microdollars":0,"unpriced_calls":0,"agent_milliseconds":0,"tool_milliseconds":0,"egress_bytes":0,"approvals":0}}}`
	asNew := func(s string) string { return strings.Replace(s, "receipt/v1", "receipt/v2", 1) }
	if _, err := OpenReceipt(sign("cofferdam receipt v2", asNew(withTerms)), key.Public()); err != nil {
		t.Errorf("the control: %v", err)
	}
	for name, bad := range map[string][]byte{
		"old with terms":    sign("cofferdam receipt v1", withTerms),
		"new without terms": sign("cofferdam receipt v2", asNew(old)),
		"old in a new note": sign("cofferdam receipt v2", old),
		"new in an old":     sign("cofferdam receipt v1", asNew(withTerms)),
		"of no version":     sign("cofferdam receipt v3", strings.Replace(old, "v1", "v3", 1)),
	} {
		if r, err := OpenReceipt(bad, key.Public()); cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// The export: one that names documents of policy and has none, as it was.
	v, _ := judgedEvidence(t, key)
	v.policies, v.receipts, v.schema = nil, [][]byte{sign("cofferdam receipt v1", strings.Replace(old, `"sessions":null`, `"sessions":[]`, 1))}, exportBefore
	if _, err := Verify(bytes.NewReader(v.export(t, key)), key.Public()); err != nil {
		t.Errorf("an export of the version before: %v", err)
	}
	v, _ = judgedEvidence(t, key)
	v.schema = exportBefore
	if _, err := Verify(bytes.NewReader(v.export(t, key)), key.Public()); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("an export of the version before with a policy: %v", err)
	}
}
