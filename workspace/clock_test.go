package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestClockSetAhead: a clock that is set ahead removes nothing, neither workspaces
// nor bundles, until servers have run for a day after the notice; also when a
// server is started anew meanwhile. Set right again, the notice is taken back.
func TestClockSetAhead(t *testing.T) {
	w := newWorld(t, nil)
	for n := int64(1); n <= 3; n++ {
		w.attempt(n)
	}
	if err := w.k.Remove(t.Context(), w.records[w.id(3)].Scope, cofferdam.Principal{Name: "ann"}, "t-3", false); err != nil {
		t.Fatal(err)
	}
	w.wantKinds("export", "remove")
	w.setClock(120 * day)
	w.mustSweep()
	w.wantKinds("export", "remove", "notice", "notice", "notice")
	w.setClock(120 * day)
	w.now = w.now.Add(Notice / 2)
	w.mustSweep()
	w.restart()
	w.mustSweep()
	if len(w.disks) != 2 || len(w.bundles()) != 1 {
		t.Fatalf("after half a day %d workspaces are there and %d bundles", len(w.disks), len(w.bundles()))
	}
	if v, err := w.k.View(t.Context(), w.records[w.id(1)].Scope, "t-1"); err != nil || v.Until.Sub(w.now) > Notice/2 || v.Until.Sub(w.now) < Notice/2-time.Hour {
		t.Errorf("until %s, now it is %s: %v", v.Until, w.now, err)
	}
	w.setClock(-240 * day)
	w.mustSweep()
	w.now = w.now.Add(2 * day)
	w.mustSweep()
	if len(w.disks) != 2 || len(w.bundles()) != 1 || !w.records[w.id(1)].Noticed.IsZero() {
		t.Fatalf("after the clock was set right %d workspaces are there and %d bundles: %+v", len(w.disks), len(w.bundles()), w.records[w.id(1)])
	}
	// In their own time they go, as told.
	w.now = w.now.Add(DefaultKeep)
	w.mustSweep()
	w.now = w.now.Add(Notice)
	w.mustSweep()
	if len(w.disks) != 0 {
		t.Errorf("%d workspaces are left", len(w.disks))
	}
}

// TestRunningTimeIsLost: whoever removes the file, or writes nonsense into it, only
// puts removals off.
func TestRunningTimeIsLost(t *testing.T) {
	for _, text := range []string{"", "nonsense", "-100h", "9999999999999h"} {
		w := newWorld(t, nil)
		w.now = w.now.Add(5 * day)
		w.attempt(1)
		w.now = w.now.Add(DefaultKeep)
		w.mustSweep()
		if err := os.WriteFile(filepath.Join(w.dir, runningFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.mustSweep()
		if len(w.disks) != 1 {
			t.Errorf("%q: removed before its time", text)
		}
		for range 2 {
			w.now = w.now.Add(Notice)
			w.mustSweep()
		}
		if len(w.disks) != 0 {
			t.Errorf("%q: it is never removed", text)
		}
	}
}

// TestEarlierExportsStay: a later export, of a workspace that has other things in
// it by then, takes nothing away from an earlier one.
func TestEarlierExportsStay(t *testing.T) {
	w := newWorld(t, nil)
	r := w.attempt(1)
	read := func(name string) string {
		t.Helper()
		f, err := w.k.Bundle(t.Context(), r.Scope, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	export := func(n int) cofferdam.Workspace {
		t.Helper()
		w.says = fmt.Sprint("export ", n)
		w.now = w.now.Add(time.Minute)
		if err := w.k.Left(t.Context(), w.plan(1, 1, 1)); err != nil {
			t.Fatal(err)
		}
		v, err := w.k.Export(t.Context(), r.Scope, "t-1")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := export(1)
	// A server of an earlier release had one bundle, under the workspace's name.
	if err := os.Rename(w.bundles()[0], filepath.Join(w.dir, string(r.ID)+".bundle")); err != nil {
		t.Fatal(err)
	}
	if got := read("t-1"); got != "export 1" {
		t.Errorf("of an earlier release: %q", got)
	}
	second := export(2)
	if got := read("t-1"); got != "export 2" || len(second.Earlier) != 1 || second.Earlier[0].Digest != first.Bundle.Digest {
		t.Errorf("%q, %+v", got, second)
	}
	old := "t-1@" + hexOf(first.Bundle.Digest)[:12]
	if got := read(old); got != "export 1" {
		t.Errorf("%s: %q", old, got)
	}
	if v, err := w.k.Export(t.Context(), r.Scope, old); err != nil || v.Bundle.Digest != first.Bundle.Digest || len(v.Earlier) != 0 {
		t.Errorf("%+v %v", v, err)
	}
	for _, bad := range []string{"t-1@", "t-1@" + hexOf(first.Bundle.Digest)[:7], "t-1@../../etc", "t-1@zzzzzzzzzz", "@" + hexOf(first.Bundle.Digest)[:12]} {
		if _, err := w.k.Bundle(t.Context(), r.Scope, bad); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", bad, err)
		}
		if err := w.k.Remove(t.Context(), r.Scope, cofferdam.Principal{}, bad, true); err == nil || len(w.disks) != 1 {
			t.Errorf("removing %s: %v", bad, err)
		}
	}
	for n := 3; n <= maxEarlier+4; n++ {
		export(n)
	}
	if got := w.records[r.ID]; len(got.Earlier) != maxEarlier || len(w.bundles()) != maxEarlier+1 {
		t.Errorf("%d earlier ones, %d files", len(got.Earlier), len(w.bundles()))
	}
	if last := w.events[len(w.events)-1]; last.Kind != cofferdam.EventWorkspaceRemove || !strings.Contains(last.Fields["why"], "later ones") {
		t.Errorf("on record: %+v", last)
	}
	// With the workspace they stay; discarded, they go.
	remove := func() {
		t.Helper()
		if err := w.k.Remove(t.Context(), r.Scope, cofferdam.Principal{Name: "ann"}, "t-1", true); err != nil {
			t.Fatal(err)
		}
	}
	if remove(); len(w.bundles()) != maxEarlier+1 || len(w.disks) != 0 {
		t.Errorf("%d files, %d disks", len(w.bundles()), len(w.disks))
	}
	if remove(); len(w.bundles()) != 0 || w.records[r.ID].Bundle != nil {
		t.Errorf("discarded: %d files are left", len(w.bundles()))
	}
}

// TestStuckTakesNoRoom: workspaces that cannot be exported, and so are not removed,
// do not make others go before their time.
func TestStuckTakesNoRoom(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxSize = 2 << 30 })
	w.attempt(1)
	w.now = w.now.Add(time.Hour)
	stuck := w.attempt(2)
	if _, err := w.ChangeWorkspace(t.Context(), stuck.ID, func(r *Record) error { r.Tried = r.Left.Add(time.Minute); return nil }); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour)
	w.attempt(3)
	w.mustSweep()
	w.wantKinds()
	// The control: it takes room while it can be removed.
	if _, err := w.ChangeWorkspace(t.Context(), stuck.ID, func(r *Record) error { r.Tried = time.Time{}; return nil }); err != nil {
		t.Fatal(err)
	}
	w.mustSweep()
	w.wantKinds("notice")
}

// TestOneExportHoldsUpNoOther: while one workspace is being exported, others are
// exported and removed, and a second export of the same waits for the first.
func TestOneExportHoldsUpNoOther(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := newWorld(t, func(o *Options) {
		tips := o.Tips
		o.Tips = func(ctx context.Context, id cofferdam.RepoID) ([]cofferdam.Commit, error) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(began)
				<-goOn
			}
			return tips(ctx, id)
		}
	})
	one, other := w.attempt(1), w.attempt(2)
	results := make(chan error, 2)
	go func() { _, err := w.k.Export(context.Background(), one.Scope, "t-1"); results <- err }()
	<-began
	if err := w.k.Remove(t.Context(), other.Scope, cofferdam.Principal{Name: "ann"}, "t-2", false); err != nil {
		t.Error(err)
	}
	w.mustSweep()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("nobody waits"))
	if err := w.k.Remove(ctx, one.Scope, cofferdam.Principal{Name: "ann"}, "t-1", true); err == nil {
		t.Error("removed while it is exported")
	}
	go func() { _, err := w.k.Export(context.Background(), one.Scope, "t-1"); results <- err }()
	close(goOn)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if len(w.disks) != 1 {
		t.Errorf("%d workspaces are left", len(w.disks))
	}
	if w.created != 2 { // of t-1 once, of t-2 once
		t.Errorf("%d boxes have read", w.created)
	}
	if len(w.k.held) != 0 {
		t.Errorf("held: %v", w.k.held)
	}
}

// id finds the workspace of a task.
func (w *world) id(number int64) sandbox.WorkspaceID {
	for id, r := range w.records {
		if r.Number == number {
			return id
		}
	}
	w.t.Fatalf("task %d has no workspace", number)
	return ""
}
