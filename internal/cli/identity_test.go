package cli

import (
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
	"cofferdam/policy"
)

// typist answers each prompt as a person at a terminal does: the line that is
// typed is not shown, but ended.
type typist struct {
	out    *bytes.Buffer
	answer func(prompt string) string
}

func (p typist) Read(b []byte) (int, error) {
	prompt := p.out.String()[strings.LastIndex(p.out.String(), "\n")+1:]
	if prompt == "" {
		return 0, io.EOF
	}
	p.out.WriteString("\n")
	return copy(b, p.answer(prompt)+"\n"), nil
}

// accounts is a bench whose people have passwords of their own, and ada its owner.
func accounts(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	o := service.NewMemory().Options(cofferdam.Scope{})
	o.Prover = o.People.(*identity.Directory)
	token := strings.Repeat("b", 64)
	s := httptest.NewServer(api.New(service.New(o), api.Options{Log: slog.New(slog.DiscardHandler), Auth: api.Auth{UID: os.Getuid(), Name: "ada", Token: token}}))
	t.Cleanup(s.Close)
	if err := os.WriteFile(b.env["COFFERDAM_TOKEN_FILE"], []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	b.env["COFFERDAM_SERVER"], b.env["HOME"], b.terminal = s.URL, t.TempDir(), true
	return b
}

// typed runs a command at a terminal, where each prompt is answered.
func (b *bench) typed(answer func(prompt string) string, args ...string) (int, string) {
	b.t.Helper()
	var out, errs bytes.Buffer
	b.in = typist{&out, answer}
	code := Main(b.t.Context(), b.system(&out, &errs), args)
	return code, out.String() + errs.String()
}

// TestIdentityDocument follows docs/identity.md: every line of a console block
// after a $ is run in order and prints what the block shows. "ann$" is another
// user, who has no token of the server's own. A token that is printed is put into
// the file token.
func TestIdentityDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "identity.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := accounts(t)
	own := b.env["COFFERDAM_TOKEN_FILE"]
	t.Chdir(t.TempDir())
	ran := 0
	for _, m := range regexp.MustCompile("(?ms)^```(toml|console)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if m[1] == "toml" {
			if _, err := policy.ParseDocument(policy.ProjectName, []byte(m[2]), nil); err != nil {
				t.Errorf("a part of a policy cannot be read: %v\n%s", err, m[2])
			}
			continue
		}
		var who, line string
		var want strings.Builder
		run := func() {
			if line == "" {
				return
			}
			ran++
			b.env["COFFERDAM_TOKEN_FILE"] = own
			password := "ada's own password"
			if who == "ann" {
				b.env["COFFERDAM_TOKEN_FILE"], password = "", "ann's own password"
			}
			_, got := b.typed(func(prompt string) string {
				if strings.HasPrefix(prompt, "Code") {
					return ""
				}
				return password
			}, strings.Fields(line)[1:]...)
			if token := regexp.MustCompile(`cft_\S+`).FindString(got); token != "" {
				if err := os.WriteFile("token", []byte(token), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if !shows(want.String(), got) {
				t.Errorf("%s$ %s\n%s--- the document has\n%s", who, line, got, want.String())
			}
			want.Reset()
		}
		for l := range strings.Lines(m[2]) {
			if user, rest, ok := strings.Cut(l, "$ "); ok && (user == "" || user == "ann") {
				run()
				who, line = user, strings.TrimSpace(rest)
				continue
			}
			want.WriteString(l)
		}
		run()
	}
	if ran < 15 {
		t.Errorf("%d commands were run", ran)
	}
}
