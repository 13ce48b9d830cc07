package keeper

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// shelf is a driver that has snapshots and nothing else.
type shelf struct {
	sandbox.Driver
	mu  sync.Mutex
	all map[sandbox.SnapshotID]sandbox.Snapshot // guarded by mu
	put sandbox.Restore                         // that was asked for last; guarded by mu
}

func newShelf(ids ...sandbox.SnapshotID) *shelf {
	s := &shelf{all: map[sandbox.SnapshotID]sandbox.Snapshot{}}
	for _, id := range ids {
		s.all[id] = sandbox.Snapshot{ID: id, Label: sandbox.Label{Comment: "é <&>\u2028", Order: 3}, Taken: time.Unix(1, 2).UTC(), Paused: 7}
	}
	return s
}

func (s *shelf) find(id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	x, ok := s.all[id]
	if !ok {
		return x, &cofferdam.Error{Op: "test", Kind: cofferdam.NotFound, Subject: string(id)}
	}
	return x, nil
}

func (s *shelf) List(context.Context) ([]sandbox.Status, error) { return nil, nil }

func (s *shelf) Snapshots(context.Context) (list []sandbox.Snapshot, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		list = append(list, x)
	}
	return list, nil
}

func (s *shelf) SignSnapshot(_ context.Context, id sandbox.SnapshotID, note []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.find(id)
	if x.Note = note; err == nil {
		s.all[id] = x
	}
	return err
}

func (s *shelf) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
	return nil
}

func (s *shelf) Differences(_ context.Context, c sandbox.Compare) (sandbox.Differences, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.find(c.From)
	return sandbox.Differences{Added: 1, List: []sandbox.Difference{{Path: []byte("odd\xff\n\x00"), Is: &sandbox.Found{Kind: sandbox.KindLink, Size: 1 << 40, Mode: 0o4755}}}}, err
}

func (s *shelf) RestoreWorkspace(_ context.Context, r sandbox.Restore) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.find(r.Snapshot)
	if err == nil {
		s.put = r
	}
	return err
}

// TestCheckpointsOfKeepers: while one keeper replaces another, a server finds what
// either of them has, with every byte of it, and what neither has is not found.
func TestCheckpointsOfKeepers(t *testing.T) {
	ctx := testContext(t)
	const ours, theirs, nobodys = "s-00000000000000000000000000000001", "s-00000000000000000000000000000002", "s-00000000000000000000000000000003"
	newer, older := newShelf(ours), newShelf(theirs)
	clients := make([]*Client, 2)
	for i, d := range []*shelf{newer, older} {
		beside := lacksAll{Lacks: sandbox.Lacks{Tier: sandbox.None}} // a driver that takes none
		s := newServer(map[sandbox.Tier]sandbox.Driver{sandbox.GVisor: d, sandbox.None: beside}, Options{})
		path, _ := runOn(t, s)
		clients[i] = dial(t, path)
	}
	set := &Set{Client: clients[0], older: []*elder{{client: clients[1], log: slog.New(slog.DiscardHandler)}}}
	if all, err := set.Snapshots(ctx); err != nil || len(all) != 2 {
		t.Errorf("listed %+v, %v", all, err)
	}
	for id, d := range map[sandbox.SnapshotID]*shelf{ours: newer, theirs: older} {
		if err := set.SignSnapshot(ctx, id, []byte("\x00\xff")); err != nil || string(d.all[id].Note) != "\x00\xff" {
			t.Errorf("signed %q, %v", d.all[id].Note, err)
		}
		all, err := set.Snapshots(ctx)
		found := false
		for _, x := range all {
			found = found || reflect.DeepEqual(x, d.all[id])
		}
		if err != nil || !found {
			t.Errorf("it is not listed as it is: %+v, %v", all, err)
		}
		got, err := set.Differences(ctx, sandbox.Compare{From: id, To: id})
		if err != nil || got.Added != 1 || string(got.List[0].Path) != "odd\xff\n\x00" || *got.List[0].Is != (sandbox.Found{Kind: sandbox.KindLink, Size: 1 << 40, Mode: 0o4755}) {
			t.Errorf("differences %+v, %v", got, err)
		}
		r := sandbox.Restore{Workspace: "w-1", Epoch: 7, Snapshot: id, Digest: "sha256:1"}
		if err := set.RestoreWorkspace(ctx, r); err != nil || d.put != r {
			t.Errorf("put back %+v, %v", d.put, err)
		}
	}
	_, differences := set.Differences(ctx, sandbox.Compare{From: nobodys, To: nobodys})
	for name, err := range map[string]error{
		"signing": set.SignSnapshot(ctx, nobodys, []byte("x")), "comparing": differences, "putting back": set.RestoreWorkspace(ctx, sandbox.Restore{Snapshot: nobodys}),
	} {
		if cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%s what nobody has: %v", name, err)
		}
	}
	if err := set.RemoveSnapshot(ctx, theirs); err != nil || len(older.all) != 0 || len(newer.all) != 1 {
		t.Errorf("removed: %v, %v and %v are left", err, newer.all, older.all)
	}
}

// lister is a driver without boxes.
type lister struct{ sandbox.Driver }

func (lister) List(context.Context) ([]sandbox.Status, error) { return nil, nil }

// TestLackingOfAKeeper: where no driver takes checkpoints, the refusal says which do.
func TestLackingOfAKeeper(t *testing.T) {
	path, _ := runOn(t, newServer(map[sandbox.Tier]sandbox.Driver{sandbox.None: lacksAll{Lacks: sandbox.Lacks{Tier: sandbox.None}}}, Options{}))
	err := dial(t, path).SignSnapshot(testContext(t), "s-00000000000000000000000000000001", []byte("x"))
	if !sandbox.IsLacking(err) || cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
}

// lacksAll is a driver that can do nothing.
type lacksAll struct {
	sandbox.Lacks
	lister
}
