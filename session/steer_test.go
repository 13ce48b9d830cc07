package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/gateway"
	"cofferdam/session"
)

// pretender is the adapter of an agent that speaks as Claude Code does and goes
// on in its conversation. It keeps what it is told in the file told, and then
// does what the test's script of that turn says.
const pretender = `
name = "pretender"
title = "pretends"
argv = ["/bin/sh", "%[1]s/agent.sh", "new", "c-1"]
resume = ["/bin/sh", "%[1]s/agent.sh", "resume", "{{.Conversation}}"]
stdin = "{{.Prompt}}"
reader = "claude-stream-json"
prompt = "TASK {{.Text}}"

[[file]]
path = "~/.pretender/settings"
text = "quiet"
`

// mute is one without resume.
const mute = `
name = "mute"
title = "holds no conversation"
argv = ["/bin/sh", "%[1]s/agent.sh", "new", "c-1"]
stdin = "{{.Prompt}}"
reader = "claude-stream-json"
prompt = "TASK {{.Text}}"
`

const pretenderScript = `DIR=%s
{ echo "== $1 $2 $(cat ~/.pretender/settings 2>/dev/null)"; cat; echo; } >> told
begin() { echo '{"type":"system","subtype":"init","session_id":"'"${1:-c-1}"'"}'; }
say() { echo '{"type":"assistant","message":{"content":[{"type":"text","text":"'"$1"'"}]}}'; }
tool() { echo '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"'"$1"'"}}]}}'; }
answer() { echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}}'; }
end() { echo '{"type":"result","is_error":'"${2:-false}"',"result":"'"$1"'"}'; }
wait_for() { while [ ! -e "$DIR/$1" ]; do sleep 0.02; done; }
TURN=$(grep -c '^== ' told)
. $DIR/turns.sh
`

// mail is what people say to the bench's task.
type mail struct {
	mu       sync.Mutex
	messages []cofferdam.TaskMessage
	deaf     bool
	late     []string // said in the very moment at which the session asks for the last time
}

func (m *mail) send(texts ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range texts {
		m.messages = append(m.messages, cofferdam.TaskMessage{
			Task: "t-1", Number: int64(len(m.messages) + 1), Text: text, By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}, Time: time.Now(),
		})
	}
}

func (m *mail) said(_ context.Context, _ cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]cofferdam.TaskMessage(nil), m.messages[min(after, int64(len(m.messages))):]...), nil
}

func (m *mail) last(ctx context.Context, _ cofferdam.SessionID, t cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error) {
	if len(m.late) > 0 {
		text := m.late[0]
		m.late = m.late[1:]
		m.send(text)
	}
	found, err := m.said(ctx, t, after)
	m.deaf = m.deaf || len(found) == 0
	return found, err
}

// steered is a bench whose agent does what turns, a shell text, says.
func steered(t *testing.T, turns string) (*bench, *mail) {
	t.Helper()
	dir, m := t.TempDir(), &mail{}
	files := map[string]string{
		"agents/pretender.toml": fmt.Sprintf(pretender, dir), "agents/mute.toml": fmt.Sprintf(mute, dir),
		"agent.sh": fmt.Sprintf(pretenderScript, dir), "turns.sh": turns,
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	agents, err := agent.Read(filepath.Join(dir, "agents"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *session.Options) {
		o.Agents, o.Said, o.LastSaid, o.Look, o.Patience = agents, m.said, m.last, 20*time.Millisecond, 20*time.Second
	})
	b.scripts = dir
	return b, m
}

// pretended is a session of the pretender.
func (b *bench) pretended() session.Plan {
	p := b.plan("")
	p.Request.Agent, p.Request.Command = "pretender", ""
	return p
}

// let is what an agent's wait_for waits for.
func (b *bench) let(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.scripts, name), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// told is what the agent was told in all its turns, as its branch has it.
func (b *bench) told(r session.Result) string {
	b.t.Helper()
	if r.Head == "" {
		b.t.Fatalf("nothing is on the branch: %+v", r)
	}
	return b.git("-C", b.repo.Upstream, "show", string(r.Head)+":told")
}

// turns lists why each turn began, as it is on record.
func (b *bench) turns(p session.Plan) (why []string) {
	b.t.Helper()
	for _, e := range b.events(p) {
		if e.Kind == cofferdam.EventAgentTurn && e.Fields["why"] != "" {
			why = append(why, e.Fields["why"])
		}
	}
	return why
}

// wantTold compares what the agent was told and why its turns began.
func (b *bench) wantTold(p session.Plan, r session.Result, why, told string) {
	b.t.Helper()
	if got := strings.Join(b.turns(p), " "); got != why {
		b.t.Errorf("turns %q, want %q", got, why)
	}
	if got := strings.TrimSpace(b.told(r)); got != strings.TrimSpace(told) {
		b.t.Errorf("told:\n%s\nwant:\n%s", got, told)
	}
	said := 0
	for _, e := range b.events(p) {
		if e.Kind != cofferdam.EventTaskMessage {
			continue
		}
		said++
		if e.Actor.Name != "ada" || e.Fields["number"] != fmt.Sprint(said) {
			b.t.Errorf("message %d on record: %+v", said, e)
		}
	}
}

const firstTurn = "== new c-1 quiet\nTASK mend the sum\nplease"

func TestMessageBeforeTheAgentBegins(t *testing.T) {
	b, m := steered(t, `begin; end "all done"`)
	m.send("first of all", "and then")
	p := b.pretended()
	r := b.run(p)
	if r.Failure != "" || r.Message != "all done" || !m.deaf {
		t.Errorf("%+v, deaf %v", r, m.deaf)
	}
	b.wantTold(p, r, "start", firstTurn+"\n\nSaid afterwards:\nfirst of all\n\nSaid afterwards:\nand then")
}

// TestMessageAfterTheToolCall holds that the call an agent is in comes to its
// end first, and its answer is the last thing of the turn.
func TestMessageAfterTheToolCall(t *testing.T) {
	b, m := steered(t, `begin
		if [ $TURN = 1 ]; then tool build; say_later=1; wait_for built; echo built > built; answer; sleep 60; echo no >> built; fi
		say "heard"; end "all done"`)
	p := b.pretended()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "tool_use")
	m.send("leave the API as it is")
	time.Sleep(300 * time.Millisecond) // fifteen looks: it is not ended in its tool call
	b.let("built")
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Message != "all done" {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	b.wantTold(p, got.result, "start message", firstTurn+"\n== resume c-1 quiet\nleave the API as it is")
	if built := b.git("-C", b.repo.Upstream, "show", string(got.result.Head)+":built"); built != "built" {
		t.Errorf("the tool call: %q", built)
	}
}

func TestMessageWhileTheAgentThinks(t *testing.T) {
	b, m := steered(t, `begin; [ $TURN != 1 ] || { say thinking; sleep 60; }; end "all done"`)
	p := b.pretended()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "thinking")
	m.send("one", "two", "three")
	got := <-done
	if got.err != nil || got.result.Failure != "" {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	b.wantTold(p, got.result, "start message", firstTurn+"\n== resume c-1 quiet\none\n\ntwo\n\nthree")
}

// TestMessageWaitsNoLongerThanPatience: a tool call that never ends, and a
// conversation that never gets a name, do not keep a person waiting for ever.
func TestMessageWaitsNoLongerThanPatience(t *testing.T) {
	for name, c := range map[string]struct{ turns, told string }{
		"tool call":   {`begin; [ $TURN != 1 ] || { tool forever; sleep 60; }; end "all done"`, "== resume c-1 quiet\nhurry"},
		"no name yet": {`[ $TURN != 1 ] || { tool forever; sleep 60; }; end "all done"`, firstTurn + "\n\nSaid afterwards:\nhurry"},
	} {
		b, m := steered(t, c.turns)
		change := b.change
		b.change = func(o *session.Options) { change(o); o.Patience = 300 * time.Millisecond }
		b.restart()
		p := b.pretended()
		done := b.start(context.Background(), p)
		b.until(p, "agent", "tool_use")
		m.send("hurry")
		got := <-done
		if got.err != nil || got.result.Failure != "" {
			t.Fatalf("%s: %+v %v", name, got.result, got.err)
		}
		told := b.told(got.result)
		if !strings.Contains(told, c.told) && name == "tool call" || strings.Count(told, "hurry") != 1 || len(b.turns(p)) != 2 {
			t.Errorf("%s: %s", name, told)
		}
	}
}

func TestMessageAtTheVeryEnd(t *testing.T) {
	b, m := steered(t, `begin; end "turn $TURN"`)
	m.late = []string{"one more thing", "and one more"}
	p := b.pretended()
	r := b.run(p)
	if r.Failure != "" || r.Message != "turn 3" || !m.deaf {
		t.Errorf("%+v, deaf %v", r, m.deaf)
	}
	b.wantTold(p, r, "start message message", firstTurn+"\n== resume c-1 quiet\none more thing\n== resume c-1 quiet\nand one more")
}

func TestAgentWithoutAConversationIsNotInterrupted(t *testing.T) {
	b, m := steered(t, `begin; say thinking; wait_for on; end "all done"`)
	p := b.pretended()
	p.Request.Agent = "mute"
	done := b.start(context.Background(), p)
	b.until(p, "agent", "thinking")
	m.send("nobody hears this") // the service refuses it
	time.Sleep(200 * time.Millisecond)
	b.let("on")
	if got := <-done; got.err != nil || got.result.Message != "all done" || len(b.turns(p)) != 1 {
		t.Errorf("%+v %v", got.result, got.err)
	}
}

// TestManyLongMessages: what one turn cannot be told, the next one is.
func TestManyLongMessages(t *testing.T) {
	b, m := steered(t, `begin; end "turn $TURN"`)
	for i := range 20 {
		m.send(fmt.Sprintf("%02d", i) + strings.Repeat("x", 64<<10-2))
	}
	p := b.pretended()
	r := b.run(p)
	told := b.told(r)
	if r.Failure != "" || len(b.turns(p)) != 3 {
		t.Errorf("%d turns, %+v", len(b.turns(p)), r)
	}
	for i := range 20 {
		if strings.Count(told, fmt.Sprintf("%02dxx", i)) != 1 {
			t.Errorf("message %d was told %d times", i, strings.Count(told, fmt.Sprintf("%02dxx", i)))
		}
	}
}

// TestInterruptedAgentGoesOn: killed from inside its box, it goes on in its
// conversation; killed again and again, it ends, and its work is kept.
func TestInterruptedAgentGoesOn(t *testing.T) {
	b, _ := steered(t, `begin; [ $TURN != 1 ] || { echo half > half; kill -9 $$; }; end "all done"`)
	p := b.pretended()
	r := b.run(p)
	if r.Failure != "" || r.Message != "all done" || !strings.Contains(b.told(r), "== resume c-1 quiet\nYour process was ended from outside") {
		t.Errorf("%+v\n%s", r, b.told(r))
	}
	b, _ = steered(t, `begin; kill -9 $$`)
	p = b.pretended()
	if r := b.run(p); r.Failure != "agent" || !strings.Contains(r.Reason, "4 times") || strings.Count(b.told(r), "== ") != 4 {
		t.Errorf("%+v\n%s", r, b.told(r))
	}
	if why := strings.Join(b.turns(p), " "); why != "start interrupted interrupted interrupted" {
		t.Errorf("turns %s", why)
	}
	p = b.pretended()
	p.Request.Agent, p.Branch = "mute", "refs/heads/cofferdam/mute"
	if r := b.run(p); r.Failure != "" || r.Exit != 137 || strings.Count(b.told(r), "== ") != 1 {
		t.Errorf("without a conversation: %+v", r)
	}
}

// TestAllTurnsShareTheTime: messages do not lengthen what the task may take.
func TestAllTurnsShareTheTime(t *testing.T) {
	b, m := steered(t, `begin; say "turn $TURN"; sleep 150`)
	p := b.pretended()
	p.Request.Timeout = 25
	begun := time.Now()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "turn 1")
	m.send("and?")
	b.until(p, "agent-2", "turn 2")
	got := <-done
	if got.err != nil || !got.result.TimedOut || time.Since(begun) > 2*time.Minute || !m.deaf {
		t.Errorf("%v: %+v %v", time.Since(begun), got.result, got.err)
	}
}

// TestLongPrompt: what is far too long for an argument arrives byte for byte.
func TestLongPrompt(t *testing.T) {
	b, _ := steered(t, `begin; end "all done"`)
	p := b.pretended()
	p.Request.Text = strings.Repeat("long é\n", 50_000) + "end"
	r := b.run(p)
	if want := "== new c-1 quiet\nTASK " + p.Request.Text; r.Failure != "" || b.told(r) != want {
		t.Errorf("%d bytes arrived, want %d: %+v", len(b.told(r)), len(want), r.Reason)
	}
}

// TestModelThatIsGone holds that an agent which would try for ever is ended, and
// what the session says of it.
func TestModelThatIsGone(t *testing.T) {
	b, _ := steered(t, `begin; echo half > half; sleep 60`)
	b.addProvider(t)
	p := b.pretended()
	p.Model = cofferdam.Model{Name: "work", Provider: "anthropic", URL: "http://127.0.0.1:1"}
	done := b.start(context.Background(), p)
	b.until(p, "agent", "init")
	for n := range uint64(3) {
		_, err := b.wires[0].caller.Record.Record(context.Background(), cofferdam.Event{
			Scope: p.Scope, Session: p.ID, Kind: cofferdam.EventModelCall, Of: &n, Resource: "work", Outcome: gateway.Failed, Reason: "the provider refused the key of model work", Fields: map[string]string{"status": "401"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got := <-done
	if r := got.result; got.err != nil || r.Failure != "provider" || !strings.Contains(r.Reason, "refused the key of model work (failed calls in a row: 3)") || r.Head == "" {
		t.Errorf("%+v %v", got.result, got.err)
	}
}

func (b *bench) addProvider(t *testing.T) {
	t.Helper()
	path := filepath.Join(b.scripts, "agents", "pretender.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("providers = [\"anthropic\"]\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	agents, err := agent.Read(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	change := b.change
	b.change = func(o *session.Options) { change(o); o.Agents = agents }
	b.restart()
}
