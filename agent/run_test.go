package agent_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// play is what the rehearsal answers.
const play = "key " + realKey + `
asked and now go on
say I went on.

after made.txt
say The file is there.
| cofferdam: nothing to do

turn 1
say I make a file.
bash printf made-by-agent > made.txt && ls
`

// TestVendors installs the pinned version of an agent as a setup phase does, and
// runs it as uid 1000 with a private /tmp and home against the rehearsal,
// through the model gateway: a task, and then more in the same conversation. Its
// standard input is BR-02's: what the adapter gives and its end, while the test
// itself holds an open, silent pipe.
func TestVendors(t *testing.T) {
	for name, want := range map[string]string{
		"claude": "begin , message , tool Bash, result , message , cost ",
		"codex":  "begin , message , tool shell, result , message , cost ",
	} {
		t.Run(name, func(t *testing.T) { runVendor(t, name, want) })
	}
}

// installed sets an adapter up in a folder of its own.
func installed(t *testing.T, name string) (string, agent.Adapter) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm: install it with apt-get install npm")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a private /tmp and another user")
	}
	a, err := agent.Set{}.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := room(t)
	install(t, a, filepath.Join(dir, "env"))
	return dir, a
}

func runVendor(t *testing.T, name, want string) {
	if testing.Short() {
		t.Skip("installs a package: not with -short")
	}
	dir, adapter := installed(t, name)
	env := filepath.Join(dir, "env")
	record, counts, url := serveModel(t, adapter.Providers[0])
	in := agent.Input{Text: "make the file made.txt", Branch: "cofferdam/t-1-1", EnvDir: env, ModelURL: url, Home: filepath.Join(dir, "home")}
	seen, end := run(t, adapter, in, dir)
	if end.Said != cofferdam.SaidNothingToDo || end.Failed || end.Skipped != 0 {
		t.Errorf("end %+v", end)
	}
	if seen != want {
		t.Errorf("events: %s", seen)
	}
	made, err := os.ReadFile(filepath.Join(dir, "work", "made.txt"))
	if err != nil || string(made) != "made-by-agent" {
		t.Errorf("the tool did not run: %q %v", made, err)
	}
	in.Conversation, in.Message = end.Conversation, "and now go on"
	if _, again := run(t, adapter, in, dir); again.Message != "I went on." || again.Conversation != end.Conversation || again.Failed {
		t.Errorf("the conversation did not go on: %+v", again)
	}
	if name == "codex" {
		tryWebSocket(t, adapter, in, dir, record)
	}
	if counts.ModelCalls.Load() < 3 || counts.InputTokens.Load() == 0 || counts.Refused.Load() != 0 {
		t.Errorf("%d calls, %d tokens, %d refused", counts.ModelCalls.Load(), counts.InputTokens.Load(), counts.Refused.Load())
	}
	for _, e := range record.Events() {
		// Who heard the last word of an answer may leave before its end.
		left := e.Outcome == gateway.Cut && e.Fields["output_tokens"] != "" && e.Fields["output_tokens"] != "0"
		if e.Outcome != "" && e.Outcome != gateway.OK && !left {
			t.Errorf("a call went wrong: %+v", e)
		}
	}
}

// tryWebSocket is BR-10: with the provider that Codex has built in, and so with
// its WebSocket setting left at default, it asks for one first, is told to go on
// without, and does so in the same turn.
func tryWebSocket(t *testing.T, codex agent.Adapter, in agent.Input, dir string, record *gatewaytest.Recorder) {
	t.Helper()
	last := len(codex.Argv) - 1
	codex.Argv = append(slices.Clone(codex.Argv[:last]),
		"-c", `model_provider="openai"`, "-c", `openai_base_url="{{.ModelURL}}/v1"`, codex.Argv[last])
	codex.Env = append(slices.Clone(codex.Env), "CODEX_API_KEY=the-key-stays-outside-the-box")
	in.Conversation = ""
	begun := time.Now()
	if _, end := run(t, codex, in, dir); end.Said != cofferdam.SaidNothingToDo || end.Failed {
		t.Errorf("with a WebSocket tried first: %+v", end)
	}
	t.Logf("with a WebSocket tried first it took %v", time.Since(begun).Round(time.Millisecond))
	asked := slices.ContainsFunc(record.Events(), func(e cofferdam.Event) bool { return e.Fields["negotiation"] == "websocket" })
	if !asked {
		t.Error("it did not ask for a WebSocket, so this showed nothing")
	}
}

// room makes the folders of a run. They are outside of /tmp, because the agent
// gets a private one.
func room(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cofferdam-agent-")
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
func serveModel(t *testing.T, provider string) (*gatewaytest.Recorder, *gateway.Counts, string) {
	t.Helper()
	script, err := rehearsal.Parse(strings.NewReader(play))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(script.Handler())
	t.Cleanup(server.Close)
	caller, record, _ := gatewaytest.NewCaller(t, policy.Grant{Model: "rehearsal"})
	caller.Model = cofferdam.Model{Name: "rehearsal", Provider: provider, URL: server.URL, Rehearsal: true}
	g := model.New(model.Options{Dialer: &gateway.Dialer{}, Attach: func(_ context.Context, _ cofferdam.Model, h http.Header) error {
		h.Set("X-Api-Key", realKey)
		return nil
	}})
	address := gatewaytest.Serve(t, g, caller, gateway.Target{Host: gateway.ModelHost, Port: 80})
	return record, &caller.Counts, "http://" + address
}

// run writes the adapter's files and runs its command as a box would. It returns
// what the agent did and how it ended.
func run(t *testing.T, a agent.Adapter, in agent.Input, dir string) (string, agent.End) {
	t.Helper()
	s, err := a.Start(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path, []byte(f.Text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("chown", "-R", "1000:1000", in.Home).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args := []string{
		"--mount", "sh", "-c", `mount -t tmpfs -o mode=1777 tmpfs /tmp && exec setpriv --reuid 1000 --regid 1000 --clear-groups -- "$@"`, "sh",
	}
	cmd := exec.CommandContext(ctx, "unshare", append(args, s.Command.Argv...)...)
	cmd.Dir = filepath.Join(dir, "work")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + in.Home, "USER=agent", "TMPDIR=/tmp", "LANG=C.UTF-8"}, s.Command.Env...)
	var seen []string
	reader := a.NewReader(func(e agent.Event) error { seen = append(seen, string(e.Kind)+" "+e.Tool); return nil })
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = reader, &stderr
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", a.Name, err, stderr.String())
	}
	t.Logf("%s %s took %v", a.Name, a.Version, time.Since(begun).Round(time.Millisecond))
	end, err := reader.Close()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(seen, ", "), end
}
