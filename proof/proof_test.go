package proof

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"cofferdam"
)

var testTime = time.Date(2026, 11, 29, 23, 0, 0, 120_000_000, time.UTC)

func newSigner(t testing.TB, name string) Signer {
	t.Helper()
	private, public := NewKey(name)
	s, err := NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	if s.Public() != public {
		t.Fatalf("public key %s, want %s", s.Public(), public)
	}
	return s
}

// hashes is a whole tree in memory, the slow way, from tlog alone.
type hashes []Hash

func (h hashes) ReadHashes(at []int64) ([]Hash, error) {
	out := make([]Hash, len(at))
	for i, n := range at {
		out[i] = h[n]
	}
	return out, nil
}

func treeOf(t testing.TB, records [][]byte) (hashes, Hash) {
	t.Helper()
	var h hashes
	for i, r := range records {
		more, err := tlog.StoredHashes(int64(i), r, h)
		if err != nil {
			t.Fatal(err)
		}
		h = append(h, more...)
	}
	root, err := tlog.TreeHash(int64(len(records)), h)
	if err != nil {
		t.Fatal(err)
	}
	return h, root
}

func stored(t testing.TB, e cofferdam.Event) []byte {
	t.Helper()
	e.Time = testTime
	b, err := encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// chain is a sealed session of n events and the seal.
func chain(t testing.TB, id cofferdam.SessionID, n int) ([][]byte, Head) {
	t.Helper()
	var out [][]byte
	var tree Tree
	var tally Tally
	for i := range n {
		e := cofferdam.Event{Seq: uint64(i), Session: id, Task: "t-1", Kind: "egress.request", Verdict: cofferdam.Refused, Resource: fmt.Sprintf("host-%d.test", i)}
		out = append(out, stored(t, e))
		tally.Add(e.Kind, e.Verdict)
	}
	out = append(out, stored(t, cofferdam.Event{Seq: uint64(n), Session: id, Task: "t-1", Kind: cofferdam.EventSessionSeal, Fields: tally.Fields()}))
	for _, r := range out {
		tree.Append(r)
	}
	return out, HeadOf(id, &tree, testTime)
}

func sealEvent(t testing.TB, seq uint64, h Head) []byte {
	return stored(t, cofferdam.Event{
		Seq: seq, Session: h.Session, Task: "t-1", Kind: cofferdam.EventSeal,
		Fields: map[string]string{"size": strconv.FormatUint(h.Size, 10), "root": string(h.Root)},
	})
}

func testReceipt(heads ...Head) Receipt {
	return Receipt{
		ID: "c-1", Task: "t-1", Number: 1, Attempt: 1, Base: "aaaa", Commit: "bbbb", Tier: "gvisor", Sessions: heads, Time: testTime,
		Checks: []cofferdam.CheckResult{{Check: cofferdam.Check{Command: "sh test.sh", MustFailFirst: true}, BaseExit: 1, Held: true, Output: DigestOf(nil)}},
	}
}

// evidence is everything that goes into one export; tests change it.
type evidence struct {
	sessions map[cofferdam.SessionID][][]byte
	order    []cofferdam.SessionID
	seals    map[cofferdam.SessionID][]byte
	host     [][]byte
	policies []SignedPolicy
	receipts [][]byte
	schema   string // of the export; "": as it is now
}

func newEvidence(t testing.TB, key Signer) *evidence {
	t.Helper()
	v := &evidence{sessions: map[cofferdam.SessionID][][]byte{}, seals: map[cofferdam.SessionID][]byte{}}
	v.host = append(v.host, stored(t, cofferdam.Event{Task: "t-0", Kind: "task.state"}))
	var heads []Head
	for i, id := range []cofferdam.SessionID{"s-1", "s-2"} {
		events, head := chain(t, id, 12)
		v.order, v.sessions[id] = append(v.order, id), events
		v.seals[id] = must(t)(key.SignHead(head))
		v.host = append(v.host, sealEvent(t, uint64(i+1), head))
		heads = append(heads, head)
	}
	receipt := must(t)(key.Sign(testReceipt(heads...)))
	v.receipts = append(v.receipts, receipt)
	v.host = append(v.host, stored(t, cofferdam.Event{Seq: 3, Task: "t-1", Kind: cofferdam.EventReceipt, Fields: map[string]string{"note": string(DigestOf(receipt))}}))
	return v
}

func must(t testing.TB) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// export writes v as its owner, who has the key, would.
func (v *evidence) export(t testing.TB, key Signer) []byte {
	t.Helper()
	var b bytes.Buffer
	schema := v.schema
	if schema == "" {
		schema = ExportSchema
	}
	x := newExport(&b, key, "t-1", testTime, schema)
	for _, id := range v.order {
		x.Session(id)
		for _, e := range v.sessions[id] {
			x.Event(e)
		}
		if note, ok := v.seals[id]; ok {
			x.Seal(note)
		}
	}
	h, root := treeOf(t, v.host)
	x.Host(must(t)(key.SignHead(Head{Size: uint64(len(v.host)), Root: digest(root), Time: testTime})))
	for i, e := range v.host[1:] { // the first is another task's
		p, err := tlog.ProveRecord(int64(len(v.host)), int64(i+1), h)
		if err != nil {
			t.Fatal(err)
		}
		x.Entry(uint64(i+1), p, e)
	}
	for _, p := range v.policies {
		x.Policy(p)
	}
	for _, r := range v.receipts {
		x.Receipt(r)
	}
	if err := x.End(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestVerify(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	report, err := Verify(bytes.NewReader(newEvidence(t, key).export(t, key)), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if report.Events != 26 || len(report.Sessions) != 2 || report.Entries != 3 || len(report.Receipts) != 1 || report.Host.Size != 4 {
		t.Errorf("report = %+v", report)
	}
	if diff := cmp.Diff(map[string]uint64{"refused": 12}, report.Sessions[1].Verdicts); diff != "" {
		t.Error(diff)
	}
	if r := report.Receipts[0]; r.Commit != "bbbb" || !r.Report().Held {
		t.Errorf("receipt = %+v", r)
	}
}

// TestCutChain is TRC-01: 5 of 5 must fail, whether the file was cut by a
// stranger or the log behind the export by somebody who can export it anew.
func TestCutChain(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	cuts := []struct {
		name string
		cut  func(t *testing.T, v *evidence)
	}{
		{"last record", func(t *testing.T, v *evidence) { v.sessions["s-1"] = v.sessions["s-1"][:12] }},
		{"last 10", func(t *testing.T, v *evidence) { v.sessions["s-1"] = v.sessions["s-1"][:3] }},
		{"first", func(t *testing.T, v *evidence) { v.sessions["s-1"] = v.sessions["s-1"][1:] }},
		{"all", func(t *testing.T, v *evidence) { v.sessions["s-1"] = nil }},
		{"valid empty chain", func(t *testing.T, v *evidence) {
			events, head := chain(t, "s-1", 0)
			v.sessions["s-1"], v.seals["s-1"] = events, must(t)(key.SignHead(head))
		}},
	}
	for _, c := range cuts {
		for _, how := range []string{"with the seal", "without the seal", "without the session"} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				v := newEvidence(t, key)
				c.cut(t, v)
				v.receipts = nil // its own check would hide whether the log's holds
				v.host = v.host[:3]
				switch how {
				case "without the seal":
					delete(v.seals, "s-1")
				case "without the session":
					v.order = v.order[1:]
				}
				_, err := Verify(bytes.NewReader(v.export(t, key)), key.Public())
				if cofferdam.KindOf(err) != cofferdam.Tampered {
					t.Fatalf("Verify = %v, want tampered", err)
				}
				t.Log(err)
			})
		}
	}
	whole := bytes.SplitAfter(newEvidence(t, key).export(t, key), []byte("\n"))
	for n := range len(whole) - 1 { // the last is empty
		_, err := Verify(bytes.NewReader(bytes.Join(whole[:n], nil)), key.Public())
		if !errors.Is(err, ErrNotSealed) || cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("first %d lines: %v, want not sealed", n, err)
		}
	}
}

// TestTamperedByte changes, drops and adds one byte at every place.
func TestTamperedByte(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	good := newEvidence(t, key).export(t, key)
	stamp := []byte{0, ' ', '\n', '"', 'A', '=', 0xff}
	check := func(what string, at int, bad []byte) {
		_, err := Verify(bytes.NewReader(bad), key.Public())
		if cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Fatalf("%s byte %d: %v, want tampered", what, at, err)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		// Every bit in turn and bit 5 often, so that letters change case, digits
		// change to their neighbours, and padding bits of base64 change.
		bad[i] ^= 1 << (i % 8)
		if i%2 == 1 {
			bad[i] = good[i] ^ 0x20
		}
		check("changed", i, bad)
		if i%7 == 0 || i > len(good)-8 {
			check("dropped", i, append(bytes.Clone(good[:i]), good[i+1:]...))
			s := stamp[i/7%len(stamp)]
			check("added", i, append(append(bytes.Clone(good[:i]), s), good[i:]...))
		}
	}
	check("appended", len(good), append(bytes.Clone(good), '\n'))
}

func TestMovedLines(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	lines := bytes.SplitAfter(newEvidence(t, key).export(t, key), []byte("\n"))
	lines = lines[:len(lines)-1]
	check := func(what string, i int, bad [][]byte) {
		if _, err := Verify(bytes.NewReader(bytes.Join(bad, nil)), key.Public()); cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("%s line %d: %v, want tampered", what, i, err)
		}
	}
	for i := range lines {
		dropped := append(append([][]byte{}, lines[:i]...), lines[i+1:]...)
		check("dropped", i, dropped)
		twice := append(append([][]byte{}, lines[:i+1]...), lines[i:]...)
		check("doubled", i, twice)
		for j := range i {
			swapped := append([][]byte{}, lines...)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			check("swapped", i, swapped)
		}
	}
}

func TestWrongKey(t *testing.T) {
	key, same, other := newSigner(t, "cofferdam/test"), newSigner(t, "cofferdam/test"), newSigner(t, "cofferdam/other")
	file := newEvidence(t, key).export(t, key)
	for _, k := range []Signer{same, other} {
		if _, err := Verify(bytes.NewReader(file), k.Public()); cofferdam.KindOf(err) != cofferdam.Tampered || !strings.Contains(err.Error(), "signed by") {
			t.Errorf("key %s: %v", k, err)
		}
	}
	for _, k := range []string{"", "x", "cofferdam/test+00000000+AAAA", strings.Repeat("a+", 1000)} {
		if _, err := Verify(bytes.NewReader(file), k); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("key %q: %v, want invalid", k, err)
		}
	}
}

// TestForgedByOwner checks what holds even against who can sign exports anew:
// the parts have to agree with each other.
func TestForgedByOwner(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	for name, forge := range map[string]func(v *evidence){
		"receipt of other trace": func(v *evidence) {
			v.receipts[0] = must(t)(key.Sign(testReceipt(Head{Session: "s-1", Size: 13, Root: DigestOf(nil)})))
		},
		"receipt of other task": func(v *evidence) {
			r := testReceipt()
			r.Task = "t-2"
			v.receipts = append(v.receipts, must(t)(key.Sign(r)))
		},
		"receipt for a seal": func(v *evidence) { v.seals["s-1"] = v.receipts[0] },
		"seal for a receipt": func(v *evidence) { v.receipts = append(v.receipts, v.seals["s-1"]) },
		"seals exchanged":    func(v *evidence) { v.seals["s-1"], v.seals["s-2"] = v.seals["s-2"], v.seals["s-1"] },
		"seal unknown to the host": func(v *evidence) {
			v.host = append(v.host[:1:1], stored(t, cofferdam.Event{Seq: 1, Task: "t-1", Kind: "task.state"}))
		},
		"session twice": func(v *evidence) { v.order = append(v.order, "s-1") },
		"other counts": func(v *evidence) {
			last := len(v.sessions["s-1"]) - 1
			v.sessions["s-1"][last] = stored(t, cofferdam.Event{Seq: uint64(last), Session: "s-1", Kind: cofferdam.EventSessionSeal, Fields: map[string]string{"events": "12"}})
			var tree Tree
			for _, e := range v.sessions["s-1"] {
				tree.Append(e)
			}
			head := HeadOf("s-1", &tree, testTime)
			v.seals["s-1"], v.host[1], v.receipts = must(t)(key.SignHead(head)), sealEvent(t, 1, head), nil
			v.host = v.host[:3]
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newEvidence(t, key)
			forge(v)
			if _, err := Verify(bytes.NewReader(v.export(t, key)), key.Public()); cofferdam.KindOf(err) != cofferdam.Tampered {
				t.Errorf("Verify = %v, want tampered", err)
			} else {
				t.Log(err)
			}
		})
	}
}

// TestUnseenReceipt: a receipt that the host tells of and the export lacks shows.
func TestUnseenReceipt(t *testing.T) {
	key := newSigner(t, "cofferdam/test")
	v := newEvidence(t, key)
	want := []cofferdam.Digest{DigestOf(v.receipts[0])}
	v.receipts = nil
	report, err := Verify(bytes.NewReader(v.export(t, key)), key.Public())
	if diff := cmp.Diff(want, report.Unseen); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestReceipt(t *testing.T) {
	key, other := newSigner(t, "cofferdam/test"), newSigner(t, "cofferdam/test")
	want := testReceipt(Head{Session: "s-1", Size: 3, Root: DigestOf([]byte("x")), Time: testTime})
	want.Kernel = "hostile \u2028\n— x \x00 text"
	note := must(t)(key.Sign(want))
	got, err := OpenReceipt(note, key.Public())
	want.Schema, want.Terms = ReceiptSchema, &Terms{}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("OpenReceipt: %v\n%s", err, diff)
	}
	if _, err := OpenReceipt(note, other.Public()); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("other key: %v", err)
	}
	for i := range note {
		bad := bytes.Clone(note)
		bad[i] ^= 1
		if _, err := OpenReceipt(bad, key.Public()); cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	if _, err := key.Sign(Receipt{}); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("empty receipt: %v", err)
	}
	large := want
	large.Kernel = strings.Repeat("x", maxReceipt)
	if _, err := key.Sign(large); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("large receipt: %v", err)
	}
}

func TestTreeMatchesTlog(t *testing.T) {
	var tree Tree
	var records [][]byte
	for n := range 130 {
		if _, root := treeOf(t, records); n > 0 && tree.Root() != root {
			t.Fatalf("root of %d records differs from tlog's", n)
		}
		records = append(records, []byte(strings.Repeat("r", n)))
		copied := tree.Clone()
		tree.Append(records[n])
		if copied.Size() != uint64(n) || len(copied.edge) > 8 {
			t.Fatalf("clone of %d records: size %d, %d hashes", n, copied.Size(), len(copied.edge))
		}
	}
}

// TestSignerPrintsNothing greps every printed form of a signer for its key.
func TestSignerPrintsNothing(t *testing.T) {
	private, _ := NewKey("cofferdam/test")
	s, err := NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	seed := private[strings.LastIndex(private, "+AQ")+1:] // algorithm byte and seed in base64
	holder := struct{ S Signer }{s}
	json, _ := encode(holder)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "h", holder)
	for _, got := range []string{
		fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %q %x", s, s, s, s, s), fmt.Sprintf("%v %+v %#v", holder, holder, holder), string(json), log.String(),
	} {
		if strings.Contains(got, seed) || strings.Contains(got, "PRIVATE") {
			t.Errorf("the private key is in %q", got)
		}
		if !strings.Contains(got, s.Name()) && !strings.Contains(got, fmt.Sprintf("%x", s.Name())) {
			t.Errorf("the public key is not in %q", got)
		}
	}
}
