package process

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"
)

const opCreate = "process.Create"

// maxBoxes bounds one host.
const maxBoxes = 256

// Options says where a Driver keeps its state and finds its program.
type Options struct {
	Root string // absolute folder of this driver alone; made if missing
	Init string // absolute path of cofferdam-init
	Log  *slog.Logger
	// Workspaces is the absolute folder of those that are kept; "": workspaces below Root.
	Workspaces string
	// Watched makes boxes where no control group can be had: their memory is
	// looked at instead, and Status says so. Otherwise Create refuses.
	Watched bool
	// User says that this process is uid 0 of an ordinary user's namespace.
	User bool
}

// Driver makes boxes of the process tier, as root or as uid 0 of an ordinary
// user's namespace. One process uses one root; whoever calls New sees to that.
type Driver struct {
	*sandbox.Book[*box]
	snapshot.Calls
	o        Options
	groups   cgroup.Groups
	watched  bool // there are no control groups
	projects *quota.Projects
	keeps    *volume.Store // workspaces
	checker  checker

	snapshots snapshot.Store
}

var _ sandbox.Driver = (*Driver)(nil)

// New opens the state folder and ends what an earlier process left in it: its
// boxes cannot be taken over, for how their commands ended is lost.
func New(o Options) (*Driver, error) {
	const op = "process.New"
	for name, path := range map[string]string{"state folder": o.Root, "cofferdam-init": o.Init} {
		if !filepath.IsAbs(path) {
			return nil, invalid(op, name, "not an absolute path", "")
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	sum := sha256.Sum256([]byte(o.Root))
	d := &Driver{o: o, projects: quota.New(sum[:]), Book: sandbox.NewBook[*box]("process", maxBoxes)}
	// An error here is a finding of Check, and Create refuses.
	var err error
	d.groups, err = cgroup.Find(cgroup.Root, "/cofferdam-process-"+hex.EncodeToString(sum[:4]), controllers)
	if err != nil && o.Watched {
		d.watched = true
	}
	d.checker = newChecker(o)
	d.snapshots.Dir, d.snapshots.Tier = filepath.Join(o.Root, "snapshots"), string(sandbox.Process)
	d.Calls = snapshot.Calls{Of: &d.snapshots, Find: d.find}
	err = d.prepare()
	if err == nil {
		make := volume.Make
		if o.User {
			make = volume.MakeFolder
		}
		d.keeps, err = volume.Open(cmp.Or(o.Workspaces, filepath.Join(o.Root, "workspaces")), sandbox.Process, make)
	}
	if err != nil {
		return nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: "open state folder " + o.Root, Err: err,
			Reason: err.Error(), Hint: "the keeper needs a state folder on a local disk that root can write",
		}
	}
	return d, nil
}

// folderNames are the folders of the state folder: one for each box, and the
// output of its commands, on a tmpfs of our own.
var folderNames = []string{"boxes", "journal"}

// journalPercent of the host's memory may be output that nobody took yet; one
// box is bounded by guest.BoxCap.
const journalPercent = 25

// prepare clears what is left, then makes the folders.
func (d *Driver) prepare() error {
	if err := os.MkdirAll(d.o.Root, 0o700); err != nil {
		return err
	}
	if err := sandbox.RealFolder(d.o.Root); err != nil {
		return err
	}
	var errs []error
	for _, id := range d.groups.List() {
		d.o.Log.Warn("ending box of an earlier keeper", slog.Any("box", id))
		errs = append(errs, d.groups.End(id))
	}
	errs = append(errs, d.endStrays())
	mounts, err := mount.Under(d.o.Root)
	if err != nil {
		return err
	}
	for _, dir := range mounts {
		errs = append(errs, mount.Unmount(dir))
	}
	for _, name := range folderNames {
		errs = append(errs, watch.Remove(filepath.Join(d.o.Root, name)), os.MkdirAll(filepath.Join(d.o.Root, name), 0o700))
	}
	if err := errors.Join(append(errs, d.projects.EndLeftovers(d.o.Root), d.snapshots.Sweep())...); err != nil {
		return fmt.Errorf("end what an earlier keeper left: %w", err)
	}
	return mount.Memory(filepath.Join(d.o.Root, "journal"), journalPercent)
}

// Check examines the host.
func (d *Driver) Check(ctx context.Context) ([]sandbox.Finding, error) {
	return d.checker.all(ctx), ctx.Err()
}

// Workspaces returns every workspace that is kept.
func (d *Driver) Workspaces(context.Context) ([]sandbox.Workspace, error) {
	list, err := d.keeps.List()
	for _, b := range d.All() {
		volume.Refresh(list, b.kept)
	}
	return list, err
}

// RemoveWorkspace removes a workspace that no box has.
func (d *Driver) RemoveWorkspace(_ context.Context, id sandbox.WorkspaceID) error {
	return d.keeps.Remove(id)
}

// Close destroys every box and gives the state folder up.
func (d *Driver) Close(ctx context.Context) error {
	errs := []error{d.DestroyAll(ctx)}
	errs = append(errs, mount.Unmount(filepath.Join(d.o.Root, "journal")))
	d.groups.Close()
	return errors.Join(errs...)
}
