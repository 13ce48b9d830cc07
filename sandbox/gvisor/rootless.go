package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"

	"golang.org/x/sys/unix"
)

// delegate is how an ordinary user gets control groups.
const delegate = "run the keeper as root, or go on without them: cofferdam-keeper --limits watched"

// Offers implements sandbox.Driver.
func (d *Driver) Offers(context.Context) ([]sandbox.Offer, error) {
	if d.o.User {
		return []sandbox.Offer{UserOffer()}, nil
	}
	return []sandbox.Offer{sandbox.OfferOf(sandbox.GVisor)}, nil
}

// UserOffer is what boxes of an ordinary user can do.
func UserOffer() sandbox.Offer {
	o := sandbox.OfferOf(sandbox.GVisor)
	o.EnvFolder = true
	return o
}

// runFolder is where gVisor's own files are: a short path, since there are
// sockets in it. An ordinary user has it in the state folder, or, where that
// has a long path, below /tmp.
func runFolder(o Options, name string) string {
	if !o.User {
		return filepath.Join("/run", name)
	}
	const longest = 40 // of 107 bytes of a socket's path, the rest is a file's name
	if dir := filepath.Join(o.Root, "run"); len(dir) <= longest {
		return dir
	}
	return filepath.Join("/tmp", name)
}

// holdRunFolder makes the run folder of an ordinary user. In /tmp anybody may
// make one of that name first: then there is none for us. The lock keeps those
// away who tidy /tmp up.
func (d *Driver) holdRunFolder() error {
	if !d.o.User {
		return nil
	}
	if err := os.Mkdir(d.state, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	f, err := os.OpenFile(d.state, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return errors.Join(err, f.Close())
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return errors.Join(fmt.Errorf("%s is another user's, or open to others: have it removed", d.state), f.Close())
	}
	d.held = f
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
}

// makeForUser makes a workspace: in memory, with a size; or, if it is to be kept, as
// a folder that is watched, since an ordinary user can mount no image.
func (b *box) makeForUser(ctx context.Context, size int64, from *snapshot.Stored) (err error) {
	switch {
	case b.spec.Workspace != "":
		if err := b.attach(ctx, ""); err != nil {
			return err
		}
	case b.keepable:
		err = volume.MakeFolder(ctx, b.path(workImage), size)
	default:
		return b.makeInMemory(ctx, size, from)
	}
	if err == nil {
		err = mount.Bind(b.disk(), b.path("work"), false)
	}
	if err != nil {
		return missing("workspace that is kept", err.Error(), "the state folder must be on a local disk, and its file system one that user namespaces can bind", err)
	}
	return nil
}

// makeInMemory makes a workspace on a tmpfs that cannot grow beyond size: an ordinary
// user can mount nothing else that has one. from, if not nil, is what it is a copy of.
func (b *box) makeInMemory(ctx context.Context, size int64, from *snapshot.Stored) error {
	if err := mount.Sized("gvisor.Create", b.path("work"), size); err != nil || from == nil {
		return err
	}
	return b.d.snapshots.CopyTree(ctx, from.Path(snapshot.Tree), b.path("work"))
}

// memory is how much a box holds of it, in bytes: what its control group says, or,
// without one, what its processes have in memory and what its kernel has for them: a
// box can make that hold attributes of files and what waits in pipes without end. 0
// once it is gone.
func (b *box) memory() int64 {
	if !b.d.watched {
		return b.d.groups.Memory(string(b.name))
	}
	pid := b.pid.Load()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return b.memfds.Held(fmt.Sprintf("/proc/%d/fd", pid)) + watch.Kilobytes(status, "RssAnon") + watch.Kilobytes(status, "VmSwap")
}

// held is memory, and ends the box when nothing else stands between a hog and
// the host.
func (b *box) held() int64 {
	held := b.memory()
	if b.d.watched && held > b.spec.Limits.Memory+reserve {
		_ = sandbox.Signal(int(b.pid.Load()), unix.SIGKILL) // it may just have ended
	}
	return held
}

// endStrays ends programs of boxes that have one of marks among their arguments: where
// no control group says whose they are, or they are in none yet. Only those of this
// user can be ended.
func (d *Driver) endStrays(marks ...string) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range lines {
		data, err := os.ReadFile(path)
		if err != nil || !slices.ContainsFunc(strings.Split(string(data), "\x00"), func(arg string) bool { return slices.Contains(marks, arg) }) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && pid != os.Getpid() {
			d.o.Log.Warn("ending a program of a box that nobody has", slog.Int("pid", pid))
			if err := sandbox.Signal(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("ending process %d: %w", pid, err))
			}
		}
	}
	return errors.Join(errs...)
}
