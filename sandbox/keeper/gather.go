package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"cofferdam"
)

// endTime is how long a keeper without a box may take to end.
const endTime = 30 * time.Second

// Gathering is what Gather works with.
type Gathering struct {
	Slots []Slot
	Build string // of the programs that are installed
	// Start starts a keeper of that build in a slot and returns when it serves.
	// args are those of the keeper that it replaces; nil for the first one. The
	// Set calls it again, from any goroutine, when its keeper has ended.
	Start func(ctx context.Context, s Slot, args []string) error
	Log   *slog.Logger

	Patience time.Duration // with a keeper that begins or ends; 0: 30 seconds
}

// found is what is at a slot.
type found struct {
	slot Slot
	info Info
	err  error
}

// running says whether a keeper of the protocol's version answers there.
func (f found) running() bool { return f.err == nil }

// Gather claims the keepers of an installation for the caller, and sees to it
// that the one that makes boxes is of the installed build. One of another build
// is told to drain: without a box it ends at once, else when its last box does.
// Everything can be repeated; whatever ends the caller in between, the next one
// goes on.
func Gather(ctx context.Context, g Gathering) (*Set, error) {
	all, err := g.look(ctx)
	if err != nil {
		return nil, err
	}
	newest := -1
	for i, f := range all {
		if f.running() && f.info.Build == g.Build && !f.info.Draining {
			newest = i
			break
		}
	}
	if newest < 0 {
		if newest, err = g.replace(ctx, all); err != nil {
			return nil, err
		}
	}
	s := &Set{}
	if s.Client, err = Dial(ctx, g.Slots[newest].Socket); err != nil {
		return nil, err
	}
	info, err := Look(ctx, g.Slots[newest].Socket)
	if err != nil {
		return nil, err
	}
	s.Client.again = &reviver{slot: g.Slots[newest], token: s.Client.token, args: info.Args, start: g.Start, log: g.Log}
	for i, f := range all {
		if i == newest || f.err != nil && ended(f.err) {
			continue
		}
		e := &elder{slot: f.slot, log: g.Log}
		s.older = append(s.older, e)
		if !f.running() {
			g.Log.WarnContext(ctx, "a keeper does not answer; its boxes are looked for when they are asked for", slog.Any("err", f.err), slog.String("hint", cofferdam.HintOf(f.err)))
			continue
		}
		g.Log.InfoContext(ctx, "a keeper is being replaced", slog.Int("process", f.info.Process), slog.String("build", f.info.Build), slog.Int("boxes", f.info.Boxes))
		if _, err := e.join(ctx); err != nil && !errors.Is(err, errGone) {
			g.Log.WarnContext(ctx, "telling a keeper to drain", slog.Any("err", err))
		}
	}
	return s, ctx.Err()
}

// ask asks every slot who is there.
func ask(ctx context.Context, slots []Slot) []found {
	all := make([]found, len(slots))
	var asked sync.WaitGroup
	for i, s := range slots {
		asked.Go(func() {
			info, err := Look(ctx, s.Socket)
			all[i] = found{s, info, err}
		})
	}
	asked.Wait()
	return all
}

// Answering returns what the keepers that answer say of themselves.
func Answering(ctx context.Context, slots []Slot) []Info {
	var all []Info
	for _, f := range ask(ctx, slots) {
		if f.running() {
			all = append(all, f.info)
		}
	}
	return all
}

// look is ask for who is about to claim them. A keeper of another version of the
// protocol is an error: what it has would be lost.
func (g Gathering) look(ctx context.Context) ([]found, error) {
	all := ask(ctx, g.Slots)
	for i := range all {
		if err := all[i].settle(ctx, cmp.Or(g.Patience, endTime)); err != nil {
			return nil, err
		}
	}
	for _, f := range all {
		if f.err != nil && !ended(f.err) && !errors.Is(f.err, errHangs) {
			return nil, f.err
		}
	}
	return all, ctx.Err()
}

// replace starts a keeper of the installed build, in the place of one that has
// no box or beside those that have. Only then are they told to drain: if it
// cannot be started, they go on as they were.
func (g Gathering) replace(ctx context.Context, all []found) (int, error) {
	args, free := []string(nil), -1
	for i, f := range all {
		if f.running() && (args == nil || !f.info.Draining) {
			args = f.info.Args
		}
		if f.err != nil && ended(f.err) && free < 0 {
			free = i
		}
	}
	for i, f := range all {
		// Its place is the first: it is given up before another takes it.
		if f.running() && f.info.Boxes == 0 && (free < 0 || i < free) {
			if err := g.end(ctx, f); err != nil {
				return 0, err
			}
			free, all[i].err = i, errEnded
			break
		}
	}
	if free < 0 {
		return 0, crowded(all)
	}
	return free, g.Start(ctx, g.Slots[free], args)
}

// errEnded stands for a keeper that has ended meanwhile.
var errEnded = fmt.Errorf("it has ended: %w", syscall.ECONNREFUSED)

// settle waits for a keeper that is about to begin, or to end: nobody answers
// for it, and the state folder is taken.
func (f *found) settle(ctx context.Context, patience time.Duration) error {
	for deadline := time.Now().Add(patience); f.err != nil && ended(f.err) && taken(f.slot.State); {
		if time.Now().After(deadline) {
			if f.err = f.silent(); errors.Is(f.err, errHangs) {
				return nil
			}
			return f.err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
		f.info, f.err = Look(ctx, f.slot.Socket)
	}
	return nil
}

// lookAgain is how often a process that comes or goes is looked for.
const lookAgain = 20 * time.Millisecond

// end ends a keeper that has no box, and waits for it.
func (g Gathering) end(ctx context.Context, f found) error {
	c, err := Dial(ctx, f.slot.Socket)
	if err == nil {
		err = c.Drain(ctx)
	}
	if err == nil {
		err = f.gone(ctx)
	}
	if err != nil && !ended(err) {
		return err
	}
	g.Log.InfoContext(ctx, "a keeper without a box was replaced", slog.Int("process", f.info.Process), slog.String("build", f.info.Build))
	return nil
}

// gone waits for the end of a keeper.
func (f found) gone(ctx context.Context) error {
	for deadline := time.Now().Add(endTime); ; {
		if _, err := Look(ctx, f.slot.Socket); err != nil && ended(err) && !taken(f.info.State) {
			return nil
		}
		if time.Now().After(deadline) {
			return &cofferdam.Error{
				Op: "keeper.Gather", Kind: cofferdam.Unavailable, Subject: fmt.Sprintf("replace keeper (process %d)", f.info.Process),
				Reason: "it has no box and does not end within " + endTime.String(), Hint: fmt.Sprintf("kill -TERM %d, then try again", f.info.Process),
			}
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// crowded refuses one keeper more than there may be.
func crowded(all []found) error {
	var who []string
	for _, f := range all {
		if f.running() {
			who = append(who, fmt.Sprintf("process %d with %d boxes", f.info.Process, f.info.Boxes))
		} else {
			who = append(who, "one that does not answer at unix:"+f.slot.Socket)
		}
	}
	return &cofferdam.Error{
		Op: "keeper.Gather", Kind: cofferdam.Exhausted, Subject: "start keeper", Reason: fmt.Sprintf("%d run already: %s", len(all), strings.Join(who, ", ")),
		Hint: "start the server of the release before until the tasks of one of them have ended, or end one with kill -TERM: its tasks try again",
	}
}
