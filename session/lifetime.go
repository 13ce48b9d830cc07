package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// graceEnd is how long the programs of a session whose lifetime is over may take
// to end by themselves. Source: docs/SPECIFICATION.md, "Session".
const graceEnd = 15 * time.Second

// errLifetime is why the context of our own agent ends before the session's.
var errLifetime = errors.New("the session's lifetime is over")

// lifetime is the part of a session that is about its end in time.
type lifetime struct{ *attempt }

// ends is when the session's lifetime is over; it counts from its first box on.
func (a lifetime) ends() time.Time {
	var born time.Time
	a.ledger.look(func(s *seen) { born = s.born })
	if born.IsZero() {
		born = time.Now()
	}
	return born.Add(seconds(a.grant.rest.Lifetime))
}

// over is the sentence of a session whose lifetime was over.
func (a lifetime) over() string {
	return fmt.Sprintf("the session's maximum lifetime of %s was over", seconds(a.grant.rest.Lifetime))
}

// expire returns true once the session's lifetime is over, with a warning
// before, and false if ctx ends first.
func (a lifetime) expire(ctx context.Context) bool {
	ends := a.ends()
	until := func(at time.Time) bool {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !until(ends.Add(-lead(seconds(a.grant.rest.Lifetime)))) {
		return false
	}
	if err := (&nap{attempt: a.attempt}).warn(ctx, aboutLifetime, ends, "its maximum lifetime is almost over; what is there then is taken"); err != nil && ctx.Err() == nil {
		a.o.Log.WarnContext(ctx, "the end of a session cannot be announced", slog.String("session", string(a.plan.ID)), slog.Any("error", err))
	}
	return until(ends)
}

// endsTurn ends a turn of the agent when the session's lifetime is over.
func (d dialogue) endsTurn(ctx context.Context, id cofferdam.ExecID) bool {
	if !lifetime(d).expire(ctx) {
		return false
	}
	lifetime(d).tellToEnd(ctx, id)
	grace := time.NewTimer(graceEnd)
	defer grace.Stop()
	tick := time.NewTicker(d.o.Look)
	defer tick.Stop()
	select {
	case <-grace.C:
	case <-ctx.Done(): // it has ended
		return true
	}
	for {
		err := d.box.Kill(ctx, id)
		if err == nil || lost(err) {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true
		}
	}
}

// tellToEnd tells all programs of the box to end. Who does not is killed later.
func (a lifetime) tellToEnd(ctx context.Context, id cofferdam.ExecID) {
	c := sandbox.Command{ID: id + "-term", Shell: "kill -TERM -1", Dir: "/", Timeout: graceEnd}
	if err := a.begin(ctx, a.box, policy.ByPlatform, c); err != nil && ctx.Err() == nil {
		a.o.Log.WarnContext(ctx, "programs cannot be told to end", slog.String("session", string(a.plan.ID)), slog.Any("error", err))
	}
}

// endHands ends what our own agent's commands run when its session's lifetime is
// over: gently at first.
func (b brain) endHands(ctx context.Context) error {
	var open []cofferdam.ExecID
	b.ledger.look(func(s *seen) {
		for id, x := range s.execs {
			if strings.HasPrefix(string(id), "loop-") && x.result == nil {
				open = append(open, id)
			}
		}
	})
	if len(open) == 0 {
		return nil
	}
	lifetime(b).tellToEnd(ctx, open[0])
	gentle, cancel := context.WithTimeout(ctx, graceEnd)
	defer cancel()
	for _, id := range open {
		_, err := b.box.Attach(gentle, id, sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return nil })
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := b.box.Kill(ctx, id); err != nil && !lost(err) {
			return err
		}
	}
	return nil
}

// allowance is the time that our own agent has, less what it waits for people.
type allowance struct {
	left  time.Duration
	began time.Time
	timer *time.Timer
}

func newAllowance(left time.Duration, over func()) *allowance {
	return &allowance{left: left, began: time.Now(), timer: time.AfterFunc(left, over)}
}

func (w *allowance) pause() {
	w.timer.Stop()
	w.left -= time.Since(w.began)
}

func (w *allowance) goOn() {
	w.began = time.Now()
	w.timer.Reset(w.left)
}
