package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// endPatience is how long commands may take to end.
const endPatience = 30 * time.Second

// Commands are those of a box that run. The zero value has none.
type Commands struct {
	turn sync.Mutex // held while none may begin

	mu  sync.Mutex
	ids map[cofferdam.ExecID]string // why each was ended; "" if it was not; guarded by mu
}

// Count says how many run.
func (c *Commands) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// Begin is called when a command starts, which waits while the box stands still to be
// counted; what it returns completes the result, after met has.
func (c *Commands) Begin(id cofferdam.ExecID, met func(*sandbox.Result)) func(*sandbox.Result) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[cofferdam.ExecID]string{}
	}
	c.ids[id] = ""
	return func(r *sandbox.Result) {
		met(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if why := c.ids[id]; why != "" && !r.TimedOut {
			r.Reason = "ended with everything it started: " + why
		}
		delete(c.ids, id)
	}
}

// end ends all that run; false if none does.
func (c *Commands) end(ctx context.Context, kill func(context.Context, cofferdam.ExecID) error, why string) (ended bool, err error) {
	c.mu.Lock()
	var ids []cofferdam.ExecID
	for id := range c.ids {
		c.ids[id] = why
		ids = append(ids, id)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { errs[i] = kill(ctx, id) })
	}
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range ids { // one that was not ended must not say that it was
		if c.ids[id] == why && errs[i] != nil {
			c.ids[id] = ""
		}
	}
	return len(ids) > 0, errors.Join(errs...)
}
