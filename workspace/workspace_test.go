package workspace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

const day = 24 * time.Hour

// TestNoticeExportRemoval: 14 days after the last session a workspace goes; a day
// before that it is told, and what is in it is exported first.
func TestNoticeExportRemoval(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	w.now = w.now.Add(DefaultKeep - Notice - time.Minute)
	w.mustSweep()
	w.wantKinds()
	w.now = w.now.Add(2 * time.Minute)
	w.mustSweep()
	w.mustSweep()
	w.wantKinds("notice")
	v, err := w.k.View(t.Context(), r.Scope, "t-1")
	if err != nil || v.State != cofferdam.WorkspaceKept || v.Noticed.IsZero() || v.Until.Before(w.now) || v.Until.After(w.now.Add(Notice+time.Hour)) {
		t.Errorf("%+v %v", v, err)
	}
	w.now = w.now.Add(Notice - time.Minute)
	w.mustSweep()
	w.wantKinds("notice")
	w.now = w.now.Add(2 * time.Minute)
	w.mustSweep()
	w.mustSweep()
	w.wantKinds("notice", "export", "remove")
	if len(w.disks) != 0 || w.created != 1 {
		t.Errorf("%d disks are left, %d boxes read", len(w.disks), w.created)
	}
	f, err := w.k.Bundle(t.Context(), r.Scope, "t-1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != w.says {
		t.Errorf("bundle: %q %v", text, err)
	}
	w.now = w.now.Add(DefaultBundles - time.Hour)
	w.mustSweep()
	w.wantKinds("notice", "export", "remove", "notice") // of the bundle
	w.now = w.now.Add(2 * time.Hour)
	w.mustSweep()
	w.wantKinds("notice", "export", "remove", "notice")
	w.now = w.now.Add(Notice)
	w.mustSweep()
	w.wantKinds("notice", "export", "remove", "notice", "remove")
	if left := w.bundles(); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

// TestNoRemovalWithoutNotice: a server that was away for months tells first.
func TestNoRemovalWithoutNotice(t *testing.T) {
	w := newWorld(t, nil)
	w.attempt(1)
	w.now = w.now.Add(100 * day)
	w.mustSweep()
	w.mustSweep()
	w.wantKinds("notice")
	w.now = w.now.Add(Notice + time.Minute)
	w.mustSweep()
	w.wantKinds("notice", "export", "remove")
}

// TestWhoComesBackIsNotRemoved: a session that takes a workspace up puts its end
// off, also between its export and its removal.
func TestWhoComesBackIsNotRemoved(t *testing.T) {
	w := newWorld(t, nil)
	w.attempt(1)
	w.now = w.now.Add(100 * day)
	w.mustSweep()
	w.now = w.now.Add(Notice + time.Minute)
	w.point = func(string) {
		w.point = nil
		lease, err := w.k.Take(t.Context(), w.plan(1, 1, 2), sandbox.GVisor, "", 0)
		if err != nil || !lease.Ready {
			t.Errorf("taking it up: %+v %v", lease, err)
		}
	}
	if err := w.sweep(); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil {
		t.Errorf("%v", err)
	}
	if len(w.disks) != 1 {
		t.Error("it was removed under its session")
	}
	w.mustSweep()
	w.wantKinds("notice", "export")
}

// TestCrashBetweenExportAndRemoval: what comes after an export that is on disk
// does not read again.
func TestCrashBetweenExportAndRemoval(t *testing.T) {
	w := newWorld(t, nil)
	w.attempt(1)
	w.now = w.now.Add(100 * day)
	w.mustSweep()
	w.now = w.now.Add(Notice + time.Minute)
	func() {
		defer func() { _ = recover() }()
		w.point = func(name string) { panic(name) }
		_ = w.sweep()
	}()
	if len(w.disks) != 1 {
		t.Fatal("it is gone already")
	}
	w.point = nil
	if err := os.WriteFile(filepath.Join(w.dir, "w-1.new-half"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.mustSweep()
	if w.created != 1 || len(w.disks) != 0 {
		t.Errorf("%d boxes read, %d disks are left", w.created, len(w.disks))
	}
	w.wantKinds("notice", "export", "remove")
	if left := w.bundles(); len(left) != 1 {
		t.Errorf("in the folder: %v", left)
	}
	if half, err := filepath.Glob(filepath.Join(w.dir, "*.new*")); err != nil || len(half) > 0 {
		t.Errorf("half written: %v %v", half, err)
	}
}

// TestKilledWhileItIsRemoved: a session gets the workspace again, whichever side of
// the removal the server was killed on.
func TestKilledWhileItIsRemoved(t *testing.T) {
	for name, removed := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			r := w.attempt(1)
			w.killed = true
			func() {
				defer func() { _ = recover() }()
				_ = w.k.Remove(t.Context(), r.Scope, cofferdam.Principal{Name: "ann"}, "t-1", false)
			}()
			if w.killed = false; !removed {
				w.disks[r.ID] = sandbox.Workspace{ID: r.ID, Tier: sandbox.GVisor, Size: 4 << 30, Epoch: r.Epoch}
			}
			w.restart()
			w.mustSweep()
			lease, err := w.k.Take(t.Context(), w.plan(1, 1, 2), sandbox.GVisor, "", 0)
			if err != nil || lease.Ready == removed {
				t.Errorf("%+v %v", lease, err)
			}
			if got := w.records[r.ID]; got.Going || !got.Removed.IsZero() {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestAmbiguousName: what stands for the workspaces of two tasks removes neither.
func TestAmbiguousName(t *testing.T) {
	w := newWorld(t, nil)
	for n, id := range map[int64]string{1: "w-00000000000000000000000000000001", 2: "w-00000000000000000000000000000002"} {
		r := w.attempt(n)
		delete(w.records, r.ID)
		delete(w.disks, r.ID)
		r.ID = sandbox.WorkspaceID(id)
		w.records[r.ID], w.disks[r.ID] = r, sandbox.Workspace{ID: r.ID, Tier: sandbox.GVisor}
	}
	scope := w.plan(1, 1, 1).Scope
	err := w.k.Remove(t.Context(), scope, cofferdam.Principal{}, "w-00000000", true)
	if cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" || len(w.disks) != 2 {
		t.Errorf("%v, %d are left", err, len(w.disks))
	}
	if err := w.k.Remove(t.Context(), scope, cofferdam.Principal{}, "w-00000000000000000000000000000002", true); err != nil || len(w.disks) != 1 {
		t.Errorf("%v, %d are left", err, len(w.disks))
	}
}

// TestAnotherTier: a session of another tier begins anew, and what was worked in
// before is told of, exported and removed like any other; nor is it the one that a
// session of the first tier makes later.
func TestAnotherTier(t *testing.T) {
	w := newWorld(t, nil)
	first := w.attempt(1)
	lease, err := w.k.Take(t.Context(), w.plan(1, 1, 2), sandbox.MicroVM, "", 0)
	if err != nil || lease.Ready || lease.ID == first.ID {
		t.Fatalf("%+v %v", lease, err)
	}
	again, err := w.k.Take(t.Context(), w.plan(1, 1, 3), sandbox.GVisor, "", 0)
	if err != nil || again.Ready || again.ID == first.ID || again.ID == lease.ID {
		t.Fatalf("%+v %v", again, err)
	}
	if _, err := w.k.Take(t.Context(), w.plan(1, 1, 2), sandbox.MicroVM, "", 0); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a late session of the other tier: %v", err)
	}
	if v, err := w.k.View(t.Context(), first.Scope, string(first.ID)); err != nil || v.Attempt != 1 || v.State != cofferdam.WorkspaceKept {
		t.Errorf("%+v %v", v, err)
	}
	w.now = w.now.Add(DefaultKeep)
	w.mustSweep()
	w.now = w.now.Add(Notice + time.Minute)
	w.mustSweep()
	w.wantKinds("notice", "export", "remove")
	if len(w.disks) != 0 {
		t.Errorf("left: %v", w.disks)
	}
}

// TestTierIsAway: a keeper that has a tier no more says nothing of its
// workspaces, which is no proof that they are gone.
func TestTierIsAway(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	disks := w.disks
	w.disks, w.Tier = map[sandbox.WorkspaceID]sandbox.Workspace{}, sandbox.None
	w.now = w.now.Add(100 * day)
	w.mustSweep()
	w.wantKinds()
	_, err := w.k.Export(t.Context(), r.Scope, "t-1")
	for _, err := range []error{err, w.k.Remove(t.Context(), r.Scope, cofferdam.Principal{}, "t-1", true)} {
		if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
			t.Error(err)
		}
	}
	w.disks, w.Tier = disks, sandbox.GVisor
	w.mustSweep()
	w.now = w.now.Add(Notice + time.Minute)
	w.mustSweep()
	w.wantKinds("notice", "export", "remove")
}

// TestWhatCannotBeExportedStays until a person discards it.
func TestWhatCannotBeExportedStays(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	w.exit = 128
	w.now = w.now.Add(100 * day)
	w.mustSweep()
	w.now = w.now.Add(Notice + time.Minute)
	if err := w.sweep(); err == nil || !strings.Contains(err.Error(), "said on the way") {
		t.Errorf("%v", err)
	}
	w.mustSweep() // it is not tried at once
	if w.created != 1 || len(w.disks) != 1 {
		t.Errorf("%d boxes, %d disks", w.created, len(w.disks))
	}
	if v, err := w.k.View(t.Context(), r.Scope, "t-1"); err != nil || !strings.Contains(v.Note, "cannot be exported") || !v.Stuck || !v.Until.IsZero() || v.State != cofferdam.WorkspaceKept {
		t.Errorf("%+v %v", v, err)
	}
	w.now = w.now.Add(retryPause + time.Minute)
	if err := w.sweep(); err == nil || w.created != 2 {
		t.Errorf("%v, %d boxes", err, w.created)
	}
	if err := w.k.Remove(t.Context(), r.Scope, cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}, "t-1", false); err == nil || len(w.disks) != 1 {
		t.Errorf("removed without its export: %v", err)
	}
	if err := w.k.Remove(t.Context(), r.Scope, cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}, "t-1", true); err != nil || len(w.disks) != 0 {
		t.Errorf("%v, %d disks", err, len(w.disks))
	}
	if last := w.events[len(w.events)-1]; last.Actor.Name != "ada" || last.Kind != cofferdam.EventWorkspaceRemove {
		t.Errorf("on record: %+v", last)
	}
}

// TestStuckIsSaid: whose export a person asked for in vain says so from then on, and no
// more once it was exported.
func TestStuckIsSaid(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	view := func() cofferdam.Workspace {
		t.Helper()
		v, err := w.k.View(t.Context(), r.Scope, "t-1")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := view(); v.Stuck || v.Until.IsZero() {
		t.Errorf("control: %+v", v)
	}
	w.now = w.now.Add(time.Minute)
	w.exit = 128
	if _, err := w.k.Export(t.Context(), r.Scope, "t-1"); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
		t.Fatalf("%v", err)
	}
	if v := view(); !v.Stuck || !v.Until.IsZero() || !strings.Contains(v.Note, "said on the way") {
		t.Errorf("%+v", v)
	}
	w.exit = 0
	w.now = w.now.Add(time.Minute)
	if _, err := w.k.Export(t.Context(), r.Scope, "t-1"); err != nil {
		t.Fatal(err)
	}
	if v := view(); v.Stuck || v.Until.IsZero() || v.Note != "" {
		t.Errorf("exported: %+v", v)
	}
}

// TestNothingToExport: a box that says nothing has found nothing.
func TestNothingToExport(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	w.says = ""
	if _, err := w.k.Export(t.Context(), r.Scope, "t-1"); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
		t.Errorf("nothing was said: %v", err)
	}
	w.wantKinds("export")
}

// TestNoRecordNoRemoval: what cannot be put on record does not happen.
func TestNoRecordNoRemoval(t *testing.T) {
	w := newWorld(t, nil)
	w.attempt(1)
	w.now = w.now.Add(100 * day)
	w.silent = errors.New("disk full")
	if err := w.sweep(); err == nil {
		t.Error("a notice that is not on record")
	}
	w.silent = nil
	w.mustSweep()
	w.now = w.now.Add(Notice + time.Minute)
	w.silent = errors.New("disk full")
	if err := w.sweep(); err == nil || len(w.disks) != 1 {
		t.Errorf("%v, %d disks", err, len(w.disks))
	}
	w.silent, w.stuck = nil, errors.New("busy")
	w.now = w.now.Add(retryPause + time.Minute)
	if err := w.sweep(); err == nil || len(w.disks) != 1 {
		t.Errorf("%v", err)
	}
	if _, err := w.k.Take(t.Context(), w.plan(1, 1, 2), sandbox.GVisor, "", 0); err != nil {
		t.Errorf("a removal that failed keeps it: %v", err)
	}
}

// TestSizeOfAll: of those that together are too large, the ones unused for
// longest go, with their notice.
func TestSizeOfAll(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxSize = 2 << 30 })
	for n := int64(1); n <= 3; n++ {
		w.attempt(n)
		w.now = w.now.Add(time.Hour)
	}
	w.mustSweep()
	w.wantKinds("notice")
	if w.events[0].Resource != "t-1" {
		t.Errorf("noticed %s", w.events[0].Resource)
	}
	w.now = w.now.Add(Notice + time.Minute)
	w.mustSweep()
	w.mustSweep()
	w.wantKinds("notice", "export", "remove")
	if len(w.disks) != 2 {
		t.Errorf("%d are left", len(w.disks))
	}
}

// TestProjectKeeps: the lower of what project and server want counts.
func TestProjectKeeps(t *testing.T) {
	for keep, want := range map[time.Duration]time.Duration{2 * day: 2 * day, 100 * day: DefaultKeep, 0: DefaultKeep} {
		w := newWorld(t, nil)
		w.keep = keep
		r := w.attempt(1)
		if v, err := w.k.View(t.Context(), r.Scope, "t-1"); err != nil || !v.Until.Equal(v.Left.Add(want)) {
			t.Errorf("%s: until %s after it was left, want %s: %v", keep, v.Until.Sub(v.Left), want, err)
		}
	}
}

// TestLateSession: a session that came before another of its attempt gets nothing.
func TestLateSession(t *testing.T) {
	w := newWorld(t, nil)
	first, second := w.plan(1, 1, 1), w.plan(1, 1, 2)
	a, err := w.k.Take(t.Context(), first, sandbox.GVisor, "", 0)
	if err != nil || a.Ready {
		t.Fatal(a, err)
	}
	again, err := w.k.Take(t.Context(), first, sandbox.GVisor, "", 0)
	if err != nil || again != a {
		t.Errorf("the same session again: %+v %v", again, err)
	}
	if err := w.k.Ready(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	b, err := w.k.Take(t.Context(), second, sandbox.GVisor, "", 0)
	if err != nil || b.ID != a.ID || b.Epoch <= a.Epoch || !b.Ready {
		t.Errorf("%+v %v", b, err)
	}
	if _, err := w.k.Take(t.Context(), first, sandbox.GVisor, "", 0); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil {
		t.Errorf("late: %v", err)
	}
	left := w.records[a.ID].Left
	w.now = w.now.Add(time.Hour)
	if err := w.k.Left(t.Context(), first); err != nil || !w.records[a.ID].Left.Equal(left) {
		t.Errorf("a late word counts: %v", err)
	}
	// The next attempt has one of its own, unless it is given this one.
	other, err := w.k.Take(t.Context(), w.plan(1, 2, 1), sandbox.GVisor, "", 0)
	if err != nil || other.ID == a.ID || other.Ready {
		t.Errorf("%+v %v", other, err)
	}
}

// TestImageOfTheLastSession: a workspace says what its last session had at "/", so
// that it is not removed while somebody may go on in it.
func TestImageOfTheLastSession(t *testing.T) {
	w := newWorld(t, nil)
	for try, image := range []string{"/images/a/root", "/images/b/root"} {
		lease, err := w.k.Take(t.Context(), w.plan(1, 1, try+1), sandbox.GVisor, image, 0)
		if err != nil || w.records[lease.ID].Image != image {
			t.Errorf("session %d: %q: %v", try+1, w.records[lease.ID].Image, err)
		}
	}
}

// TestPassOn gives a workspace to the next attempt, or takes that back.
func TestPassOn(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	task := cofferdam.Task{ID: "t-1", Number: 1, Attempt: 1}
	undo, err := w.k.PassOn(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if w.records[r.ID].Attempt != 1 {
		t.Error("it was not taken back")
	}
	if _, err = w.k.PassOn(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	lease, err := w.k.Take(t.Context(), w.plan(1, 2, 1), sandbox.GVisor, "", 0)
	if err != nil || lease.ID != r.ID || !lease.Ready || lease.Epoch <= r.Epoch {
		t.Errorf("%+v %v", lease, err)
	}
	if _, err := w.k.PassOn(t.Context(), cofferdam.Task{ID: "t-9", Number: 9, Attempt: 1}); cofferdam.KindOf(err) != cofferdam.Conflict || cofferdam.HintOf(err) == "" {
		t.Errorf("none to pass on: %v", err)
	}
	// Another tier cannot have the disk: it begins anew.
	if lease, err = w.k.Take(t.Context(), w.plan(1, 2, 2), sandbox.Process, "", 0); err != nil || lease.Ready {
		t.Errorf("of another tier: %+v %v", lease, err)
	}
}
