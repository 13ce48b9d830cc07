package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
)

const (
	// reviveWait is how long a call waits for another keeper in the place of one
	// that has ended.
	reviveWait = 20 * time.Second
	// settledLife is how long a keeper must have run for the next one to be
	// started at once.
	settledLife = 1 * time.Minute
	// firstPause is before the second start; each later one waits twice as long.
	firstPause = 2 * time.Second
	// longestPause bounds it: a keeper that ends at once is no storm.
	longestPause = 30 * time.Second
)

// reviver starts a keeper again in the place of one that has ended under its
// server. Its claim is in the state folder, so the client's token still holds
// there, and whoever has lost the claim starts nothing.
type reviver struct {
	slot  Slot
	token string
	args  []string // flags of the one that ended
	start func(ctx context.Context, s Slot, args []string) error
	log   *slog.Logger

	mu    sync.Mutex
	under chan struct{} // closed when the start under way is over; nil: none is; guarded by mu
	last  error         // of the last start; guarded by mu
	at    time.Time     // of the last start; guarded by mu
	pause time.Duration // before the next start; guarded by mu
}

// again returns when a keeper serves once more, or says why none does. One call
// starts it, the others wait for the same start.
func (r *reviver) again(ctx context.Context) error {
	r.mu.Lock()
	last := r.last
	if r.under == nil {
		if !r.at.IsZero() && time.Since(r.at) > settledLife {
			r.pause = 0
		}
		r.under = make(chan struct{})
		go r.begin(context.WithoutCancel(ctx), r.under, time.Until(r.at.Add(r.pause)))
	}
	under, pausing := r.under, time.Until(r.at.Add(r.pause)) > 0
	r.mu.Unlock()
	if last != nil && pausing {
		return r.refused(last) // it is tried again later: nobody waits for that
	}
	wait := time.NewTimer(reviveWait)
	defer wait.Stop()
	select {
	case <-under:
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return r.refused(fmt.Errorf("it ended, and another does not serve within %s", reviveWait))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		return r.refused(r.last)
	}
	return nil
}

// begin starts a keeper after a pause.
func (r *reviver) begin(ctx context.Context, over chan struct{}, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, longestPause+2*endTime)
	defer cancel()
	err := ctx.Err()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	if err == nil {
		err = r.once(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.at, r.under = err, time.Now(), nil
	r.pause = min(max(firstPause, 2*r.pause), longestPause)
	close(over)
}

// once starts a keeper, unless another one answers or takes the place.
func (r *reviver) once(ctx context.Context) error {
	f := found{slot: r.slot}
	f.info, f.err = Look(ctx, r.slot.Socket)
	if err := f.settle(ctx, endTime); err != nil {
		return err
	}
	if f.err == nil || !ended(f.err) {
		return f.err
	}
	if l := openLease(r.slot.State); l.now == nil || l.now.Token != r.token {
		return l.refusal()
	}
	r.log.WarnContext(ctx, "the keeper has ended, and its boxes with it; another is started", slog.String("socket", r.slot.Socket), slog.String("log", r.logFile()))
	err := r.start(ctx, r.slot, r.args)
	if err != nil {
		r.log.ErrorContext(ctx, "a keeper cannot be started", slog.Any("err", err), slog.String("hint", cofferdam.HintOf(err)), slog.String("log", r.logFile()))
	}
	return err
}

// logFile is where a keeper that a server has started writes.
func (r *reviver) logFile() string { return filepath.Join(r.slot.State, "keeper.log") }

// refused says why no keeper serves, and where it says more.
func (r *reviver) refused(why error) error {
	if cofferdam.KindOf(why) == cofferdam.Conflict {
		return why // another has the place: a new try does not help
	}
	e := &cofferdam.Error{
		Op: "keeper.Call", Kind: cofferdam.Unavailable, Subject: "start another keeper at unix:" + r.slot.Socket, Reason: why.Error(),
		Hint: "it is started again when the next call needs it, at most every " + longestPause.String() + " if it goes on ending; its log is " + r.logFile() + "; cofferdam doctor checks this host",
	}
	if h := cofferdam.HintOf(why); h != "" {
		e.Hint = h + "; its log is " + r.logFile()
	}
	return e
}
