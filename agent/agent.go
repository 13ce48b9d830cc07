// Package agent knows how each coding agent is installed, launched and read.
// An adapter is data: one TOML file in the folder adapters, embedded. Adding an
// agent that speaks a known output format is adding a file.
//
// # The format of an adapter
//
//	name       identifies it: the value of task run --agent; the file's name too
//	title      for people
//	version    of the agent, pinned; part of the environment's digest
//	providers  protocols it speaks to a model, the preferred first; none: it calls no model
//	brain      true for our own loop, which runs in the server and has only its hands in the box
//	setup      shell commands of the setup phase, in order; they write to /env
//	allow      what the setup phase may reach: HOST[:PORT] or preset:NAME
//	argv       the command …
//	shell      … or text for sh -c; exactly one of the two
//	stdin      what the command reads on standard input, then its end; none: its end at once
//	resume     argv by which a conversation goes on; .Conversation names it, .Prompt is what is said
//	env        NAME=value, added to the environment of the command
//	file       a table each: path and text of settings, written before the agent starts; ~/ is its home
//	contact    a table each: host, why, and closed, the setting that keeps the agent from it
//	reader     how its standard output is read: see readers
//	prompt     what it is told; available to the others as .Prompt
//
// setup, argv, shell, stdin, resume, env, file and prompt are text/template
// templates over Input. A value is put in as it is: it is never itself a
// template, and in argv and env never seen by a shell.
//
// The package never runs anything and never judges anything. Its invariant:
// what an agent says of its own work is a claim; it travels as Said and nothing
// here treats it as evidence.
package agent

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/pelletier/go-toml/v2"

	"cofferdam"
	"cofferdam/sandbox"
)

//go:embed adapters/*.toml
var adapters embed.FS

// MaxPrompt bounds what an agent is told, in bytes. Linux refuses a single
// argument of 128 KiB (MAX_ARG_STRLEN); this leaves room for the templates.
const MaxPrompt = 120 << 10

// DefaultModelURL is where the model gateway is, seen from inside a box.
const DefaultModelURL = "http://model.cofferdam.internal"

// Adapter says how one coding agent is installed, launched and read.
type Adapter struct {
	Name      string    `toml:"name"`
	Title     string    `toml:"title"`
	Version   string    `toml:"version"`
	Providers []string  `toml:"providers"` // anthropic, openai, gemini
	Brain     bool      `toml:"brain"`
	Setup     []string  `toml:"setup"`
	Allow     []string  `toml:"allow"`
	Argv      []string  `toml:"argv"`
	Shell     string    `toml:"shell"`
	Stdin     string    `toml:"stdin"`
	Resume    []string  `toml:"resume"`
	Env       []string  `toml:"env"`
	Files     []File    `toml:"file"`
	Contacts  []Contact `toml:"contact"`
	Reader    string    `toml:"reader"`
	Prompt    string    `toml:"prompt"`
}

// File is one file that the agent finds in its box.
type File struct {
	Path string `toml:"path"` // absolute, or below ~/
	Text string `toml:"text"`
}

// Contact is a host besides the model that the agent would connect to by
// itself, and what keeps it from that.
type Contact struct {
	Host   string `toml:"host"`
	Why    string `toml:"why"`
	Closed string `toml:"closed"`
}

// Start is what the platform does to start an agent: it writes the files, then
// runs the command. What the command reads on standard input is one of the
// files, so that it needs no writer that lives as long as the agent.
type Start struct {
	Command sandbox.Command // its ID, folder and timeout are the caller's to set
	Files   []File
}

// Input is what the templates of an adapter see.
type Input struct {
	Text     string            // the task in words
	Done     []string          // lines of the definition of done
	Checks   []cofferdam.Check // what the platform will run
	Branch   string            // short name of the branch that may be written
	Command  string            // for the adapter command
	EnvDir   string            // "": sandbox.EnvDir
	ModelURL string            // "": DefaultModelURL; has no path
	Provider string            // protocol of the model that was given: anthropic, openai, gemini
	Model    string            // the model id to ask for; "": the agent's own

	// Conversation, if not empty, is the agent's own name of the conversation
	// that goes on, and Message what it is told.
	Conversation string
	Message      string

	// Set by the adapter itself.
	Version string
	Prompt  string
}

// List returns the names of all adapters, sorted.
func List() []string {
	files, err := fs.ReadDir(adapters, "adapters")
	if err != nil {
		panic("reading the embedded folder adapters: " + err.Error()) // cannot happen: the compiler embedded it
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// Load returns the adapter with that name; NotFound if there is none.
func Load(name string) (Adapter, error) {
	if !slices.Contains(List(), name) {
		return Adapter{}, &cofferdam.Error{
			Op: "agent.Load", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("agent %q", name),
			Reason: "there is no such agent", Hint: "choose one of: " + strings.Join(List(), ", "),
		}
	}
	text, err := adapters.ReadFile(path.Join("adapters", name+".toml"))
	if err != nil {
		return Adapter{}, fmt.Errorf("reading adapter %s: %w", name, err)
	}
	return parse(text)
}

// parse reads one adapter and tries each of its templates.
func parse(text []byte) (Adapter, error) {
	var a Adapter
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&a); err != nil {
		return a, fmt.Errorf("reading an adapter: %w", err)
	}
	switch {
	case a.Name == "":
		return a, fmt.Errorf("reading an adapter: name is missing")
	case (len(a.Argv) == 0) == (a.Shell == ""):
		return a, fmt.Errorf("reading adapter %s: it needs one of argv and shell", a.Name)
	case !slices.Contains(readers, a.Reader):
		return a, fmt.Errorf("reading adapter %s: unknown reader %q", a.Name, a.Reader)
	}
	if _, err := a.Command(Input{Command: "true"}); err != nil {
		return a, err
	}
	_, err := a.SetupCommands()
	return a, err
}

// SetupCommands returns the shell commands of the setup phase, in order.
func (a Adapter) SetupCommands() ([]string, error) {
	return a.fill(a.Setup, a.complete(Input{}))
}

// Command returns the command that runs the agent in a box. Its ID, folder and
// timeout are the caller's to set. Its standard input is at its end from the
// start: an agent that waits for input would wait for ever.
func (a Adapter) Command(in Input) (sandbox.Command, error) {
	in = a.complete(in)
	prompt, err := a.fill([]string{a.Prompt}, in)
	if err != nil {
		return sandbox.Command{}, err
	}
	in.Prompt = strings.TrimSpace(prompt[0])
	if len(in.Prompt) > MaxPrompt {
		return sandbox.Command{}, &cofferdam.Error{
			Op: "agent.Command", Kind: cofferdam.Invalid, Subject: "task text",
			Reason: fmt.Sprintf("with the agent's instructions it is %d bytes, the limit is %d", len(in.Prompt), MaxPrompt),
			Hint:   "put long material into a file of the repository and name it in the task",
		}
	}
	argv, err := a.fill(a.Argv, in)
	if err != nil {
		return sandbox.Command{}, err
	}
	rest, err := a.fill(append([]string{a.Shell}, a.Env...), in)
	if err != nil {
		return sandbox.Command{}, err
	}
	return sandbox.Command{Argv: argv, Shell: rest[0], Env: rest[1:]}, nil
}

// Timeout is how long the agent may run if the task does not say.
const Timeout = time.Hour

func (a Adapter) complete(in Input) Input {
	in.Version = a.Version
	if in.EnvDir == "" {
		in.EnvDir = sandbox.EnvDir
	}
	if in.ModelURL == "" {
		in.ModelURL = DefaultModelURL
	}
	return in
}

func (a Adapter) fill(texts []string, in Input) ([]string, error) {
	var filled []string
	for _, text := range texts {
		t, err := template.New(a.Name).Option("missingkey=error").Parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading adapter %s: %w", a.Name, err)
		}
		var b strings.Builder
		if err := t.Execute(&b, in); err != nil {
			return nil, fmt.Errorf("filling in adapter %s: %w", a.Name, err)
		}
		if strings.ContainsRune(b.String(), 0) {
			return nil, &cofferdam.Error{
				Op: "agent.Command", Kind: cofferdam.Invalid, Subject: "task text",
				Reason: "it contains a zero byte", Hint: "remove it",
			}
		}
		filled = append(filled, b.String())
	}
	return filled, nil
}
