package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/agent"
)

// Defaults and bounds of a run.
const (
	defaultWindow = 200_000 // tokens
	minWindow     = 16_000  // a smaller one has no room for the tools and one result
	DefaultTurns  = 100
	MaxTurns      = 500
	warnAt        = 3 // times that a call gave the same result, after which the model is told
	stopAt        = 5 // … and after which the run ends
)

// brain is a run while this process makes it.
type brain struct {
	o       Options
	dialect dialect
	client  http.Client
	limit   int // tokens of the window that are believed in

	history
	answers int             // of the model
	heard   int64           // number of the latest message of a person
	known   map[string]bool // calls with results, ever: see progress
	same    map[string]int  // … and since the last that was new
	warned  map[string]bool
	in, out int64 // tokens
	events  int
	ended   *End
}

// Run goes on with a conversation until it ends, from wherever it is, and
// returns how. An error means that it is not at its end: Run can be called
// again, and does no tool call twice. That an agent could not do its work, for
// want of a model for instance, is no error.
func Run(ctx context.Context, o Options) (End, error) {
	b, err := newBrain(o)
	if err != nil {
		return End{}, err
	}
	stored, err := o.Conversation.Entries(ctx)
	if err != nil {
		return End{}, err
	}
	for i, s := range stored {
		var e entry
		if err := json.Unmarshal(s.Body, &e); err != nil || s.Number != i+1 {
			return End{}, &cofferdam.Error{
				Op: "loop.Run", Kind: cofferdam.Internal, Subject: fmt.Sprintf("entry %d of a conversation", i+1),
				Reason: "it cannot be read back", Hint: "retry the task", Err: err,
			}
		}
		if err := b.take(e); err != nil {
			return End{}, err
		}
	}
	if len(b.entries) == 0 {
		if err := b.append(ctx, entry{Kind: kindStart, Text: o.Prompt, Mark: newMark()}); err != nil {
			return End{}, err
		}
	}
	if o.Note != "" && b.ended == nil {
		if err := b.append(ctx, entry{Kind: kindNote, Text: o.Note}); err != nil {
			return End{}, err
		}
	}
	for b.ended == nil {
		if err := context.Cause(ctx); err != nil {
			return End{}, err
		}
		if err := b.step(ctx); err != nil {
			return End{}, err
		}
	}
	return *b.ended, nil
}

func newBrain(o Options) (*brain, error) {
	d, ok := dialects[o.Provider]
	if !ok {
		return nil, unknownProvider(o.Provider)
	}
	if o.Model == "" {
		o.Model = DefaultModel[o.Provider]
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.Turns == 0 {
		o.Turns = DefaultTurns
	}
	if o.Window < minWindow || o.Turns < 1 || o.Turns > MaxTurns {
		return nil, &cofferdam.Error{
			Op: "loop.Run", Kind: cofferdam.Invalid, Subject: "agent loop",
			Reason: fmt.Sprintf("a window of %d tokens and %d turns are asked for", o.Window, o.Turns),
			Hint:   fmt.Sprintf("give a window of at least %d tokens and 1 to %d turns", minWindow, MaxTurns),
		}
	}
	return &brain{
		o: o, dialect: d, client: http.Client{Transport: o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		limit: o.Window, known: map[string]bool{}, same: map[string]int{}, warned: map[string]bool{},
	}, nil
}

// append stores an entry, then lets follow what follows from it.
func (b *brain) append(ctx context.Context, e entry) error {
	e.redact(b.o.Redact)
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a conversation: %w", err)
	}
	if err := b.o.Conversation.Append(ctx, Entry{Number: len(b.entries) + 1, Time: time.Now().UTC(), Body: body}); err != nil {
		return err
	}
	return b.take(e)
}

// take computes what follows from an entry that is stored, and tells of it. It
// is the same for entries of this process and of earlier ones.
func (b *brain) take(e entry) error {
	b.entries = append(b.entries, e)
	b.in, b.out = b.in+e.In, b.out+e.Out
	switch e.Kind {
	case kindStart:
		return b.emit(agent.Event{Kind: agent.Begin, Text: "loop"})
	case kindAnswer:
		b.answers++
		for _, p := range e.Parts {
			if err := b.tellPart(p); err != nil {
				return err
			}
		}
		return b.emit(agent.Event{Kind: agent.Cost, Tokens: b.in + b.out})
	case kindResult:
		b.progress(e.Same)
		text := e.Head
		if e.Text != "" {
			text += "\n" + e.Text
		}
		err := b.emit(agent.Event{Kind: agent.Answer, Tool: e.Name, Text: text, Error: e.Failed})
		if err == nil && e.Path != "" {
			err = b.emit(agent.Event{Kind: agent.Change, Text: e.Path})
		}
		return err
	case kindSaid:
		b.heard = e.Number
		if b.o.Told == nil {
			return nil
		}
		kind, name, _ := strings.Cut(e.By, ":")
		return b.o.Told(cofferdam.TaskMessage{Number: e.Number, Text: e.Text, By: cofferdam.Principal{Kind: cofferdam.PrincipalKind(kind), Name: name}})
	case kindNote:
		b.warned[e.Same] = true
	case kindSummary:
		return b.emit(agent.Event{Kind: agent.Cost, Tokens: b.in + b.out})
	case kindEnd:
		b.ended = &End{Exhausted: e.Exhausted, End: agent.End{Said: cofferdam.Said(e.Claim), Message: e.Text, Failed: e.Failed, Conversation: "loop"}}
	}
	return nil
}

func (b *brain) tellPart(p part) error {
	if p.Call != nil {
		return b.emit(agent.Event{Kind: agent.Tool, Tool: p.Call.Name, Text: p.Call.Input})
	}
	if strings.TrimSpace(p.Text) == "" {
		return nil
	}
	return b.emit(agent.Event{Kind: agent.Message, Text: p.Text})
}

func (b *brain) emit(e agent.Event) error {
	if b.events++; b.events > agent.MaxEvents {
		return nil
	}
	e.Text, e.Tool = clip(e.Text, agent.MaxText-64), clip(e.Tool, maxName)
	return b.o.Emit(e)
}

// progress counts how often a call gave the same result since there was one
// that never came before.
func (b *brain) progress(same string) {
	if same == "" {
		return
	}
	if !b.known[same] {
		b.known[same] = true
		clear(b.same)
	}
	b.same[same]++
}

// step does the next thing there is to do.
func (b *brain) step(ctx context.Context) error {
	if c, n, ok := b.pending(); ok {
		return b.use(ctx, c, n)
	}
	if said, err := b.listen(ctx, b.o.Said); err != nil || said {
		return err
	}
	last := b.entries[len(b.entries)-1]
	if last.Kind == kindAnswer { // it calls nothing, or pending had found it
		return b.conclude(ctx, last)
	}
	if last.Kind == kindResult {
		if done, err := b.judge(ctx, last); err != nil || done {
			return err
		}
	}
	if b.answers >= b.o.Turns {
		return b.giveUp(ctx, fmt.Sprintf("it used its %d turns", b.o.Turns))
	}
	return b.ask(ctx)
}

// conclude ends the conversation after an answer that calls no tool.
func (b *brain) conclude(ctx context.Context, last entry) error {
	switch last.Stop {
	case stopLength:
		return b.append(ctx, entry{Kind: kindNote, Text: "your answer met its bound and was cut there. Go on in smaller steps."})
	case stopFilter:
		return b.giveUp(ctx, "the model refused to go on: "+last.words())
	}
	said, words := agent.Claim(last.words())
	if said == cofferdam.SaidQuestion && b.o.Await != nil {
		note, err := b.o.Await(ctx, words)
		if err != nil || note == "" {
			return err
		}
		return b.append(ctx, entry{Kind: kindNote, Text: note})
	}
	return b.finish(ctx, entry{Claim: string(said), Text: words})
}

// finish ends the conversation, unless somebody said something meanwhile.
func (b *brain) finish(ctx context.Context, e entry) error {
	if said, err := b.listen(ctx, b.o.Last); err != nil || said {
		return err
	}
	e.Kind, e.Text = kindEnd, clip(e.Text, agent.MaxText-64)
	return b.append(ctx, e)
}

// giveUp ends it without the work being done.
func (b *brain) giveUp(ctx context.Context, why string) error {
	return b.finish(ctx, entry{Claim: string(cofferdam.SaidBlocked), Text: why})
}

// pending returns the first call of the latest answer that has no result, and
// its place in the answer, from 1.
func (b *brain) pending() (c call, n int, ok bool) {
	results := 0
	for i := len(b.entries) - 1; i >= 0; i-- {
		switch e := b.entries[i]; e.Kind {
		case kindResult:
			results++
		case kindAnswer:
			if calls := e.calls(); results < len(calls) {
				return calls[results], results + 1, true
			}
			return call{}, 0, false
		}
	}
	return call{}, 0, false
}

// use makes one call. If a person spoke after the answer that wanted it, or the
// platform had to say something, the model is asked anew first.
func (b *brain) use(ctx context.Context, c call, n int) error {
	at := len(b.entries)
	for b.entries[at-1].Kind != kindAnswer {
		switch at--; b.entries[at].Kind {
		case kindSaid:
			return b.append(ctx, entry{Kind: kindResult, Call: c.ID, Name: c.Name, Failed: true, Head: "this was not done, because a person said something first"})
		case kindNote:
			return b.append(ctx, entry{Kind: kindResult, Call: c.ID, Name: c.Name, Failed: true, Head: "this was not done, or not to its end, because of what Cofferdam says"})
		}
	}
	id := cofferdam.ExecID(fmt.Sprintf("loop-%d-%d", at, n))
	d, err := b.perform(ctx, hand{b.o.Hands, id}, c)
	if err != nil {
		return err
	}
	e := entry{Kind: kindResult, Call: c.ID, Name: c.Name, Head: d.head, Text: clip(d.text, maxShown), Failed: d.failed, Path: d.path}
	e.Same = digest(strings.Join([]string{c.Name, c.Input, e.Head, e.Text}, "\x00"))
	if err := b.append(ctx, e); err != nil {
		return err
	}
	_, err = b.listen(ctx, b.o.Said)
	return err
}

func (b *brain) perform(ctx context.Context, h hand, c call) (done, error) {
	for _, t := range tools {
		if t.Name != c.Name {
			continue
		}
		in, why := t.read(c)
		if why != "" {
			return wrong("%s", why), nil
		}
		return b.allowed(ctx, t, h, c, in)
	}
	return wrong("there is no tool of this name"), nil
}

// allowed makes a call if it may be made.
func (b *brain) allowed(ctx context.Context, t tool, h hand, c call, in input) (d done, err error) {
	do := func(ctx context.Context) (err error) {
		d, err = t.use(ctx, h, in)
		return err
	}
	if b.o.May == nil {
		err = do(ctx)
		return d, err
	}
	refusal, err := b.o.May(ctx, Call{ID: h.id, Tool: t.Name, Input: json.RawMessage(c.Input)}, do)
	if err == nil && refusal != "" {
		return wrong("this was not done: %s", refusal), nil
	}
	return d, err
}

// listen takes up what people said since it was last asked, as ask has it.
func (b *brain) listen(ctx context.Context, ask func(context.Context, int64) ([]cofferdam.TaskMessage, error)) (said bool, err error) {
	if ask == nil {
		return false, nil
	}
	list, err := ask(ctx, b.heard)
	if err != nil {
		return false, err
	}
	for _, m := range list {
		if m.Number <= b.heard {
			continue
		}
		if err := b.append(ctx, entry{Kind: kindSaid, Number: m.Number, By: m.By.String(), Text: m.Text}); err != nil {
			return said, err
		}
		said = true
	}
	return said, nil
}

// judge looks for a model that does the same again and again: it is told once,
// then the run ends.
func (b *brain) judge(ctx context.Context, last entry) (done bool, err error) {
	n := b.same[last.Same]
	switch {
	case last.Same == "" || n < warnAt:
		return false, nil
	case !b.warned[last.Same]:
		return true, b.append(ctx, entry{Kind: kindNote, Same: last.Same, Text: fmt.Sprintf(
			"you have made this call %d times and the result was the same each time. Try another way; if there is none, end with a last line that reads: cofferdam: blocked: and the reason in a few words.", n)})
	case n >= stopAt:
		return true, b.giveUp(ctx, "it repeats itself: the same call gave the same result again and again")
	}
	return false, nil
}

// ask asks the model and stores its answer, after making room if there is none.
func (b *brain) ask(ctx context.Context) error {
	if b.estimate() > b.room() {
		shorter, err := b.shorten(ctx)
		if shorter || err != nil {
			return err
		}
	}
	e, err := b.call(ctx, question{Model: b.o.Model, System: system, Turns: b.turns(), Tools: tools, Max: b.outputBound()})
	if err == nil {
		return b.append(ctx, named(e, len(b.entries)+1))
	}
	return b.unanswered(ctx, err)
}

// unanswered ends a conversation whose model gives no answer, or makes it
// shorter if that is what stands in the way.
func (b *brain) unanswered(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var f *fault
	if errors.As(err, &f) && f.tooMuch() && b.limit > minWindow {
		b.limit = max(minWindow, min(b.limit, b.estimate())/2)
		if shorter, err := b.shorten(ctx); shorter || err != nil {
			return err
		}
	}
	e := entry{Claim: string(cofferdam.SaidBlocked), Text: err.Error(), Failed: true}
	if f != nil && f.spent {
		e.Exhausted, e.Text = true, f.message
	}
	return b.finish(ctx, e)
}
