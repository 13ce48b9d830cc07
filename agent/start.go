package agent

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"cofferdam"
	"cofferdam/sandbox"
)

// standardPrompt is what an agent is told whose adapter has no words of its own.
//
//go:embed prompt.txt
var standardPrompt string

// inputFile holds what the command reads on standard input.
const inputFile = "~/.cofferdam/input"

// SetupCommands returns the shell commands of the setup phase, in order.
func (a Adapter) SetupCommands() ([]string, error) {
	return a.fill("setup", a.Setup, a.complete(Input{}))
}

// Resumes says whether a conversation of the agent can go on after its process
// has ended.
func (a Adapter) Resumes() bool { return a.Brain || len(a.Resume) > 0 }

// Start returns what to write and to run so that the agent begins, or, with a
// Conversation, goes on in it. The command's standard input is one of the files
// or at its end from the start: an agent that waits for input would wait for
// ever. What is wrong with in is an error of kind Invalid.
func (a Adapter) Start(in Input) (Start, error) {
	in = a.complete(in)
	if a.Brain {
		return Start{}, invalid("agent "+a.Name, "it runs in the server and has no command", "give the box no agent of that name")
	}
	if len(a.Providers) > 0 && !slices.Contains(a.Providers, in.Provider) {
		return Start{}, invalid("model", fmt.Sprintf("the agent %s cannot speak the protocol %q of it", a.Name, in.Provider),
			"give the task a model of one of these: "+strings.Join(a.Providers, ", "))
	}
	command, err := a.say(&in)
	if err != nil {
		return Start{}, err
	}
	files, err := a.write(in)
	if err != nil {
		return Start{}, err
	}
	var c sandbox.Command
	if c.Argv, err = a.fill("argv", command, in); err != nil {
		return Start{}, err
	}
	if len(c.Argv) == 0 {
		if c.Shell, err = a.fillOne("shell", a.Shell, in); err != nil {
			return Start{}, err
		}
	}
	if c.Env, err = a.fill("env", a.Env, in); err != nil {
		return Start{}, err
	}
	for _, e := range c.Env {
		if !envForm.MatchString(e) {
			return Start{}, fmt.Errorf("filling in adapter %s: env: %.40q is not NAME=value", a.Name, e)
		}
	}
	if a.Stdin == "" {
		return Start{Command: c, Files: files}, nil
	}
	text, err := a.fillOne("stdin", a.Stdin, in)
	if err != nil {
		return Start{}, err
	}
	file := in.at(inputFile)
	if c.Shell != "" {
		c.Argv = []string{"/bin/sh", "-c", c.Shell}
	}
	c.Shell, c.Argv = "", append([]string{"/bin/sh", "-c", `exec "$@" <"$0"`, file}, c.Argv...)
	return Start{Command: c, Files: append(files, File{Path: file, Text: text})}, nil
}

var envForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// say sets what the agent is told and returns the argv that does so.
func (a Adapter) say(in *Input) ([]string, error) {
	if in.Conversation != "" {
		switch {
		case len(a.Resume) == 0:
			return nil, &cofferdam.Error{
				Op: "agent.Start", Kind: cofferdam.Conflict, Subject: "agent " + a.Name,
				Reason: "its conversation cannot go on after its process has ended", Hint: "start another task",
			}
		case !isConversation(in.Conversation):
			return nil, invalid("conversation", "its name is not letters, digits and dashes", "start another task")
		}
		in.Prompt = in.Message
		return a.Resume, within(in.Prompt)
	}
	var err error
	in.Prompt, err = a.Instructions(*in)
	return a.Argv, err
}

// Instructions returns what the agent is told at the beginning: the task in
// words, what it must hold and how to work.
func (a Adapter) Instructions(in Input) (string, error) {
	words := a.Prompt
	if words == "" {
		words = standardPrompt
	}
	text, err := a.fillOne("prompt", words, a.complete(in))
	if err != nil {
		return "", err
	}
	text = strings.TrimSpace(text)
	return text, within(text)
}

func within(prompt string) error {
	if len(prompt) <= MaxPrompt {
		return nil
	}
	return invalid("task text", fmt.Sprintf("with the agent's instructions it is %d bytes, the limit is %d", len(prompt), MaxPrompt),
		"put long material into a file of the repository and name it in the task")
}

// write returns the adapter's own files.
func (a Adapter) write(in Input) ([]File, error) {
	var files []File
	for _, f := range a.Files {
		text, err := a.fillOne("file "+f.Path, f.Text, in)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: in.at(f.Path), Text: text})
	}
	return files, nil
}

// at makes a path below ~/ absolute.
func (in Input) at(name string) string { return path.Join(in.Home, strings.TrimPrefix(name, "~/")) }

func (a Adapter) complete(in Input) Input {
	in.Version = a.Version
	if in.EnvDir == "" {
		in.EnvDir = sandbox.EnvDir
	}
	if in.Home == "" {
		in.Home = sandbox.HomeDir
	}
	if in.ModelURL == "" {
		in.ModelURL = DefaultModelURL
	}
	if in.Provider == "" && len(a.Providers) > 0 {
		in.Provider = a.Providers[0]
	}
	return in
}

// fill fills in a list and leaves out what comes out empty.
func (a Adapter) fill(key string, texts []string, in Input) ([]string, error) {
	var filled []string
	for _, text := range texts {
		text, err := a.fillOne(key, text, in)
		if err != nil {
			return nil, err
		}
		if text != "" {
			filled = append(filled, text)
		}
	}
	return filled, nil
}

func (a Adapter) fillOne(key, text string, in Input) (string, error) {
	t, err := template.New(key).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("reading adapter %s: %w", a.Name, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, in); err != nil {
		return "", fmt.Errorf("filling in adapter %s: %w", a.Name, err)
	}
	if strings.ContainsRune(b.String(), 0) {
		return "", invalid("task text", "it contains a zero byte", "remove it")
	}
	return b.String(), nil
}

func invalid(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "agent.Start", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}
