package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// fakeBox is a box of Fake: a real cofferdam-init, with the host around it.
type fakeBox struct {
	sandbox.Lacks
	life    *sandbox.Life
	fake    *Fake
	spec    sandbox.Spec
	dir     string
	created time.Time
	host    *guest.Host
	init    *exec.Cmd
	gone    sync.Once
}

var _ sandbox.Box = (*fakeBox)(nil)

func (f *Fake) make(ctx context.Context, spec sandbox.Spec) (*fakeBox, error) {
	if spec.Limits.PIDs == 0 {
		spec.Limits.PIDs = sandbox.DefaultLimits.PIDs
	}
	if spec.Limits.OpenFiles == 0 {
		spec.Limits.OpenFiles = sandbox.DefaultLimits.OpenFiles
	}
	b := &fakeBox{Lacks: f.Lacks, life: sandbox.NewLife(), fake: f, spec: spec, dir: filepath.Join(f.dir, string(spec.ID)), created: time.Now()}
	for _, dir := range []string{b.root(), b.work()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make folder of box: %w", err)
		}
	}
	if spec.Env != "" && spec.SetupPhase {
		if err := os.MkdirAll(spec.Env, 0o755); err != nil {
			return nil, fmt.Errorf("make environment: %w", err)
		}
	}
	if err := b.boot(ctx); err != nil {
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

func (b *fakeBox) root() string { return filepath.Join(b.dir, "root") }
func (b *fakeBox) work() string { return filepath.Join(b.dir, "work") }

// boot starts pid 1 and waits for it.
func (b *fakeBox) boot(ctx context.Context) error {
	toInit, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make control pipe: %w", err)
	}
	defer toInit.Close()
	r, fromInit, err := os.Pipe()
	if err != nil {
		w.Close()
		return fmt.Errorf("make control pipe: %w", err)
	}
	defer fromInit.Close()
	if b.init, err = startIn(b, toInit, fromInit); err != nil {
		w.Close()
		r.Close()
		return err
	}
	b.host, err = guest.NewHost(w, r, filepath.Join(b.dir, "journal"), guest.Options{
		Config: guest.Config{Unbounded: true, OpenFiles: b.spec.Limits.OpenFiles},
		Life:   b.life,
	})
	if err != nil {
		w.Close()
		r.Close()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := b.host.Ready(ctx); err != nil {
		return err
	}
	return b.life.Move(sandbox.Ready, "it was made", sandbox.ByDriver)
}

// ID returns the box's name.
func (b *fakeBox) ID() cofferdam.BoxID { return b.spec.ID }

// Status says that nothing is bounded but what pid 1 bounds.
func (b *fakeBox) Status(ctx context.Context) (sandbox.Status, error) {
	st := sandbox.Status{
		ID: b.spec.ID, Tier: sandbox.None, Kernel: kernel(), Image: b.spec.Image, Created: b.created,
		Limits: cofferdam.Limits{OpenFiles: b.spec.Limits.OpenFiles},
	}
	st.Changes = b.life.Changes()
	last := st.Changes[len(st.Changes)-1]
	st.State, st.Reason = last.State, last.Reason
	return st, ctx.Err()
}

// Wait returns once the box is in one of the states, or is over.
func (b *fakeBox) Wait(ctx context.Context, states ...sandbox.BoxState) (sandbox.Change, error) {
	return b.life.Wait(ctx, states...)
}

// Start starts a command.
func (b *fakeBox) Start(ctx context.Context, c sandbox.Command) error { return b.host.Start(ctx, c) }

// Attach sends a command's output to sink.
func (b *fakeBox) Attach(ctx context.Context, id cofferdam.ExecID, from sandbox.Offsets, sink sandbox.Sink) (sandbox.Result, error) {
	return b.host.Attach(ctx, id, from, sink)
}

// Write sends input to a command.
func (b *fakeBox) Write(ctx context.Context, id cofferdam.ExecID, p []byte, eof bool) error {
	return b.host.Write(ctx, id, p, eof)
}

// Kill ends a command with all it started.
func (b *fakeBox) Kill(ctx context.Context, id cofferdam.ExecID) error { return b.host.Kill(ctx, id) }

// Jobs counts the processes of each command.
func (b *fakeBox) Jobs(ctx context.Context) ([]cofferdam.BoxJob, error) { return b.host.Jobs(ctx) }

// Wire is refused: the box uses the host's network.
func (b *fakeBox) Wire(context.Context) (*os.File, error) {
	return nil, &cofferdam.Error{
		Op: "sandboxtest.Wire", Kind: cofferdam.Unavailable, Subject: "wire of box " + string(b.spec.ID),
		Reason: "a box without a boundary uses the host's network", Hint: "use another tier",
	}
}

// Destroy ends the box and removes its folder.
func (b *fakeBox) Destroy(context.Context) error {
	var err error
	b.gone.Do(func() {
		_ = b.life.Move(sandbox.Stopping, "it is being destroyed", sandbox.ByCaller) // refused once it is over
		if b.host != nil {
			err = b.host.Close("the box was destroyed")
		}
		if b.init != nil {
			b.init.Process.Kill()
			_ = b.init.Wait()
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
		b.fake.forget(b.spec.ID)
		_ = b.life.Move(sandbox.Stopped, "it was destroyed", sandbox.ByCaller)
		_ = b.life.Move(sandbox.Deleted, "nothing is left of it", sandbox.ByDriver)
	})
	return err
}
