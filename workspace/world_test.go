package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// world is all that a Keeper works with, kept in maps. Its boxes say what they
// are told to.
type world struct {
	sandbox.Lacks
	t       *testing.T
	now     time.Time
	ahead   time.Duration // by which the clock was set ahead, in all
	dir     string
	point   func(string)
	says    string // of a box that reads
	exit    int    // of that box
	created int
	stuck   error         // of RemoveWorkspace
	killed  bool          // RemoveWorkspace ends the process, once it has removed
	keep    time.Duration // that the project asks for
	silent  error         // of Record

	mu      sync.Mutex
	records map[sandbox.WorkspaceID]Record
	disks   map[sandbox.WorkspaceID]sandbox.Workspace
	tries   map[cofferdam.SessionID]int
	events  []cofferdam.Event
	k       *Keeper
	change  func(*Options)
	shelf   []sandbox.Snapshot
}

func (w *world) Snapshots(context.Context) ([]sandbox.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.shelf), nil
}

func (w *world) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shelf = slices.DeleteFunc(w.shelf, func(s sandbox.Snapshot) bool { return s.ID == id })
	return nil
}

func newWorld(t *testing.T, change func(*Options)) *world {
	w := &world{
		Lacks: sandbox.Lacks{Tier: sandbox.GVisor}, t: t, now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), dir: t.TempDir(), says: "what a box says",
		records: map[sandbox.WorkspaceID]Record{}, disks: map[sandbox.WorkspaceID]sandbox.Workspace{}, tries: map[cofferdam.SessionID]int{}, change: change,
	}
	w.restart()
	return w
}

func (w *world) restart() {
	w.t.Helper()
	born := w.now.Add(-w.ahead)
	o := Options{
		Up:  func() time.Duration { return w.now.Add(-w.ahead).Sub(born) },
		Dir: w.dir, Driver: worldDriver{w}, Store: worldStore{w}, Record: w, Now: func() time.Time { return w.now }, Point: func(name string) {
			if w.point != nil {
				w.point(name)
			}
		},
		Tips: func(context.Context, cofferdam.RepoID) ([]cofferdam.Commit, error) { return nil, nil },
		Bundle: func(_ context.Context, _ cofferdam.RepoID, from io.Reader, to io.Writer) (int, []cofferdam.Ref, error) {
			n, err := io.Copy(to, from)
			return int(n), []cofferdam.Ref{"refs/heads/uncommitted"}, err
		},
	}
	if w.change != nil {
		w.change(&o)
	}
	var err error
	if w.k, err = New(o); err != nil {
		w.t.Fatal(err)
	}
}

// attempt has a session work in a workspace and leave it.
func (w *world) attempt(number int64) Record {
	w.t.Helper()
	p := w.plan(number, 1, 1)
	lease, err := w.k.Take(w.t.Context(), p, sandbox.GVisor, "", w.keep)
	if err != nil {
		w.t.Fatal(err)
	}
	w.disks[lease.ID] = sandbox.Workspace{ID: lease.ID, Tier: sandbox.GVisor, Size: 4 << 30, Used: 1 << 30, Epoch: lease.Epoch}
	if err := errors.Join(w.k.Ready(w.t.Context(), p), w.k.Left(w.t.Context(), p)); err != nil {
		w.t.Fatal(err)
	}
	return w.records[lease.ID]
}

func (w *world) plan(number int64, attempt, try int) session.Plan {
	p := session.Plan{
		ID: cofferdam.SessionID(fmt.Sprintf("s-%d-%d-%d", number, attempt, try)), Task: cofferdam.TaskID(fmt.Sprintf("t-%d", number)), Number: number, Attempt: attempt,
	}
	p.Scope = cofferdam.Scope{Organization: "o-1", Project: "p-1"}
	w.tries[p.ID] = try
	return p
}

// bundles are the files of exports.
func (w *world) bundles() []string {
	w.t.Helper()
	all, err := filepath.Glob(filepath.Join(w.dir, "*.bundle"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// setClock sets the clock, ahead or back, in no time.
func (w *world) setClock(by time.Duration) { w.now, w.ahead = w.now.Add(by), w.ahead+by }

func (w *world) sweep() error { return w.k.Sweep(w.t.Context()) }

func (w *world) mustSweep() {
	w.t.Helper()
	if err := w.sweep(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) kinds() (list []string) {
	for _, e := range w.events {
		if !e.Durable {
			w.t.Errorf("%s is not durable", e.Kind)
		}
		list = append(list, strings.TrimPrefix(e.Kind, "workspace."))
	}
	return list
}

func (w *world) wantKinds(want ...string) {
	w.t.Helper()
	if got := w.kinds(); !slices.Equal(got, want) {
		w.t.Errorf("on record: %v, want %v", got, want)
	}
}

// What a world is for a Keeper.

func (w *world) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent == nil {
		w.events = append(w.events, e)
	}
	return e, w.silent
}

func (w *world) WorkspaceOf(_ context.Context, t cofferdam.TaskID, attempt int) (Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.Task == t && r.Attempt == attempt {
			return r, nil
		}
	}
	return Record{}, &cofferdam.Error{Op: "world", Kind: cofferdam.NotFound}
}

func (w *world) AddWorkspace(_ context.Context, r Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[r.ID] = r
	return nil
}

func (w *world) ChangeWorkspace(_ context.Context, id sandbox.WorkspaceID, change func(*Record) error) (Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.records[id]
	if !ok {
		return r, &cofferdam.Error{Op: "world", Kind: cofferdam.NotFound}
	}
	err := change(&r)
	if err == nil {
		w.records[id] = r
	}
	return r, err
}

func (w *world) SessionTry(_ context.Context, id cofferdam.SessionID) (int, error) {
	return w.tries[id], nil
}

func (w *world) Check(context.Context) ([]sandbox.Finding, error)           { return nil, nil }
func (w *world) Open(context.Context, cofferdam.BoxID) (sandbox.Box, error) { return nil, nil }
func (w *world) List(context.Context) ([]sandbox.Status, error)             { return nil, nil }

func (w *world) RemoveWorkspace(_ context.Context, id sandbox.WorkspaceID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck == nil {
		delete(w.disks, id)
	}
	if w.killed {
		panic("killed")
	}
	return w.stuck
}

// worldStore and worldDriver keep two methods of one name apart.
type worldStore struct{ *world }

func (s worldStore) Workspaces(context.Context) (list []Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.Removed.IsZero() || r.Bundle != nil {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return int(b.Number - a.Number) })
	return list, nil
}

type worldDriver struct{ *world }

func (d worldDriver) Workspaces(context.Context) (list []sandbox.Workspace, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.disks {
		list = append(list, v)
	}
	return list, nil
}

func (d worldDriver) Create(_ context.Context, s sandbox.Spec) (sandbox.Box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created++
	if s.Workspace == "" || s.Epoch == 0 || s.Tier != sandbox.GVisor {
		d.t.Errorf("box for an export: %+v", s)
	}
	return reader{w: d.world}, nil
}

// reader is the box that reads a workspace.
type reader struct {
	sandbox.Box
	w *world
}

func (r reader) Status(context.Context) (sandbox.Status, error) { return sandbox.Status{}, nil }
func (r reader) Start(context.Context, sandbox.Command) error   { return nil }
func (r reader) Destroy(context.Context) error                  { return nil }
func (r reader) Attach(_ context.Context, _ cofferdam.ExecID, _ sandbox.Offsets, sink sandbox.Sink) (sandbox.Result, error) {
	err := sink(sandbox.Stdout, 0, []byte(r.w.says))
	if err == nil {
		err = sink(sandbox.Stderr, 0, []byte("fatal: said on the way\n"))
	}
	return sandbox.Result{Exit: r.w.exit}, err
}
