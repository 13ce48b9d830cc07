package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"cofferdam"
)

// follower brings a task's changes and its sessions' events into one stream.
// run owns every goroutine and closes items as the last thing it does.
type follower struct {
	s     *Service
	items chan cofferdam.Progress
	seen  map[cofferdam.SessionID]bool
	rests chan struct{} // closed once the task is at rest
	wg    sync.WaitGroup
	err   error // of run; read after items is closed
}

const progressSchema = "cofferdam/progress/v1"

func (f *follower) run(ctx context.Context, id cofferdam.TaskID) {
	defer close(f.items)
	logs, cancel := context.WithCancel(ctx)
	defer cancel()
	err := f.s.Tasks.Watch(ctx, id, func(t cofferdam.Task) error {
		if AtRest(t.State) { // its last events come before its last state
			close(f.rests)
			f.replay(logs, t.Sessions)
			f.drain(cancel)
			_ = f.put(ctx, cofferdam.Progress{Schema: progressSchema, Task: &t}) // fails only when nobody follows any more
			return errRest
		}
		_ = f.put(ctx, cofferdam.Progress{Schema: progressSchema, Task: &t})
		f.follow(logs, t.Sessions)
		return nil
	})
	cancel()
	f.wg.Wait()
	if err != nil && !errors.Is(err, errRest) {
		f.err = err
	}
}

// drain waits for the logs of sealed sessions, but not for ever: a session that
// a crash left unsealed does not hold up the news that its task has ended.
func (f *follower) drain(cancel func()) {
	timer := time.AfterFunc(followGrace, cancel)
	defer timer.Stop()
	f.wg.Wait()
}

// fresh returns the sessions that are not followed yet.
func (f *follower) fresh(ids []cofferdam.SessionID) []cofferdam.SessionID {
	var out []cofferdam.SessionID
	for _, id := range ids {
		if !f.seen[id] && len(f.seen) < maxFollowed {
			f.seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// follow reads the logs of new sessions side by side: one that is never sealed
// does not hold up the next.
func (f *follower) follow(ctx context.Context, ids []cofferdam.SessionID) {
	for _, id := range f.fresh(ids) {
		f.wg.Go(func() {
			for f.read(ctx, id) { // a session is known before its log is there
				select {
				case <-time.After(followAgain):
				case <-f.rests:
					f.read(ctx, id)
					return
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// replay reads the logs of sessions that have ended, one after the other.
func (f *follower) replay(ctx context.Context, ids []cofferdam.SessionID) {
	ended := f.fresh(ids)
	f.wg.Go(func() {
		for _, id := range ended {
			f.read(ctx, id)
		}
	})
}

// followAgain is how long it takes to look again for a log that is not there.
const followAgain = 200 * time.Millisecond

// read sends one log, and says whether there is none. One that cannot be read ends
// its part of the stream only; the task's state goes on.
func (f *follower) read(ctx context.Context, id cofferdam.SessionID) (none bool) {
	err := f.s.Trace.Follow(ctx, id, 0, func(e cofferdam.Event) error {
		return f.put(ctx, cofferdam.Progress{Schema: progressSchema, Event: &e})
	})
	return err != nil && cofferdam.KindOf(err) == cofferdam.NotFound
}

func (f *follower) put(ctx context.Context, p cofferdam.Progress) error {
	select {
	case f.items <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
