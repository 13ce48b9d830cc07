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
//	file       a table each: path, which begins with ~/ for its home, and text; written before the agent starts
//	contact    a table each: host, why, and closed, the setting that keeps the agent from it
//	reader     how its standard output is read: see readers
//	prompt     what it is told; none: the text of prompt.txt. Available to the others as .Prompt
//
// setup, argv, shell, stdin, resume, env, the text of a file and prompt are
// text/template templates over Input. A value is put in as it is: it is never
// itself a template, and in argv and env never seen by a shell. An entry of
// argv, resume or env that comes out empty is left out.
//
// An operator adds adapters by a folder of such files (see Read).
//
// The package never runs anything and never judges anything. Its invariant:
// what an agent says of its own work is a claim; it travels as Said and nothing
// here treats it as evidence.
package agent

import (
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// MaxPrompt bounds what an agent is told, in bytes: about 250,000 tokens, more
// than most models can hold.
const MaxPrompt = 1 << 20

// Timeout is how long the agent may run if the task does not say.
const Timeout = time.Hour

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
	Path string `toml:"path"` // begins with ~/; absolute in a Start
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
	Ask      bool              // a person answers if it asks
	Branch   string            // short name of the branch that may be written
	Command  string            // for the adapter command
	EnvDir   string            // "": sandbox.EnvDir
	Home     string            // "": sandbox.HomeDir
	ModelURL string            // "": DefaultModelURL; has no path
	Provider string            // protocol of the model that was given; "": the adapter's first
	Model    string            // the model id to ask for; "": the agent's own

	// Conversation, if not empty, is the agent's own name of the conversation
	// that goes on, and Message what it is told.
	Conversation string
	Message      string

	// Set by the adapter itself.
	Version string
	Prompt  string
}
