package proof

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"go/build"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTreeVectors: the reference data of RFC 6962 implementations (Certificate
// Transparency): roots over 0 to 8 given leaves.
func TestTreeVectors(t *testing.T) {
	leaves := []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var tree Tree
	for n, want := range roots {
		if got := tree.Root(); hex.EncodeToString(got[:]) != want {
			t.Errorf("root of %d leaves = %x, want %s", n, got, want)
		}
		if n < len(leaves) {
			tree.Append(unhex(t, leaves[n]))
		}
	}
}

// signerOf8032 is the key of RFC 8032, section 7.1, test 1.
func signerOf8032(t testing.TB, name string) (Signer, ed25519.PublicKey) {
	t.Helper()
	seed := unhex(t, "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	public := ed25519.PublicKey(unhex(t, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"))
	s, err := NewSigner(fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", name, keyID(name, public), base64.StdEncoding.EncodeToString(append([]byte{1}, seed...))))
	if err != nil {
		t.Fatal(err)
	}
	return s, public
}

// keyID is C2SP signed-note's: SHA-256(name || 0x0A || 0x01 || public key)[:4].
func keyID(name string, public []byte) uint32 {
	sum := sha256.Sum256(append([]byte(name+"\n\x01"), public...))
	return binary.BigEndian.Uint32(sum[:4])
}

// TestNoteBySpec takes a signed head apart by the words of C2SP's signed-note and
// tlog-checkpoint, without the package that made it.
func TestNoteBySpec(t *testing.T) {
	s, public := signerOf8032(t, "cofferdam.test/log")
	if want := fmt.Sprintf("cofferdam.test/log+%08x+", keyID("cofferdam.test/log", public)); !strings.HasPrefix(s.Public(), want) {
		t.Errorf("public key %s, want %s…", s.Public(), want)
	}
	var tree Tree
	tree.Append(nil)
	note := string(must(t)(s.SignHead(HeadOf("s-1", &tree, testTime))))
	text, signature, ok := strings.Cut(note, "\n\n— ")
	text += "\n"
	root := tree.Root()
	if want := "cofferdam.test/log/s-1\n1\n" + base64.StdEncoding.EncodeToString(root[:]) + "\ntime 2026-11-29T23:00:00.12Z\n"; !ok || text != want {
		t.Errorf("text = %q, want %q", text, want)
	}
	name, b64, _ := strings.Cut(strings.TrimSuffix(signature, "\n"), " ")
	sig, err := base64.StdEncoding.Strict().DecodeString(b64)
	if err != nil || name != s.Name() || len(sig) != 68 || binary.BigEndian.Uint32(sig) != keyID(name, public) || !ed25519.Verify(public, []byte(text), sig[4:]) {
		t.Errorf("signature line %q does not hold: %v", signature, err)
	}
}

// TestHeadTexts: what a checkpoint's text may be, after C2SP tlog-checkpoint,
// and with our one extension line.
func TestHeadTexts(t *testing.T) {
	const root, at = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=", "time 2026-11-29T23:00:00Z"
	head := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	const name = "example.com/behind-the-sofa"
	h, err := parseHead(head(name, "20852163", root, at), name)
	if err != nil || h.Size != 20852163 || h.Session != "" || !h.Time.Equal(time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("head = %+v, %v", h, err)
	}
	if h, err := parseHead(head(name+"/s-1", "0", root, at), name); err != nil || h.Session != "s-1" {
		t.Errorf("head = %+v, %v", h, err)
	}
	for _, bad := range []string{
		"", "\n", head(name, "1", root), head(name, "1", root, at, "more"), head("other", "1", root, at), head(name+"/", "1", root, at),
		head(name, "01", root, at), head(name, "-1", root, at), head(name, "+1", root, at), head(name, "1 ", root, at), head(name, "18446744073709551616", root, at),
		head(name, "1", strings.TrimSuffix(root, "="), at), head(name, "1", strings.Replace(root, "2I=", "2J=", 1), at), head(name, "1", "", at),
		head(name, "1", root, "time yesterday"), head(name, "1", root, "2026-11-29T23:00:00Z"), strings.TrimSuffix(head(name, "1", root, at), "\n"),
	} {
		if h, err := parseHead(bad, name); err == nil {
			t.Errorf("text %q gave %+v", bad, h)
		}
	}
}

// TestProofDeps pins what the checker links: it must stay small enough to read.
func TestProofDeps(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Skip("needs the go command: ", err)
	}
	want := "cofferdam\ngolang.org/x/mod/sumdb/note\ngolang.org/x/mod/internal/lazyregexp\ngolang.org/x/mod/module\ngolang.org/x/mod/semver\ngolang.org/x/mod/sumdb/tlog\ncofferdam/proof"
	allowed := map[string]bool{}
	for _, p := range strings.Fields(want) {
		allowed[p] = true
	}
	for _, p := range strings.Fields(string(out)) {
		if !allowed[p] {
			t.Errorf("package proof now links %s", p)
		}
	}
	p, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range p.Imports {
		if i == "os" || i == "net" || strings.HasPrefix(i, "net/") || strings.HasPrefix(i, "os/") {
			t.Errorf("package proof imports %s, and does no I/O of its own", i)
		}
	}
}

// FuzzVerify: whatever is read, nothing panics, and nothing but the export
// itself is accepted.
func FuzzVerify(f *testing.F) {
	key, _ := signerOf8032(f, "cofferdam/test")
	good := newEvidence(f, key).export(f, key)
	f.Add(good)
	lines := bytes.SplitAfter(good, []byte("\n"))
	for i := range lines {
		f.Add(bytes.Join(append(append([][]byte{}, lines[:i]...), lines[min(i+1, len(lines)):]...), nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		_, err := Verify(bytes.NewReader(p), key.Public())
		if (err == nil) != bytes.Equal(p, good) {
			t.Errorf("Verify = %v", err)
		}
		if err != nil && cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("kind of %v", err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	key := newSigner(b, "cofferdam/test")
	v := &evidence{sessions: map[cofferdam.SessionID][][]byte{}, seals: map[cofferdam.SessionID][]byte{}, order: []cofferdam.SessionID{"s-1"}}
	events, head := chain(b, "s-1", 9999)
	v.sessions["s-1"], v.seals["s-1"] = events, must(b)(key.SignHead(head))
	v.host = [][]byte{stored(b, cofferdam.Event{Kind: "task.state"}), sealEvent(b, 1, head)}
	file := v.export(b, key)
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := Verify(bytes.NewReader(file), key.Public()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(events))*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
