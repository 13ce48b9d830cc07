package gvisor

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
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"

	"gvisor.dev/gvisor/runsc/config"
)

// maxBoxes bounds one host. Each box holds about 16 MiB and six descriptors
// before anything runs in it.
const maxBoxes = 256

// Options says where a Driver keeps its state and finds its programs.
type Options struct {
	Root  string // absolute folder of this driver alone; made if missing
	Runsc string // absolute path of cofferdam-runsc
	Init  string // absolute path of cofferdam-init
	Log   *slog.Logger
	// Workspaces is the absolute folder of those that are kept; "": workspaces below Root.
	Workspaces string
	// Watched makes boxes where no control group can be had: their memory is
	// looked at instead, and Status says so. Otherwise Create refuses.
	Watched bool
	// User says that this process is uid 0 of an ordinary user's namespace.
	User bool
	// Pool is how many boxes of each kind that is asked for are made ahead, at
	// most MaxPool; 0: none.
	Pool int
}

// Driver makes boxes of the gvisor tier. One process uses one root; whoever
// calls New sees to that.
type Driver struct {
	*sandbox.Book[*box]
	snapshot.Calls
	o         Options
	state     string // gVisor's own files; a short path, since there are sockets in it
	conf      *config.Config
	flags     []string
	groups    cgroup.Groups
	watched   bool          // there are no control groups
	patience  time.Duration // startPatience, but in tests
	held      *os.File      // the run folder of an ordinary user, locked; nil: root's
	projects  *quota.Projects
	keeps     *volume.Store // workspaces
	checker   checker
	pool      *pool
	snapshots snapshot.Store

	templates templates
	imageMu   sync.Mutex
	roots     map[string]int // boxes that use each root; guarded by imageMu
}

var _ sandbox.Driver = (*Driver)(nil)

// New opens the state folder and ends what an earlier process left in it: its
// boxes cannot be taken over, for how their commands ended is lost.
func New(o Options) (*Driver, error) {
	const op = "gvisor.New"
	for name, path := range map[string]string{"state folder": o.Root, "cofferdam-runsc": o.Runsc, "cofferdam-init": o.Init} {
		if !filepath.IsAbs(path) {
			return nil, &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: name, Reason: "not an absolute path"}
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	sum := sha256.Sum256([]byte(o.Root))
	name := "cofferdam-" + hex.EncodeToString(sum[:4])
	state := runFolder(o, name)
	d := &Driver{o: o, state: state, flags: flags(state), patience: startPatience, roots: map[string]int{}, Book: sandbox.NewBook[*box]("gvisor", maxBoxes)}
	d.projects = quota.New(sum[:])
	d.snapshots.Dir, d.snapshots.Tier = filepath.Join(o.Root, "snapshots"), string(sandbox.GVisor)
	d.Calls = snapshot.Calls{Of: &d.snapshots, Find: d.find}
	silenceLibrary()
	var err error
	// An error here is a finding of Check, and Create refuses, or boxes are watched.
	d.groups, err = cgroup.Find(cgroup.Root, "/"+name, controllers)
	d.watched = err != nil && o.Watched
	if d.conf, err = configuration(d.flags); err != nil {
		return nil, fmt.Errorf("configuring gvisor: %w", err)
	}
	if err := errors.Join(adopt(), keepClear()); err != nil {
		return nil, err
	}
	d.checker = checker{o: o, parent: d.groups.Parent()}
	d.templates.dir = filepath.Join(o.Root, "program")
	err = errors.Join(d.prepare(), d.holdRunFolder())
	if err == nil {
		make := d.templates.kept
		if o.User {
			make = volume.MakeFolder
		}
		d.keeps, err = volume.Open(cmp.Or(o.Workspaces, filepath.Join(o.Root, "workspaces")), sandbox.GVisor, make)
	}
	if err != nil {
		return nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: "open state folder " + o.Root, Err: err,
			Reason: err.Error(), Hint: "the keeper needs a state folder on a local disk that root can write",
		}
	}
	d.pool = newPool(d, o.Pool)
	return d, nil
}

// folderNames are the folders of the state folder, as the package comment
// lists them.
var folderNames = []string{"boxes", "journal", "program", "image"}

func (d *Driver) boxDir(id cofferdam.BoxID) string {
	return filepath.Join(d.o.Root, "boxes", string(id))
}

func (d *Driver) journalDir(id cofferdam.BoxID) string {
	return filepath.Join(d.o.Root, "journal", string(id))
}

// prepare clears what is left, then makes the folders.
func (d *Driver) prepare() error {
	if err := os.MkdirAll(d.o.Root, 0o700); err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(d.o.Root)
	if err != nil {
		return err
	}
	if resolved != d.o.Root {
		return fmt.Errorf("it is a link to %s: give that path", resolved)
	}
	if err := d.endLeftovers(); err != nil {
		return fmt.Errorf("ending what an earlier keeper left: %w", err)
	}
	for _, name := range folderNames {
		if err := os.MkdirAll(filepath.Join(d.o.Root, name), 0o700); err != nil {
			return err
		}
	}
	if err := d.snapshots.Sweep(); err != nil {
		return err
	}
	return mount.Memory(filepath.Join(d.o.Root, "journal"), journalPercent)
}

// journalPercent of the host's memory may be output that nobody took yet; one
// box is bounded by guest.BoxCap.
const journalPercent = 25

// endLeftovers ends boxes of an earlier process: processes by the control
// group that only they are in, then mounts, then files.
func (d *Driver) endLeftovers() error {
	var errs []error
	for _, id := range d.groups.List() {
		d.o.Log.Warn("ending box of an earlier keeper", slog.Any("box", id))
		errs = append(errs, d.groups.End(id))
	}
	if d.watched {
		errs = append(errs, d.endStrays("--root="+d.state))
	}
	mounts, err := mount.Under(d.o.Root)
	if err != nil {
		return err
	}
	for _, dir := range mounts {
		errs = append(errs, mount.Unmount(dir))
	}
	for _, name := range folderNames {
		errs = append(errs, watch.Remove(filepath.Join(d.o.Root, name)))
	}
	errs = append(errs, os.RemoveAll(d.state), d.projects.EndLeftovers(d.o.Root))
	return errors.Join(errs...)
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

// Check examines the host.
func (d *Driver) Check(ctx context.Context) ([]sandbox.Finding, error) {
	return d.checker.all(ctx), ctx.Err()
}

// Close destroys every box and gives the state folder up.
func (d *Driver) Close(ctx context.Context) error {
	d.pool.close()
	errs := []error{d.DestroyAll(ctx)}
	errs = append(errs, mount.Unmount(filepath.Join(d.o.Root, "journal")), os.RemoveAll(d.state))
	d.groups.Close()
	return errors.Join(errs...)
}
