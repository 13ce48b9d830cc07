package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"cofferdam"
	"cofferdam/sandbox"
)

// MaxKeepers is how many keepers of one installation may run: the one that
// makes boxes, and three that are being replaced.
const MaxKeepers = 4

// Slot is where one keeper of an installation is.
type Slot struct {
	Socket string
	State  string // folder
}

// Slots are the places of the keepers of one installation, given the first.
func Slots(socket, state string) []Slot {
	all := []Slot{{socket, state}}
	for n := 2; n <= MaxKeepers; n++ {
		ext := filepath.Ext(socket)
		all = append(all, Slot{fmt.Sprintf("%s-%d%s", strings.TrimSuffix(socket, ext), n, ext), fmt.Sprintf("%s-%d", state, n)})
	}
	return all
}

// Set is the Driver over the keepers of one installation: the newest makes all
// boxes, and each of the others still has those that it made. Safe for
// concurrent use.
type Set struct {
	*Client // the newest
	older   []*elder
}

var _ sandbox.Driver = (*Set)(nil)

// elder is a keeper that is being replaced.
type elder struct {
	slot Slot
	log  *slog.Logger

	mu     sync.Mutex
	client *Client // guarded by mu; nil until it answers
	gone   bool    // guarded by mu
}

// errGone says that a keeper has ended, and its boxes with it.
var errGone = errors.New("the keeper has ended")

// ended says whether err means that nobody is at a socket.
func ended(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// join claims the keeper and tells it to drain, once it answers.
func (e *elder) join(ctx context.Context) (*Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return nil, errGone
	}
	if e.client != nil {
		return e.client, nil
	}
	c, err := Dial(ctx, e.slot.Socket)
	if err == nil {
		err = c.Drain(ctx)
	}
	if err != nil {
		e.gone = ended(err)
		if e.gone {
			return nil, errGone
		}
		return nil, err
	}
	e.client = c
	return c, nil
}

// left notes that a call found nobody.
func (e *elder) left(err error) bool {
	if !ended(err) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.gone {
		e.log.Info("a replaced keeper has ended", slog.String("socket", e.slot.Socket))
	}
	e.gone = true
	return true
}

// Open finds a box, whichever keeper has it. One that does not answer may have
// it: that is no proof that there is none.
func (s *Set) Open(ctx context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	b, err := s.Client.Open(ctx, id)
	if cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
		return b, err
	}
	silent := error(nil)
	for _, e := range s.older {
		c, joinErr := e.join(ctx)
		if joinErr == nil {
			b, joinErr = c.Open(ctx, id)
		}
		switch {
		case joinErr == nil:
			return b, nil
		case errors.Is(joinErr, errGone) || e.left(joinErr) || cofferdam.KindOf(joinErr) == cofferdam.NotFound:
		default:
			silent = joinErr
		}
	}
	if silent != nil {
		return nil, silent
	}
	return nil, err
}

// List returns the boxes of every keeper.
func (s *Set) List(ctx context.Context) ([]sandbox.Status, error) {
	var all []sandbox.Status
	err := s.every(ctx, func(c *Client) error {
		list, err := c.List(ctx)
		all = append(all, list...)
		return err
	})
	return all, err
}
