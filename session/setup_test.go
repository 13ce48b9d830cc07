package session_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// pretendClaude puts an npm into a folder that "installs" a program which says
// what Claude Code says, and returns the variables under which boxes find it.
// The real one is tried in the room agent.
func pretendClaude(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	npm := `#!/bin/sh
echo "installing $5" >&2
[ -z "$BREAK_SETUP" ] || { echo "npm: $BREAK_SETUP" >&2; exit 9; }
to=$3/node_modules/@anthropic-ai/claude-code-linux-x64
mkdir -p $to
cat > $to/claude <<'X'
#!/bin/sh
[ "$1" = --version ] && exec echo pretended
env > env.txt
cat <<'Y'
{"type":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","content":"calc.txt"}]}}
{"type":"result","is_error":false,"result":"cofferdam: nothing to do"}
Y
X
chmod +x $to/claude
`
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(npm), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":/usr/local/bin:/usr/bin:/bin"}
}

// claude is a session of Claude Code.
func (b *bench) claude() session.Plan {
	p := b.plan("")
	p.Request.Agent, p.Request.Command = "claude", ""
	p.Model = cofferdam.Model{Name: "pretended", URL: "http://127.0.0.1:1"}
	return p
}

func TestEnvironmentIsMadeOnceWithItsOwnGrant(t *testing.T) {
	b := newBench(t, func(o *session.Options) {
		o.Env = append(pretendClaude(t), "NPM_CONFIG_REGISTRY=https://registry.example.com")
		o.Trust = []sandbox.File{{Path: "/etc/cofferdam/trust.pem", Data: []byte("certificates"), Shared: true}}
	})
	first := b.claude()
	r := b.run(first)
	if r.Failure != "" || r.Said != cofferdam.SaidNothingToDo {
		t.Fatalf("%+v", r)
	}
	setup, work := b.wires[0].caller, b.wires[1].caller
	if setup.Phase != "setup" || setup.Repo.ID != "" || setup.Model.Name != "" || setup.Branch != "" ||
		len(setup.Policy.Set().Rules()) != 1 || setup.Policy.Set().Rules()[0].Pattern != "registry.example.com" {
		t.Errorf("the setup phase is %+v with %v", setup, setup.Policy.Set().Rules())
	}
	if len(work.Policy.Set().Rules()) != 0 || work.Model.Name != "pretended" || work.Actor.Kind != cofferdam.Agent {
		t.Errorf("the agent is %+v with %v", work, work.Policy.Set().Rules())
	}
	seen := b.git("-C", b.repo.Upstream, "show", string(r.Head)+":env.txt")
	for _, want := range []string{
		"ANTHROPIC_BASE_URL=http://model.cofferdam.internal", "NPM_CONFIG_REGISTRY=https://registry.example.com",
	} {
		if !strings.Contains(seen, want) {
			t.Errorf("the agent's environment lacks %s", want)
		}
	}
	again := b.claude() // in the same branch: a new try of the same attempt
	if r := b.run(again); r.Failure != "" || len(b.wires) != 3 {
		t.Errorf("%d wires, %+v", len(b.wires), r)
	}
	other := b.claude()
	other.Project = "p-2"
	if r := b.run(other); r.Failure != "" || len(b.wires) != 5 {
		t.Errorf("another project used this one's environment: %d wires, %+v", len(b.wires), r)
	}
}

func TestFailedSetupNamesItsLineAndLeavesNothing(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.Env = append(pretendClaude(t), "BREAK_SETUP=no such package") })
	r := b.run(b.claude())
	if r.Failure != "environment" || !strings.Contains(r.Reason, "ended with 9 at: npm install") || !strings.HasSuffix(r.Reason, "no such package") {
		t.Errorf("%+v", r)
	}
	left, err := os.ReadDir(filepath.Join(b.dir, "env"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v %v", left, err)
	}
	b.noBoxes()
}

// What a gateway refused is said beside the installer's last words, which
// seldom name it.
func TestFailedSetupSaysThatRequestsWereRefused(t *testing.T) {
	b := newBench(t, func(o *session.Options) {
		o.Env = append(pretendClaude(t), "BREAK_SETUP=see the log")
		connect := o.Connect
		o.Connect = func(ctx context.Context, box sandbox.Box, c *gateway.Caller, names []wire.Name) (session.Wire, error) {
			_, err := c.Record.Record(ctx, cofferdam.Event{Kind: cofferdam.EventConnect, Resource: "registry.example.com:443", Verdict: cofferdam.Refused, Rule: gateway.RuleReserved})
			if err != nil {
				return nil, err
			}
			return connect(ctx, box, c, names)
		}
	})
	if r := b.run(b.claude()); r.Failure != "environment" || !strings.Contains(r.Reason, "see the log; requests refused until then: 1 (") {
		t.Errorf("%+v", r)
	}
}

func TestPresetThatIsNotThereIsSaid(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.Presets = nil })
	if r := b.run(b.claude()); r.Failure != "environment" || !strings.Contains(r.Reason, "preset") {
		t.Errorf("%+v", r)
	}
}

// granted is a secret as the server gives it to a setup of the repository shop.
func granted(o *session.Options) {
	o.RawSecret = func(_ context.Context, r cofferdam.Repo, name string) (session.RawSecret, error) {
		if name != "TOKEN" || r.Name != "shop" {
			return session.RawSecret{}, &cofferdam.Error{Op: "test", Kind: cofferdam.Forbidden, Reason: "not granted", Hint: "ask the operator"}
		}
		return session.RawSecret{Name: name, Variable: "TOKEN=" + secretValue, Found: func(p []byte) bool { return bytes.Contains(p, []byte(secretValue)) }}, nil
	}
}

// R16: a secret that a tool of the setup insists on is there for the setup, and
// is on record as gone before the agent begins. One that the setup left in what
// it made ends the task, and nothing is kept.
func TestRawSecretOfASetup(t *testing.T) {
	b := newBench(t, granted)
	recipe := func(setup string) map[string]string {
		return map[string]string{environment.RecipePath: "secrets = [\"TOKEN\"]\nsetup = [" + setup + "]\nmaintenance = [\"env >maintained\"]"}
	}
	p := b.at("env > seen; cat /proc/[0-9]*/environ >> seen", recipe(`"printf %s \"$TOKEN\" | wc -c > length; printf %s \"$TOKEN\" > $HOME/token"`))
	r := b.run(p)
	if r.Failure != "" {
		t.Fatalf("%+v", r)
	}
	for _, name := range []string{"seen", "maintained"} {
		if got := b.git("-C", b.repo.Upstream, "show", string(r.Head)+":"+name); strings.Contains(got, "TOKEN") || strings.Contains(got, secretValue) {
			t.Errorf("the agent has it: %s", got)
		}
	}
	gone := map[string]bool{}
	for _, e := range b.events(p) {
		if e.Fields["step"] == "secrets" {
			gone[e.Fields["gone"]] = e.Fields["secrets"] == "TOKEN"
		}
		if e.Kind == cofferdam.EventExecStart && (e.Fields["exec"] == "dress-1-1" || strings.HasPrefix(e.Fields["exec"], "agent")) && len(gone) != 2 {
			t.Errorf("%s began before: %v", e.Fields["exec"], gone)
		}
	}
	if !gone["files"] || !gone["variables, processes"] {
		t.Errorf("on record: %v", gone)
	}
	// What keeps it is refused, and said with its name, not its value.
	r = b.run(b.at("true", recipe(`"echo \"$TOKEN\" > token"`)))
	if r.Failure != cofferdam.ReasonEnvironment || !strings.Contains(r.Reason, "the secret TOKEN is in what the setup of .cofferdam/environment.toml left") || strings.Contains(r.Reason, secretValue) {
		t.Errorf("%+v", r)
	}
	images, err := filepath.Glob(filepath.Join(b.dir, "env", "*.img"))
	if err != nil || len(images) != 1 {
		t.Errorf("kept: %v %v", images, err)
	}
	// Nor does a setup get what policy denies, whatever the operator granted.
	denied := newBench(t, func(o *session.Options) {
		granted(o)
		o.Policy = `@id("none") forbid (principal, action == Action::"use", resource == Secret::"setup:TOKEN");`
	})
	p = denied.at("true", recipe(`"true"`))
	if r = denied.run(p); r.Failure != cofferdam.ReasonPolicy || !strings.Contains(r.Reason, "none") {
		t.Errorf("%+v", r)
	}
	// What is not granted is refused before any box.
	r = b.run(b.at("true", map[string]string{environment.RecipePath: "secrets = [\"OTHER\"]\nsetup = [\"true\"]"}))
	if r.Failure != cofferdam.ReasonEnvironment || !strings.Contains(r.Reason, "not granted") {
		t.Errorf("%+v", r)
	}
}
