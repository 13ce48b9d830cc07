package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// whyRestored, of agent.turn: its workspace was put back.
const whyRestored = "restored"

// whyPutBack is why a box is resumed to have its workspace put back.
const whyPutBack = "its workspace is put back"

// modeOver, of sandbox.restore: its agent goes on no more.
const modeOver = "over"

// errRestore is why our own agent stops to think: its workspace is put back.
var errRestore = errors.New("its workspace is put back to a checkpoint")

// afterRestore is what an agent is told whose workspace was put back.
const afterRestore = "Your workspace was put back to the checkpoint %s, which was taken at %s, and you are in a new machine: what was changed in the workspace since then is undone, and processes and other files are gone. Look at it first, then go on."

// afterNoRestore is what it is told if it could not be, and its box was gone by then.
const afterNoRestore = "Your machine was ended and you are in a new one: the workspace is as you left it, processes and other files are gone. Look at it first, then go on."

// restores is what the log says of the session's checkpoints, and of restores to them.
type restores struct {
	nextCheckpoint int                   // the lowest number that one of it may have
	from           sandbox.SnapshotID    // of the last restore that was done
	restore        *restore              // that is under way; nil: none
	restoreEnds    map[uint64]restoreEnd // of those before, by the number of the event that asked for it
	notice         string                // what the agent is told of the last one
	untold         bool                  // it was not told yet
}

// restore is one that a person has asked for: a checkpoint that the workspace is to be
// put back to.
type restore struct {
	seq    uint64 // of the event
	by     cofferdam.Principal
	name   string // of the checkpoint
	id     sandbox.SnapshotID
	digest cofferdam.Digest
	taken  string
	ended  string // ids of commands that ran
	undo   string // name of the checkpoint that was taken for it; "" as long as there is none
}

// restoreEnd is how one ended.
type restoreEnd struct {
	undo, ended string
	reason      string // why not; "" if it was done
}

func (p *restores) note(e cofferdam.Event) {
	f := e.Fields
	switch e.Kind {
	case cofferdam.EventCheckpoint:
		if e.Outcome != gateway.OK {
			return
		}
		p.nextCheckpoint = max(p.nextCheckpoint, int(number(f[fieldNumber]))+1)
		if p.restore != nil && f[fieldAutomatic] == "true" {
			p.restore.undo = e.Resource
		}
	case cofferdam.EventRestore:
		switch {
		case e.Of != nil && p.restore != nil:
			p.noteEnd(e)
		case e.Of == nil && e.Outcome == "":
			p.restore = &restore{
				seq: e.Seq, by: e.Actor, name: e.Resource, id: sandbox.SnapshotID(f[fieldCheckpoint]), digest: cofferdam.Digest(f[fieldDigest]),
				taken: f["taken"], ended: f[fieldEnded],
			}
		}
	case cofferdam.EventAgentTurn, cofferdam.EventAgentMessage, cofferdam.EventAgentTool, cofferdam.EventAgentCost:
		if e.Kind != cofferdam.EventAgentTurn || f[fieldKind] == "" {
			p.untold = false
		}
	}
}

// noteEnd learns how a restore ended.
func (p *restores) noteEnd(e cofferdam.Event) {
	r := p.restore
	p.restore = nil
	if p.restoreEnds == nil {
		p.restoreEnds = map[uint64]restoreEnd{}
	}
	end := restoreEnd{undo: r.undo, ended: r.ended}
	switch {
	case e.Outcome == gateway.OK:
		p.from, p.notice = r.id, fmt.Sprintf(afterRestore, r.name, r.taken)
	case e.Fields[fieldMode] == modeCold:
		p.notice = afterNoRestore
	default:
		p.notice = interruption
	}
	if e.Outcome != gateway.OK {
		end.reason = e.Reason
	}
	p.untold, p.restoreEnds[*e.Of] = e.Fields[fieldMode] != modeOver, end
}

// restoring is the part of an attempt that others than its own goroutine use: who asks
// for a restore, which that goroutine does, and waits for its end.
type restoring struct {
	taking sync.Mutex // one checkpoint is taken at a time

	mu   sync.Mutex
	open bool          // its agent is at work; guarded by mu
	left bool          // this process does not run it any more; guarded by mu
	told chan struct{} // closed when a restore has come to its end; guarded by mu
}

func (c *restoring) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func (c *restoring) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = true
}

// wake tells who waits for a restore to look again.
func (c *restoring) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told != nil {
		close(c.told)
		c.told = nil
	}
}

// leave is for an attempt that this process runs no longer.
func (c *restoring) leave() {
	c.mu.Lock()
	c.open, c.left = false, true
	c.mu.Unlock()
	c.wake()
}

// restoreWanted says whether the workspace is to be put back.
func (l *ledger) restoreWanted() (yes bool) {
	l.look(func(s *seen) { yes = s.restore != nil })
	return yes
}

// restoreUntold says whether the agent has to hear of a restore before all else, one
// that is to be done or one that was.
func (l *ledger) restoreUntold() (yes bool) {
	l.look(func(s *seen) { yes = s.restore != nil || s.untold })
	return yes
}

// closes ends the time in which a workspace can be put back; false if somebody wants
// that just now.
func (c *restoring) closes(l *ledger) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.restoreWanted() {
		return false
	}
	c.open = false
	return true
}

// restorer is an attempt that takes checkpoints of its workspace and restores them.
type restorer struct{ *attempt }

// Restore puts the workspace of a session whose agent is at work back to a checkpoint,
// and returns when that has come to its end. What runs in the box ends with it; a
// checkpoint is taken before, by which it can be undone.
func (r *Runner) Restore(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, by cofferdam.Principal, name string) (cofferdam.Restored, error) {
	const op = "session.Restore"
	at, box, err := r.atWork(ctx, op, scope, id)
	if err != nil {
		return cofferdam.Restored{}, err
	}
	a := restorer{at}
	s, err := r.pick(ctx, op, scope, a.kept.ID, name)
	if err != nil {
		return cofferdam.Restored{}, err
	}
	if err := a.check(ctx, s); err != nil {
		e := a.restoreEvent(by, s)
		e.Outcome, e.Reason = gateway.Failed, err.Error()
		if _, rerr := a.ledger.Record(context.WithoutCancel(ctx), e); rerr != nil {
			return cofferdam.Restored{}, rerr
		}
		return cofferdam.Restored{}, err
	}
	var end restoreEnd
	err = gateway.Handle(ctx, a.grant.caller, gateway.Request{
		Source: "session", Kind: cofferdam.EventRestoreAsk, Resource: s.Name(), Actor: by, Durable: true,
		Query:  policy.Query{Action: policy.Restore, Name: s.Name()},
		Fields: map[string]string{fieldCheckpoint: string(s.ID), fieldDigest: string(s.Digest)},
	}, func(ctx context.Context) (gateway.Outcome, error) {
		e := a.restoreEvent(by, s)
		e.Fields[fieldEnded] = running(ctx, box)
		e, err := a.ask(ctx, op, e)
		if err == nil {
			end, err = a.awaitEnd(ctx, op, e.Seq)
		}
		return gateway.Outcome{}, err
	})
	if err == nil && end.reason != "" {
		err = &cofferdam.Error{
			Op: op, Kind: cofferdam.Conflict, Subject: "checkpoint " + s.Name(), Reason: "the workspace is as it was: " + end.reason,
			Hint: fmt.Sprintf("see cofferdam sandbox view t-%d and its trace", a.plan.Number),
		}
	}
	return cofferdam.Restored{
		Schema: "cofferdam/restored/v1", Session: id, Checkpoint: s.Name(), Undo: end.undo, Ended: execIDs(end.ended),
	}, err
}

// restoreEvent is one about a restore to a checkpoint.
func (a restorer) restoreEvent(by cofferdam.Principal, s sandbox.Snapshot) cofferdam.Event {
	e := a.ledger.event
	e.Kind, e.Resource, e.Actor = cofferdam.EventRestore, s.Name(), by
	e.Fields = map[string]string{
		fieldCheckpoint: string(s.ID), fieldDigest: string(s.Digest), fieldComment: s.Comment, "taken": s.Taken.UTC().Format(time.RFC3339), "workspace": string(a.kept.ID),
	}
	return e
}

// check refuses a checkpoint before anything ends for it: one that is not what
// was signed, and one that would have to go for the one that is taken before.
func (a restorer) check(ctx context.Context, s sandbox.Snapshot) error {
	if _, err := a.vouched(s); err != nil {
		return err
	}
	all, err := a.o.Driver.Snapshots(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(o sandbox.Snapshot) bool { return o.Session != a.plan.ID })
	goes := slices.ContainsFunc(all, func(o sandbox.Snapshot) bool { return o.Automatic && o.ID != s.ID })
	if len(all) >= sandbox.MaxOfSession && !goes {
		return &cofferdam.Error{
			Op: "session.Restore", Kind: cofferdam.Exhausted, Subject: "checkpoint " + s.Name(),
			Reason: fmt.Sprintf("there is no room for the one that is taken before: the session has %d", len(all)), Hint: "remove one that is not needed: cofferdam sandbox checkpoint remove",
		}
	}
	// To compare it, with itself for want of another, all of it is read and proved.
	_, err = a.o.Driver.Differences(ctx, sandbox.Compare{Scope: a.plan.Scope, From: s.ID, To: s.ID})
	return err
}

// running lists the commands that have something running in a box; nothing where
// that cannot be told.
func running(ctx context.Context, box sandbox.Box) string {
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	jobs, _ := box.Jobs(ctx) // a box that rests does not answer
	var ids []string
	for _, j := range jobs {
		if j.Command != "" && len(ids) < maxEndedTold {
			ids = append(ids, string(j.Command))
		}
	}
	return strings.Join(ids, " ")
}

// maxEndedTold bounds the commands that are named.
const maxEndedTold = 64

func execIDs(text string) []cofferdam.ExecID {
	ids := []cofferdam.ExecID{}
	for id := range strings.FieldsSeq(text) {
		ids = append(ids, cofferdam.ExecID(id))
	}
	return ids
}

// ask puts on record that the workspace is to be put back: from then on whatever
// process comes next does it.
func (a restorer) ask(ctx context.Context, op string, e cofferdam.Event) (cofferdam.Event, error) {
	a.restoring.mu.Lock()
	defer a.restoring.mu.Unlock()
	if !a.restoring.open {
		return e, notAtWork(op, a.attempt)
	}
	if a.ledger.restoreWanted() {
		return e, &cofferdam.Error{
			Op: op, Kind: cofferdam.Conflict, Subject: fmt.Sprintf("t-%d", a.plan.Number), Reason: "its workspace is being put back to a checkpoint already", Hint: "try again when that is done",
		}
	}
	e.Durable = true
	return a.ledger.Record(context.WithoutCancel(ctx), e)
}

// awaitEnd waits until a restore has come to its end.
func (a restorer) awaitEnd(ctx context.Context, op string, seq uint64) (restoreEnd, error) {
	gone := func(reason string) error {
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: fmt.Sprintf("t-%d", a.plan.Number), Reason: reason, Hint: fmt.Sprintf("cofferdam sandbox view t-%d, and the trace, say what came of it", a.plan.Number),
		}
	}
	for {
		a.restoring.mu.Lock()
		if a.restoring.told == nil {
			a.restoring.told = make(chan struct{})
		}
		told, left := a.restoring.told, a.restoring.left
		a.restoring.mu.Unlock()
		end, done := restoreEnd{}, false
		a.ledger.look(func(s *seen) { end, done = s.restoreEnds[seq] })
		switch {
		case done:
			return end, nil
		case left:
			return end, gone("its session ended, or its server, before the workspace was put back")
		}
		select {
		case <-told:
		case <-ctx.Done():
			return end, gone("its workspace is still being put back")
		}
	}
}

// restore does the one that is under way, if one is. Whatever comes of it is on record,
// and the session goes on, in a box that runs.
func (a restorer) restore(ctx context.Context) error {
	var r *restore
	a.ledger.look(func(s *seen) { r = s.restore })
	if r == nil {
		return nil
	}
	cold, err := a.putBack(ctx, *r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	mode := modeWarm
	if cold {
		mode = modeCold
	}
	if err := a.recordEnd(ctx, *r, mode, err); err != nil {
		return err
	}
	a.restoring.wake()
	switch {
	case err == nil:
		a.asleep, a.gone = false, ""
		return inOrder(ctx, a.enter, a.connect, a.checkout, outfit{a.attempt}.dress)
	case cold:
		a.gone = err.Error()
		return (&nap{attempt: a.attempt}).replace(ctx, "its workspace was to be put back")
	}
	return nil
}

// putBack puts the workspace back, up to the box that is then needed. cold says that
// there is none.
func (a restorer) putBack(ctx context.Context, r restore) (cold bool, err error) {
	if _, err := (&nap{attempt: a.attempt}).rise(ctx, whyPutBack); err != nil {
		return false, err
	}
	if err := a.endCommands(ctx); err != nil {
		return false, err
	}
	if r.undo == "" {
		if _, err := a.checkpoint(ctx, a.box, r.by, sandbox.Take{Spare: r.id, Label: sandbox.Label{Automatic: true, Comment: "before restoring " + r.name}}); err != nil {
			return false, fmt.Errorf("no checkpoint could be taken before, by which it can be undone: %w", err)
		}
	}
	s, err := a.pick(ctx, "session.Restore", a.plan.Scope, a.kept.ID, string(r.id))
	if err == nil {
		_, err = a.vouched(s)
	}
	if err == nil && s.Digest != r.digest {
		err = &cofferdam.Error{Op: "session.Restore", Kind: cofferdam.Tampered, Subject: "checkpoint " + r.name, Reason: "it is not the one that was asked for", Hint: "find out who can write to the state folder"}
	}
	if err != nil {
		return false, err
	}
	a.cut()
	if err := a.destroy(ctx, a.boxID(a.nth)); err != nil {
		return false, errors.Join(err, a.connect(ctx))
	}
	return true, a.o.Driver.RestoreWorkspace(ctx, sandbox.Restore{
		Scope: a.plan.Scope, Workspace: a.kept.ID, Epoch: a.kept.Epoch, Snapshot: s.ID, Digest: r.digest,
	})
}

// recordEnd puts on record how a restore ended.
func (a restorer) recordEnd(ctx context.Context, r restore, mode string, failed error) error {
	e := a.ledger.event
	e.Kind, e.Resource, e.Of, e.Outcome, e.Durable = cofferdam.EventRestore, r.name, &r.seq, gateway.OK, true
	e.Fields = map[string]string{fieldCheckpoint: string(r.id), fieldMode: mode}
	a.ledger.look(func(s *seen) {
		if s.restore != nil {
			e.Fields[fieldUndo] = s.restore.undo
		}
	})
	if failed != nil {
		e.Outcome, e.Reason = gateway.Failed, failed.Error()
	}
	_, err := a.ledger.Record(ctx, e)
	return err
}

// endCommands ends the commands that run in the box, so that their ends are on record.
func (a restorer) endCommands(ctx context.Context) error {
	var open []cofferdam.ExecID
	a.ledger.look(func(s *seen) {
		for id, x := range s.execs {
			if x.result == nil {
				open = append(open, id)
			}
		}
	})
	slices.Sort(open)
	for _, id := range open {
		err := a.box.Kill(ctx, id)
		if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound { // it never began, or was another box's
			continue
		}
		if err == nil {
			_, err = a.execute(ctx, a.box, policy.ByPlatform, sandbox.Command{ID: id, Argv: []string{"true"}}, nil) // it was started: what it was does not count
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refuse puts on record that the restore that is under way, if one is, is not done any
// more.
func (a restorer) refuse(ctx context.Context, why string) error {
	var r *restore
	a.ledger.look(func(s *seen) { r = s.restore })
	if r == nil {
		return nil
	}
	defer a.restoring.wake()
	return a.recordEnd(ctx, *r, modeOver, errors.New(why))
}
