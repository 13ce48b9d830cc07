package daemon

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/internal/repo"
	"cofferdam/proof"
	"cofferdam/workspace"
)

// keepWorkspaces opens what keeps workspaces from one session to the next.
func (s *server) keepWorkspaces() (err error) {
	w, began := s.Workspaces, time.Now()
	s.workspaces, err = workspace.New(workspace.Options{
		Dir: filepath.Join(s.State, "bundles"), Driver: s.boxes, Store: s.store, Record: s.trace.Host(), Log: s.log,
		Keep: w.Keep, MaxSize: w.MaxSize, Bundles: w.Bundles, Point: s.crash(),
		Now: func() time.Time { return time.Now().Add(s.ClockAhead) },
		Up:  func() time.Duration { return time.Since(began) + s.ClockAhead }, // by the clock that nobody sets
		Tips: func(ctx context.Context, id cofferdam.RepoID) (tips []cofferdam.Commit, err error) {
			refs, err := s.mirror.Refs(ctx, id)
			for _, c := range refs {
				tips = append(tips, c)
			}
			slices.Sort(tips)
			return slices.Compact(tips), err
		},
		Bundle: func(ctx context.Context, id cofferdam.RepoID, from io.Reader, to io.Writer) (int, []cofferdam.Ref, error) {
			b, err := repo.Bundle(ctx, s.mirror, id, from, to)
			return b.Commits, b.Refs, err
		},
	})
	return err
}

// sweepWorkspaces begins to remove workspaces whose time is over.
func (s *server) sweepWorkspaces(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.workspaces.Run(ctx)
	}()
	s.onStop(func() { cancel(); <-done })
}

// vouch returns the manifest of a checkpoint that this server's key has signed.
func (s *server) vouch(note []byte) ([]byte, error) {
	return proof.OpenSnapshot(note, s.signer.Public())
}
