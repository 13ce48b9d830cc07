package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// DefaultCheckTimeout bounds a check of which nobody said how long it may take.
const DefaultCheckTimeout = 15 * time.Minute

// cleanup bounds what is still done for a session whose context has ended.
const cleanup = time.Minute

// attempt is one session while this process runs it.
type attempt struct {
	*Runner
	plan    Plan
	adapter agent.Adapter
	ledger  *ledger
	result  Result

	live   context.Context // of the gateways
	end    context.CancelFunc
	grant  grant
	env    environment.Found
	image  environment.Image
	made   environment.Recipe // what the repository says of its boxes
	box    sandbox.Box
	nth    int // which of the session's boxes that is, from 0
	wire   Wire
	asleep bool   // the box is suspended
	gone   string // why the box that rested will not come back; "" if it may
	taken  bool   // the workspace began at what an earlier session of the attempt had pushed

	kept      Lease // the workspace that outlives the box; zero for none
	goesOn    bool  // an earlier session's checkout is in it
	restoring restoring
}

// open opens the session's log and learns from it how far the session came.
func (r *Runner) open(ctx context.Context, p Plan) (*attempt, error) {
	name := p.Request.Agent
	if p.Phase == gateway.Proof {
		name = "command" // the platform's own checks
	}
	adapter, err := r.o.Agents.Load(name)
	if err != nil {
		return nil, err
	}
	log, err := r.o.Trace.Session(p.Scope, p.ID)
	if err != nil {
		return nil, err
	}
	actor := cofferdam.Principal{Kind: cofferdam.Platform, Name: "session"}
	// Reading what is on record, and what follows from it, is not cut short by
	// the end of the task: a session is sealed then.
	ledger, err := openLedger(context.WithoutCancel(ctx), log, cofferdam.Event{
		Scope: p.Scope, Task: p.Task, Session: p.ID, Actor: actor, Source: "session",
	})
	if err != nil {
		return nil, err
	}
	a := &attempt{Runner: r, plan: p, adapter: adapter, ledger: ledger, result: Result{Session: p.ID}}
	// The gateways do not end with ctx but with leave, which cuts the wire first:
	// a program in the box then waits for the next process, where a refusal
	// would have made it give up.
	a.live, a.end = context.WithCancel(context.WithoutCancel(ctx))
	if ledger.seen.opened {
		return a, nil
	}
	return a, ledger.put(context.WithoutCancel(ctx), cofferdam.EventSessionOpen, string(p.Phase), map[string]string{
		"phase": string(p.Phase), "agent": adapter.Name, "version": adapter.Version, "repo": p.Repo.Name,
		"commit": string(p.Commit), "branch": string(p.Branch), "attempt": strconv.Itoa(p.Attempt),
		"model": p.Model.Name, "rehearsal": strconv.FormatBool(p.Model.Rehearsal), "reader": adapter.Reader,
	})
}

// ended says whether an earlier process put the result on record.
func (a *attempt) ended() bool { return a.ledger.seen.result != nil || a.ledger.seen.ended }

// grace is how long requests may take to notice that their wire was cut, before
// the session's grants end under them. It is below the 5 seconds within which
// every grant of an ended task is dead.
const grace = 2 * time.Second

// leave lets go of what this process holds. The box goes on.
func (a *attempt) leave() {
	a.forget(a.plan.ID)
	a.restoring.leave()
	defer a.end()
	late := time.AfterFunc(grace, a.end)
	defer late.Stop()
	a.cut()
}

// cut ends the wire of the box, if there is one.
func (a *attempt) cut() {
	if a.wire == nil {
		return
	}
	if err := a.wire.Close(); err != nil {
		a.o.Log.WarnContext(a.live, "closing the wire of a session", slog.String("session", string(a.plan.ID)), slog.Any("error", err))
	}
	a.wire = nil
}

// recordResult puts the result on record, less the checks, which are there.
func (a *attempt) recordResult() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.live), cleanup)
	defer cancel()
	// Outcomes of requests that the wire cuts off are still on record then.
	a.leave()
	r := a.result
	r.Checks = nil
	return a.ledger.step(ctx, stepResult, map[string]string{
		fieldData: encode(r), "failure": r.Failure, "reason": r.Reason, "head": string(r.Head), "said": string(r.Said),
	})
}

// finish removes the box and seals the log. All of it can be repeated.
func (a *attempt) finish(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	boxes := []cofferdam.BoxID{a.setupBoxID()}
	colds := 0
	a.ledger.look(func(s *seen) { colds = s.colds })
	for nth := range max(1, len(a.plan.Checks)) + colds {
		boxes = append(boxes, a.boxID(nth))
	}
	for _, id := range boxes {
		if err := a.destroy(ctx, id); err != nil {
			return Result{}, err
		}
	}
	a.turns.give(a.plan.ID)
	if a.plan.Phase == gateway.Work && a.o.Workspaces != nil {
		if err := a.o.Workspaces.Left(ctx, a.plan); err != nil {
			return Result{}, err
		}
	}
	if err := os.RemoveAll(a.dir()); err != nil {
		return Result{}, err
	}
	head, err := a.ledger.log.Seal(ctx)
	if err != nil {
		return Result{}, err
	}
	var r Result
	a.ledger.look(func(s *seen) {
		if s.result != nil {
			r = *s.result
		}
		for i := range a.plan.Checks {
			if run, ok := s.checks[i]; ok {
				r.Checks = append(r.Checks, run)
			}
		}
		r.Box, r.Usage, r.Judged, r.Passed, r.Strays = s.box, s.spent(), s.judged, s.passed, s.strays
	})
	if r.Session == "" { // sealed by other hands before there was a result
		r.Session, r.Failure, r.Reason = a.plan.ID, cofferdam.ReasonBox, "the session's log was sealed before it had a result"
	}
	r.Sealed = Head{Size: head.Size, Root: head.Root, Time: head.Time}
	return r, nil
}

// destroy removes a box; one that is not there is no error.
func (a *attempt) destroy(ctx context.Context, id cofferdam.BoxID) error {
	box, err := a.o.Driver.Open(ctx, id)
	if err == nil {
		err = box.Destroy(ctx)
	}
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil
	}
	return err
}

// boxID names one of the session's boxes: every check has its own, all else the
// first, or the one that took its place. It follows from the session's id, so that any process finds the box,
// and a second one cannot be made.
func (a *attempt) boxID(nth int) cofferdam.BoxID {
	if nth == 0 {
		return boxID(a.plan.ID, "work")
	}
	return boxID(a.plan.ID, "check "+strconv.Itoa(nth+1))
}

func (a *attempt) setupBoxID() cofferdam.BoxID { return boxID(a.plan.ID, "setup") }

func boxID(id cofferdam.SessionID, purpose string) cofferdam.BoxID {
	sum := sha256.Sum256([]byte(string(id) + " " + purpose))
	return cofferdam.BoxID("b-" + hex.EncodeToString(sum[:16]))
}

// dir is where this session keeps what must not go on record yet.
func (a *attempt) dir() string { return filepath.Join(a.o.Dir, string(a.plan.ID)) }

// lost says whether err means that the box is gone.
func lost(err error) bool {
	return err != nil && cofferdam.KindOf(err) == cofferdam.NotFound
}

var errBoxLost = errors.New("the box was lost; what was in memory, and what its tier does not keep, with it")
