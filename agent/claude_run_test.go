package agent_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/agent/rehearsal"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/model"
	"cofferdam/policy"
)

// realKey is what the gateway attaches; the rehearsal accepts no other.
const realKey = "sk-real-key-outside-the-box"

// play is what the rehearsal answers to Claude Code.
const play = "key " + realKey + `
after made.txt
say The file is there.
| cofferdam: nothing to do

turn 1
say I make a file.
bash printf made-by-agent > made.txt && ls
`

// TestClaudeCode installs the pinned version as a setup phase does, and runs it
// as uid 1000 with a private /tmp and home against the rehearsal, through the
// model gateway. Its standard input is BR-02's: what a box gives, the end of
// file, while the test itself holds an open, silent pipe.
func TestClaudeCode(t *testing.T) {
	if testing.Short() {
		t.Skip("installs a package: not with -short")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm: install it with apt-get install npm")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a private /tmp and another user")
	}
	adapter, err := agent.Load("claude")
	if err != nil {
		t.Fatal(err)
	}
	dir := room(t)
	env := filepath.Join(dir, "env")
	install(t, adapter, env)
	record, counts, url := serveModel(t)
	in := agent.Input{Text: "make the file made.txt", Branch: "cofferdam/t-1-1", EnvDir: env, ModelURL: url}
	var events []agent.Event
	reader := adapter.NewReader(func(e agent.Event) error { events = append(events, e); return nil })
	begun := time.Now()
	run(t, adapter, in, dir, reader)
	t.Logf("claude %s took %v", adapter.Version, time.Since(begun).Round(time.Millisecond))
	end, err := reader.Close()
	if err != nil {
		t.Fatal(err)
	}
	if end.Said != cofferdam.SaidNothingToDo || end.Failed || end.Skipped != 0 {
		t.Errorf("end %+v", end)
	}
	var seen []string
	for _, e := range events {
		seen = append(seen, string(e.Kind)+" "+e.Tool)
	}
	if got := strings.Join(seen, ", "); got != "message , tool Bash, result , message " {
		t.Errorf("events: %s\n%+v", got, events)
	}
	made, err := os.ReadFile(filepath.Join(dir, "work", "made.txt"))
	if err != nil || string(made) != "made-by-agent" {
		t.Errorf("the tool did not run: %q %v", made, err)
	}
	if counts.ModelCalls.Load() < 2 || counts.InputTokens.Load() == 0 || counts.Refused.Load() != 0 {
		t.Errorf("%d calls, %d tokens, %d refused", counts.ModelCalls.Load(), counts.InputTokens.Load(), counts.Refused.Load())
	}
	for _, e := range record.Events() {
		if e.Outcome != "" && e.Outcome != gateway.OK {
			t.Errorf("a call went wrong: %+v", e)
		}
	}
}

// room makes the folders of a run. They are outside of /tmp, because the agent
// gets a private one.
func room(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cofferdam-claude-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"env", "work", "home"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// install runs the setup commands, as root and with the machine's own npm
// settings: in a box the session supplies them.
func install(t *testing.T, a agent.Adapter, env string) {
	t.Helper()
	a.Env = nil
	commands, err := a.SetupCommands()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range commands {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		text = strings.ReplaceAll(text, "/env/", env+"/")
		if out, err := exec.CommandContext(ctx, "sh", "-c", text).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
	}
}

// serveModel plays the provider and serves the gateway in front of it.
func serveModel(t *testing.T) (*gatewaytest.Recorder, *gateway.Counts, string) {
	t.Helper()
	script, err := rehearsal.Parse(strings.NewReader(play))
	if err != nil {
		t.Fatal(err)
	}
	provider := httptest.NewServer(script.Handler())
	t.Cleanup(provider.Close)
	caller, record, _ := gatewaytest.NewCaller(t, policy.Grant{Model: "rehearsal"})
	caller.Model = cofferdam.Model{Name: "rehearsal", URL: provider.URL, Rehearsal: true}
	g := model.New(model.Options{Dialer: &gateway.Dialer{}, Attach: func(_ context.Context, _ cofferdam.Model, h http.Header) error {
		h.Set("X-Api-Key", realKey)
		return nil
	}})
	address := gatewaytest.Serve(t, g, caller, gateway.Target{Host: gateway.ModelHost, Port: 80})
	return record, &caller.Counts, "http://" + address
}

// run runs the adapter's command as a box would.
func run(t *testing.T, a agent.Adapter, in agent.Input, dir string, out io.Writer) {
	t.Helper()
	c, err := a.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args := []string{
		"--mount", "sh", "-c", `mount -t tmpfs -o mode=1777 tmpfs /tmp && exec setpriv --reuid 1000 --regid 1000 --clear-groups -- "$@"`, "sh",
	}
	cmd := exec.CommandContext(ctx, "unshare", append(args, c.Argv...)...)
	cmd.Dir = filepath.Join(dir, "work")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "USER=agent", "TMPDIR=/tmp", "LANG=C.UTF-8"}, c.Env...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("claude: %v\n%s", err, stderr.String())
	}
}
