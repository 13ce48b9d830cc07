package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Run sweeps until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for {
		if err := k.Sweep(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.WarnContext(ctx, "sweeping workspaces", slog.Any("error", err), slog.String("hint", cofferdam.HintOf(err)))
		}
		select {
		case <-time.After(sweepPause):
		case <-ctx.Done():
			return
		}
	}
}

// Sweep gives notice of what will be removed, then exports and removes what had
// its notice a day ago, and removes bundles that are too old. What cannot be
// exported stays, and its record says why. One that somebody exports or removes
// at the time is left to the next sweep.
func (k *Keeper) Sweep(ctx context.Context) error {
	k.sweep.Lock()
	defer k.sweep.Unlock()
	k.tick()
	defer k.tick()
	all, err := k.all(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, step := range []func(context.Context, one) error{k.tend, k.expire} { // an export takes a while, and holds up no notice
		for _, v := range all {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := k.alone(ctx, v, step); err != nil {
				errs = append(errs, fmt.Errorf("workspace of %s: %w", short(v.Record), err))
			}
		}
	}
	return errors.Join(errs...)
}

// alone does a step for a workspace that nobody exports or removes meanwhile, and
// with the record as it is by now.
func (k *Keeper) alone(ctx context.Context, v one, step func(context.Context, one) error) error {
	release, busy := k.tryHold(v.ID)
	if busy != nil {
		return nil
	}
	defer release()
	seen := v.Record
	r, err := k.o.Store.ChangeWorkspace(ctx, v.ID, func(*Record) error { return nil })
	if err != nil {
		return err
	}
	if r.Session != seen.Session || !r.Left.Equal(seen.Left) || r.Removed.IsZero() != seen.Removed.IsZero() {
		return nil // the next sweep sees to what it has become
	}
	r.Size, r.Used, v.Record = v.Size, v.Used, r
	return step(ctx, v)
}

// one is a workspace as the store and the keeper know it.
type one struct {
	Record
	disk  *sandbox.Workspace // nil: there is none
	away  bool               // the keeper has no such tier now, and says nothing of what is there
	due   time.Time          // its time is over then
	until time.Time          // it is removed then, at the earliest
}

// stuck says that it is kept for no other reason than that its export failed.
func (v one) stuck() bool { return v.Tried.After(v.Left) }

// all puts together what store and keeper know, the newest first.
func (k *Keeper) all(ctx context.Context) ([]one, error) {
	records, err := k.o.Store.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	disks, err := k.o.Driver.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	offers, err := k.o.Driver.Offers(ctx)
	if err != nil {
		return nil, err
	}
	var list []one
	for _, r := range records {
		v := one{Record: r, away: !slices.ContainsFunc(offers, func(o sandbox.Offer) bool { return o.Tier == r.Tier && slices.Contains(o.Can, sandbox.CanKeep) })}
		for _, d := range disks {
			if d.ID == r.ID && d.Tier == r.Tier {
				v.disk = &d
				v.Size, v.Used = d.Size, d.Used
			}
		}
		list = append(list, v)
	}
	k.schedule(list)
	return list, nil
}

// schedule says until when each is kept: for the time that is set after its last
// session, or, of those that together are too large, until now for the ones that
// nobody used for longest. What cannot be removed takes no room from others. Each
// had its notice for a day before.
func (k *Keeper) schedule(list []one) {
	byUse := make([]*one, 0, len(list))
	for i := range list {
		if list[i].Removed.IsZero() && list[i].disk != nil {
			byUse = append(byUse, &list[i])
		}
	}
	slices.SortStableFunc(byUse, func(a, b *one) int { return b.Left.Compare(a.Left) })
	now, total := k.o.Now(), int64(0)
	for _, v := range byUse {
		v.due = v.Left.Add(k.o.Keep)
		if v.Keep > 0 {
			v.due = v.Left.Add(min(v.Keep, k.o.Keep))
		}
		if !v.stuck() {
			total += v.Used
		}
		if k.o.MaxSize > 0 && total > k.o.MaxSize && v.due.After(now) {
			v.due = now
		}
		rest := Notice
		if !v.Noticed.IsZero() {
			rest = k.rest(v.Ran)
		}
		if v.until = v.due; now.Add(rest).After(v.until) {
			v.until = now.Add(rest)
		}
	}
}

// tend does what is due for one workspace, but for its removal.
func (k *Keeper) tend(ctx context.Context, v one) error {
	now := k.o.Now()
	set := func(change func(*Record)) error {
		_, err := k.o.Store.ChangeWorkspace(ctx, v.ID, func(r *Record) error { change(r); return nil })
		return err
	}
	if err := k.tendBundles(ctx, v.Record, now); err != nil {
		return err
	}
	noticed := !v.Noticed.IsZero() && v.Ran <= k.running()
	switch {
	case !v.Removed.IsZero() && v.disk != nil: // a box was being made when the clock was set
		return set(func(r *Record) { r.Removed, r.Note, r.Left = time.Time{}, "", now.UTC() })
	case !v.Removed.IsZero(), v.disk == nil && v.away:
		return nil
	case v.disk == nil && (v.Going || now.Sub(v.Left) > Notice): // never made, or somebody took it away
		return set(func(r *Record) {
			r.Going, r.Ready, r.Removed, r.Note = false, false, now.UTC(), "its disk is not there"
		})
	case v.Going: // whoever was about to remove it was killed: it is begun anew
		return set(func(r *Record) { r.Going = false })
	case v.disk == nil, v.disk.Box != "":
		return nil
	case !noticed && !now.Before(v.due.Add(-Notice)):
		return k.notice(ctx, v)
	case noticed && now.Before(v.due.Add(-2*Notice)): // the clock was wrong, or there is more room than there was
		return set(func(r *Record) { r.Noticed, r.Ran = time.Time{}, 0 })
	}
	return nil
}

// notice puts on record that a workspace will be removed, and when.
func (k *Keeper) notice(ctx context.Context, v one) error {
	now := k.o.Now().UTC()
	until := v.until
	if first := now.Add(Notice); first.After(until) {
		until = first
	}
	err := k.put(ctx, v.Record, cofferdam.EventWorkspaceNotice, map[string]string{"until": until.UTC().Format(time.RFC3339), "left": v.Left.UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	k.o.Log.WarnContext(ctx, "a workspace will be removed", slog.String("task", short(v.Record)), slog.Time("until", until))
	_, err = k.o.Store.ChangeWorkspace(ctx, v.ID, func(r *Record) error {
		if r.Left.Equal(v.Left) { // else a session has it
			r.Noticed, r.Ran = now, k.running()
		}
		return nil
	})
	return err
}

// expire removes a workspace whose time is over, if it had its notice.
func (k *Keeper) expire(ctx context.Context, v one) error {
	now := k.o.Now()
	waits := now.Sub(v.Tried) < retryPause && !v.Tried.After(now)
	if !v.Removed.IsZero() || v.Going || v.disk == nil || v.disk.Box != "" || v.Noticed.IsZero() || now.Before(v.until) || waits {
		return nil
	}
	why := fmt.Sprintf("nobody used it since %s", v.Left.UTC().Format(time.RFC3339))
	r, err := k.export(ctx, v.Record)
	if err == nil {
		k.o.Point("workspace:exported")
		err = k.remove(ctx, r, v.Session, why, platform())
	}
	if err == nil || ctx.Err() != nil || cofferdam.KindOf(err) == cofferdam.Conflict {
		return err // Conflict: a session took it up
	}
	return errors.Join(err, k.keeps(ctx, v.ID, err))
}

// keeps notes that a workspace is kept because its export failed.
func (k *Keeper) keeps(ctx context.Context, id sandbox.WorkspaceID, why error) error {
	_, err := k.o.Store.ChangeWorkspace(ctx, id, func(r *Record) error {
		r.Note, r.Tried = clip("it is kept, since it cannot be exported: "+why.Error()), k.o.Now().UTC()
		return nil
	})
	return err
}

// remove removes a workspace that no session took up after last, on record first.
func (k *Keeper) remove(ctx context.Context, r Record, last cofferdam.SessionID, why string, by cofferdam.Principal) error {
	r, err := k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
		if r.Session != last {
			return &cofferdam.Error{Op: "workspace.remove", Kind: cofferdam.Conflict, Subject: "workspace of " + short(*r), Reason: "a session took it up meanwhile", Hint: "wait until its task is at rest"}
		}
		r.Going = true
		return nil
	})
	if err != nil {
		return err
	}
	fields := map[string]string{"why": why, "used": strconv.FormatInt(r.Used, 10)}
	if r.Bundle != nil {
		fields["bundle"] = string(r.Bundle.Digest)
	}
	err = k.putBy(ctx, r, by, cofferdam.EventWorkspaceRemove, fields)
	if err == nil { // what is left of it when this process ends here goes with the next try
		err = dropCheckpoints(ctx, k.o.Driver, r.ID)
	}
	if err == nil {
		err = k.o.Driver.RemoveWorkspace(ctx, r.ID)
	}
	removed := err == nil
	_, keepErr := k.o.Store.ChangeWorkspace(ctx, r.ID, func(r *Record) error {
		r.Going = false
		if removed {
			r.Ready, r.Removed, r.Note = false, k.o.Now().UTC(), clip(why)
		}
		return nil
	})
	return errors.Join(err, keepErr)
}

// dropCheckpoints removes those of a workspace that is about to be removed: nothing
// else could be put back to them.
func dropCheckpoints(ctx context.Context, d sandbox.Driver, id sandbox.WorkspaceID) error {
	all, err := d.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Workspace == id {
			if err := d.RemoveSnapshot(ctx, s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Keeper) put(ctx context.Context, r Record, kind string, fields map[string]string) error {
	return k.putBy(ctx, r, platform(), kind, fields)
}

// putBy puts on record, and on disk, what is about to be done to a workspace.
func (k *Keeper) putBy(ctx context.Context, r Record, by cofferdam.Principal, kind string, fields map[string]string) error {
	fields["workspace"], fields["attempt"] = string(r.ID), strconv.Itoa(r.attempt())
	_, err := k.o.Record.Record(ctx, cofferdam.Event{
		Scope: r.Scope, Task: r.Task, Actor: by, Source: "workspace", Kind: kind, Resource: short(r), Fields: fields, Durable: true,
	})
	return err
}

func platform() cofferdam.Principal {
	return cofferdam.Principal{Kind: cofferdam.Platform, Name: "workspace"}
}

// maxNote bounds a sentence for people.
const maxNote = 500

func clip(s string) string {
	if len(s) > maxNote {
		return s[:maxNote] + "…"
	}
	return s
}
