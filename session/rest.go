package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// Bounds of rest. Source: docs/SPECIFICATION.md, "Session".
const (
	// mostWarning is how long before it a suspension or an end is announced, and
	// at most half of the time that it is about.
	mostWarning = 1 * time.Minute
	// maxResumes is how often a box is asked to go on before another takes its
	// place.
	maxResumes = 3
)

// Steps, fields and things of the events about rest.
const (
	stepAnswered  = "answered" // of session.state: a person has said something
	fieldActor    = "actor"    // of the box's last change
	fieldSequence = "sequence" // of the box's last change
	fieldMode     = "mode"     // how, one of these
	modeWarm      = "warm"     // the same box goes on, memory and all
	modeCold      = "cold"     // a new box, from what is on the branch
	modeDisk      = "disk"     // of session.suspended: no process is left
	modeMemory    = "memory"   // of session.suspended: its processes stand still
	modeStays     = "stays"    // of session.suspended: its tier cannot rest
	aboutIdle     = "idle"     // of session.warning
	aboutLifetime = "lifetime" // of session.warning
)

// spoke is why most boxes are resumed.
const spoke = "a person said something"

// afterCold is what an agent is told whose box did not come back.
const afterCold = "Your machine could not be brought back after the wait. You are in a new one: what you had pushed is in the checkout, all else is gone. Look at it first, then go on."

// afterColdKept is the same where the workspace outlived the box.
const afterColdKept = "Your machine could not be brought back after the wait. You are in a new one: the workspace is as you left it, processes and other files are gone. Look at it first, then go on."

// resting is what the log says of a session's waiting and of its box's rest.
type resting struct {
	born      time.Time // its first box was ready
	asked     bool      // it waits for a person
	question  string    // … to answer this
	since     time.Time // … from then on
	waited    time.Duration
	suspended bool
	stays     bool            // its tier cannot rest
	colds     int             // boxes that took the place of one that did not come back
	warned    map[string]bool // of an end, in this wait
}

func (r *resting) note(e cofferdam.Event) {
	switch e.Kind {
	case cofferdam.EventSessionState:
		switch {
		case e.Fields[fieldStep] == stepReady && r.born.IsZero():
			r.born = e.Time
		case e.Fields[fieldStep] == stepAnswered && r.asked:
			r.waited += e.Time.Sub(r.since)
			r.asked = false
		}
	case cofferdam.EventSessionAsk:
		r.asked, r.question, r.since = true, e.Fields[fieldText], e.Time
		delete(r.warned, aboutIdle)
	case cofferdam.EventSessionWarn:
		if r.warned == nil {
			r.warned = map[string]bool{}
		}
		r.warned[e.Resource] = true
	case cofferdam.EventSuspended:
		r.suspended = e.Outcome == gateway.OK
		r.stays = e.Fields[fieldMode] == modeStays
	case cofferdam.EventResumed:
		r.suspended = false
		if e.Fields[fieldMode] == modeCold {
			r.colds++
		}
	case cofferdam.EventRestore:
		if e.Of != nil && e.Outcome == gateway.OK { // a new box has the workspace
			r.suspended = false
			r.colds++
		}
	}
}

// seconds makes a duration of a field of a cofferdam.Rest.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// lead is how long before it something is announced that happens after d.
func lead(d time.Duration) time.Duration { return min(mostWarning, d/2) }

// remark records an event of this room that has a reason and an outcome.
func (a *nap) remark(ctx context.Context, kind, resource, outcome, reason string, fields map[string]string) error {
	e := a.ledger.event
	e.Kind, e.Resource, e.Outcome, e.Reason, e.Fields = kind, resource, outcome, reason, fields
	_, err := a.ledger.Record(ctx, e)
	return err
}

// await waits for a person's word after the agent has asked, and lets the box
// rest meanwhile. It returns with the box awake once there is something to tell
// the agent, or with over when the session's lifetime ended first. note, if not
// "", is for the agent to know before the answer.
func (d dialogue) await(ctx context.Context, question string) (note string, over bool, err error) {
	rest, asked := &nap{attempt: d.attempt}, false
	d.ledger.look(func(s *seen) { asked = s.asked })
	if !asked && (d.anySaid(ctx, turn{}) || d.ledger.restoreWanted()) { // it was told something meanwhile
		note, err = rest.rise(ctx, spoke)
		return note, false, err
	}
	if !asked {
		if err := rest.remark(ctx, cofferdam.EventSessionAsk, d.adapter.Name, "", "its agent waits for a person", map[string]string{fieldText: question}); err != nil {
			return "", false, err
		}
	}
	if !d.anySaid(ctx, turn{}) {
		if err := rest.stand(ctx, question); err != nil {
			return "", false, err
		}
	}
	tick := time.NewTicker(d.o.Look)
	defer tick.Stop()
	for !d.anySaid(ctx, turn{}) && !d.ledger.restoreWanted() {
		if over = !time.Now().Before(lifetime(d).ends()); over {
			break
		}
		if err := rest.look(ctx); err != nil {
			return "", false, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		}
	}
	why := spoke
	switch {
	case over:
		why = lifetime(d).over()
	case d.ledger.restoreWanted():
		why = whyPutBack
	}
	if note, err = rest.rise(ctx, why); err != nil {
		return "", false, err
	}
	if err := rest.stand(ctx, ""); err != nil {
		return "", false, err
	}
	return note, over, d.ledger.step(ctx, stepAnswered, map[string]string{fieldText: why})
}

// stand tells whoever keeps the task that its agent waits for an answer to
// question, or, with "", that it does not any more.
func (a *nap) stand(ctx context.Context, question string) error {
	if a.o.Asks == nil {
		return nil
	}
	return a.o.Asks(ctx, a.plan, question)
}

// nap is the part of a session that is about its box's rest. It measures for how
// long the box has nothing to do, and suspends it then. What an agent says of
// itself does not count; what the host sees does.
type nap struct {
	*attempt
	since    time.Time // nothing was to do since then
	restless bool      // it could not be suspended in this wait
}

// look looks once. What goes wrong with the box is no error here: it is seen
// when the box is needed.
func (a *nap) look(ctx context.Context) error {
	err := a.doze(ctx)
	if a.asleep || a.gone != "" {
		a.turns.give(a.plan.ID)
	}
	return err
}

// doze suspends a box that has nothing to do once the idle timeout is over, or
// another session needs the turn.
func (a *nap) doze(ctx context.Context) error {
	limit := seconds(a.grant.rest.Idle)
	stays := false
	a.ledger.look(func(s *seen) {
		stays = s.stays
		if a.since.IsZero() {
			a.since = s.resting.since
		}
	})
	if a.asleep || a.gone != "" || stays {
		return nil
	}
	why, err := a.busy(ctx)
	switch {
	case a.gone != "":
		return a.remark(ctx, cofferdam.EventSuspended, string(a.boxID(a.nth)), gateway.Failed, "the box was lost while its agent waited: "+a.gone, nil)
	case err != nil:
		if ctx.Err() == nil {
			a.o.Log.WarnContext(ctx, "an idle box cannot be looked at", slog.String("session", string(a.plan.ID)), slog.Any("error", err))
		}
		return nil
	case a.asleep:
		return nil
	case why != "":
		a.since = time.Now()
		return nil
	}
	idle := time.Since(a.since)
	switch {
	case limit > 0 && idle >= limit:
		a.since = time.Now() // one that does not rest is not tried again at once
		return a.suspend(ctx, fmt.Sprintf("idle for %s: its agent waits for a person", idle.Round(time.Second)))
	case a.turns.wanted(a.plan.ID) && !a.restless:
		return a.suspend(ctx, "its agent waits for a person, and another session for its turn")
	case limit > 0 && idle >= limit-lead(limit):
		return a.warn(ctx, aboutIdle, a.since.Add(limit), "its box is idle and about to be suspended; any message to the task keeps it")
	}
	return nil
}

// warn announces an end, once.
func (a *nap) warn(ctx context.Context, about string, at time.Time, reason string) error {
	warned := false
	a.ledger.look(func(s *seen) { warned = s.warned[about] })
	if warned {
		return nil
	}
	return a.remark(ctx, cofferdam.EventSessionWarn, about, "", reason, map[string]string{"at": at.UTC().Format(time.RFC3339)})
}

// busy says what the box has to do; "" if nothing. All of it is what the host
// sees: a command that has no result, a request that has no outcome. What a
// command left behind goes on after the rest.
func (a *nap) busy(ctx context.Context) (why string, err error) {
	st, err := a.box.Status(ctx)
	switch {
	case lost(err):
		a.gone = errBoxLost.Error()
		return "", nil
	case err != nil:
		return "", err
	case st.State.Over():
		a.gone = st.Reason
		return "", nil
	case st.State == sandbox.Suspended:
		a.asleep = true // an earlier process did it, and did not come to say so
		return "", a.remark(ctx, cofferdam.EventSuspended, string(st.ID), gateway.OK, "found suspended", lastChange(st))
	case st.State != sandbox.Idle && st.State != sandbox.Ready:
		return "it is " + string(st.State), nil
	}
	if n := a.ledger.inFlight(); n > 0 {
		return fmt.Sprintf("%d requests are in flight", n), nil
	}
	return "", nil
}

// lastChange is the box's last change of state as fields.
func lastChange(st sandbox.Status) map[string]string {
	f := map[string]string{fieldTier: string(st.Tier), "state": string(st.State)}
	if n := len(st.Changes); n > 0 {
		last := st.Changes[n-1]
		f[fieldActor], f[fieldSequence], f["box_reason"] = last.Actor, strconv.FormatInt(last.Sequence, 10), last.Reason
	}
	return f
}

// suspend sends the box to disk; where its tier cannot, or the disk is full, it is
// paused and stays in memory. Its wire is cut first: what is connected to outside would not live on.
// A driver that can do neither is said to keep it running.
func (a *nap) suspend(ctx context.Context, why string) error {
	id := string(a.boxID(a.nth))
	can, err := a.can(ctx)
	if err != nil {
		return nil // the keeper is away: it is looked at again
	}
	ways := slices.DeleteFunc([]way{{sandbox.CanSuspend, modeDisk, a.box.Suspend}, {sandbox.CanPause, modeMemory, a.box.Pause}}, func(w way) bool {
		return !slices.Contains(can, w.needs)
	})
	if len(ways) == 0 {
		err := sandbox.Lacking(a.tier(), sandbox.CanSuspend)
		return a.remark(ctx, cofferdam.EventSuspended, id, gateway.Failed, "it keeps running, and its turn: "+err.Error(), map[string]string{fieldTier: string(a.tier()), fieldMode: modeStays})
	}
	a.cut()
	for _, w := range ways {
		err := w.do(ctx)
		if err == nil {
			return a.rests(ctx, why, w.mode)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := a.remark(ctx, cofferdam.EventSuspended, id, gateway.Failed, "it keeps running: "+err.Error(), map[string]string{fieldMode: w.mode}); err != nil {
			return err
		}
		if st, err := a.box.Status(ctx); lost(err) || err == nil && st.State.Over() {
			a.gone = errBoxLost.Error()
			return nil
		}
	}
	a.restless = true
	return a.connect(ctx)
}

// way is how a box can rest.
type way struct {
	needs sandbox.Capability
	mode  string
	do    func(context.Context) error
}

// rests puts on record that the box does.
func (a *nap) rests(ctx context.Context, why, mode string) error {
	a.asleep = true
	st, err := a.box.Status(ctx)
	if err != nil {
		a.o.Log.WarnContext(ctx, "a suspended box says nothing", slog.Any("error", err))
	}
	fields := lastChange(st)
	fields[fieldMode] = mode
	return a.remark(ctx, cofferdam.EventSuspended, string(a.boxID(a.nth)), gateway.OK, why, fields)
}

// can is what the session's tier can do.
func (a *nap) can(ctx context.Context) ([]sandbox.Capability, error) {
	offers, err := a.o.Driver.Offers(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range offers {
		if o.Tier == a.tier() {
			return o.Can, nil
		}
	}
	return nil, nil
}

// rise sees that the session has a box that runs: the one that rests goes on,
// or, if it cannot, a new one takes its place. note is for the agent then.
func (a *nap) rise(ctx context.Context, why string) (note string, err error) {
	if !a.asleep && a.gone == "" {
		suspended := false
		a.ledger.look(func(s *seen) { suspended = s.suspended })
		if !suspended {
			return "", nil
		}
		return "", a.resumed(ctx, why) // an earlier process did it, and did not come to say so
	}
	if err := (ticket{a.attempt}).take(ctx, false); err != nil {
		return "", err
	}
	for try := 1; a.gone == ""; try++ {
		err := a.box.Resume(ctx)
		if err == nil {
			a.asleep = false
			if err := a.resumed(ctx, why); err != nil {
				return "", err
			}
			return "", a.connect(ctx)
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		st, serr := a.box.Status(ctx)
		switch {
		case lost(serr) || serr == nil && (st.State.Over() || try >= maxResumes):
			a.gone = err.Error()
		case serr != nil && try >= maxResumes:
			return "", errors.Join(err, serr) // the keeper is away, which says nothing of the box
		}
	}
	if err := a.replace(ctx, why); err != nil {
		return "", err
	}
	if a.goesOn {
		return afterColdKept, nil
	}
	return afterCold, nil
}

// resumed puts on record that the box goes on as it was.
func (a *nap) resumed(ctx context.Context, why string) error {
	st, err := a.box.Status(ctx)
	if err != nil {
		return boxError(err)
	}
	f := lastChange(st)
	f[fieldMode] = modeWarm
	return a.remark(ctx, cofferdam.EventResumed, string(st.ID), gateway.OK, why, f)
}

// replace puts a new box in the place of one that did not come back. What was
// pushed is in it.
func (a *nap) replace(ctx context.Context, why string) error {
	old := a.boxID(a.nth)
	a.cut()
	if err := a.destroy(ctx, old); err != nil {
		return err
	}
	err := a.remark(ctx, cofferdam.EventResumed, string(old), gateway.Failed, why+"; a new box takes its place: "+a.gone, map[string]string{fieldMode: modeCold})
	if err != nil {
		return err
	}
	a.asleep, a.gone = false, ""
	return inOrder(ctx, a.enter, a.connect, a.checkout, outfit{a.attempt}.dress)
}
