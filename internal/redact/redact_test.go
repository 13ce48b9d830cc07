package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"cofferdam"
)

const canary = `sk-Live_7/9+Qz"é\x~A==` // every kind of character that some encoding escapes

func namedRedactor(t testing.TB, secrets ...Secret) *Redactor {
	t.Helper()
	r := new(Redactor)
	if err := r.Set(secrets); err != nil {
		t.Fatal(err)
	}
	return r
}

// unicodeEscapes writes every character of s as \uXXXX.
func unicodeEscapes(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, format, r)
	}
	return b.String()
}

func spread(s, between string, every int) string {
	var b strings.Builder
	for i := 0; i < len(s); i += every {
		b.WriteString(s[i:min(i+every, len(s))])
		b.WriteString(between)
	}
	return b.String()
}

// encodings are the forms of R32, CRD-08 and TRC-04 that the package finds.
func encodings(t testing.TB, secret string) map[string]string {
	t.Helper()
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := json.Marshal(string(quoted))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{
		"raw":          secret,
		"hex":          hex.EncodeToString([]byte(secret)),
		"HEX":          strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"URL query":    strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"),
		"URL path":     url.PathEscape(secret),
		"URL all":      "%" + spread(hex.EncodeToString([]byte(secret)), "%", 2),
		"URL twice":    url.PathEscape(url.PathEscape(secret)),
		"JSON":         strings.Trim(string(quoted), `"`),
		"JSON twice":   strings.Trim(string(twice), `"\`),
		"JSON slash":   strings.ReplaceAll(strings.Trim(string(quoted), `"`), "/", `\/`),
		"JSON \\u":     unicodeEscapes(secret, `\u%04x`),
		"JSON \\U":     unicodeEscapes(secret, `\u%04X`),
		"colours":      spread(secret, "\x1b[31;1m", 1),
		"lines":        spread(secret, "\n", 5),
		"CR LF":        spread(secret, "\r\n", 1),
		"URL userinfo": "https://user:" + url.QueryEscape(secret) + "@host.test/",
		"cookie":       "Cookie: s=" + secret + "; c=d",
	}
	for before := range 3 {
		for after := range 3 {
			text := strings.Repeat("x", before) + secret + strings.Repeat("y", after)
			for name, enc := range map[string]*base64.Encoding{
				"std": base64.StdEncoding, "url": base64.URLEncoding, "raw std": base64.RawStdEncoding, "raw url": base64.RawURLEncoding,
			} {
				name := fmt.Sprintf("base64 %s %d %d", name, before, after)
				out[name] = enc.EncodeToString([]byte(text))
				out[name+" in lines"] = spread(out[name], "\n", 20)
				out[name+" in a URL"] = url.QueryEscape(out[name])
			}
		}
	}
	return out
}

func TestEncodings(t *testing.T) {
	r := namedRedactor(t, Secret{"key", []byte(canary)})
	for name, text := range encodings(t, canary) {
		for _, around := range []string{"", "before %s after\n", `{"k":"%s"}`, "%%s%s%%s"} {
			whole := text
			if around != "" {
				whole = fmt.Sprintf(around, text)
			}
			got := r.String(whole)
			if !strings.Contains(got, "[redacted:key]") {
				t.Errorf("%s: not found in %q", name, whole)
				continue
			}
			// At most three characters may be left at either side: base64
			// characters that hold bits of neighbours too.
			if left := len(got) - len("[redacted:key]") - (len(whole) - len(text)); left > 24 {
				t.Errorf("%s: %d characters are left of %q in %q", name, left, text, got)
			}
			if again := r.String(got); again != got {
				t.Errorf("%s: redacted again it becomes %q", name, again)
			}
		}
	}
}

func TestMultilineSecret(t *testing.T) {
	pem := "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
	r := namedRedactor(t, Secret{"pem", []byte(pem)})
	quoted, _ := json.Marshal(pem)
	for _, text := range []string{
		pem, strings.ReplaceAll(pem, "\n", "\r\n"), strings.ReplaceAll(pem, "\n", ""), string(quoted),
		url.QueryEscape("x"+strings.ReplaceAll(pem, " ", "")) + "", base64.StdEncoding.EncodeToString([]byte(pem)),
	} {
		if strings.Contains(text, "BEGINKEY") {
			continue // its spaces are gone: another value
		}
		if got := r.String("a" + text + "b"); !strings.Contains(got, "[redacted:pem]") || strings.Contains(got, "MIIEv") {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestOrdinaryText is TRC-06: what is no secret stays as it is.
func TestOrdinaryText(t *testing.T) {
	r := namedRedactor(t, Secret{"a", []byte("correct-horse-battery")}, Secret{"b", bytes.Repeat([]byte{0}, 32)}, Secret{"c", []byte("AAAAAAAA")})
	for _, text := range []string{
		"commit 9fceb02d0ae598e95dc970b74767f19372d61af8\n", "c56a4180-65aa-42ec-a945-5fd21dec0538",
		"the word token, password := os.Getenv(\"PASSWORD\")", "100% \\o/ C:\\new\\table %zz %2", "\x1b[0m\x1b[", strings.Repeat("\\", 50),
		"correct-horse-batter", "orrect-horse-battery", "correct horse battery", "AAAAAAA",
	} {
		if got := r.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestOverlapsAndNames(t *testing.T) {
	r := namedRedactor(t,
		Secret{"one", []byte("abcdefghij")}, Secret{"two", []byte("ghijklmnop")}, Secret{"long", []byte("zabcdefghijz")}, Secret{"", []byte("12345678")})
	for text, want := range map[string]string{
		"-abcdefghij-":           "-[redacted:one]-",
		"-abcdefghijklmnop-":     "-[redacted:one]-",
		"-zabcdefghijz-":         "-[redacted:long]-",
		"abcdefghijabcdefghij":   "[redacted:one][redacted:one]",
		"ghijklmnop 12345678 12": "[redacted:two] [redacted] 12",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestUnfit(t *testing.T) {
	r := new(Redactor)
	err := r.Set([]Secret{{"short", []byte("1234567")}, {"long", make([]byte, MaxLength+1)}, {"lines", []byte("a\nb\nc\nd\ne")}, {"good", []byte("good-value")}})
	if cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Fatalf("Set = %v", err)
	}
	for _, name := range []string{"short", "long"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if got := r.String("1234567 good-value"); got != "1234567 [redacted:good]" {
		t.Errorf("got %q", got)
	}
	var none *Redactor
	if got := none.String("x") + string(none.Bytes([]byte("y"))) + New(nil).String("z"); got != "xyz" {
		t.Errorf("no secrets: %q", got)
	}
	if err := r.Set(nil); err != nil || r.String("good-value") != "good-value" {
		t.Errorf("after Set(nil): %v", err)
	}
}

func TestSecretPrintsNothing(t *testing.T) {
	s := Secret{Name: "key", Value: []byte(canary)}
	holder := struct{ S Secret }{s}
	text, _ := json.Marshal(holder)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "h", holder)
	look := New([][]byte{[]byte(canary)})
	for _, got := range []string{fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s), fmt.Sprintf("%v %+v %#v", holder, holder, holder), string(text), log.String()} {
		if look.Found([]byte(got)) || !strings.Contains(got, "redacted") {
			t.Errorf("printed as %q", got)
		}
	}
}

// TestSplit is TRC-03: cut at every place, and byte by byte.
func TestSplit(t *testing.T) {
	r := namedRedactor(t, Secret{"key", []byte(canary)})
	for name, text := range encodings(t, canary) {
		whole := "<" + text + ">\n"
		want := r.String(whole)
		for cut := 0; cut <= len(whole); cut++ {
			if got := inChunks(t, r, whole[:cut], whole[cut:]); got != want {
				t.Fatalf("%s cut at %d: %q, want %q", name, cut, got, want)
			}
		}
		if got := inChunks(t, r, strings.Split(whole, "")...); got != want {
			t.Errorf("%s byte by byte: %q, want %q", name, got, want)
		}
	}
}

func inChunks(t testing.TB, r *Redactor, chunks ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, c := range chunks {
		if n, err := w.Write([]byte(c)); err != nil || n != len(c) {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestWriterBound: a flood inside what could be a secret is not held for ever.
func TestWriterBound(t *testing.T) {
	r := namedRedactor(t, Secret{"key", []byte(canary)})
	limit := r.matcher().limit()
	var out bytes.Buffer
	w := r.Writer(&out)
	io := bytes.Repeat([]byte("\n"), 1000)
	w.Write([]byte(canary[:5]))
	for range 100 {
		w.Write(io)
		if w.Held() > limit {
			t.Fatalf("%d bytes held, limit %d", w.Held(), limit)
		}
	}
	w.Flush()
	if out.Len() != 5+100*1000 {
		t.Errorf("%d bytes came out", out.Len())
	}
	out.Reset()
	w = r.Writer(&out)
	w.Write([]byte("an ordinary line\n"))
	if w.Held() > 1 {
		t.Errorf("%d bytes of an ordinary line are held back", w.Held())
	}
}

// TestHeld: what came out and what is held back account for every byte written,
// so that a reader can tell which bytes of its source an output stands for.
func TestHeld(t *testing.T) {
	r := namedRedactor(t, Secret{"key", []byte(canary)})
	var out bytes.Buffer
	w := r.Writer(&out)
	source := "one " + canary + " two " + canary[:9]
	for i := range len(source) {
		w.Write([]byte(source[i : i+1]))
		settled := source[:i+1-w.Held()]
		if got, want := out.String(), r.String(settled); got != want {
			t.Fatalf("after %d bytes, %d held: %q came out, want %q", i+1, w.Held(), got, want)
		}
	}
	if w.Held() != 9 {
		t.Errorf("%d bytes are held back, want the 9 that could be a secret", w.Held())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("no") }

func TestWriterError(t *testing.T) {
	w := New([][]byte{[]byte(canary)}).Writer(failing{})
	for range 2 {
		if _, err := w.Write([]byte("some text that passes")); err == nil {
			t.Error("Write hides the error below")
		}
	}
	if err := w.Flush(); err == nil {
		t.Error("Flush hides the error below")
	}
}

// naive is the package comment written down the slow way: unfold the text in
// both ways, look for each spelling at each place.
func naive(secrets []Secret, text []byte) []byte {
	var found []match
	markers := [][]byte{}
	seen := map[string]bool{}
	for n, s := range secrets {
		markers = append(markers, s.marker())
		for _, spelling := range spellings(s.Value) {
			if len(spelling) < anchor || seen[string(spelling)] {
				continue
			}
			seen[string(spelling)] = true
			for _, decode := range []bool{false, true} {
				plain, from, to := slowUnfold(text, decode)
				for i := 0; i+len(spelling) <= len(plain); i++ {
					if string(plain[i:i+len(spelling)]) == string(spelling) {
						found = append(found, match{from[i], to[i+len(spelling)-1], int32(n)})
					}
				}
			}
		}
	}
	m := matcher{markers: markers}
	return m.replace(text, join(found))
}

func slowUnfold(p []byte, decode bool) (plain []byte, from, to []int) {
	for i := 0; i < len(p); {
		out, width, _ := token(p[i:], decode, nil)
		for _, b := range out {
			plain, from, to = append(plain, b), append(from, i), append(to, i+width)
		}
		i += width
	}
	return plain, from, to
}

// soup is text in which secrets, their spellings and half-spellings are likely.
func soup(rng *rand.Rand, secrets []Secret) []byte {
	var b []byte
	for range rng.IntN(12) {
		s := secrets[rng.IntN(len(secrets))].Value
		piece := [][]byte{
			s, s[:rng.IntN(len(s))], s[rng.IntN(len(s)):], []byte(hex.EncodeToString(s)), []byte(url.QueryEscape(string(s))),
			[]byte(base64.StdEncoding.EncodeToString(append(make([]byte, rng.IntN(3)), s...))), []byte(unicodeEscapes(string(s), `\u%04x`)),
			[]byte("\n"), []byte("\r"), []byte("\x1b[1m"), []byte("\x1b["), []byte(`\`), []byte(`\\u00`), []byte("%"), []byte("%25"), []byte("%4"),
			[]byte(spread(string(s), []string{"\n", "\x1b[0m", `\n`, "%0a"}[rng.IntN(4)], 1+rng.IntN(4))),
		}[rng.IntN(17)]
		b = append(b, piece...)
	}
	return b
}

func FuzzRedact(f *testing.F) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f.Add(soup(rng, fuzzSecrets()), seed)
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		secrets := fuzzSecrets()
		r := namedRedactor(t, secrets...)
		keep := bytes.Clone(text)
		got := r.Bytes(text)
		if !bytes.Equal(text, keep) {
			t.Fatal("the text was changed in place")
		}
		if want := naive(secrets, text); !bytes.Equal(got, want) {
			t.Fatalf("%q became %q, want %q", text, got, want)
		}
		if len(text) > slack/2 {
			return // the Writer may have to let go
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		var chunks []string
		for rest := text; len(rest) > 0; {
			n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(40)))
			chunks, rest = append(chunks, string(rest[:n])), rest[n:]
		}
		if split := inChunks(t, r, chunks...); split != string(got) {
			t.Fatalf("%q in chunks %q became %q, want %q", text, chunks, split, got)
		}
	})
}

func fuzzSecrets() []Secret {
	return []Secret{
		{"a", []byte(canary)},
		{"b", []byte("abababab")},
		{"c", []byte("babababa\nabab")},
		{"d", []byte(`12\u0041%41%2541345`)},
		{"e", []byte("\x1b[0mhidden-colour")},
		{"f", []byte(`\\\\\\\\/"`)},
	}
}

func TestRandomSoup(t *testing.T) {
	secrets := fuzzSecrets()
	r := namedRedactor(t, secrets...)
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		text := soup(rng, secrets)
		got := r.Bytes(text)
		if want := naive(secrets, text); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %q became %q, want %q", seed, text, got, want)
		}
		var chunks []string
		for rest := text; len(rest) > 0; {
			n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(40)))
			chunks, rest = append(chunks, string(rest[:n])), rest[n:]
		}
		if split := inChunks(t, r, chunks...); split != string(got) {
			t.Fatalf("seed %d: %q in chunks %q became %q, want %q", seed, text, chunks, split, got)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	line := []byte("2026-11-29T23:00:00Z GET https://registry.test/pkg/-/pkg-1.2.3.tgz 200 OK, 12345 bytes in 17 ms\n")
	text := bytes.Repeat(line, 1<<20/len(line))
	escaped, _ := json.Marshal(string(text))
	for _, n := range []int{1, 20, 1000} {
		rng := rand.New(rand.NewPCG(1, 1))
		var secrets []Secret
		for range n {
			v := make([]byte, 40)
			for i := range v {
				v[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[rng.IntN(64)]
			}
			secrets = append(secrets, Secret{Value: v})
		}
		r := namedRedactor(b, secrets...)
		for name, p := range map[string][]byte{"plain": text, "escaped": escaped} {
			b.Run(fmt.Sprintf("%s/secrets=%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					r.Bytes(p)
				}
			})
		}
		b.Run(fmt.Sprintf("writer/secrets=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			w := r.Writer(discard{})
			for b.Loop() {
				for at := 0; at < len(text); at += 32 << 10 {
					w.Write(text[at:min(at+32<<10, len(text))])
				}
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
