package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/wall"
	"cofferdam/sandbox/watch"
)

// box is one box. Its fields are set while it is built, before others see it.
type box struct {
	sandbox.Lacks
	*sandbox.Life
	*guest.Host
	d         *Driver
	spec      sandbox.Spec // complete: every limit is set
	created   time.Time
	dir       string
	project   uint32       // of the workspace; 0: it is an image
	kept      *volume.Hold // of the workspace that outlives it; nil for none
	net       *netns.Namespace
	meter     guest.Meter
	watching  watching
	condemned atomic.Pointer[string] // why it was ended for what it wrote; nil if it was not
	init      *pid1
	ended     chan struct{} // closed once pid 1 has ended

	mu     sync.Mutex
	paused bool // guarded by mu
	freed  bool // guarded by mu; its project may be another box's
	gone   bool // guarded by mu; everything it had is removed
}

var _ sandbox.Box = (*box)(nil)

func (b *box) path(name string) string { return filepath.Join(b.dir, name) }

// ID returns the box's name.
func (b *box) ID() cofferdam.BoxID { return b.spec.ID }

// Status says what the box really is.
func (b *box) Status(context.Context) (sandbox.Status, error) {
	s := sandbox.Status{
		ID: b.spec.ID, Tier: sandbox.Process, Kernel: kernel(), Flags: b.flags(),
		Limits: b.spec.Limits, Image: b.spec.Image, Created: b.created, Changes: b.Life.Changes(), Workspace: b.kept.About(),
	}
	last := s.Changes[len(s.Changes)-1]
	s.State, s.Reason = last.State, last.Reason
	if why := b.condemned.Load(); s.State == sandbox.Failed && why != nil {
		s.Reason = *why
	} else if s.State == sandbox.Failed {
		s.Reason = cmp.Or(b.d.groups.NoMemory(string(b.spec.ID), b.spec.Limits.Memory), s.Reason)
	}
	return s, nil
}

// flags say which walls the box has.
func (b *box) flags() []string {
	namespaces := "namespaces=mnt,pid,net,ipc,uts,cgroup"
	if b.d.inner() {
		namespaces += ",user"
	}
	list := []string{namespaces, fmt.Sprintf("landlock=%d", wall.LandlockVersion()), "seccomp=filter", "no-new-privs", b.size()}
	if b.d.watched {
		list = append(list, sandbox.LimitsWatched)
	}
	return list
}

// size says how the workspace has its size.
func (b *box) size() string {
	switch {
	case b.project != 0:
		return sandbox.WorkspaceQuota
	case b.d.o.User && b.spec.Workspace != "":
		return sandbox.WorkspaceWatched
	case b.d.o.User:
		return sandbox.WorkspaceMemory
	}
	return sandbox.WorkspaceImage
}

// kernel is the host's: what boxes of this tier talk to.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "Linux"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:]) + " of the host"
}

// Wire lends a fresh queue of the box's network device.
func (b *box) Wire(ctx context.Context) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q, err := b.net.Queue()
	if err != nil {
		return nil, &cofferdam.Error{
			Op: "process.Wire", Kind: cofferdam.Unavailable, Subject: "wire of box " + string(b.spec.ID),
			Reason: err.Error(), Hint: "the box is gone; start a new one", Err: err,
		}
	}
	return q, nil
}

// Pause stops all of the box's processes where they are, by its control group.
func (b *box) Pause(context.Context) error {
	if b.d.watched {
		return watchedLacks(sandbox.CanPause, "only a control group stops all processes of a box at once, in a way that none of them sees")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused {
		return nil
	}
	if err := b.Life.Move(sandbox.Suspending, "being paused", sandbox.ByCaller); err != nil {
		return err
	}
	b.Host.Hold("the box is paused")
	if err := b.d.groups.Freeze(string(b.spec.ID), true); err != nil {
		return errors.Join(b.failed("Pause", "pause", err), b.d.groups.Freeze(string(b.spec.ID), false), b.GoOn("it could not be paused", sandbox.ByDriver))
	}
	b.paused = true
	return b.Life.Move(sandbox.Suspended, "it is paused", sandbox.ByCaller)
}

// Resume lets a paused box go on.
func (b *box) Resume(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.Life.Now(); now.State.Over() {
		return b.Conflict("process.Resume", "resume box "+string(b.spec.ID))
	}
	if !b.paused {
		return nil
	}
	if err := b.d.groups.Freeze(string(b.spec.ID), false); err != nil {
		return b.failed("Resume", "resume", err)
	}
	b.paused = false
	return b.GoOn("it was resumed", sandbox.ByCaller)
}

func (b *box) failed(op, what string, err error) error {
	return sandbox.Wrap("process."+op, what+" box "+string(b.spec.ID), "look at its state; a box that has failed is destroyed and made anew", err)
}

// Destroy ends the box and removes all it had. What ctx says does not stop it
// halfway.
func (b *box) Destroy(context.Context) error {
	_ = b.Life.Move(sandbox.Stopping, "it is being destroyed", sandbox.ByCaller) // it may be over already
	if err := b.tearDown("the box was destroyed"); err != nil {
		return &cofferdam.Error{
			Op: "process.Destroy", Kind: cofferdam.Internal, Subject: "destroy box " + string(b.spec.ID),
			Reason: err.Error(), Hint: "restart the keeper: it ends what is left", Err: err,
		}
	}
	_ = b.Life.Move(sandbox.Stopped, "it was destroyed", sandbox.ByCaller) // a second time it is over already
	b.d.Forget(b.spec.ID, b)
	return nil
}

// tearDown removes whatever build made, in the reverse order, and goes on when a
// part fails. It may be called again after an error.
func (b *box) tearDown(reason string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	errs := []error{b.d.groups.End(string(b.spec.ID))}
	if b.ended != nil {
		_ = b.init.cmd.Process.Kill() // it was in no group if its start was cut short
		<-b.ended
	}
	b.watching.stop()
	if b.Host != nil {
		errs = append(errs, b.Host.Close(reason))
	}
	if b.kept != nil {
		errs = append(errs, b.kept.Leave(b.path("work")))
	} else {
		errs = append(errs, mount.Unmount(b.path("work")))
	}
	if b.net != nil {
		errs = append(errs, b.net.Close())
	}
	if mounts, err := mount.Under(b.dir); err != nil || len(mounts) > 0 {
		return errors.Join(append(errs, err, fmt.Errorf("still mounted: %q", mounts))...)
	}
	errs = append(errs, watch.Remove(b.dir))
	if b.project != 0 && !b.freed {
		err := b.d.projects.End(b.d.o.Root, b.project)
		errs, b.freed = append(errs, err), err == nil
	}
	b.gone = errors.Join(errs...) == nil
	return errors.Join(errs...)
}

// look is what the host can see of the box.
func (b *box) look() guest.Seen {
	now := b.d.groups.Events(string(b.spec.ID))
	full := b.watching.folders.Over() || watch.Full(b.path("work")) || b.project != 0 && watch.Full(b.dir)
	return guest.Seen{OOMKills: now.OOMKills, PIDsFull: now.PIDsFull, DiskFull: full}
}
