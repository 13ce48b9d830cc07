package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/sandbox"
)

// memory is a conversation that can be cut: from the append with the number
// until on, nothing is stored any more and the process counts as dead.
type memory struct {
	entries []Entry
	until   int // 0: never
}

var errDead = errors.New("the process is dead")

func (m *memory) Entries(context.Context) ([]Entry, error) {
	return append([]Entry{}, m.entries...), nil
}

func (m *memory) Append(_ context.Context, e Entry) error {
	if e.Number != len(m.entries)+1 {
		return fmt.Errorf("entry %d follows %d", e.Number, len(m.entries))
	}
	if m.until > 0 && e.Number >= m.until {
		return errDead
	}
	m.entries = append(m.entries, e)
	return nil
}

// machine stands in for a box: commands run here in a folder of their own. A
// command whose id ran before is not run again; its output is.
type machine struct {
	t    *testing.T
	dir  string
	ran  map[cofferdam.ExecID]Output
	runs []string // what really ran, in order
	err  error
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, dir: t.TempDir(), ran: map[cofferdam.ExecID]Output{}}
}

func (m *machine) Exec(_ context.Context, c sandbox.Command, stdin []byte) (Output, error) {
	if m.err != nil {
		return Output{}, m.err
	}
	if out, ok := m.ran[c.ID]; ok {
		return out, nil
	}
	argv := c.Argv
	if c.Shell != "" {
		argv = []string{"sh", "-c", c.Shell}
	}
	m.runs = append(m.runs, string(c.ID))
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = m.dir, bytes.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Output{}, err
	}
	out := Output{Result: sandbox.Result{Exit: cmd.ProcessState.ExitCode()}, Out: stdout.String(), Err: stderr.String()}
	m.ran[c.ID] = out
	return out, nil
}

func (m *machine) file(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// provider is an Anthropic server without a network. Its answer depends on the
// request alone.
type provider struct {
	answer func(q seen) reply
	asked  []seen
}

// seen is what the provider reads of a request.
type seen struct {
	Turn     int `json:"-"` // which answer is asked for, from 1
	Try      int `json:"-"`
	Model    string
	System   []struct{ Text string }
	Tools    []struct{ Name string }
	Messages []struct {
		Role    string
		Content []struct {
			Type, Text, Content, Name, ID string
			Input                         json.RawMessage
			ToolUse                       string `json:"tool_use_id"`
			Error                         bool   `json:"is_error"`
		}
	}
	text string
}

// latest returns the text of the user's last turn.
func (s seen) latest() string {
	var b strings.Builder
	for _, c := range s.Messages[len(s.Messages)-1].Content {
		b.WriteString(c.Text + c.Content + "\n")
	}
	return b.String()
}

type reply struct {
	say    string
	calls  []string // NAME JSON
	stop   string
	status int
	header http.Header
	raw    string // the whole body
	err    error
	tokens int
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	q := seen{Turn: 1, text: string(body)}
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	for _, m := range q.Messages {
		if m.Role == "assistant" {
			q.Turn++
		}
	}
	for _, before := range p.asked {
		if before.text == q.text {
			q.Try++
		}
	}
	p.asked = append(p.asked, q)
	a := p.answer(q)
	if a.err != nil {
		return nil, a.err
	}
	resp := &http.Response{StatusCode: 200, Header: a.header}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	text := a.raw
	switch {
	case a.status != 0:
		resp.StatusCode = a.status
		text = fmt.Sprintf(`{"type":"error","error":{"type":"x","message":%q}}`, a.say)
	case text == "":
		text = a.stream()
	}
	resp.Body = io.NopCloser(strings.NewReader(text))
	return resp, nil
}

func (a reply) stream() string {
	var b strings.Builder
	send := func(v object) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // cannot happen: texts and numbers
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", v["type"], text)
	}
	send(object{"type": "message_start", "message": object{"usage": object{"input_tokens": 10 + a.tokens, "output_tokens": 1}}})
	n := 0
	if a.say != "" {
		send(object{"type": "content_block_start", "index": n, "content_block": object{"type": "text", "text": ""}})
		send(object{"type": "content_block_delta", "index": n, "delta": object{"type": "text_delta", "text": a.say}})
		n++
	}
	for _, c := range a.calls {
		name, input, _ := strings.Cut(c, " ")
		send(object{"type": "content_block_start", "index": n, "content_block": object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": name, "input": object{}}})
		half := len(input) / 2
		for _, part := range []string{input[:half], input[half:]} {
			send(object{"type": "content_block_delta", "index": n, "delta": object{"type": "input_json_delta", "partial_json": part}})
		}
		n++
	}
	stop := a.stop
	if stop == "" {
		stop = "end_turn"
	}
	send(object{"type": "message_delta", "delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 5}})
	send(object{"type": "message_stop"})
	return b.String()
}

// play is a run that can be cut and made again.
type play struct {
	t        *testing.T
	provider *provider
	machine  *machine
	memory   *memory
	events   []agent.Event
	told     []int64
	options  Options
}

func newPlay(t *testing.T, answer func(q seen) reply) *play {
	p := &play{t: t, provider: &provider{answer: answer}, machine: newMachine(t), memory: &memory{}}
	p.options = Options{Prompt: "the task", Provider: "anthropic"}
	return p
}

// run makes one process's run; its events are those of the whole conversation.
func (p *play) run() (End, error) {
	p.events, p.told = nil, nil
	o := p.options
	o.Transport, o.Hands, o.Conversation = p.provider, p.machine, p.memory
	o.Emit = func(e agent.Event) error {
		p.events = append(p.events, e)
		return nil
	}
	o.Told = func(m cofferdam.TaskMessage) error {
		p.told = append(p.told, m.Number)
		return nil
	}
	return Run(p.t.Context(), o)
}

func (p *play) end() End {
	p.t.Helper()
	e, err := p.run()
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// shown is the list of events as text.
func shown(events []agent.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s %q %v %d\n", e.Kind, e.Tool, e.Text, e.Error, e.Tokens)
	}
	return b.String()
}
