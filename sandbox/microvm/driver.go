package microvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/microvm/cloudhypervisor"
	"cofferdam/sandbox/microvm/firecracker"
	"cofferdam/sandbox/microvm/qemu"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
)

const (
	// maxBoxes bounds one host: each machine has its memory for itself.
	maxBoxes = 64
	// firstUser is the user of the first monitor; each that runs has its own.
	// No system hands out ids that high, and none is in a password file.
	firstUser = 0x5D000000
	// firstOfUser is firstUser where the keeper is uid 0 of an ordinary user's
	// namespace: out of the user's range of ids, above those of git and of process boxes.
	firstOfUser = 60_000
	// After those of boxes: of the machine that proves KVM, and of who reads images.
	proofUser = maxBoxes
	imageUser = maxBoxes + 1
	lastUser  = imageUser
	// memoryPercent of the host's memory may be memory of machines, and
	// journalPercent output that nobody took yet.
	memoryPercent, journalPercent = 75, 15
)

// Options says where a Driver keeps its state and finds what it needs.
type Options struct {
	Root  string // absolute folder of this driver alone; made if missing
	Cache string // absolute folder of kernels and roots; "": cache below Root
	Init  string // absolute path of cofferdam-init
	// Kernel is a kernel (vmlinux or bzImage with all it needs built in), or a
	// folder with boot/vmlinuz-VERSION and lib/modules/VERSION. "": a folder
	// kernel beside Init, else what is installed.
	Kernel string
	// Monitor is what runs the machines: "qemu", "firecracker" or
	// "cloud-hypervisor". "": qemu.
	Monitor string
	// Proof is the absolute path where is kept whether this host's KVM runs a
	// machine: all drivers may have it together. "": kvm.json below Root.
	Proof string
	// Workspaces is the absolute folder of those that are kept; "": workspaces below Root.
	Workspaces string
	// User says that this process is uid 0 of an ordinary user's namespace, with
	// mounts of its own. It has no machine on hardware.
	User bool
	// Watched lets boxes do without control groups where there are none.
	Watched bool
	Log     *slog.Logger
}

// Driver makes boxes of tier microvm, where this host's KVM runs machines, and
// of tier microvm-emulated. One process uses one root.
type Driver struct {
	*sandbox.Book[*box]
	snapshot.Calls
	o         Options
	monitor   vmm.Monitor
	checker   checker
	groups    cgroup.Groups
	snapshots snapshot.Store
	keeps     map[sandbox.Tier]*volume.Store // workspaces

	cacheMu  sync.Mutex // held while something of the cache is made
	hostRoot string     // guarded by cacheMu
	hostSeen time.Time  // guarded by cacheMu
}

var _ sandbox.Driver = (*Driver)(nil)

// New opens the state folder and removes what an earlier process left in it.
// Its monitors ended with it.
func New(o Options) (*Driver, error) {
	const op = "microvm.New"
	if o.Cache == "" {
		o.Cache = filepath.Join(o.Root, "cache")
	}
	for name, path := range map[string]string{"state folder": o.Root, "cache": o.Cache, "cofferdam-init": o.Init} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return nil, &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: name, Reason: "not a clean absolute path"}
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	monitor, err := o.monitor()
	if err != nil {
		return nil, err
	}
	d := &Driver{o: o, monitor: monitor, Book: sandbox.NewBook[*box]("microvm", maxBoxes)}
	d.checker.d = d
	d.snapshots.Dir, d.snapshots.Tier = filepath.Join(o.Root, "snapshot"), "microvm"
	d.Calls = snapshot.Calls{Of: &d.snapshots, Find: d.find}
	d.groups, err = cgroup.Find(cgroup.Root, "/cofferdam-vm-"+hashed([]byte(o.Root))[:8], controllers) // what is missing is a finding of Check
	if err := cmp.Or(d.prepare(), d.openWorkspaces()); err != nil {
		return nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: "open state folder " + o.Root, Err: err,
			Reason: err.Error(), Hint: "the keeper needs a state folder of its own on a local disk, which it can write",
		}
	}
	d.sayHardening()
	return d, nil
}

// sayHardening writes to the log for what of this host tier microvm is refused.
func (d *Driver) sayHardening() {
	for _, f := range hostFindings("/") {
		if f.Level == sandbox.Fail {
			d.o.Log.Info("tier microvm is refused on this host", slog.String("missing", f.Name), slog.String("why", f.Detail), slog.String("fix", f.Fix))
		}
	}
}

// user is the user, and group, of the monitor in a place.
func (o Options) user(place int) int {
	if o.User {
		return firstOfUser + place
	}
	return firstUser + place
}

// Monitors are the names that Options.Monitor may have.
func Monitors() []string { return []string{qemu.Name, firecracker.Name, cloudhypervisor.Name} }

// monitor is the one that was chosen.
func (o Options) monitor() (vmm.Monitor, error) {
	switch o.Monitor {
	case "", qemu.Name:
		return &qemu.Monitor{}, nil
	case firecracker.Name:
		return &firecracker.Monitor{Init: o.Init}, nil
	case cloudhypervisor.Name:
		return &cloudhypervisor.Monitor{}, nil
	}
	return nil, &cofferdam.Error{
		Op: "microvm.New", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("monitor %.64q", o.Monitor), Reason: "there is none of that name",
		Hint: "choose " + strings.Join(Monitors(), ", "),
	}
}

// inMemoryFolders are on a tmpfs of our own, with the part of the host's
// memory that each may take.
var inMemoryFolders = map[string]int{"memory": memoryPercent, "journal": journalPercent}

// prepare clears what is left, then makes the folders.
func (d *Driver) prepare() error {
	if err := errors.Join(os.MkdirAll(d.o.Root, 0o700), os.MkdirAll(d.o.Cache, 0o755)); err != nil {
		return err
	}
	if resolved, err := filepath.EvalSymlinks(d.o.Root); err != nil || resolved != d.o.Root {
		return errors.Join(err, fmt.Errorf("it is a link to %s: give that path", resolved))
	}
	_ = d.endGroups() // what is still in use stays, and is removed the next time
	for name := range inMemoryFolders {
		if err := mount.Unmount(filepath.Join(d.o.Root, name)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(d.o.Root, "boxes")), d.dropHalf(), d.snapshots.Sweep()); err != nil {
		return err
	}
	for _, name := range []string{"boxes", "memory", "journal"} {
		if err := os.MkdirAll(filepath.Join(d.o.Root, name), 0o700); err != nil {
			return err
		}
	}
	for name, percent := range inMemoryFolders {
		if err := mount.Memory(filepath.Join(d.o.Root, name), percent); err != nil {
			return err
		}
	}
	return nil
}

// dropHalf removes the roots that a process that was killed had half made. Another
// process may have the same cache, so that what is new there may be another's.
func (d *Driver) dropHalf() (err error) {
	for pattern, age := range map[string]time.Duration{
		filepath.Join(d.o.Root, "view-*"): 0, filepath.Join(d.o.Cache, ".new-*"): time.Hour,
	} {
		half, e := filepath.Glob(pattern)
		err = errors.Join(err, e)
		for _, path := range half {
			if time.Since(modTime(path)) >= age {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
	}
	return err
}

// Offers says which tiers this host has: microvm only once a machine ran on KVM,
// and microvm-emulated only of a monitor that emulates.
func (d *Driver) Offers(ctx context.Context) ([]sandbox.Offer, error) {
	var offers []sandbox.Offer
	if d.monitor.Traits().Emulates {
		offers = append(offers, sandbox.OfferOf(sandbox.Emulated))
	}
	if d.checker.tierLacks(ctx, sandbox.MicroVM) == nil {
		offers = append(offers, sandbox.OfferOf(sandbox.MicroVM))
	}
	return offers, ctx.Err()
}

// Close destroys every box and gives the state folder up. Snapshots stay.
func (d *Driver) Close(ctx context.Context) error {
	errs := []error{d.DestroyAll(ctx)}
	for name := range inMemoryFolders {
		errs = append(errs, mount.Unmount(filepath.Join(d.o.Root, name)))
	}
	return errors.Join(append(errs, d.endGroups())...)
}

// invalid is the error for a Spec that cannot be had.
func invalid(subject, reason, hint string) error {
	return sandbox.Refuse("microvm.Create", subject, reason, hint)
}

// missing is the error for a layer that the host does not offer.
func missing(layer, reason, hint string, err error) error {
	return &cofferdam.Error{Op: "microvm.Create", Kind: cofferdam.Unavailable, Subject: layer, Reason: reason, Hint: hint, Err: err}
}
