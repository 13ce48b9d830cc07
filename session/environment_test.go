package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/policy"
	"cofferdam/session"
)

// at is a session in which the agent "command" runs text, from a commit with the files.
func (b *bench) at(text string, files map[string]string) session.Plan {
	b.base = b.commit(files)
	return b.plan(text)
}

func patterns(rules []policy.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.Pattern)
	}
	return all
}

// R15, R16: what the repository defines is set up once with hosts of its own,
// which are never more than the task's; the agent's own are as before.
func TestRecipeOfTheRepository(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.Allow = []string{"preset:npm", "files.example.com"} })
	p := b.at(`printf "%s %s" "$TOOL" "$(cat made ready)" > seen; cat "$TOOL" >> seen`, map[string]string{environment.RecipePath: `
setup = ["echo tool > tool"]
allow = ["preset:npm", "elsewhere.example.com"]
maintenance = ["echo made by $TOOL > made"]
ready = ["cat made > ready"]
env = { TOOL = "/env/tool" }
`})
	r := b.run(p)
	if r.Failure != "" {
		t.Fatalf("%+v", r)
	}
	if got := b.git("-C", b.repo.Upstream, "show", string(r.Head)+":made"); got != "made by /env/tool" {
		t.Errorf("made: %q", got)
	}
	if !strings.HasPrefix(r.Box.Found, "miss: the first for shop/command") {
		t.Errorf("found: %q", r.Box.Found)
	}
	// setup, the box, its dressing, the box again
	if len(b.wires) != 4 {
		t.Fatalf("%d wires", len(b.wires))
	}
	for i, want := range []string{"registry.example.com", "registry.example.com files.example.com", "registry.example.com", "registry.example.com files.example.com"} {
		c := b.wires[i].caller
		if got := strings.Join(patterns(c.Policy.Set().Rules()), " "); got != want {
			t.Errorf("wire %d reaches %q, want %q", i, got, want)
		}
		if (c.Phase == gateway.Setup) != (i%2 == 0) || c.Phase == gateway.Setup && (c.Repo.ID != "" || c.Branch != "") {
			t.Errorf("wire %d is %+v", i, c)
		}
	}
	dropped := false
	for _, e := range b.events(p) {
		dropped = dropped || e.Fields["step"] == "environment" && strings.Contains(e.Fields["dropped"], "elsewhere.example.com") && e.Fields["recipe"] == environment.RecipePath
	}
	if !dropped {
		t.Error("it is not on record that a host was dropped")
	}
	p.ID = cofferdam.SessionID(cofferdam.NewID("s"))
	if r := b.run(p); r.Failure != "" || !strings.HasPrefix(r.Box.Found, "hit: made ") {
		t.Errorf("%+v", r)
	}
	// What an agent writes into the file is nothing to its proof.
	changed := b.proof(b.commit(map[string]string{environment.RecipePath: "setup = [\"exit 1\"]\n"}), "test -f made")
	changed.Base = p.Commit
	if r := b.run(changed); r.Failure != "" || len(r.Checks) != 1 || r.Checks[0].Exit != 0 {
		t.Errorf("%+v", r)
	}
}

// A setup, a command of a new box or a readiness that fails stops the task, with
// the line; a definition that cannot be done stops it before any box.
func TestRecipeThatFails(t *testing.T) {
	b := newBench(t, nil)
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"setup": {
			map[string]string{environment.RecipePath: "setup = [\"true\", \"echo no such wheel >&2; exit 3\"]"},
			[]string{"setup 2 of .cofferdam/environment.toml ended with 3", "echo no such wheel", "no such wheel"},
		},
		"ready": {
			map[string]string{environment.RecipePath: "setup = [\"true\"]\nready = [\"true\", \"echo half >&2; false\"]"},
			[]string{"ready 2 of .cofferdam/environment.toml ended with 1", "half"},
		},
		"silent": {map[string]string{environment.RecipePath: "setup = [\"exit 3\"]"}, []string{"ended with 3 at: exit 3: it said nothing"}},
		"time": {
			map[string]string{environment.RecipePath: "setup = [\"sleep 60\"]\ntimeout = \"1s\""},
			[]string{"setup 1", "was not done when its time was up"},
		},
		"unknown": {map[string]string{environment.RecipePath: "setpu = []"}, []string{"line 1", "setpu", "--environment none"}},
		"image":   {map[string]string{environment.RecipePath: "image = \"web\""}, []string{"no image of that name"}},
		"folder":  {map[string]string{".devcontainer.json": `{"image": "/"}`, environment.RecipePath: "image = \"/\""}, []string{"operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for k, v := range c.files {
				files[k] = v
			}
			r := b.run(b.at("true", files))
			if r.Failure != cofferdam.ReasonEnvironment {
				t.Fatalf("%+v", r)
			}
			for _, want := range c.want {
				if !strings.Contains(r.Reason, want) {
					t.Errorf("%q is not in %q", want, r.Reason)
				}
			}
		})
	}
	// A readiness that failed leaves no environment that would be found again.
	images, err := filepath.Glob(filepath.Join(b.dir, "env", "*.img"))
	if err != nil || len(images) != 0 {
		t.Errorf("%v %v", images, err)
	}
	p := b.at("true", map[string]string{environment.RecipePath: "nonsense"})
	p.Request.Environment = "none"
	if r := b.run(p); r.Failure != "" {
		t.Errorf("without it: %+v", r)
	}
	p = b.plan("true")
	p.Request.Environment = "web"
	if r := b.run(p); r.Failure != cofferdam.ReasonEnvironment || !strings.Contains(r.Reason, ".devcontainer/web/devcontainer.json") {
		t.Errorf("one that is not there: %+v", r)
	}
}

// A devcontainer.json with keys that are refused ends the task, not without
// saying which, why, and how to go without it.
func TestDevcontainerThatIsRefused(t *testing.T) {
	b := newBench(t, nil)
	p := b.at("true", map[string]string{".devcontainer/devcontainer.json": "{\n\"image\": \"host\",\n\"features\": {},\n\"runArgs\": []}"})
	r := b.run(p)
	for _, want := range []string{".devcontainer/devcontainer.json", "line 3, features: they are scripts", "line 4, runArgs: they are arguments", "--environment none", ".cofferdam/environment.toml"} {
		if r.Failure != cofferdam.ReasonEnvironment || !strings.Contains(r.Reason, want) {
			t.Errorf("%q is not in %q", want, r.Reason)
		}
	}
	p.ID, p.Request.Environment = cofferdam.SessionID(cofferdam.NewID("s")), environment.None
	if r := b.run(p); r.Failure != "" {
		t.Errorf("without it: %+v", r)
	}
}

// What an agent commits may fail the commands of a new box in its proof; the
// environment that the next task starts from stays what it is.
func TestAgentsWorkRemovesNoEnvironment(t *testing.T) {
	b := newBench(t, nil)
	p := b.at("true", map[string]string{environment.RecipePath: "setup = [\"true\"]\nready = [\"test ! -e broken\"]"})
	if r := b.run(p); r.Failure != "" {
		t.Fatalf("%+v", r)
	}
	images := func() []string {
		found, err := filepath.Glob(filepath.Join(b.dir, "env", "*.img"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(images()) != 1 {
		t.Fatalf("the control does not hold: %v", images())
	}
	broken := b.proof(b.commit(map[string]string{"broken": ""}), "true")
	broken.Base = p.Commit
	if r := b.run(broken); r.Failure != cofferdam.ReasonEnvironment {
		t.Errorf("%+v", r)
	}
	if len(images()) != 1 {
		t.Error("an agent's commit has removed the environment")
	}
	// Nor what an earlier session of the attempt had pushed.
	next := b.plan("true")
	next.Base = next.Commit
	b.git("-C", b.repo.Upstream, "update-ref", string(next.Branch), string(broken.Commit))
	if r := b.run(next); r.Failure != cofferdam.ReasonEnvironment {
		t.Errorf("%+v", r)
	}
	if len(images()) != 1 {
		t.Error("what an earlier session pushed has removed the environment")
	}
}

// A command that no box can start ends the session: it is not tried for ever.
func TestCommandThatCannotBeStarted(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.Env = append(o.Env, "BIG="+strings.Repeat("x", 100<<10)) })
	p := b.at("true", map[string]string{environment.RecipePath: "maintenance = [\"true\"]\nenv = { A = \"" + strings.Repeat("${containerEnv:BIG}", 50) + "\" }"})
	if r := b.run(p); r.Failure != cofferdam.ReasonEnvironment {
		t.Errorf("%+v", r.Failure)
	}
}

// BR-34: the three forms of a command run as the standard says: text by a shell,
// words as they are, those of an object at the same time.
func TestDevcontainerCommandsBR34(t *testing.T) {
	b := newBench(t, nil)
	t.Setenv("CANARY_OF_THE_HOST", "canary")
	if os.Getenv("CANARY_OF_THE_HOST") != "canary" {
		t.Fatal("the control does not hold")
	}
	p := b.at("env > env.txt", map[string]string{".devcontainer/web/devcontainer.json": "\ufeff" + `{ // comments
	"onCreateCommand": "echo $((1+1)) > text",
	"updateContentCommand": ["sh", "-c", "printf %s \"$1\" > words", "x", "a  b; $HOME"],
	"postCreateCommand": {
		"one": "for i in $(seq 200); do [ -e two ] && exit 0; touch one; sleep 0.1; done; exit 1",
		"two": ["sh", "-c", "for i in $(seq 200); do [ -e one ] && exec touch two; sleep 0.1; done; exit 1"],
	},
	"containerEnv": {"FROM_HOST": "<${localEnv:CANARY_OF_THE_HOST}>", "FOLDER": "${containerWorkspaceFolder}"},
}`})
	p.Request.Environment = "web"
	r := b.run(p)
	if r.Failure != "" {
		t.Fatalf("%+v", r)
	}
	show := func(name string) string { return b.git("-C", b.repo.Upstream, "show", string(r.Head)+":"+name) }
	if got := show("text"); got != "2" {
		t.Errorf("text: %q", got)
	}
	if got := show("words"); got != "a  b; $HOME" {
		t.Errorf("words: %q", got)
	}
	env := show("env.txt")
	if !strings.Contains(env, "FROM_HOST=<>") || !strings.Contains(env, "FOLDER=/work") || strings.Contains(env, "canary") {
		t.Errorf("variables: %s", env)
	}
}
