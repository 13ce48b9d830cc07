package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/wall"
)

// startPatience is how long pid 1 may take to answer; a loaded host needs
// seconds, never a minute.
const startPatience = time.Minute

// keptInBox is all that pid 1 has, and no command has any: to give commands their
// user and group, and to end them.
const keptInBox = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// Create makes a box and returns when it can run commands.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	rules := sandbox.Rules{Driver: "process", Tiers: []sandbox.Tier{sandbox.Process}, MinMemory: minMemory, MaxCPU: maxCPU, State: d.o.Root}
	if err := spec.Complete(rules); err != nil {
		return nil, err
	}
	if err := d.checker.refuse(ctx); err != nil {
		return nil, err
	}
	if _, err := d.Reserve(spec.ID); err != nil {
		return nil, err
	}
	b := &box{
		d: d, Lacks: sandbox.Lacks{Tier: sandbox.Process}, Life: sandbox.NewLife(), spec: spec, created: time.Now(),
		dir: filepath.Join(d.o.Root, "boxes", string(spec.ID)),
	}
	b.meter.Look = b.look
	err := b.build(ctx)
	if err == nil {
		err = b.Life.Move(sandbox.Ready, "it was made", sandbox.ByDriver)
	}
	if err != nil {
		// Whatever ctx says, what was built so far must go.
		if left := b.tearDown("it could not be started"); left != nil {
			d.o.Log.ErrorContext(ctx, "removing what is left of a box that did not start", slog.Any("box", spec.ID), slog.Any("err", left))
		}
		d.Forget(spec.ID, nil)
		return nil, sandbox.Wrap(opCreate, "start box "+string(spec.ID), "cofferdam doctor checks this host", err)
	}
	d.Settle(b)
	return b, nil
}

// build puts a box together. Everything it makes is known to tearDown.
func (b *box) build(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	if b.spec.Workspace == "" && !b.d.o.User {
		if err := mount.Room(opCreate, b.dir, b.spec.Limits.Disk); err != nil {
			return err
		}
	}
	if err := b.d.checker.allows(b.spec.Limits, b.countedPIDs()); err != nil {
		return err
	}
	plan, err := b.plan()
	if err != nil {
		return err
	}
	if err := b.makeWorkspace(ctx); err != nil {
		return workspaceError(err)
	}
	if err := b.d.makeGroup(string(b.spec.ID), b.spec.Limits); err != nil {
		return missing(opCreate, layerGroups, err)
	}
	if b.net, err = netns.New(); err != nil {
		return missing(opCreate, wall.LayerNetwork, err)
	}
	return b.boot(ctx, plan)
}

// boot starts pid 1, has it build the walls and waits for its first word.
func (b *box) boot(ctx context.Context, plan wall.Plan) error {
	var ends [4]*os.File // theirs to read, ours to write, ours to read, theirs to write
	for i := 0; i < 4; i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		ends[i], ends[i+1] = r, w
		defer ends[[]int{0, 1, 3}[i]].Close()
	}
	ours := func() { ends[1].Close(); ends[2].Close() }
	err := b.net.Inside(func() (err error) {
		b.init, err = startInit(starting{path: b.d.o.Init, inner: b.d.inner(), files: []*os.File{ends[0], ends[3]}}, func() (wall.Plan, error) { return plan, nil })
		return err
	})
	if err != nil {
		ours()
		return err
	}
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		_ = b.init.cmd.Wait() // why it ended is not in its code
	}()
	defer unix.Close(b.init.talk)
	if err := b.enclose(); err != nil {
		ours()
		return err
	}
	b.Host, err = guest.NewHost(ends[1], ends[2], filepath.Join(b.d.o.Root, "journal", string(b.spec.ID)), guest.Options{
		Config: guest.Config{
			UID: sandbox.UserID, GID: sandbox.UserID, OpenFiles: b.spec.Limits.OpenFiles, PIDs: b.countedPIDs(),
			Sized: sized(), FewIDs: b.d.inner(),
		},
		Watch: func(id cofferdam.ExecID) func(*sandbox.Result) {
			return b.watching.commands.Begin(id, b.meter.Watch(id))
		},
		Life: b.Life,
	})
	if err != nil {
		ours()
		return err
	}
	if err := b.beginWatch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	return b.Host.Ready(ctx)
}

// enclose bounds pid 1 before it does anything, and waits until its walls are up.
func (b *box) enclose() error {
	if err := b.remember(); err != nil {
		return err
	}
	b.yield()
	if err := b.d.groups.Add(string(b.spec.ID), b.init.cmd.Process.Pid); err != nil {
		return missing(opCreate, layerGroups, err)
	}
	if err := b.init.say(0); err != nil {
		return err
	}
	r, _, err := b.init.hear()
	switch {
	case err != nil:
		return fmt.Errorf("pid 1 ended before its walls were up: %w", err)
	case r.Error != "":
		return reported(opCreate, r)
	case !r.Built:
		return errors.New("pid 1 said what it may not")
	}
	return nil
}
