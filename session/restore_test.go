package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/agent/loop"
	"cofferdam/proof"
	"cofferdam/sandbox"
	"cofferdam/session"
)

var ada = cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}

// shelving makes a bench whose boxes have checkpoints.
func shelving(b *bench) *shelf {
	d := newShelf(b.driver, filepath.Join(b.dir, "boxes"), filepath.Join(b.dir, "shelf"))
	change := b.change
	b.change = func(o *session.Options) {
		if change != nil {
			change(o)
		}
		o.Driver, o.Workspaces, o.Sign, o.Host, o.Look = d, leases{}, b.signer.SignSnapshot, b.store.Host(), 20*time.Millisecond
		o.Vouch = func(note []byte) ([]byte, error) { return proof.OpenSnapshot(note, b.signer.Public()) }
	}
	b.restart()
	return d
}

func (b *bench) checkpoint(p session.Plan, comment string) cofferdam.Checkpoint {
	b.t.Helper()
	c, err := b.runner.TakeCheckpoint(b.t.Context(), p.Scope, p.ID, ada, comment)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// of returns what is on record of a kind, in short.
func (b *bench) of(p session.Plan, kind string) (all []string) {
	b.t.Helper()
	for _, e := range b.events(p) {
		if e.Kind == kind {
			all = append(all, strings.TrimSpace(e.Actor.String()+" "+e.Resource+" "+e.Outcome+" "+e.Fields["comment"]))
		}
	}
	return all
}

const restoring = `begin
	case $TURN in
	1) echo one > file; say first; wait_for go; echo two > file; echo more > more; echo "again" >> told; say second; sleep 600;;
	*) say "sees $(cat file) $(ls more 2>&1)"; wait_for end$(grep -c "taken at" told); end "all done";;
	esac`

// TestRestore: a workspace goes back to a checkpoint while its agent works, the agent
// hears of it once, and a restore of what was taken before undoes it.
func TestRestore(t *testing.T) {
	b, _ := steered(t, restoring)
	d := shelving(b)
	p := b.pretended()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "first")
	first := b.checkpoint(p, "as it began")
	if first.Name != "v0" || first.Signature != "good" || first.By != "person:ada" || first.Session != p.ID {
		t.Errorf("%+v", first)
	}
	b.let("go")
	b.until(p, "agent", "second")
	diff, err := b.runner.Difference(t.Context(), p.Scope, first.Workspace, "v0", session.Now)
	if err != nil || diff.Changed != 3 || diff.Paths[0].Path != `bad\xff`+"\x1b" || diff.Paths[0].Was.Mode != "0644" || diff.Paths[0].Is != nil {
		t.Errorf("%+v %v", diff, err)
	}
	back, err := b.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v0")
	if err != nil || back.Checkpoint != "v0" || back.Undo != "v1" || len(back.Ended) != 1 || back.Ended[0] != "agent" {
		t.Fatalf("%+v %v", back, err)
	}
	b.until(p, "agent-2", "sees one")
	list, err := b.runner.Checkpoints(t.Context(), p.Scope, first.Workspace)
	if err != nil || len(list) != 2 || list[0].Name != "v1" || !list[0].Automatic || list[0].Comment != "before restoring v0" || list[1].ID != first.ID {
		t.Errorf("%+v %v", list, err)
	}
	// What was taken before undoes it.
	if back, err = b.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v1"); err != nil || back.Undo != "v2" {
		t.Fatalf("%+v %v", back, err)
	}
	b.until(p, "agent-3", "sees two more")
	if v, err := b.runner.Box(t.Context(), p.Scope, p.ID); err != nil || v.Checkpoints != 3 || v.Number != 7 || v.Life.State != "busy" {
		t.Errorf("%+v %v", v, err)
	}
	b.let("end1")
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	if why := strings.Join(b.turns(p), " "); why != "start restored restored" {
		t.Errorf("turns %q", why)
	}
	if told := b.told(got.result); strings.Count(told, "put back to the checkpoint v1") != 1 || !strings.Contains(told, "again") || strings.Contains(told, "checkpoint v0") {
		t.Errorf("told:\n%s", told)
	}
	if all := strings.Join(b.of(p, cofferdam.EventCheckpoint), ";"); all != "person:ada v0 ok as it began;person:ada v1 ok before restoring v0;person:ada v2 ok before restoring v1" {
		t.Errorf("on record: %s", all)
	}
	if all := strings.Join(b.of(p, cofferdam.EventRestore), ";"); all != "person:ada v0  as it began;platform:session v0 ok;person:ada v1  before restoring v0;platform:session v1 ok" {
		t.Errorf("on record: %s", all)
	}
	if d.restores != 2 {
		t.Errorf("%d restores", d.restores)
	}
	b.noBoxes()
}

// TestRestoreIsRefused: a checkpoint that is not what was signed is refused before
// anything ends, and so is everything else that cannot be.
func TestRestoreIsRefused(t *testing.T) {
	b, _ := steered(t, `begin; [ $TURN = 1 ] || { say "again"; }; say working; wait_for end; end "all done"`)
	d := shelving(b)
	p := b.pretended()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "working")
	first := b.checkpoint(p, "")
	second := b.checkpoint(p, "other")
	refused := func(kind cofferdam.Kind, name, reason string) {
		t.Helper()
		_, err := b.runner.Restore(t.Context(), p.Scope, p.ID, ada, name)
		if err == nil || cofferdam.KindOf(err) != kind || !strings.Contains(err.Error(), reason) || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	change := func(do func(s *sandbox.Snapshot)) {
		d.mu.Lock()
		defer d.mu.Unlock()
		do(&d.snapshots[0])
	}
	good := d.snapshots[0]
	refused(cofferdam.NotFound, "v7", "none of this name")
	refused(cofferdam.NotFound, "../v0", "none of this name")
	change(func(s *sandbox.Snapshot) { s.Note = nil })
	refused(cofferdam.Tampered, "v0", "not signed")
	change(func(s *sandbox.Snapshot) { s.Note = d.snapshots[1].Note }) // that of the other
	refused(cofferdam.Tampered, "v0", "not what was signed")
	change(func(s *sandbox.Snapshot) { *s = good; s.Note = append([]byte("x"), good.Note...) })
	refused(cofferdam.Tampered, "v0", "")
	change(func(s *sandbox.Snapshot) { *s = good; s.Comment = "forged" })
	refused(cofferdam.Tampered, "v0", "not what was signed")
	change(func(s *sandbox.Snapshot) { *s = good; d.spoiled[s.ID] = true })
	refused(cofferdam.Tampered, "v0", "not what was kept")
	if v, err := b.runner.FindCheckpoint(t.Context(), p.Scope, first.Workspace, "v0"); err != nil || v.Signature != "good" {
		t.Errorf("%+v %v", v, err) // what is signed is, but not what lies beside it
	}
	change(func(s *sandbox.Snapshot) { s.Comment = "forged" })
	if v, err := b.runner.FindCheckpoint(t.Context(), p.Scope, first.Workspace, "v0"); err != nil || !strings.HasPrefix(v.Signature, "bad: ") {
		t.Errorf("%+v %v", v, err)
	}
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	if _, err := b.runner.Restore(t.Context(), other, p.ID, ada, "v1"); err == nil {
		t.Error("another project's was put back")
	}
	if list, err := b.runner.Checkpoints(t.Context(), other, first.Workspace); err != nil || len(list) != 0 {
		t.Errorf("another project sees %v %v", list, err)
	}
	if _, err := b.runner.TakeCheckpoint(t.Context(), p.Scope, p.ID, ada, "two\nlines"); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
		t.Errorf("two lines: %v", err)
	}
	// A removed one is gone, its number is not given again, and who did it is on record.
	w := cofferdam.Workspace{ID: first.Workspace, Scope: p.Scope, Task: p.Task}
	if err := b.runner.RemoveCheckpoint(t.Context(), ada, w, second.Name); err != nil {
		t.Error(err)
	}
	refused(cofferdam.NotFound, "v1", "none of this name")
	if third := b.checkpoint(p, ""); third.Name != "v2" {
		t.Errorf("%+v", third)
	}
	for len(d.snapshots) < sandbox.MaxOfSession {
		b.checkpoint(p, "")
	}
	refused(cofferdam.Exhausted, "v2", "no room")
	b.let("end")
	got := <-done
	if got.err != nil || got.result.Failure != "" || strings.Join(b.turns(p), " ") != "start" {
		t.Fatalf("%+v %v, turns %q", got.result, got.err, b.turns(p))
	}
	refused(cofferdam.Conflict, "v0", "does not run now")
	if _, err := b.runner.TakeCheckpoint(t.Context(), p.Scope, p.ID, ada, ""); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil {
		t.Errorf("after the end: %v", err)
	}
	if _, err := b.runner.Box(t.Context(), p.Scope, p.ID); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
		t.Errorf("after the end: %v", err)
	}
	if d.restores != 0 {
		t.Error("something was put back")
	}
}

// TestRestoreThatFails: if the workspace cannot be put back when the box is gone
// already, the session goes on in a new one with the workspace as it was.
func TestRestoreThatFails(t *testing.T) {
	b, _ := steered(t, `begin; [ $TURN != 1 ] || { echo mine > file; say working; sleep 600; }; say "has $(cat file)"; end "all done"`)
	d := shelving(b)
	p := b.pretended()
	done := b.start(context.Background(), p)
	b.until(p, "agent", "working")
	b.checkpoint(p, "")
	d.fails = &cofferdam.Error{Op: "test", Kind: cofferdam.Unavailable, Subject: "workspace", Reason: "the disk is full"}
	_, err := b.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v0")
	if err == nil || !strings.Contains(err.Error(), "the disk is full") || cofferdam.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	got := <-done
	if got.err != nil || got.result.Failure != "" || !strings.Contains(b.told(got.result), "the workspace is as you left it") {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	if out := b.output(p, "agent-2", "stdout"); !strings.Contains(out, "has mine") {
		t.Errorf("%s", out)
	}
}

// TestRestoreSurvivesItsProcess: wherever the process ends, the next one does what was
// asked for, once, and the agent is told.
func TestRestoreSurvivesItsProcess(t *testing.T) {
	b, _ := steered(t, `begin; case $TURN in 1) echo one > file; say first; wait_for go; echo two > file; say second; sleep 600;; *) say "sees $(cat file)"; end "all done";; esac`)
	d := shelving(b)
	for _, place := range []string{"snapshot before", "snapshot", "sign", "destroy before", "destroy", "restore before", "restore", "create before", "create"} {
		p := b.pretended()
		p.Task = cofferdam.TaskID("t-" + strings.ReplaceAll(place, " ", "-"))
		p.Branch += cofferdam.Ref("-" + string(p.Task))
		ctx, cancel := context.WithCancelCause(context.Background())
		done := b.start(ctx, p)
		b.until(p, "agent", "first")
		b.checkpoint(p, "")
		b.let("go")
		b.until(p, "agent", "second")
		d.cutAt(place, func() { cancel(errCut) })
		_, err := b.runner.Restore(context.Background(), p.Scope, p.ID, ada, "v0")
		if place != "create before" && place != "create" && err == nil { // it is done before there is a box
			t.Errorf("%s: it was said to be done", place)
		}
		if got := <-done; got.err == nil {
			t.Fatalf("%s: %+v", place, got.result)
		}
		b.restart()
		r := b.run(p)
		cancel(nil)
		if r.Failure != "" || r.Said != cofferdam.SaidDone || !strings.Contains(b.output(p, "agent-2", "stdout"), "sees one") {
			t.Fatalf("%s: %+v\n%s", place, r, b.output(p, "agent-2", "stdout"))
		}
		if told := b.told(r); strings.Count(told, "put back to the checkpoint v0") != 1 {
			t.Errorf("%s: told %s", place, told)
		}
		if all := strings.Join(b.of(p, cofferdam.EventRestore), ";"); all != "person:ada v0;platform:session v0 ok" {
			t.Errorf("%s: on record %s", place, all)
		}
		if why := strings.Join(b.turns(p), " "); why != "start restored" {
			t.Errorf("%s: turns %q", place, why)
		}
		if err := os.Remove(filepath.Join(b.scripts, "go")); err != nil {
			t.Fatal(err)
		}
	}
	b.noBoxes()
}

// TestRestoreWhileItWaits: an agent that waits for a person goes on, told so; and the
// next session in the same workspace has the checkpoints of this one.
func TestRestoreWhileItWaits(t *testing.T) {
	a := newAsking(t, `begin
		case "$TURN $(cat file 2>/dev/null)" in
		"1 ") echo one > file; say first; wait_for go; echo two > file; end "cofferdam: question: tabs or spaces?";;
		*) say "sees $(cat file)"; end "all done";;
		esac`, 600)
	shelving(a.bench)
	p := a.plan()
	done := a.start(context.Background(), p)
	a.until(p, "agent", "first")
	a.checkpoint(p, "")
	a.let("go")
	a.seen(p, cofferdam.EventSessionAsk)
	if _, err := a.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v0"); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Said != cofferdam.SaidDone || !strings.Contains(a.output(p, "agent-2", "stdout"), "sees one") {
		t.Fatalf("%+v %v\n%s", got.result, got.err, a.output(p, "agent-2", "stdout"))
	}
	if s := strings.Join(a.stands, ";"); s != "tabs or spaces?;" {
		t.Errorf("stands %q", s)
	}
	next := a.plan()
	done = a.start(context.Background(), next)
	a.seen(next, cofferdam.EventAgentTurn)
	list, err := a.runner.Checkpoints(t.Context(), p.Scope, "w-t-1")
	if got := <-done; got.err != nil || got.result.Failure != "" {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	if err != nil || len(list) != 2 || list[0].Session != p.ID {
		t.Errorf("%+v %v", list, err)
	}
}

// TestRestoreOfOurOwnAgent: its conversation goes on, it is told, and a call that it
// had made before is not done in the workspace that was put back.
func TestRestoreOfOurOwnAgent(t *testing.T) {
	b, k := thinking(t, `turn 1
tool shell {"command":"echo one > file; echo at-one; sleep 600"}
tool shell {"command":"echo late > late"}

asked put back
after sees one
say It is done.

asked put back
tool shell {"command":"echo sees $(cat file); ls late"}
`, nil)
	d := shelving(b)
	p := b.loop()
	done := b.start(context.Background(), p)
	b.seenOutput(p, "at-one")
	b.checkpoint(p, "")
	if _, err := b.runner.Restore(t.Context(), p.Scope, p.ID, ada, "v0"); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Message != "It is done." || d.restores != 1 {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	notes := 0
	for _, e := range k.entries[p.ID] {
		if strings.Contains(string(e.Body), `"kind":"note"`) && strings.Contains(string(e.Body), "put back to the checkpoint v0") {
			notes++
		}
	}
	if notes != 1 || strings.Contains(text(k.entries[p.ID]), "cannot access 'late'") == false {
		t.Errorf("%d notes: %s", notes, text(k.entries[p.ID]))
	}
}

func text(entries []loop.Entry) (all string) {
	for _, e := range entries {
		all += fmt.Sprintln(string(e.Body))
	}
	return all
}

// seenOutput waits until text is on record as output of any command.
func (b *bench) seenOutput(p session.Plan, text string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		events, err := b.store.Events(context.Background(), p.ID, 0, 1000)
		if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
			b.t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind == cofferdam.EventExecOutput && strings.Contains(e.Fields["text"], text) {
				return
			}
		}
	}
	b.t.Fatalf("%q never came", text)
}

// TestCheckpointOfACheck: what a check runs in is kept by nobody, and its box is shown.
func TestCheckpointOfACheck(t *testing.T) {
	b := newBench(t, nil)
	shelving(b)
	p := b.proof(b.base, "echo checking; sleep 600")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := b.start(ctx, p)
	b.until(p, "check-1", "checking")
	if _, err := b.runner.TakeCheckpoint(t.Context(), p.Scope, p.ID, ada, ""); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil || !strings.Contains(err.Error(), "ends with its box") {
		t.Errorf("%v", err)
	}
	if list, err := b.runner.Boxes(t.Context(), p.Scope); err != nil || len(list) != 1 || list[0].Phase != "proof" || list[0].Checkpoints != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := b.runner.Boxes(t.Context(), cofferdam.Scope{Organization: "o-1", Project: "p-2"}); err != nil || len(list) != 0 {
		t.Errorf("another project sees %+v %v", list, err)
	}
	cancel(session.ErrTaskEnded)
	if got := <-done; got.err != nil || got.result.Failure != "cancelled" {
		t.Errorf("%+v %v", got.result, got.err)
	}
}
