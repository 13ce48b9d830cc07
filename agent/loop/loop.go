// Package loop is our own coding agent: a brain in the server and hands in the
// box. It needs nothing but a model, so it is what runs where no vendor's agent
// is installed.
//
// The brain reaches the model through the session's gateway like any box, and
// touches files and processes only through Hands; it never opens a connection
// or a file itself, and what a tool returns is data from an untrusted place,
// marked as such. Loop, machine and conversation are apart: every message is in
// the Conversation before anything follows from it, so a server that starts
// again goes on at exactly the message where the last one stopped.
//
// # How a conversation goes
//
// The first entry holds the task; then answers of the model and what followed
// from them alternate. An answer that calls tools is followed by one result for
// each call, in order. What a person says comes right after the result of the
// tool that runs, and the calls that were still to be made are not made. When
// the conversation outgrows the model's window, an entry stands for all before
// it but the task. The last entry says how it ended. All state is computed from
// the entries, so nothing else has to survive.
package loop

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/sandbox"
)

// Hands work in the box. The same command ID after a restart finds the same
// run: it is not started twice.
type Hands interface {
	// Exec runs c and returns its output, less secrets and bounded. stdin, if
	// not nil, is what the command reads.
	Exec(ctx context.Context, c sandbox.Command, stdin []byte) (Output, error)
}

// Call is a tool that the model wants to be used, with arguments that the tool has.
type Call struct {
	ID    cofferdam.ExecID // of its first command
	Tool  string
	Input json.RawMessage // a JSON object
}

// Output is what a command of the hands wrote. Each stream keeps its first and
// last part if it is longer than MaxOutput.
type Output struct {
	sandbox.Result
	Out, Err string
	// Disturbed says that for a while nobody served the box's network.
	Disturbed bool
}

// Entry is one message of a conversation as it is stored.
type Entry struct {
	Number int             `json:"number"` // from 1
	Time   time.Time       `json:"time"`
	Body   json.RawMessage `json:"body"`
}

// Conversation keeps messages apart from the machine. Append returns when e is
// durable; its Number must follow the last one.
type Conversation interface {
	Entries(ctx context.Context) ([]Entry, error)
	Append(ctx context.Context, e Entry) error
}

// Options is what Run works with. What is not marked as optional is needed.
type Options struct {
	// Prompt is the task as the model is told it, instructions included.
	Prompt string
	// Transport reaches the session's gateways: gateway.Local.
	Transport    http.RoundTripper
	Provider     string // the protocol: anthropic, openai, gemini
	Model        string // the model id; "": DefaultModel of the provider
	Window       int    // tokens the model can hold; 0: 200,000
	Turns        int    // model calls at most, 1 to 500; 0: 100
	Hands        Hands
	Conversation Conversation
	// May, optional, is asked about each call before the hands move. It makes the
	// call by do, or returns why it may not be made, which the model is told. An
	// error ends Run; the call is asked about again when it goes on.
	May func(ctx context.Context, c Call, do func(context.Context) error) (refusal string, err error)
	// Said, optional, returns what people said after the message of that number,
	// in order.
	Said func(ctx context.Context, after int64) ([]cofferdam.TaskMessage, error)
	// Last, optional, is Said before the end: if it returns nothing, nobody can say
	// anything any more.
	Last func(ctx context.Context, after int64) ([]cofferdam.TaskMessage, error)
	// Await, optional, is called when the model asks a person. It returns once Said
	// has something new; what it returns is told to the model first. Without it a
	// question ends the conversation.
	Await func(ctx context.Context, question string) (note string, err error)
	// Note, optional, is told to the model before it goes on.
	Note string
	// Told, optional, hears of each message when it is in the conversation, again
	// after a restart.
	Told func(cofferdam.TaskMessage) error
	// Emit is told what the loop does, with the same events in the same order
	// after a restart.
	Emit func(agent.Event) error
	// Redact, optional, removes secrets from text before it is used and stored.
	Redact func(string) string
}

// End is how a conversation ended.
type End struct {
	agent.End
	// Exhausted says that the budget of the task ended it; Message is the reason.
	Exhausted bool
}
