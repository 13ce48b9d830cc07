package agent

import (
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

func load(t *testing.T, name string) Adapter {
	t.Helper()
	a, err := Set{}.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func start(t *testing.T, a Adapter, in Input) Start {
	t.Helper()
	s, err := a.Start(in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// told returns what the agent reads on its standard input.
func told(t *testing.T, s Start) string {
	t.Helper()
	file := sandbox.HomeDir + "/.cofferdam/input"
	if s.Command.Argv[0] != "/bin/sh" || s.Command.Argv[3] != file || s.Command.Stdin || s.Command.Shell != "" {
		t.Fatalf("it does not read its input from a file: %+v", s.Command)
	}
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Path == file })
	if i < 0 {
		t.Fatalf("there is no %s", file)
	}
	return s.Files[i].Text
}

// speakers are the adapters that are told a task as a prompt.
func speakers(t *testing.T) []Adapter {
	var list []Adapter
	for _, name := range (Set{}).Names() {
		if a := load(t, name); a.Stdin != "" {
			list = append(list, a)
		}
	}
	if len(list) < 2 {
		t.Fatalf("only %d adapters are told a prompt", len(list))
	}
	return list
}

func TestAgentsAreToldTheTaskAndTheChecks(t *testing.T) {
	for _, a := range speakers(t) {
		text := told(t, start(t, a, Input{
			Text: "--help fix it", Done: []string{"it works"}, Branch: "cofferdam/t-1-1",
			Checks: []cofferdam.Check{{Command: "go test ./..."}},
		}))
		for _, want := range []string{"--help fix it", "- it works", "- go test ./...", "cofferdam/t-1-1"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the prompt lacks %q:\n%s", a.Name, want, text)
			}
		}
		setup, err := a.SetupCommands()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(setup[0], "@"+a.Version) {
			t.Errorf("%s: the version is not pinned: %s", a.Name, setup[0])
		}
	}
}

// BR-05: what is longer than an argument may be arrives byte for byte, and no
// argument or variable comes near what Linux takes, 128 KiB.
func TestLongTasksArriveByteForByte(t *testing.T) {
	text, done := strings.Repeat("ä$(x)\n`", 25_000), strings.Repeat("'\"\\{{.}}", 25_000)
	for _, name := range (Set{}).Names() {
		a := load(t, name)
		if a.Brain {
			words, err := a.Instructions(Input{Text: text, Done: []string{done}})
			if err != nil || !strings.Contains(words, text) || !strings.Contains(words, "- "+done+"\n") {
				t.Errorf("%s: %d bytes, %v", name, len(words), err)
			}
			continue
		}
		s := start(t, a, Input{Text: text, Done: []string{done}, Command: "true"})
		found := false
		for _, f := range s.Files {
			found = found || strings.Contains(f.Text, text) && (name == "command" || strings.Contains(f.Text, "- "+done+"\n"))
		}
		if !found {
			t.Errorf("%s: no file holds the whole text", name)
		}
		for _, word := range slices.Concat(s.Command.Argv, s.Command.Env, []string{s.Command.Shell}) {
			if len(word) >= 128<<10 {
				t.Errorf("%s: an argument or variable has %d bytes", name, len(word))
			}
		}
	}
}

func TestConversationsGoOn(t *testing.T) {
	for _, a := range speakers(t) {
		if !a.Resumes() {
			continue
		}
		in := Input{Text: "the task", Conversation: "2c086f7c-1871", Message: "use the other file"}
		s := start(t, a, in)
		if got := told(t, s); !strings.HasSuffix(got, "use the other file") || strings.Contains(got, "the task\n") {
			t.Errorf("%s: it is told %q", a.Name, got)
		}
		if !strings.Contains(strings.Join(s.Command.Argv, " "), "2c086f7c-1871") {
			t.Errorf("%s: the conversation is not named: %q", a.Name, s.Command.Argv)
		}
		for _, bad := range []string{"--output=/etc/x", "a b", "$(id)", "a\nb", "../x", strings.Repeat("a", 200)} {
			in.Conversation = bad
			if _, err := a.Start(in); cofferdam.KindOf(err) != cofferdam.Invalid {
				t.Errorf("%s: the conversation %.20q: %v", a.Name, bad, err)
			}
		}
	}
	_, err := load(t, "command").Start(Input{Command: "true", Conversation: "1", Message: "x"})
	if cofferdam.KindOf(err) != cofferdam.Conflict || cofferdam.HintOf(err) == "" {
		t.Errorf("a command was resumed: %v", err)
	}
}

func TestModelsOfOtherProtocolsAreRefused(t *testing.T) {
	_, err := load(t, "claude").Start(Input{Text: "x", Provider: "openai"})
	if cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), `"openai"`) || !strings.Contains(cofferdam.HintOf(err), "anthropic") {
		t.Errorf("%v, hint %q", err, cofferdam.HintOf(err))
	}
	if _, err := load(t, "loop").Start(Input{Text: "x"}); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("what runs in the server has a command: %v", err)
	}
}

func TestModelIsNamedOnlyIfGiven(t *testing.T) {
	for _, name := range []string{"claude", "codex"} {
		a := load(t, name)
		if argv := start(t, a, Input{Text: "x"}).Command.Argv; slices.Contains(argv, "") || strings.Contains(strings.Join(argv, " "), "--model") {
			t.Errorf("%s: %q", name, argv)
		}
		if argv := start(t, a, Input{Text: "x", Model: "m-1"}).Command.Argv; !slices.Contains(argv, "--model=m-1") {
			t.Errorf("%s: %q", name, argv)
		}
	}
}

func TestTextIsNeverATemplate(t *testing.T) {
	text := `{{.EnvDir}} $(id) "; rm -rf /`
	s := start(t, load(t, "command"), Input{Text: text, Command: "echo {{.Text}}", Branch: "cofferdam/t-1-1"})
	if c := s.Command; c.Shell != "echo {{.Text}}" || !slices.Contains(c.Env, "COFFERDAM_TASK="+text) || c.Stdin {
		t.Fatalf("got %+v", s.Command)
	}
	if len(s.Files) != 1 || s.Files[0].Text != text || !slices.Contains(s.Command.Env, "COFFERDAM_TASK_FILE="+s.Files[0].Path) {
		t.Fatalf("got %+v", s)
	}
	s = start(t, load(t, "command"), Input{Text: strings.Repeat("x", 100_001), Command: "true"})
	for _, e := range s.Command.Env {
		if strings.HasPrefix(e, "COFFERDAM_TASK=") {
			t.Error("a text that is too long for a variable is in one")
		}
	}
}

func TestTooLongAndZeroTextIsRefused(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", MaxPrompt), "a\x00b"} {
		if _, err := load(t, "codex").Start(Input{Text: text}); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("got %v", err)
		}
	}
	_, err := load(t, "codex").Start(Input{Conversation: "1", Message: strings.Repeat("x", MaxPrompt+1)})
	if cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("got %v", err)
	}
}
