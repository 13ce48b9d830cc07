package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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
	people := o.People.(*identity.Directory)
	b.flow = &oneFlow{people: people}
	o.Prover, o.Provider = people, b.flow
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
	ran, homes := 0, map[string]string{"": t.TempDir(), "ann": t.TempDir(), "bob": t.TempDir()}
	for _, m := range regexp.MustCompile("(?ms)^```(toml|console)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[2], "[sign_in]") {
			path := filepath.Join(t.TempDir(), "cofferdam.toml")
			if err := os.WriteFile(path, []byte(m[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, got := b.typed(func(string) string { return "" }, "config", "view", "--config", path); code != 0 {
				t.Errorf("the operator's part cannot be read: exit %d\n%s", code, got)
			}
			continue
		}
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
			b.env["HOME"] = homes[who]
			if who != "" {
				b.env["COFFERDAM_TOKEN_FILE"], password = "", who+"'s own password"
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
			if user, rest, ok := strings.Cut(l, "$ "); ok && (user == "" || user == "ann" || user == "bob") {
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

// oneFlow is a provider that knows one code, and whom it stands for.
type oneFlow struct {
	people   *identity.Directory
	redirect chan string
	bound    identity.Caller
	looks    int // for a code that somebody gives
}

func (f *oneFlow) Begin(_ context.Context, redirect string) (string, string, error) {
	f.redirect <- redirect
	return "https://id.example.com/authorize", "ticket", nil
}

func (f *oneFlow) Bind(_ context.Context, who identity.Caller, ticket, state, code string) error {
	if ticket != "ticket" || state != "state" || code != "code" {
		return &cofferdam.Error{Op: "test.Bind", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "it does not hold"}
	}
	f.bound = who
	return nil
}

func (f *oneFlow) BeginDevice(context.Context) (cofferdam.LoginDevice, error) {
	return cofferdam.LoginDevice{Schema: "cofferdam/login-device/v1", Ticket: "ticket", Code: "WXYZ-1234", Address: "https://id.example.com/device", Seconds: 5, Expires: time.Now().Add(time.Minute)}, nil
}

func (f *oneFlow) FinishDevice(ctx context.Context, ticket string) (identity.Token, string, error) {
	if f.looks++; f.looks < 3 {
		return identity.Token{}, "", &cofferdam.Error{Op: "test.Finish", Kind: cofferdam.AwaitsPerson, Subject: "signing in", Reason: "nobody has given the code yet", After: time.Second}
	}
	return f.Finish(ctx, ticket, "state", "code")
}

func (f *oneFlow) Finish(ctx context.Context, ticket, state, code string) (identity.Token, string, error) {
	if ticket != "ticket" || state != "state" || code != "code" || f.bound.Member == "" {
		return identity.Token{}, "", &cofferdam.Error{Op: "test.Finish", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "it does not hold"}
	}
	return f.people.Issue(ctx, identity.Token{Organization: f.bound.Organization, Holder: f.bound.Principal, Member: f.bound.Member, Most: identity.Owner, Login: true}, identity.LoginLife)
}

// A browser comes back to a port of this machine, and what it brings signs in. The
// protocol with a provider is package identity's, and tested there.
func TestLoginByBrowser(t *testing.T) {
	b := accounts(t)
	b.flow.redirect = make(chan string, 1)
	own := b.env["COFFERDAM_TOKEN_FILE"]
	browse := func(query string) {
		t.Helper()
		address := <-b.flow.redirect
		for _, path := range []string{"", "/callback", "/other" + query} { // others who found the port
			resp, err := http.Get(strings.TrimSuffix(address, "/callback") + path)
			if err != nil || resp.StatusCode != 404 {
				t.Errorf("%s: %v %v", path, resp, err)
				continue
			}
			resp.Body.Close()
		}
		resp, err := http.Get(address + query)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%v %v", resp, err)
			return
		}
		resp.Body.Close()
	}
	for _, c := range []struct {
		query, says string
		args        []string
		code        int
		signedIn    bool
	}{
		{"?state=state&code=code", "does not hold", []string{"login", "--oidc"}, 4, false}, // nobody is bound yet
		{"?state=other&code=code", "does not hold", []string{"login", "--enroll", "oidc"}, 4, false},
		{"?state=state&code=code", "from now on", []string{"login", "--enroll", "oidc"}, 0, false},
		{"?state=state&error=access_denied", "does not hold", []string{"login", "--oidc"}, 4, false},
		{"?state=state&code=code", "signed in as person:ada", []string{"login", "--oidc"}, 0, true},
	} {
		b.env["COFFERDAM_TOKEN_FILE"] = own
		done := make(chan struct{})
		go func() { defer close(done); browse(c.query) }()
		code, got := b.typed(func(string) string { return "" }, c.args...)
		<-done
		if code != c.code || !strings.Contains(got, c.says) || strings.Contains(got, "ticket") {
			t.Errorf("%v %s: exit %d\n%s", c.args, c.query, code, got)
		}
		b.env["COFFERDAM_TOKEN_FILE"] = ""
		if code, got := b.typed(func(string) string { return "" }, "admin", "user", "view"); (code == 0) != c.signedIn {
			t.Errorf("after it: exit %d\n%s", code, got)
		}
	}
	// A browser of another machine is given a code.
	if code, got := b.typed(func(string) string { return "" }, "login", "--oidc", "--device"); code != 0 || b.flow.looks != 3 || !strings.Contains(got, "WXYZ-1234") || !strings.Contains(got, "signed in as person:ada") || strings.Contains(got, "ticket") {
		t.Errorf("--device: exit %d after %d looks\n%s", code, b.flow.looks, got)
	}
	for _, args := range [][]string{{"login", "--device"}, {"login", "ann", "--oidc"}, {"login", "--oidc", "--enroll", "totp"}, {"login", "--enroll", "key"}} {
		if code, got := b.typed(func(string) string { return "" }, args...); code != 2 {
			t.Errorf("%v: exit %d\n%s", args, code, got)
		}
	}
}
