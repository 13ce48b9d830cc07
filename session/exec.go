package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// exhaustedOutput names the limit Options.MaxOutput beside those of the box.
const exhaustedOutput sandbox.Exhaustion = "output"

// met names limits as results and the record do.
func met(list []sandbox.Exhaustion) (names []string) {
	for _, e := range list {
		names = append(names, string(e))
	}
	return names
}

// maxCommandText bounds what goes on record of a command's text, in bytes.
const maxCommandText = 64 << 10

// ran is how a command ended, and what it wrote as it is on record.
type ran struct {
	sandbox.Result
	stdout, stderr cofferdam.Digest
	tail           tail
	// disturbed says that for a while nobody served the box's wire. What then
	// failed may have failed because of that, and says nothing about the work.
	disturbed bool
	// thwarted says that the git gateway could not do what it had allowed: the
	// upstream was away, or the disk was full. taken: the branch is somebody
	// else's, and will be.
	thwarted, taken bool
}

// failed says whether the command did not end well.
func (r *ran) failed() bool { return r.Exit != 0 || r.TimedOut }

// maxAgain bounds how often a command of the platform's own is run again. With
// the pauses between, an upstream or a disk has two minutes to come back.
const (
	maxAgain     = 8
	longestPause = time.Minute
)

// insist runs a command of the platform's own that can be repeated. It is run
// again, under another id, as long as what failed was the platform.
func (a *attempt) insist(ctx context.Context, c sandbox.Command) (*ran, error) {
	id := c.ID
	for n := 1; ; n++ {
		done, err := a.execute(ctx, a.box, policy.ByPlatform, c, nil)
		if err != nil || !done.failed() || done.taken || !done.disturbed && !done.thwarted || n == maxAgain {
			return done, err
		}
		c.ID = cofferdam.ExecID(fmt.Sprintf("%s-again-%d", id, n))
		if _, started := a.ledger.exec(c.ID); started || !done.thwarted {
			continue
		}
		select {
		case <-time.After(min(time.Second<<(n-1), longestPause)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// judge says what stood in a command's way: more than one wire of its box, or a
// gateway that could not do what it had allowed.
func (a *attempt) judge(done *ran, id cofferdam.ExecID) *ran {
	a.ledger.look(func(s *seen) {
		if x := s.execs[id]; x != nil {
			done.disturbed, done.thwarted, done.taken = x.wires < s.wires, x.thwarted < s.thwarted, x.taken < s.taken
		}
	})
	return done
}

// execute runs a command and returns when it has ended with all its output on
// record. also, if not nil, is given the recorded output, in order. A command
// that an earlier process started, or saw the end of, is not started again: its
// recorded output is given to also, and what it wrote since goes on record now. by
// is who it is for.
func (a *attempt) execute(ctx context.Context, box sandbox.Box, by string, c sandbox.Command, also func(sandbox.Stream, []byte) error) (*ran, error) {
	x, started := a.ledger.exec(c.ID)
	out, err := a.openOutput(ctx, c.ID, x.offsets, also)
	if err != nil {
		return nil, err
	}
	if x.result != nil {
		return a.judge(out.ran(*x.result), c.ID), nil
	}
	if started {
		err = boxError(box.Start(ctx, c))
	} else {
		err = a.begin(ctx, box, by, c)
	}
	if err != nil {
		return nil, err
	}
	res, err := out.follow(ctx, box)
	if err != nil {
		return nil, err
	}
	if res.Lost {
		return nil, fail(cofferdam.ReasonBox, errBoxLost.Error()+": "+res.Reason)
	}
	done := a.judge(out.ran(res), c.ID)
	return done, a.ledger.put(ctx, cofferdam.EventExecEnd, string(c.ID), map[string]string{
		fieldExec: string(c.ID), fieldData: encode(res), fieldText: endText(res),
		streamName(sandbox.Stdout): string(done.stdout), streamName(sandbox.Stderr): string(done.stderr),
	})
}

// begin starts a command, once policy let whom it is for start one and that is on
// record with who it is. What it is nobody judges. A refusal ends the session.
func (a *attempt) begin(ctx context.Context, box sandbox.Box, by string, c sandbox.Command) error {
	text := commandText(c)
	started := false
	err := gateway.Handle(ctx, a.grant.caller, gateway.Request{
		Source: "session", Kind: cofferdam.EventExecStart, Resource: string(c.ID), Actor: a.principal(by),
		Query:  policy.Query{Action: policy.Run, Name: by},
		Fields: map[string]string{fieldExec: string(c.ID), fieldText: clip(text, maxCommandText), "folder": c.Dir, "timeout": c.Timeout.String()},
		Show:   func(context.Context) (gateway.Shown, error) { return gateway.Show([]byte(text), ""), nil },
	}, func(context.Context) (gateway.Outcome, error) {
		started = true
		return gateway.Outcome{}, box.Start(ctx, c)
	})
	if started {
		return boxError(err)
	}
	return failFor(cofferdam.ReasonPolicy, err)
}

// principal is who a command is for, as the record has it.
func (a *attempt) principal(by string) cofferdam.Principal {
	if by == policy.ByAgent {
		return cofferdam.Principal{Kind: cofferdam.Agent, Name: a.adapter.Name}
	}
	return cofferdam.Principal{Kind: cofferdam.Platform, Name: by}
}

// follow takes the command's output until it ends. A command that writes more
// than can be kept is ended: none of it is dropped silently.
func (o *output) follow(ctx context.Context, box sandbox.Box) (sandbox.Result, error) {
	sink := func(s sandbox.Stream, off int64, p []byte) error { return o.take(ctx, s, off, p) }
	res, err := box.Attach(ctx, o.id, o.offsets(), sink)
	if errors.Is(o.err, errTooMuch) {
		if err := box.Kill(ctx, o.id); err != nil {
			return res, boxError(err)
		}
		res, err = box.Attach(ctx, o.id, o.offsets(), func(sandbox.Stream, int64, []byte) error { return nil })
		res.Exhausted = append(res.Exhausted, exhaustedOutput)
		res.Reason = fmt.Sprintf("it wrote more than %d bytes and was ended", o.a.o.MaxOutput)
	}
	if err != nil {
		if o.err != nil {
			err = o.err // the record failed, not the box
		}
		return res, boxError(err)
	}
	return res, o.flush(ctx)
}

// endTree ends what a command left running behind its back, so that the next
// one has the box for itself.
func (a *attempt) endTree(ctx context.Context, id cofferdam.ExecID) error {
	return boxError(a.box.Kill(ctx, id))
}

func commandText(c sandbox.Command) string {
	if c.Shell != "" {
		return c.Shell
	}
	return strings.Join(c.Argv, " ")
}

func endText(r sandbox.Result) string {
	text := fmt.Sprintf("exit %d", r.Exit)
	if r.TimedOut {
		text = "time was up"
	}
	for _, e := range r.Exhausted {
		text += ", out of " + string(e)
	}
	return text
}

// clip bounds text for the record.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
