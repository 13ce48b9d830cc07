package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cage"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/mount"
)

// ownNames are what no image gives: the box's own folders.
var ownNames = append(sandbox.OwnFolders(), ".cofferdam", "root")

// mkfsErofs makes roots; erofs-utils has it.
const mkfsErofs = "mkfs.erofs"

// hostAge is how long the host's programs count as unchanged: to look at them
// takes a second, and a machine has a copy in any case.
const hostAge = 10 * time.Minute

// entry is something of the host that a root is made of.
type entry struct{ from, to string }

// entries lists what of an image is in a root.
func entries(image string) ([]entry, error) {
	if image != sandbox.HostImage {
		list, err := os.ReadDir(image)
		if err != nil {
			return nil, err
		}
		var found []entry
		for _, e := range list {
			if !slices.Contains(ownNames, e.Name()) {
				found = append(found, entry{filepath.Join(image, e.Name()), "/" + e.Name()})
			}
		}
		return found, nil
	}
	found := []entry{{"/usr", "/usr"}}
	paths, err := sandbox.HostPaths()
	for _, path := range paths {
		found = append(found, entry{path, path})
	}
	return found, err
}

// maxClosed bounds what an ordinary user may not read of an image.
const maxClosed = 1000

// fingerprint changes whenever something changes in what a root is made of:
// every file's name, mode, owner, size and time. What this process may not read
// is closed, and in no root; root reads all.
func fingerprint(ctx context.Context, image string, list []entry) (name string, closed []string, err error) {
	h := sha256.New()
	fmt.Fprintf(h, "root 1 %q\n", image)
	for _, e := range list {
		err := filepath.WalkDir(e.from, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return &os.PathError{Op: "looking at", Path: path, Err: err}
			}
			fmt.Fprintf(h, "%q %o %d %d %d %d\n", path, st.Mode, st.Uid, st.Gid, st.Size, st.Mtim.Nano())
			if d.Type()&fs.ModeSymlink == 0 && errors.Is(unix.Access(path, unix.R_OK), unix.EACCES) {
				closed = append(closed, strings.TrimPrefix(e.to, "/")+strings.TrimPrefix(path, e.from))
				if d.IsDir() {
					return fs.SkipDir
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return "", nil, err
		}
	}
	if len(closed) > maxClosed {
		return "", nil, fmt.Errorf("%d files and folders of it may not be read by this user, the first is %s", len(closed), closed[0])
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), closed, nil
}

// root returns the disk with an image's root, made when it is first asked for
// and again when the image has changed.
func (d *Driver) root(ctx context.Context, image string) (string, error) {
	d.cacheMu.Lock()
	defer d.cacheMu.Unlock()
	if image == sandbox.HostImage && exists(d.hostRoot) && time.Since(d.hostSeen) < hostAge {
		return d.hostRoot, touch(d.hostRoot)
	}
	list, err := entries(image)
	if err != nil {
		return "", fmt.Errorf("reading image: %w", err)
	}
	name, closed, err := fingerprint(ctx, image, list)
	if err != nil {
		return "", fmt.Errorf("reading image: %w", err)
	}
	path := d.cached("root-" + name)
	if !exists(path) {
		if err := d.dropOldest(); err != nil {
			return "", err
		}
		var args []string
		for _, path := range closed {
			args = append(args, "--exclude-path="+path)
		}
		if d.o.User && image == sandbox.HostImage {
			args = append(args, "--all-root") // whose files these are has no id in the user's namespace
		}
		if err := d.makeRoot(ctx, path, list, args...); err != nil {
			return "", err
		}
	}
	if image == sandbox.HostImage {
		d.hostRoot, d.hostSeen = path, time.Now()
	}
	return path, touch(path)
}

func touch(path string) error {
	now := time.Now()
	return os.Chtimes(path, now, now)
}

// maxRoots bounds the roots that are kept; each is as large as its image. The
// one that was not used for longest goes: a machine that has it open keeps it.
const maxRoots = 8

// dropOldest makes room for one more root. cacheMu is held.
func (d *Driver) dropOldest() error {
	found, err := filepath.Glob(d.cached("root-*"))
	if err != nil || len(found) < maxRoots {
		return err
	}
	slices.SortFunc(found, func(a, b string) int { return modTime(a).Compare(modTime(b)) })
	return os.Remove(found[0])
}

func modTime(path string) time.Time {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Bounds of the making of one root.
const (
	maxRoot      = 64 << 30 // bytes of its file
	rootMemory   = 2 << 30  // bytes of the program that makes it
	rootPatience = 10 * time.Minute
)

// rootMaker is the program that writes an erofs image of what list names to out.
// What it reads may be hostile: it has a root with no more in it, no network, a
// user of its own without any right but to read files of every owner, and may
// write its one file.
func (d *Driver) rootMaker(mkfs, view, out string, list []entry) (cage.Program, error) {
	g := cage.Program{
		Path: mkfs, Root: view, Args: []string{"--quiet", "-x-1", "/out", "/image"}, UID: d.o.user(imageUser), Most: maxRoot,
		Keep: []uintptr{unix.CAP_DAC_READ_SEARCH}, Landlock: true, Write: []string{"/out"},
		Binds: []cage.Bind{{From: out, To: "/out", Writable: true}},
	}
	for _, e := range list {
		info, err := os.Lstat(e.from)
		if err != nil {
			return g, err
		}
		b := cage.Bind{From: e.from, To: "/image" + e.to}
		if info.Mode()&os.ModeSymlink != 0 {
			if b.Link, err = os.Readlink(e.from); err != nil {
				return g, err
			}
		}
		g.Binds = append(g.Binds, b)
	}
	return g, nil
}

// makeRoot writes an erofs image of what list names, with more arguments to the
// program. cacheMu is held.
func (d *Driver) makeRoot(ctx context.Context, path string, list []entry, more ...string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, rootPatience)
	defer cancel()
	mkfs, err := mount.FindProgram(mkfsErofs)
	if err != nil {
		return err
	}
	view, err := os.MkdirTemp(d.o.Root, "view-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(view)
	out, err := os.CreateTemp(d.o.Cache, ".new-")
	if err != nil {
		return err
	}
	defer func() {
		if out.Close(); err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	g, err := d.rootMaker(mkfs, view, out.Name(), list)
	if g.Args = append(more, g.Args...); d.groups.None() {
		g.Memory = rootMemory
	}
	if err == nil {
		err = out.Chown(g.UID, g.UID)
	}
	if err != nil {
		return err
	}
	p, err := g.Start()
	if err != nil {
		return fmt.Errorf("starting %s: %w", mkfsErofs, err)
	}
	const group = "root" // no box's: those are longer
	err = d.hold(group, []int{p.PID}, cofferdam.Limits{CPU: float64(runtime.NumCPU()), Memory: rootMemory})
	if err != nil && !errors.Is(err, unix.ESRCH) && !p.Over() { // a small image is written before its program is held
		p.Kill()
		return errors.Join(err, d.groups.End(group))
	}
	select {
	case <-p.Ended:
	case <-ctx.Done():
		p.Kill()
		return errors.Join(context.Cause(ctx), d.groups.End(group))
	}
	if err := d.groups.End(group); err != nil {
		return err
	}
	if p.Err != nil {
		return fmt.Errorf("%s: %w: %.300s", mkfsErofs, p.Err, p.Words())
	}
	return errors.Join(out.Chown(0, 0), out.Chmod(0o444), os.Rename(out.Name(), path))
}

// identityFiles are what says who a box is: links to a folder that only its
// pid 1 can write, since a copy of a machine is another.
func identityFiles() []sandbox.File {
	var list []sandbox.File
	for _, name := range []string{"hostname", "hosts", "machine-id"} {
		list = append(list, sandbox.File{Path: "/etc/" + name, Link: guest.MachineIdentity + "/" + name})
	}
	return list
}

// ownFiles are those of /etc that say what a box is.
func ownFiles(image string) []sandbox.File {
	list := append(append(identityFiles(), sandbox.EtcFiles()...), sandbox.File{Path: "/etc/mtab", Link: "/proc/self/mounts"})
	if image == sandbox.HostImage { // there is nothing of the host's /var
		list = append(list, sandbox.File{Path: "/var/tmp", Link: "/tmp"}, sandbox.File{Path: "/var/run", Link: "/run"})
	}
	return list
}
