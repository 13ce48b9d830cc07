package scripttest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam/agent/rehearsal"
	"cofferdam/sandbox/sandboxtest"
)

// providerAddress is where the README's provider is played, and readmePlay what
// it answers. The README names no port, so it has to be the real one, on an
// address that nobody else uses.
const (
	providerAddress = "127.77.0.1:443"
	readmePlay      = "key key-of-the-readme\nturn 1\nsay I see.\nbash sed -i 's/return n /return 2 * n /' shop.go && git commit -qam 'shop: return twice the number'\nturn 2\nsay The test passes.\n"
)

// TestReadme follows README.md word for word: every line of every sh block is
// run, in order. What a reader has and a test has not is put in place around
// it: a folder instead of the machine's own, a repository, a key, and on
// loopback a rehearsal in the place of the provider. The README has two ways to
// start the server; this is root's.
func TestReadme(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it is root's way")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm: the operator file lists its registry")
	}
	t.Parallel()
	r := newReader(t, readmePlay, providerAddress, "api.anthropic.com")
	r.readme()
}

// TestReadmeAsUser follows it as an ordinary user with an empty home folder, whose
// server has the places that it has by itself. The task, whose checks build Go's own
// library twice, is left to make soak.
func TestReadmeAsUser(t *testing.T) {
	t.Parallel()
	u := newOrdinary(t)
	r := newReader(t, readmePlay, "127.77.0.6:443", "api.anthropic.com")
	r.user = u
	r.env = append(slices.DeleteFunc(r.env, func(v string) bool {
		return strings.HasPrefix(v, "COFFERDAM_SERVER=") || strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PATH=")
	}),
		"HOME="+u.home, "PATH="+u.bin+":"+os.Getenv("PATH"))
	// What the reader has belongs to the user, in the home folder.
	if out, err := exec.Command("sh", "-c", `cp -r "$1"/. "$2" && chown -R "$3" "$2" && chmod 644 "$2"/operator.toml`, "sh", r.dir, u.home, sandboxtest.User).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.dir = u.home
	if os.Getenv("COFFERDAM_SOAK") == "" {
		for _, line := range blocks(t, "README.md", 10) {
			if !ofTask.MatchString(line) {
				r.do(line)
			}
		}
		return
	}
	r.readme()
	if view := r.shell("cofferdam task view t-1"); !strings.Contains(view, "person:"+sandboxtest.User) {
		t.Errorf("the task is not the user's:\n%s", view)
	}
}

// ofTask are the lines of the README about a task that was given.
var ofTask = regexp.MustCompile(`^cofferdam (task run|merge|trace export|proof verify) `)

// readme follows the README to its end.
func (r *reader) readme() {
	for _, line := range blocks(r.T, "README.md", 10) {
		r.do(line)
	}
	if r.state() != "done" {
		r.Errorf("after the README's last line the task is %q", r.state())
	}
}

// TestDocumentsCommands: every command in an sh block of the other documents is
// one there is. They build and test, so they are not run from within a test.
func TestDocumentsCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(Root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob(filepath.Join(Root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := blocks(t, "CONTRIBUTING.md", 4)
	for _, d := range append(documents, filepath.Join(Root, "ARCHITECTURE.md"), filepath.Join(Root, "SECURITY.md")) {
		name, err := filepath.Rel(Root, d)
		if err != nil {
			t.Fatal(err)
		}
		if name != "docs/agents.md" && name != "docs/models.md" && name != "docs/run.md" && name != "docs/environments.md" { // each has a test of its own that runs them
			lines = append(lines, blocks(t, name, 0)...)
		}
	}
	scripts := scriptLines(t)
	for _, line := range lines {
		words := strings.Fields(line)
		switch {
		case scripts["exec "+line]:
		case words[0] == "make" && len(words) > 1:
			if !strings.Contains(string(makefile), "\n"+words[1]+":") {
				t.Errorf("there is no such target: %s", line)
			}
		case line == "go test ./...", strings.HasPrefix(line, "cofferdam ") && len(words) > 1 && knows(t, words[1:]):
		default:
			t.Errorf("a document has a command that this test does not know: %s", line)
		}
	}
}

// scriptLines returns the lines of all scripts of the product.
func scriptLines(t *testing.T) map[string]bool {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(Root, "testdata", "product", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	lines := map[string]bool{}
	for _, s := range scripts {
		text, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			lines[strings.TrimSpace(line)] = true
		}
	}
	return lines
}

// knows says whether the program has help about the first words of a command.
func knows(t *testing.T, words []string) bool {
	bin, err := programs()
	if err != nil {
		t.Skip("needs the programs: ", err)
	}
	noun := words[:min(2, len(words))]
	for i, w := range noun {
		if strings.HasPrefix(w, "-") {
			noun = noun[:i]
			break
		}
	}
	return exec.Command(filepath.Join(bin, "cofferdam"), append([]string{"help"}, noun...)...).Run() == nil
}

// blocks returns the lines of a document's sh blocks without their comments.
func blocks(t *testing.T, document string, least int) []string {
	f, err := os.Open(filepath.Join(Root, document))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	inside := false
	for s := bufio.NewScanner(f); s.Scan(); {
		l := s.Text()
		switch {
		case strings.HasPrefix(l, "```"):
			inside = l == "```sh"
		case inside && l != "":
			l, _, _ = strings.Cut(l, "  #")
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	if len(lines) < least {
		t.Fatalf("%s has %d lines of commands", document, len(lines))
	}
	return lines
}

// reader is somebody who follows the README.
type reader struct {
	*testing.T
	bin, dir string
	env      []string
	b        *bench
	user     *ordinary // who reads it, if not root
}

// command is one that the reader starts, in the reader's folder.
func (r *reader) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	if r.user != nil {
		cmd = r.user.command(name, args...)
	}
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

// newReader is a reader whose providers, by the names of their hosts, are played
// at an address.
func newReader(t *testing.T, play, address string, hosts ...string) *reader {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("", "cfr")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, bin: bin, dir: t.TempDir(), b: &bench{state: state, labs: map[string]*lab{}}}
	t.Cleanup(func() {
		r.b.stopAll()
		os.RemoveAll(state)
	})
	r.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + r.dir, "TERM=dumb",
		"COFFERDAM_SERVER=unix:" + filepath.Join(state, "run", "cofferdam.sock"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@example.test", "GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@example.test",
	}
	if err := os.WriteFile(filepath.Join(r.dir, "key.txt"), []byte("key-of-the-readme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.repository()
	r.provider(play, address, hosts)
	return r
}

// repository makes a Go module with a failing test, bare, as /srv/git/shop.git.
func (r *reader) repository() {
	for name, text := range map[string]string{
		"go.mod":       "module shop\n\ngo 1.24\n",
		"shop.go":      "package shop\n\n// Twice returns 2n.\nfunc Twice(n int) int { return n }\n",
		"shop_test.go": "package shop\n\nimport \"testing\"\n\nfunc TestTwice(t *testing.T) {\n\tif Twice(2) != 4 {\n\t\tt.Error(Twice(2))\n\t}\n}\n",
	} {
		path := filepath.Join(r.dir, "shop", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			r.Fatal(err)
		}
	}
	r.shell("cd shop && git init -q -b main && git add -A && git commit -q -m start && git clone -q --bare . ../shop.git")
}

// provider plays providers on loopback under their own names, by a script; the
// server trusts their certificate and finds them by the operator file.
func (r *reader) provider(play, address string, hosts []string) {
	script, err := rehearsal.Parse(strings.NewReader(play))
	if err != nil {
		r.Fatal(err)
	}
	cert, err := certificate(filepath.Join(r.dir, "provider.pem"), hosts...)
	if err != nil {
		r.Fatal(err)
	}
	l, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		r.Fatal(err)
	}
	server := &http.Server{Handler: script.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l)
	r.Cleanup(func() { server.Close() })
	host, _, _ := net.SplitHostPort(address)
	var listed strings.Builder
	registry, err := registryAddresses()
	if err != nil {
		r.Fatal(err)
	}
	fmt.Fprintf(&listed, "[egress]\nallow_addresses = [%q, %s]\n[egress.hosts]\n", address, registry)
	for _, h := range hosts {
		fmt.Fprintf(&listed, "%q = %q\n", h, host)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "operator.toml"), []byte(listed.String()), 0o600); err != nil {
		r.Fatal(err)
	}
	r.b.flags = []string{"--config", filepath.Join(r.dir, "operator.toml")}
}

// do runs one line of the README.
func (r *reader) do(line string) {
	r.Logf("$ %s", line)
	switch {
	case strings.HasPrefix(line, "make "), strings.HasPrefix(line, "sudo install "):
		// The programs are built: this test runs after make build. Targets exist
		// by TestMakefile; make demo is TestProduct/demo-loop, -command and -claude.
	case strings.HasPrefix(line, "export PATH="), line == "cofferdam serve" && r.user == nil, line == "sudo cofferdam serve" && r.user != nil:
		// Where the programs are the test knows; and the server is started in one of the two ways.
	case line == "cofferdam serve":
		r.user.env = []string{"SSL_CERT_FILE=" + filepath.Join(r.dir, "provider.pem")}
		r.user.serve("--config", filepath.Join(r.dir, "operator.toml"))
	case line == "sudo cofferdam serve":
		env := append(r.env, "SSL_CERT_FILE="+filepath.Join(r.dir, "provider.pem"))
		if err := r.b.serve(r.bin, env); err != nil {
			r.Fatal(err)
		}
	case strings.HasPrefix(line, "cofferdam run "):
		r.shell("cd shop && " + line)
	case strings.HasPrefix(line, "cofferdam merge approve "):
		r.approve(strings.Fields(line)[1:])
	case strings.HasPrefix(line, "cofferdam "):
		r.shell(strings.ReplaceAll(line, "/srv/git/shop.git", filepath.Join(r.dir, "shop.git")))
	default:
		r.Errorf("README.md has a command that this test does not know: %s", line)
	}
}

func (r *reader) shell(line string) string {
	r.Helper()
	cmd := r.command("/bin/sh", "-c", line)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s\nserver: %s", line, err, out, r.b.serverLog())
	}
	r.Logf("%s", out)
	return string(out)
}

// approve types what the command asks for, at a terminal.
func (r *reader) approve(args []string) {
	near, far, err := openTerminal()
	if err != nil {
		r.Fatal(err)
	}
	defer near.Close()
	head := strings.TrimSpace(r.shell("git -C shop.git rev-parse --short=8 cofferdam/t-1-1"))
	bin := r.bin
	if r.user != nil {
		bin = r.user.bin
	}
	cmd := r.command(filepath.Join(bin, "cofferdam"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	far.Close()
	const password = `\na password of the reader`
	shown := converse(near, head+password+password, "", func(string) {})
	if err := cmd.Wait(); err != nil {
		r.Fatalf("approve: %v\n%s", err, shown)
	}
}

func (r *reader) state() string {
	out := r.shell("cofferdam task view t-1 --json")
	_, rest, _ := strings.Cut(out, `"state":`)
	rest, _, _ = strings.Cut(strings.TrimLeft(rest, ` "`), `"`)
	return rest
}

// certificate makes a self-signed one and writes it to file as its own root.
func certificate(file string, hosts ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "lab"}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	err = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
