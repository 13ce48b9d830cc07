package scripttest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam/agent/rehearsal"
)

// played is what the providers of the documents answer to every agent.
const played = `key key-of-the-readme
turn 1
say I write the file.
bash echo hello > hello.txt && git add hello.txt && git commit -q -m 'say hello'
otherwise
say The file says hello.
`

// TestAgentsDocument and TestModelsDocument follow docs/agents.md and
// docs/models.md as TestReadme follows the README: every line of every sh block
// is run, in order, and every file that a block shows is there. Agents that are
// installed from npm take long, and are left to make soak; each of them has a
// script of its own in make test or there.
func TestAgentsDocument(t *testing.T) { follow(t, "docs/agents.md", "127.77.0.2:443") }
func TestModelsDocument(t *testing.T) { follow(t, "docs/models.md", "127.77.0.3:443") }

// TestEnvironmentsDocument follows docs/environments.md in the same way.
func TestEnvironmentsDocument(t *testing.T) { follow(t, "docs/environments.md", "127.77.0.4:443") }

func follow(t *testing.T, name, address string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: server and keeper run as root in this version")
	}
	soak := os.Getenv("COFFERDAM_SOAK") != ""
	if _, err := exec.LookPath("npm"); err != nil && soak {
		t.Skip("needs npm: most agents are installed from it")
	}
	t.Parallel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{reader: newReader(t, played, address, "api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"), host: host}
	d.files(name)
	if err := d.b.serve(d.bin, append(d.env, "SSL_CERT_FILE="+filepath.Join(d.dir, "provider.pem"))); err != nil {
		t.Fatal(err)
	}
	d.shell("cofferdam repo add shop shop.git")
	d.local("127.0.0.1:11434")
	lines := blocks(t, name, 9)
	for _, line := range lines {
		if fromNPM.MatchString(line) && !soak {
			t.Logf("left to make soak: %s", line)
			continue
		}
		d.run(line)
	}
}

var (
	fromNPM  = regexp.MustCompile(`--agent (claude|codex|opencode|gemini)\b`)
	loopback = regexp.MustCompile(`127\.[0-9.]+:[0-9]+`)
	shown    = regexp.MustCompile("(?ms)^```(?:text|toml) (\\S+)\n(.*?)^```$")
)

// document is somebody who follows one.
type document struct {
	*reader
	host string // the address of loopback that is the test's own
}

// files puts the files that the document shows in place. What it shows of
// cofferdam.toml is added to the test's own.
func (d *document) files(name string) {
	text, err := os.ReadFile(filepath.Join(Root, name))
	if err != nil {
		d.Fatal(err)
	}
	for _, m := range shown.FindAllStringSubmatch(string(text), -1) {
		file, body := filepath.Join(d.dir, m[1]), strings.ReplaceAll(m[2], "/etc/cofferdam", d.dir)
		if m[1] == "cofferdam.toml" {
			file = filepath.Join(d.dir, "operator.toml")
			before, err := os.ReadFile(file)
			if err != nil {
				d.Fatal(err)
			}
			body = string(before) + body
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			d.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
			d.Fatal(err)
		}
	}
}

// port is a port that the document names, on the test's own address of loopback,
// where nobody else has it.
func (d *document) port(named string) string {
	_, port, err := net.SplitHostPort(named)
	if err != nil {
		d.Fatal(err)
	}
	return net.JoinHostPort(d.host, port)
}

// local plays a server that the document takes for there already.
func (d *document) local(named string) {
	script, err := rehearsal.Parse(strings.NewReader(strings.TrimPrefix(played, "key key-of-the-readme\n")))
	if err != nil {
		d.Fatal(err)
	}
	l, err := net.Listen("tcp", d.port(named))
	if err != nil {
		d.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		_ = rehearsal.Serve(ctx, l, script) // the task that needs it fails if it does
	}()
	d.Cleanup(func() { cancel(); <-done })
}

// run does one line; with an & at its end it goes on beside the others.
func (d *document) run(line string) {
	if !strings.Contains(line, "cofferdam ") {
		d.Errorf("the document has a command that this test does not know: %s", line)
		return
	}
	line = loopback.ReplaceAllStringFunc(line, d.port)
	d.Logf("$ %s", line)
	if line, beside := strings.CutSuffix(line, " &"); beside {
		d.beside(line)
		return
	}
	d.shell(line)
}

// beside starts a server of the document and waits until it listens.
func (d *document) beside(line string) {
	p, err := start(d.dir, d.env, "sh", "-c", "exec "+line)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { p.end(syscall.SIGTERM) })
	for deadline := time.Now().Add(readyIn); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", loopback.FindString(line)); err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			d.Fatalf("%s: does not listen: %s", line, p.log)
		}
	}
}
