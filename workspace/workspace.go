// Package workspace keeps what agents work in from one session to the next, says
// a day before that one is removed, and exports what is in it and nowhere else
// before it is.
//
// It never reads a workspace itself: a box without a network reads it, as the
// agent's user, and what that says is checked by git in a cage. The invariants: no
// workspace is removed without a notice that is a day old, nor before its export
// is on disk and on record.
package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// How long things are kept. Source: docs/SPECIFICATION.md, "Workspaces".
const (
	DefaultKeep    = 14 * 24 * time.Hour // after the last session
	Notice         = 24 * time.Hour      // between the notice and the removal
	DefaultBundles = 90 * 24 * time.Hour // of an export
	sweepPause     = 10 * time.Minute
	retryPause     = 6 * time.Hour // after an export that failed
)

// Record is what the store keeps of a workspace.
type Record struct {
	ID sandbox.WorkspaceID `json:"id"`
	cofferdam.Scope
	Task    cofferdam.TaskID    `json:"task"`
	Number  int64               `json:"number"`
	Attempt int                 `json:"attempt"` // below zero: none goes on with it
	Repo    cofferdam.RepoID    `json:"repo"`
	Tier    sandbox.Tier        `json:"tier"`
	Session cofferdam.SessionID `json:"session"` // that has or had it last
	Epoch   int64               `json:"epoch"`
	Ready   bool                `json:"ready"` // a checkout is in it
	Keep    time.Duration       `json:"keep"`  // that the project asked for; 0: it did not
	Image   string              `json:"image"` // path of what its last session had at "/"
	Size    int64               `json:"size"`
	Used    int64               `json:"used"`
	Made    time.Time           `json:"made"`
	Left    time.Time           `json:"left"`
	Noticed time.Time           `json:"noticed"`
	Ran     time.Duration       `json:"ran"`     // how long servers had run when it was noticed
	Going   bool                `json:"going"`   // it is being removed: no session gets it
	Tried   time.Time           `json:"tried"`   // an export that failed
	Looked  time.Time           `json:"looked"`  // that all in it is in Bundle, or in the repository
	Removed time.Time           `json:"removed"` // zero while it is there
	Note    string              `json:"note"`
	Bundle  *cofferdam.Bundle   `json:"bundle"`
	Earlier []cofferdam.Bundle  `json:"earlier,omitempty"` // of exports before that; none without Bundle
	// Told is how long servers had run when a bundle's removal was noticed.
	Told map[cofferdam.Digest]time.Duration `json:"told,omitempty"`
}

// Store keeps records. Errors are *cofferdam.Error: NotFound for what is not there.
type Store interface {
	// WorkspaceOf finds the workspace of an attempt.
	WorkspaceOf(ctx context.Context, t cofferdam.TaskID, attempt int) (Record, error)
	// Workspaces lists those that are there or have a bundle, the newest first.
	Workspaces(ctx context.Context) ([]Record, error)
	// AddWorkspace keeps a new one; a Conflict if the attempt has one.
	AddWorkspace(ctx context.Context, r Record) error
	// ChangeWorkspace reads one, lets change alter it and writes it back, with
	// nobody in between. change's error is returned and nothing is kept.
	ChangeWorkspace(ctx context.Context, id sandbox.WorkspaceID, change func(*Record) error) (Record, error)
	// SessionTry is which try of its attempt a session is, from 1.
	SessionTry(ctx context.Context, id cofferdam.SessionID) (int, error)
}

// Options is what a Keeper works with. What is not marked as optional is needed.
type Options struct {
	Dir    string // of bundles, of this room alone
	Driver sandbox.Driver
	Store  Store
	Record cofferdam.Recorder // the host log
	// Tips are commits that the repository's mirror has refs to.
	Tips func(ctx context.Context, id cofferdam.RepoID) ([]cofferdam.Commit, error)
	// Bundle makes a checked bundle of what a box said is one, and how many
	// commits are in it that the mirror does not have.
	Bundle func(ctx context.Context, id cofferdam.RepoID, from io.Reader, to io.Writer) (commits int, refs []cofferdam.Ref, err error)

	Keep    time.Duration    // optional; DefaultKeep
	MaxSize int64            // optional; bytes of all workspaces together; 0: no bound
	Bundles time.Duration    // optional; DefaultBundles
	Now     func() time.Time // optional
	// Up is for how long this process has run, whatever its clock was set to
	// meanwhile; optional.
	Up    func() time.Duration
	Log   *slog.Logger // optional
	Point func(string) // optional; called at named steps, for tests that end the process
}

// Keeper is the workspaces of one installation. Safe for concurrent use.
type Keeper struct {
	o      Options
	before time.Duration // for which servers had run before this one
	sweep  sync.Mutex    // one at a time

	mu   sync.Mutex
	held map[sandbox.WorkspaceID]chan struct{} // being exported or removed; guarded by mu
}

// New opens the folder of bundles and removes what a crash left half written.
func New(o Options) (*Keeper, error) {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.Bundles == 0 {
		o.Bundles = DefaultBundles
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Up == nil {
		began := time.Now()
		o.Up = func() time.Duration { return time.Since(began) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Point == nil {
		o.Point = func(string) {}
	}
	err := os.MkdirAll(o.Dir, 0o700)
	half, globErr := filepath.Glob(filepath.Join(o.Dir, "*.new*"))
	err = errors.Join(err, globErr)
	for _, path := range half {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, &cofferdam.Error{Op: "workspace.New", Kind: cofferdam.Unavailable, Subject: "folder " + o.Dir, Hint: "make it writable", Err: err}
	}
	return &Keeper{o: o, before: readRunning(o.Dir), held: map[sandbox.WorkspaceID]chan struct{}{}}, nil
}

// hold waits until nobody exports or removes a workspace, and keeps others from it.
func (k *Keeper) hold(ctx context.Context, id sandbox.WorkspaceID) (release func(), err error) {
	for {
		release, busy := k.tryHold(id)
		if busy == nil {
			return release, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryHold is hold for who does not wait: busy ends when it may try again.
func (k *Keeper) tryHold(id sandbox.WorkspaceID) (release func(), busy <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if other := k.held[id]; other != nil {
		return nil, other
	}
	done := make(chan struct{})
	k.held[id] = done
	return func() {
		k.mu.Lock()
		delete(k.held, id)
		k.mu.Unlock()
		close(done)
	}, nil
}

var _ session.Workspaces = (*Keeper)(nil)

// idOf names the workspace that the session with an epoch makes for its attempt.
func idOf(t cofferdam.TaskID, epoch int64) sandbox.WorkspaceID {
	sum := sha256.Sum256(fmt.Appendf(nil, "workspace %s %d", t, epoch))
	return sandbox.WorkspaceID("w-" + hex.EncodeToString(sum[:16]))
}

// tries bounds those of one attempt within an epoch.
const tries = 1 << 20

// Take implements session.Workspaces. The epoch follows from which try of which
// attempt the session is: one that an earlier server left behind comes too late.
func (k *Keeper) Take(ctx context.Context, p session.Plan, t sandbox.Tier, image string, keep time.Duration) (session.Lease, error) {
	try, err := k.o.Store.SessionTry(ctx, p.ID)
	if err != nil {
		return session.Lease{}, err
	}
	epoch, now := int64(p.Attempt)*tries+int64(try), k.o.Now().UTC()
	r, err := k.o.Store.WorkspaceOf(ctx, p.Task, p.Attempt)
	if err == nil && r.Tier != t && r.Removed.IsZero() && epoch > r.Epoch {
		if r, err = k.leave(ctx, r, t, epoch); err == nil {
			err = &cofferdam.Error{Op: "workspace.Take", Kind: cofferdam.NotFound}
		}
	}
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		r = Record{
			ID: idOf(p.Task, epoch), Scope: p.Scope, Task: p.Task, Number: p.Number, Attempt: p.Attempt, Repo: p.Repo.ID,
			Tier: t, Session: p.ID, Epoch: epoch, Keep: keep, Image: image, Made: now, Left: now,
		}
		return session.Lease{ID: r.ID, Epoch: epoch}, k.o.Store.AddWorkspace(ctx, r)
	}
	if err != nil {
		return session.Lease{}, err
	}
	r, err = k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
		switch {
		case epoch < r.Epoch:
			return &cofferdam.Error{
				Op: "workspace.Take", Kind: cofferdam.Conflict, Subject: "workspace of " + short(*r),
				Reason: fmt.Sprintf("session %s came after this one and has it", r.Session), Hint: "this session is over; nothing is to be done",
			}
		case r.Going:
			return &cofferdam.Error{Op: "workspace.Take", Kind: cofferdam.Unavailable, Subject: "workspace of " + short(*r), Reason: "it is being removed", Hint: "try again in a minute"}
		case !r.Removed.IsZero():
			r.Ready, r.Made = false, now
		}
		r.Tier, r.Session, r.Epoch, r.Image, r.Keep, r.Left = t, p.ID, epoch, image, keep, now
		r.Removed, r.Noticed, r.Looked, r.Tried, r.Note = time.Time{}, time.Time{}, time.Time{}, time.Time{}, ""
		return nil
	})
	return session.Lease{ID: r.ID, Epoch: epoch, Ready: r.Ready}, err
}

// leave takes a workspace from its attempt, which goes on in a tier that cannot
// have it. It has its time, its notice and its export like any other, and is found
// by its id.
func (k *Keeper) leave(ctx context.Context, r Record, t sandbox.Tier, epoch int64) (Record, error) {
	return k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
		r.Attempt, r.Note = -int(epoch), fmt.Sprintf("a session of tier %s began anew: this one is of tier %s", t, r.Tier)
		return nil
	})
}

// attempt is the one that has it, or had it when it was left.
func (r Record) attempt() int { return max(r.Attempt, int(r.Epoch/tries)) }

// Ready implements session.Workspaces.
func (k *Keeper) Ready(ctx context.Context, p session.Plan) error {
	return k.note(ctx, p, func(r *Record) { r.Ready = true })
}

// Left implements session.Workspaces.
func (k *Keeper) Left(ctx context.Context, p session.Plan) error {
	return k.note(ctx, p, func(r *Record) { r.Left = k.o.Now().UTC() })
}

// note changes the workspace that a session has; one that another has by now, or
// that the session never had, is none of its business.
func (k *Keeper) note(ctx context.Context, p session.Plan, change func(*Record)) error {
	r, err := k.o.Store.WorkspaceOf(ctx, p.Task, p.Attempt)
	if err == nil {
		_, err = k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
			if r.Session == p.ID {
				change(r)
			}
			return nil
		})
	}
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil
	}
	return err
}

// PassOn gives the workspace of a task's attempt to the attempt that comes next.
// What it returns takes that back.
func (k *Keeper) PassOn(ctx context.Context, t cofferdam.Task) (undo func(), err error) {
	r, err := k.o.Store.WorkspaceOf(ctx, t.ID, t.Attempt)
	if err == nil && (!r.Removed.IsZero() || r.Going || !r.Ready) {
		err = &cofferdam.Error{Op: "workspace.PassOn", Kind: cofferdam.NotFound}
	}
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil, &cofferdam.Error{
			Op: "workspace.PassOn", Kind: cofferdam.Conflict, Subject: "workspace of " + t.Short(), Reason: "its last attempt left none to go on with",
			Hint: "leave --resume away, for a fresh checkout; cofferdam workspace list shows what there is",
		}
	}
	if err != nil {
		return nil, err
	}
	move := func(ctx context.Context, from, to int) error {
		_, err := k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
			if r.Attempt == from {
				r.Attempt = to
			}
			return nil
		})
		return err
	}
	if err := move(ctx, t.Attempt, t.Attempt+1); err != nil {
		return nil, err
	}
	return func() {
		if err := move(context.WithoutCancel(ctx), t.Attempt+1, t.Attempt); err != nil {
			k.o.Log.WarnContext(ctx, "giving a workspace back to its attempt", slog.String("task", t.Short()), slog.Any("error", err))
		}
	}, nil
}

func short(r Record) string { return cofferdam.Task{Number: r.Number}.Short() }
