package keeper

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
)

// leaseFile keeps the claim in the keeper's state folder, so that a keeper that
// is started again still knows whose calls to take.
const leaseFile = "claim.json"

// fencedTime is how long the calls of a client that lost its claim may take to
// notice: a reply that its end does not read holds nobody up any longer.
const fencedTime = 1 * time.Second

// settleTime is how long a new claim waits for those calls. Most end at once; a
// box that is being made or removed takes some seconds.
const settleTime = 30 * time.Second

// lease says whose calls may change anything: those of the client that claimed
// the keeper last. A server that was thought dead and comes late has another
// fencing token, and is refused.
type lease struct {
	path string // of the file; "": it lives in memory alone

	claiming sync.Mutex // one claim at a time
	told     *tenure    // the last whose client got its token, and may have calls under way; guarded by claiming
	mu       sync.Mutex
	now      *tenure // guarded by mu; nil: nobody has claimed
}

// tenure is the time of one client.
type tenure struct {
	Token string    `json:"token"`
	Since time.Time `json:"since"`

	over  context.Context // ended by the next claim
	end   context.CancelFunc
	calls sync.WaitGroup // of this client, under way
}

func newTenure(token string, since time.Time) *tenure {
	t := &tenure{Token: token, Since: since}
	t.over, t.end = context.WithCancel(context.Background())
	return t
}

// openLease reads who claimed the keeper before it was started again. What
// cannot be read is nobody's claim, and the next server makes its own.
func openLease(dir string) *lease {
	l := &lease{}
	if dir == "" {
		return l
	}
	l.path = filepath.Join(dir, leaseFile)
	var last tenure
	if data, err := os.ReadFile(l.path); err == nil && json.Unmarshal(data, &last) == nil && last.Token != "" {
		l.now = newTenure(last.Token, last.Since)
		l.told = l.now
	}
	return l
}

// enter begins a call of the client with that token. Its context ends with the
// claim; leave ends the call.
func (l *lease) enter(token string) (over context.Context, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil || token == "" || token != l.now.Token {
		return nil, nil, l.fenced()
	}
	l.now.calls.Add(1)
	return l.now.over, l.now.calls.Done, nil
}

// refusal is what a client without the claim is told.
func (l *lease) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fenced()
}

// fenced is refusal for who holds mu.
func (l *lease) fenced() error {
	e := &cofferdam.Error{
		Op: "keeper.Claim", Kind: cofferdam.Conflict, Subject: "call keeper", Reason: "the caller has not claimed this keeper",
		Hint: "one server at a time uses a keeper, the last one that was started: end this one, or start it again to take the keeper back",
	}
	if l.now != nil {
		e.Reason = "another server claimed this keeper at " + l.now.Since.UTC().Format(time.RFC3339)
	}
	return e
}

// claim makes a new client the only one, and returns its token when no call of
// the one before can do anything any more. Who claims again after a claim that
// came to nothing waits for the same calls.
func (l *lease) claim(ctx context.Context) (string, error) {
	l.claiming.Lock()
	defer l.claiming.Unlock()
	t := newTenure(rand.Text(), time.Now())
	if err := l.write(t); err != nil {
		return "", &cofferdam.Error{
			Op: "keeper.Claim", Kind: cofferdam.Unavailable, Subject: "claim keeper", Reason: "its state folder cannot be written: " + err.Error(),
			Hint: "free some space there, or mend the disk", Err: err,
		}
	}
	l.mu.Lock()
	l.now = t
	l.mu.Unlock()
	before := l.told
	if before == nil {
		l.told = t
		return t.Token, nil
	}
	before.end()
	settled := make(chan struct{})
	go func() {
		before.calls.Wait() // each was told to end
		close(settled)
	}()
	select {
	case <-settled:
		l.told = t
		return t.Token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(settleTime):
		return "", &cofferdam.Error{
			Op: "keeper.Claim", Kind: cofferdam.Unavailable, Subject: "claim keeper",
			Reason: "calls of the server before are still under way after " + settleTime.String(), Hint: "try again",
		}
	}
}

// write puts a claim on disk before anybody is told of it.
func (l *lease) write(t *tenure) error {
	if l.path == "" {
		return nil
	}
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(l.path+".new", l.path)
	}
	return err
}
