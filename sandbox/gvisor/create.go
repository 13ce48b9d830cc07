package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"

	"gvisor.dev/gvisor/runsc/container"
)

// startPatience is how long pid 1 may take to answer; a loaded host needs
// seconds, never a minute.
const startPatience = 1 * time.Minute

// Create makes a box and returns when it can run commands.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := d.checkSpec(&spec); err != nil {
		return nil, err
	}
	if err := d.checker.refuse(ctx); err != nil {
		return nil, err
	}
	if _, err := d.Reserve(spec.ID); err != nil {
		return nil, err
	}
	b, err := d.make(ctx, spec)
	if err != nil {
		d.Forget(spec.ID, nil)
		return nil, sandbox.Wrap("gvisor.Create", "start box "+string(spec.ID), "cofferdam doctor checks this host", err)
	}
	d.Settle(b)
	return b, nil
}

// make returns a box that is ready: one that was made ahead, or a new one.
func (d *Driver) make(ctx context.Context, spec sandbox.Spec) (*box, error) {
	b, why := d.newBox(spec), "it was made"
	var err error
	switch {
	case spec.Snapshot != "":
		why = "it goes on from snapshot " + string(spec.Snapshot)
		err = b.fork(ctx)
	default:
		if ahead := d.pool.claim(ctx, spec); ahead != nil {
			b, why = ahead, "it was made ahead, for whoever asks first"
			break
		}
		err = b.build(ctx)
	}
	if err != nil {
		err = short(b, err)
		b.abandon(ctx)
		return nil, err
	}
	b.folders.Begin()
	if d.watched {
		b.unwatch = watch.Memory(b.spec.Limits.Memory, b.relieve)
	}
	if err = b.Life.Move(sandbox.Ready, why, sandbox.ByDriver); err == nil {
		err = b.GoOn("the commands of its snapshot", sandbox.ByDriver)
	}
	if err != nil { // it has ended meanwhile
		b.abandon(ctx)
		return nil, err
	}
	return b, nil
}

func (d *Driver) newBox(spec sandbox.Spec) *box {
	b := &box{
		d: d, Lacks: sandbox.Lacks{Tier: sandbox.GVisor}, Life: sandbox.NewLife(), spec: spec, name: spec.ID, created: time.Now(),
		dir: d.boxDir(spec.ID),
	}
	b.meter.Look = b.look
	if !d.watched {
		b.meter.Crowded = func() bool { return b.relieve() > b.spec.Limits.Memory/2 }
	}
	return b
}

// short is err, or that memory ran short while the box was started, which then is why.
func short(b *box, err error) error {
	why := b.d.groups.NoMemory(string(b.name), b.spec.Limits.Memory)
	if why == "" {
		return err
	}
	return missing("memory", "the sandbox did not start: "+why, "end other boxes, or try again when they need less", err)
}

// abandon removes a box that nobody will have. Whatever ctx says, what was built
// of it must go.
func (b *box) abandon(ctx context.Context) {
	_ = b.Life.Move(sandbox.Stopping, "it is not wanted", sandbox.ByDriver)
	b.d.groups.Kill(string(b.name))
	if left := b.tearDown("it could not be started"); left != nil {
		b.d.o.Log.ErrorContext(ctx, "removing what is left of a box", slog.Any("box", b.name), slog.Any("err", left))
	}
}

// checkSpec refuses what cannot be had and fills in what is left open.
func (d *Driver) checkSpec(s *sandbox.Spec) error {
	return s.Complete(sandbox.Rules{
		Driver: "gvisor", Tiers: []sandbox.Tier{sandbox.GVisor}, MinMemory: minMemory, MaxCPU: maxCPU, State: d.o.Root, Closed: []string{"/" + programDir},
		EnvFolder: d.o.User,
	})
}

// build puts a box together. Everything it makes is known to tearDown.
func (b *box) build(ctx context.Context) error {
	if err := b.prepare(ctx, nil); err != nil {
		return err
	}
	return b.boot(ctx)
}

// prepare makes all that a box has before it runs. from, if not nil, is what its
// workspace is a copy of.
func (b *box) prepare(ctx context.Context, from *snapshot.Stored) error {
	for _, dir := range []string{b.path("work"), b.path("env"), b.path("files")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	files, err := b.placeFiles()
	if err != nil {
		return err
	}
	var binds []bind
	if b.root, binds, err = b.d.root(b.spec.Image, files, sharedFiles(b.spec)); err != nil {
		return err
	}
	network := make(chan error, 1)
	go func() { // while the disks are made
		var err error
		b.net, err = netns.New()
		network <- err
	}()
	err = b.makeDisks(ctx, from)
	if failed := <-network; failed != nil {
		return errors.Join(err, missing("network namespace", failed.Error(), "load the kernel module tun and run as root", failed))
	}
	if err != nil {
		return err
	}
	if err := limit(b); err != nil {
		return err
	}
	return bundle{
		id: b.name, dir: b.dir, root: b.root, hostname: b.spec.Hostname, netns: b.net.Path(), limits: b.spec.Limits,
		binds: append(binds, files...), env: b.spec.Env != "", writable: b.spec.SetupPhase,
	}.write()
}

// boot starts the sandbox with pid 1 in it and waits for its first word.
func (b *box) boot(ctx context.Context) error {
	host, inside, err := pipes(ctx)
	if err != nil {
		return err
	}
	b.container, err = b.start("", inside, host[2])
	closeAll(inside[:])
	if err != nil {
		closeAll(host[:2])
		return missing("gvisor", "the sandbox did not start: "+err.Error(), "cofferdam doctor checks this host", err)
	}
	b.Host, err = guest.NewHost(host[0], host[1], b.d.journalDir(b.name), guestOptions(b))
	if err != nil {
		closeAll(host[:2])
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := b.Host.Ready(ctx); err != nil {
		return errors.Join(err, b.console.err())
	}
	return nil
}

// launch lets what is written in image go on, with pid 1's ends of its pipes.
func launch(b *box, image string, ends [2]*os.File) (*container.Container, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return b.start(image, [3]*os.File{ends[0], ends[1], w}, r)
}

// start makes the sandbox; console is where what pid 1 prints arrives.
func (b *box) start(image string, inside [3]*os.File, printed *os.File) (*container.Container, error) {
	b.console = new(console)
	go b.console.read(printed)
	files := guestFiles{control: inside[0], report: inside[1], console: inside[2]}
	c, err := b.d.createContainer(string(b.name), b.dir, image, files)
	if err == nil {
		b.pid.Store(int64(c.SandboxPid()))
	}
	return c, err
}

func guestOptions(b *box) guest.Options {
	standby := ""
	if b.ahead {
		standby = standbyPath()
	}
	return guest.Options{
		Config: guest.Config{
			UID: sandbox.UserID, GID: sandbox.UserID,
			OpenFiles: b.spec.Limits.OpenFiles, PIDs: b.spec.Limits.PIDs,
			Sized: []string{"/tmp", sandbox.HomeDir, "/dev/shm"}, Standby: standby, Identity: identity(b.spec),
		},
		Watch: func(id cofferdam.ExecID) func(*sandbox.Result) { return b.commands.Begin(id, b.meter.Watch(id)) },
		Life:  b.Life,
	}
}

// identity is who the box is: its machine id is the digits of its own.
func identity(s sandbox.Spec) guest.Identity {
	return guest.Identity{Dir: identityDir, Hostname: s.Hostname, MachineID: strings.TrimPrefix(string(s.ID), "b-")}
}

// err returns what pid 1 printed as an error, if anything.
func (c *console) err() error {
	if s := strings.TrimSpace(c.String()); s != "" {
		return fmt.Errorf("pid 1 printed: %s", s)
	}
	return nil
}

// makeDisks makes and mounts the workspace and the environment.
func (b *box) makeDisks(ctx context.Context, from *snapshot.Stored) error {
	size := b.spec.Limits.Disk
	if !b.d.o.User && b.spec.Workspace == "" {
		if err := mount.Room("gvisor.Create", b.dir, size); err != nil {
			return err
		}
	}
	if err := b.makeWorkspace(ctx, size, from); err != nil {
		return err
	}
	return makeEnv(ctx, b)
}

// makeWorkspace makes a workspace that cannot grow beyond size: by project
// quota where the file system of the state folder has it, else as an image.
func (b *box) makeWorkspace(ctx context.Context, size int64, from *snapshot.Stored) (err error) {
	dir := b.path("work")
	if b.d.o.User {
		return b.makeForUser(ctx, size, from)
	}
	if b.keepable || b.spec.Workspace != "" || !quota.Enforced(b.dir) {
		switch {
		case b.spec.Workspace != "":
			if err := b.attach(ctx, ""); err != nil {
				return err
			}
		case b.keepable:
			err = b.d.templates.kept(ctx, b.path(workImage), size)
		case from != nil:
			err = snapshot.Copy(from.Path(snapshot.Image), b.path(workImage))
		default:
			err = b.d.templates.workspace(ctx, b.path(workImage), size)
		}
		if err != nil {
			return missing("workspace with a size", err.Error(), "install e2fsprogs; the state folder must be writable", err)
		}
		if err := b.mount(b.disk(), "work", true); err != nil {
			return missing("workspace with a size", err.Error(), "load the kernel modules loop and ext4", err)
		}
		return nil
	}
	if b.project, err = b.d.projects.Begin(dir, size, inodes(size)); err == nil {
		err = os.Chown(dir, sandbox.UserID, sandbox.UserID)
	}
	if err == nil && from != nil {
		err = b.d.snapshots.CopyTree(ctx, from.Path(snapshot.Tree), dir)
	}
	if err == nil {
		err = mount.Folder(dir)
	}
	if err != nil {
		return missing("workspace with a size", err.Error(), "mend the project quotas of the state folder's file system, or mount it without prjquota", err)
	}
	return nil
}

// attach takes the workspace that the spec names, whose image, if it has to be
// made, may be there already.
func (b *box) attach(ctx context.Context, ready string) (err error) {
	if b.kept, err = b.d.keeps.Attach(ctx, volume.Of(b.spec), ready); err != nil {
		return err
	}
	b.spec.Limits.Disk = b.kept.Size
	if b.d.o.User {
		b.folders = append(b.folders, b.kept.Watched(b.path("work"), guards(b)))
	}
	return nil
}

// disk is the path of the workspace's image, if it is one.
func (b *box) disk() string {
	if b.kept != nil {
		return b.kept.Image
	}
	return b.path(workImage)
}

// mount mounts an image in the box's folder. A writable one loses the folder
// that mkfs put there: a workspace starts empty.
func (b *box) mount(image, name string, writable bool) error {
	if err := mount.Image(image, b.path(name), !writable); err != nil {
		return err
	}
	if !writable {
		return nil
	}
	return volume.Empty(b.path(name))
}

// placeFiles writes Spec.Files into the box's folder and binds each to its place.
func (b *box) placeFiles() ([]bind, error) {
	files := b.spec.Files
	t := &tree{dir: b.path("files")}
	binds := make([]bind, 0, len(files))
	for i, f := range files {
		if f.IsShared() {
			continue
		}
		name := fmt.Sprintf("/%d", i)
		if err := t.write(name, f.Data, f.Perm()); err != nil {
			return nil, err
		}
		binds = append(binds, bind{filepath.Join(t.dir, name), f.Path})
	}
	return binds, nil
}

// sharedFiles are those of Spec.Files that the root folder holds.
func sharedFiles(s sandbox.Spec) []sandbox.File {
	return slices.DeleteFunc(slices.Clone(s.Files), func(f sandbox.File) bool { return !f.IsShared() })
}

func inBind(binds []bind, path string) bool {
	for _, x := range binds {
		if sandbox.Within(x.to, path) {
			return true
		}
	}
	return false
}
