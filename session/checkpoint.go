package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// Fields of events about checkpoints.
const (
	fieldCheckpoint = "checkpoint" // id
	fieldComment    = "comment"
	fieldAutomatic  = "automatic" // "true": taken before a restore
	fieldEnded      = "ended"     // ids of commands that a restore ended
	fieldUndo       = "undo"      // name of the checkpoint that was taken before a restore
)

// Now is what a checkpoint can be compared with beside another one.
const Now = "now"

// worker finds a session that runs here, with the box it has.
func (r *Runner) worker(ctx context.Context, op string, scope cofferdam.Scope, id cofferdam.SessionID) (*attempt, sandbox.Box, error) {
	r.mu.Lock()
	l, ok := r.alive[id]
	r.mu.Unlock()
	if !ok || l.of.plan.Scope != scope {
		return nil, nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.Conflict, Subject: "box of session " + string(id), Reason: "its session does not run now: it is over, or a server that has just started takes it up",
			Hint: "try again in a moment; after its end cofferdam task retry --resume goes on in the workspace, with its checkpoints",
		}
	}
	box, err := r.o.Driver.Open(ctx, l.box)
	return l.of, box, err
}

// atWork is worker for what only a session can have whose agent is at work.
func (r *Runner) atWork(ctx context.Context, op string, scope cofferdam.Scope, id cofferdam.SessionID) (*attempt, sandbox.Box, error) {
	a, box, err := r.worker(ctx, op, scope, id)
	if err != nil {
		return nil, nil, err
	}
	offers, err := r.o.Driver.Offers(ctx)
	if err != nil {
		return nil, nil, err
	}
	can := slices.ContainsFunc(offers, func(o sandbox.Offer) bool {
		return o.Tier == a.tier() && slices.Contains(o.Can, sandbox.CanCheckpoint)
	})
	switch {
	case !can:
		return nil, nil, sandbox.Lacking(a.tier(), sandbox.CanCheckpoint)
	case a.kept.ID == "":
		return nil, nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.Conflict, Subject: "workspace of session " + string(id), Reason: "it ends with its box, as that of a check does",
			Hint: fmt.Sprintf("name the task, t-%d: what its agent works in can be kept", a.plan.Number),
		}
	case !a.restoring.isOpen():
		return nil, nil, notAtWork(op, a)
	}
	return a, box, nil
}

func notAtWork(op string, a *attempt) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: fmt.Sprintf("t-%d", a.plan.Number), Reason: "its agent is not at work: its session is being prepared, or comes to its end",
		Hint: fmt.Sprintf("see cofferdam task view t-%d", a.plan.Number),
	}
}

// TakeCheckpoint keeps the workspace of a session whose agent is at work, as it is now;
// the box stands still for a moment. It is signed and on record when it is returned.
func (r *Runner) TakeCheckpoint(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, by cofferdam.Principal, comment string) (cofferdam.Checkpoint, error) {
	a, box, err := r.atWork(ctx, "session.TakeCheckpoint", scope, id)
	if err != nil {
		return cofferdam.Checkpoint{}, err
	}
	s, err := restorer{a}.checkpoint(ctx, box, by, sandbox.Take{Label: sandbox.Label{Comment: comment}})
	if err != nil {
		return cofferdam.Checkpoint{}, err
	}
	return r.word(s), nil
}

// checkpoint takes one and gives it the next number of its workspace.
func (a restorer) checkpoint(ctx context.Context, box sandbox.Box, by cofferdam.Principal, t sandbox.Take) (sandbox.Snapshot, error) {
	a.restoring.taking.Lock() // one number, one checkpoint
	defer a.restoring.taking.Unlock()
	all, err := a.o.Driver.Snapshots(ctx)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	a.ledger.look(func(s *seen) { t.Order, t.Parent = s.nextCheckpoint, s.from })
	for _, s := range all {
		if s.Workspace == a.kept.ID {
			t.Order = max(t.Order, s.Order+1)
		}
	}
	t.ID, t.Session, t.Environment, t.Actor = sandbox.SnapshotID(cofferdam.NewID("s")), a.plan.ID, a.env.Digest, by.String()
	s, err := box.Snapshot(ctx, t)
	if err != nil {
		return s, a.shelve(ctx, by, sandbox.Snapshot{Label: t.Label}, err)
	}
	ctx = context.WithoutCancel(ctx)
	manifest, err := s.Manifest()
	if err == nil {
		s.Note, err = a.o.Sign(manifest)
	}
	if err == nil {
		err = a.o.Driver.SignSnapshot(ctx, s.ID, s.Note)
	}
	if err = a.shelve(ctx, by, s, err); err != nil {
		// One that is not signed and on record is none.
		if rerr := a.o.Driver.RemoveSnapshot(ctx, s.ID); rerr != nil {
			err = fmt.Errorf("%w; and it could not be removed: %w", err, rerr)
		}
	}
	return s, err
}

// shelve puts a checkpoint on record, or why there is none, and returns that.
func (a restorer) shelve(ctx context.Context, by cofferdam.Principal, s sandbox.Snapshot, failed error) error {
	e := a.ledger.event
	e.Kind, e.Resource, e.Actor, e.Outcome = cofferdam.EventCheckpoint, s.Name(), by, gateway.OK
	e.Fields = map[string]string{
		fieldNumber: strconv.Itoa(s.Order), fieldComment: s.Comment, fieldAutomatic: strconv.FormatBool(s.Automatic), fieldTier: string(a.tier()),
	}
	if failed != nil {
		e.Outcome, e.Reason = gateway.Failed, failed.Error()
	} else {
		e.Fields[fieldCheckpoint], e.Fields[fieldDigest] = string(s.ID), string(s.Digest)
		e.Fields["size"], e.Fields["paused"] = strconv.FormatInt(s.Size, 10), s.Paused.String()
	}
	if _, err := a.ledger.Record(context.WithoutCancel(ctx), e); err != nil && failed == nil {
		return err
	}
	return failed
}

// word is a checkpoint as every face shows it, with its signature checked.
func (r *Runner) word(s sandbox.Snapshot) cofferdam.Checkpoint {
	c := cofferdam.Checkpoint{
		Schema: "cofferdam/checkpoint/v1", ID: string(s.ID), Name: s.Name(), Scope: s.Scope, Session: s.Session, Workspace: string(s.Workspace), Box: s.Box,
		Tier: string(s.Tier), Environment: s.Environment, Created: s.Taken, By: s.Actor, Comment: s.Comment, Automatic: s.Automatic, Parent: string(s.Parent),
		Memory: s.Memory, Size: s.Size, Paused: s.Paused.Seconds(), Digest: s.Digest, Signature: cofferdam.SignatureGood,
	}
	manifest, err := r.vouched(s)
	if err != nil {
		c.Signature = "bad: " + err.Error()
	}
	c.Manifest = string(manifest)
	return c
}

// vouched returns the manifest that this installation has signed of a snapshot; an
// error, Tampered, if it has not, or if its driver says something else of it.
func (r *Runner) vouched(s sandbox.Snapshot) ([]byte, error) {
	if len(s.Note) == 0 {
		return nil, &cofferdam.Error{
			Op: "session.vouched", Kind: cofferdam.Tampered, Subject: "checkpoint " + s.Name(), Reason: "it is not signed",
			Hint: "remove it: a server was ended while it took it, or somebody put it there",
		}
	}
	manifest, err := r.o.Vouch(s.Note)
	if err != nil {
		return nil, err
	}
	return manifest, s.Fits(manifest)
}

// shelf returns the snapshots of a workspace, the newest first; of all of a project
// with "".
func (r *Runner) shelf(ctx context.Context, scope cofferdam.Scope, w sandbox.WorkspaceID) ([]sandbox.Snapshot, error) {
	all, err := r.o.Driver.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s sandbox.Snapshot) bool {
		return s.Scope != scope || s.Workspace == "" || s.Memory || w != "" && s.Workspace != w
	})
	slices.SortStableFunc(all, func(a, b sandbox.Snapshot) int {
		if a.Workspace == b.Workspace {
			return b.Order - a.Order
		}
		return b.Taken.Compare(a.Taken)
	})
	return all, nil
}

// Checkpoints returns those of a workspace, the newest first; of the whole project
// with "".
func (r *Runner) Checkpoints(ctx context.Context, scope cofferdam.Scope, workspace string) ([]cofferdam.Checkpoint, error) {
	all, err := r.shelf(ctx, scope, sandbox.WorkspaceID(workspace))
	var list []cofferdam.Checkpoint
	for _, s := range all {
		list = append(list, r.word(s))
	}
	return list, err
}

// pick finds one of a workspace by its name, such as v2, or its id.
func (r *Runner) pick(ctx context.Context, op string, scope cofferdam.Scope, w sandbox.WorkspaceID, name string) (sandbox.Snapshot, error) {
	all, err := r.shelf(ctx, scope, w)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	for _, s := range all {
		if w != "" && (name == s.Name() || name == string(s.ID)) {
			return s, nil
		}
	}
	hint := "cofferdam sandbox checkpoint create takes one"
	if len(all) > 0 {
		var names []string
		for _, s := range all {
			names = append(names, s.Name())
		}
		hint = "it has " + strings.Join(names, ", ")
	}
	return sandbox.Snapshot{}, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("checkpoint %.80q", name), Reason: "the workspace has none of this name", Hint: hint}
}

// FindCheckpoint returns one of a workspace by its name or its id.
func (r *Runner) FindCheckpoint(ctx context.Context, scope cofferdam.Scope, workspace, name string) (cofferdam.Checkpoint, error) {
	s, err := r.pick(ctx, "session.FindCheckpoint", scope, sandbox.WorkspaceID(workspace), name)
	if err != nil {
		return cofferdam.Checkpoint{}, err
	}
	return r.word(s), nil
}

// RemoveCheckpoint removes one, on record in the host's log first.
func (r *Runner) RemoveCheckpoint(ctx context.Context, by cofferdam.Principal, v cofferdam.Workspace, name string) error {
	s, err := r.pick(ctx, "session.RemoveCheckpoint", v.Scope, sandbox.WorkspaceID(v.ID), name)
	if err != nil {
		return err
	}
	_, err = r.o.Host.Record(ctx, cofferdam.Event{
		Scope: v.Scope, Task: v.Task, Session: s.Session, Actor: by, Source: "session", Kind: cofferdam.EventCheckpointRemove, Resource: s.Name(),
		Fields: map[string]string{fieldCheckpoint: string(s.ID), fieldDigest: string(s.Digest), "workspace": v.ID, fieldComment: s.Comment},
	})
	if err != nil {
		return err
	}
	return r.o.Driver.RemoveSnapshot(ctx, s.ID)
}

// Difference says what differs in a workspace between a checkpoint and a later one,
// or, with Now, what the box that has it holds; that box stands still for a moment.
func (r *Runner) Difference(ctx context.Context, scope cofferdam.Scope, workspace, from, to string) (cofferdam.Difference, error) {
	const op = "session.Difference"
	w := sandbox.WorkspaceID(workspace)
	first, err := r.pick(ctx, op, scope, w, from)
	if err != nil {
		return cofferdam.Difference{}, err
	}
	c := sandbox.Compare{Scope: scope, From: first.ID}
	if to == Now {
		if c.Box = r.holder(scope, w); c.Box == "" {
			return cofferdam.Difference{}, &cofferdam.Error{
				Op: op, Kind: cofferdam.Conflict, Subject: "workspace " + workspace, Reason: "no session runs in it: there is no box to compare with",
				Hint: "compare two checkpoints, or go on in it with cofferdam task retry --resume",
			}
		}
	} else {
		second, err := r.pick(ctx, op, scope, w, to)
		if err != nil {
			return cofferdam.Difference{}, err
		}
		c.To, to = second.ID, second.Name()
	}
	found, err := r.o.Driver.Differences(ctx, c)
	if err != nil {
		return cofferdam.Difference{}, err
	}
	return difference(first.Name(), to, found), nil
}

// holder is the box that has a workspace and whose session runs here; "" for none.
func (r *Runner) holder(scope cofferdam.Scope, w sandbox.WorkspaceID) cofferdam.BoxID {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.alive {
		if l.of.plan.Scope == scope && l.of.kept.ID == w {
			return l.box
		}
	}
	return ""
}

// difference is what a driver found, as every face shows it.
func difference(from, to string, found sandbox.Differences) cofferdam.Difference {
	d := cofferdam.Difference{
		Schema: "cofferdam/difference/v1", From: from, To: to, Added: found.Added, Changed: found.Changed, Removed: found.Removed, More: found.More, Paths: []cofferdam.PathChange{},
	}
	state := func(f *sandbox.Found) *cofferdam.FileState {
		if f == nil {
			return nil
		}
		return &cofferdam.FileState{Kind: string(f.Kind), Size: f.Size, Mode: fmt.Sprintf("%04o", f.Mode)}
	}
	for _, p := range found.List {
		d.Paths = append(d.Paths, cofferdam.PathChange{Path: legible(p.Path), Was: state(p.Was), Is: state(p.Is)})
	}
	return d
}

// legible is a path as text: bytes that are no UTF-8 as \xNN.
func legible(path []byte) string {
	var b strings.Builder
	for i, r := range string(path) {
		if r == '\uFFFD' && !strings.HasPrefix(string(path[i:]), "\uFFFD") {
			fmt.Fprintf(&b, `\x%02x`, path[i])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
