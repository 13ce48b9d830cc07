package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"

	"gvisor.dev/gvisor/runsc/container"
)

// box is one box. Its fields are set while it is built, before others see it.
type box struct {
	sandbox.Lacks
	*sandbox.Life
	*guest.Host
	d         *Driver
	spec      sandbox.Spec    // complete: every limit is set
	name      cofferdam.BoxID // of all it has on the host; spec.ID, unless it was made ahead
	created   time.Time
	dir       string
	root      string       // its "/", shared with others
	project   uint32       // of the workspace; 0: it is an image
	kept      *volume.Hold // of the workspace that outlives it; nil for none
	ahead     bool         // it was made before anybody asked for it
	keepable  bool         // … with a workspace that can be kept
	env       *os.File     // its environment, held, if that is a folder; nil for none
	net       *netns.Namespace
	container *container.Container
	pid       atomic.Int64 // of the sandbox process; 0 while there is none
	console   *console
	namer     *namer // of a box that waits in the pool
	meter     guest.Meter
	memfds    watch.Memfds           // its memory, if it is watched
	unwatch   func()                 // ends the looking at its memory; nil where nobody looks
	folders   watch.Folders          // that it writes to and that have no size of their own
	commands  watch.Commands         // that run
	condemned atomic.Pointer[string] // why it was ended for what it wrote; nil if it was not
	relieved  atomic.Int64           // when pid 1 was last asked to end a process, in nanoseconds

	step sync.Mutex // held while the box is stopped, written down or made to go on
	rest rest       // what it does instead of running; guarded by step

	mu    sync.Mutex
	freed bool // guarded by mu; its project may be another box's
	gone  bool // guarded by mu; everything it had is removed
}

var _ sandbox.Box = (*box)(nil)

func (b *box) path(name string) string { return filepath.Join(b.dir, name) }

// ID returns the box's name.
func (b *box) ID() cofferdam.BoxID { return b.spec.ID }

// Status says what the box really is.
func (b *box) Status(context.Context) (sandbox.Status, error) {
	s := sandbox.Status{
		ID: b.spec.ID, Tier: sandbox.GVisor, Kernel: b.d.checker.kernel(), Flags: flagsOf(b),
		Limits: b.spec.Limits, Image: b.spec.Image, Created: b.created, Workspace: b.kept.About(),
	}
	s.Changes = b.Life.Changes()
	last := s.Changes[len(s.Changes)-1]
	s.State, s.Reason = last.State, last.Reason
	if s.State == sandbox.Failed {
		s.Reason = b.whyEnded(s.Reason)
	}
	return s, nil
}

// flags are those of the sandbox program, and how the workspace has its size.
func flagsOf(b *box) []string {
	list := slices.Clone(b.d.flags)
	if b.d.watched {
		list = append(list, sandbox.LimitsWatched)
	}
	if b.d.o.User && b.spec.Env != "" {
		list = append(list, envFolder)
	}
	switch {
	case b.project != 0:
		return append(list, sandbox.WorkspaceQuota)
	case work(b) != nil:
		return append(list, sandbox.WorkspaceWatched)
	case b.d.o.User:
		return append(list, sandbox.WorkspaceMemory)
	}
	return append(list, sandbox.WorkspaceImage)
}

// whyEnded says more of why a box that nobody destroyed is not there any more
// than known, if anything can be found.
func (b *box) whyEnded(known string) string {
	why, memory := b.condemned.Load(), b.d.groups.NoMemory(string(b.name), b.spec.Limits.Memory)
	switch {
	case why != nil:
		return *why
	case memory != "":
		return memory
	case b.console.err() != nil:
		return b.console.err().Error()
	}
	return known
}

// Wire lends a fresh queue of the box's network device.
func (b *box) Wire(ctx context.Context) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q, err := b.net.Queue()
	if err != nil {
		return nil, &cofferdam.Error{
			Op: "gvisor.Wire", Kind: cofferdam.Unavailable, Subject: "wire of box " + string(b.spec.ID),
			Reason: err.Error(), Hint: "the box is gone; start a new one", Err: err,
		}
	}
	return q, nil
}

// Destroy ends the box and removes all it had. What ctx says does not stop it
// halfway.
func (b *box) Destroy(context.Context) error {
	_ = b.Life.Move(sandbox.Stopping, "it is being destroyed", sandbox.ByCaller) // refused once it is over
	b.d.groups.Kill(string(b.name))                                              // so that no step of it is waited for
	if err := b.tearDown("the box was destroyed"); err != nil {
		return &cofferdam.Error{
			Op: "gvisor.Destroy", Kind: cofferdam.Internal, Subject: "destroy box " + string(b.spec.ID),
			Reason: err.Error(), Hint: "restart the keeper: it ends what is left", Err: err,
		}
	}
	b.d.Forget(b.spec.ID, b)
	_ = b.Life.Move(sandbox.Stopped, "it was destroyed", sandbox.ByCaller)
	_ = b.Life.Move(sandbox.Deleted, "nothing is left of it", sandbox.ByDriver)
	return nil
}

// tearDown removes whatever build made, in the reverse order, and goes on
// when a part fails. It may be called again after an error.
func (b *box) tearDown(reason string) error {
	b.step.Lock()
	defer b.step.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	id := string(b.name)
	var errs []error
	b.folders.End()
	if b.unwatch != nil {
		b.unwatch()
	}
	b.namer.close()
	closeAll(b.rest.ends[:])
	b.rest = rest{}
	if b.Host != nil {
		errs = append(errs, b.Host.Close(reason))
	}
	if b.container != nil {
		if err := b.container.Destroy(); err != nil {
			errs = append(errs, fmt.Errorf("ending sandbox: %w", err))
		}
	}
	errs = append(errs, b.d.groups.End(id))
	if b.kept != nil {
		errs = append(errs, b.kept.Leave(b.path("work")))
	} else {
		errs = append(errs, mount.Unmount(b.path("work")))
	}
	errs = append(errs, mount.Unmount(b.path("env")), leaveEnv(b))
	if b.net != nil {
		errs = append(errs, b.net.Close())
	}
	state, err := filepath.Glob(filepath.Join(b.d.state, "*"+id+"*"))
	errs = append(errs, err)
	for _, path := range append(state, b.d.journalDir(b.name)) {
		errs = append(errs, os.RemoveAll(path))
	}
	if mounts, err := mount.Under(b.dir); err != nil || len(mounts) > 0 {
		return errors.Join(append(errs, err, fmt.Errorf("still mounted: %q", mounts))...)
	}
	errs = append(errs, watch.Remove(b.dir))
	if b.project != 0 && !b.freed {
		err := b.d.projects.End(b.d.o.Root, b.project)
		errs, b.freed = append(errs, err), err == nil
	}
	if b.root != "" {
		b.d.release(b.root)
		b.root = ""
	}
	b.gone = errors.Join(errs...) == nil
	return errors.Join(errs...)
}
