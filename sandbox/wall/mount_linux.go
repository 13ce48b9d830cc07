package wall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// base is where the new root is mounted while it is made; every host has it.
// What the host has in it can still be bound: sources are opened before.
const base = "/tmp"

// rootSize is for the root's own folders, links and small files.
const rootSize = 16 << 20

// deviceNames are the host's devices that every box has.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// procHidden are the parts of /proc that tell too much though everybody may read them.
var procHidden = []string{"kcore", "keys", "key-users", "timer_list", "sched_debug", "kmsg", "kallsyms", "modules", "vmallocinfo", "slabinfo", "pagetypeinfo"}

// builder makes a root.
type builder struct {
	p       Plan
	root    int    // descriptor of the new root
	sources []int  // of binds, by the index of the mount; -1: not there
	devices []int  // by deviceNames
	dirs    []bool // sources that are folders
	known   map[string]bool
	masked  map[string]bool // what an overlay has closed: nothing needs to be put over it
}

// Build makes the root folder and moves this process into it. The host's
// folders are out of reach afterwards.
// Preconditions: the mount namespace is new.
func (p Plan) Build() error {
	if err := p.build(); err != nil {
		return &Error{LayerMount, err}
	}
	return nil
}

func (p Plan) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	b := &builder{p: p, known: map[string]bool{"/": true}, masked: map[string]bool{}}
	if err := b.open(); err != nil {
		return err
	}
	options := "mode=0755,size=" + strconv.Itoa(rootSize)
	if err := unix.Mount("cofferdam", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount new root: %w", err)
	}
	var err error
	if b.root, err = unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err := b.hide(); err != nil {
		return err
	}
	for i, m := range p.Mounts {
		if err := b.make(i, m); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.To, err)
		}
	}
	return b.enter()
}

// open opens all that is taken from the host.
func (b *builder) open() error {
	b.sources, b.dirs = make([]int, len(b.p.Mounts)), make([]bool, len(b.p.Mounts))
	for i, m := range b.p.Mounts {
		b.sources[i] = -1
		switch m.Kind {
		case Devices:
			for _, name := range deviceNames {
				// What is written to a device is no matter of its mount; its mode is, which
				// is that of the whole host.
				fd, err := clone("/dev/"+name, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
				if err != nil {
					return fmt.Errorf("open device %s: %w", name, err)
				}
				b.devices = append(b.devices, fd)
			}
		case Bind:
			attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
			if !m.Write {
				attr |= unix.MOUNT_ATTR_RDONLY
			}
			take := clone
			if m.Write && b.p.Command != nil { // a keeper's folders are its own
				take = cloneStraight
			}
			fd, err := take(m.From, attr)
			if err != nil {
				if m.Optional {
					continue
				}
				return fmt.Errorf("open %s: %w", m.From, err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				return err
			}
			b.sources[i], b.dirs[i] = fd, st.Mode&unix.S_IFMT == unix.S_IFDIR
		}
	}
	return nil
}

// clone returns a mount of path with all below it, nowhere attached.
func clone(path string, attr uint64) (int, error) { return cloneAt(unix.AT_FDCWD, path, attr) }

// cloneAt is clone of a path relative to an open folder.
func cloneAt(dir int, path string, attr uint64) (int, error) {
	fd, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("restrict: %w", err)
	}
	return fd, nil
}

// cloneStraight is clone of a path that has no link in it. One that appeared
// since the plan was made would have another folder written: who may write a
// folder above, as the command of another box, can put it there.
func cloneStraight(path string, attr uint64) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return clone("/proc/self/fd/"+strconv.Itoa(fd)+"/.", attr)
}

// hide makes what hidden things are covered with.
func (b *builder) hide() error {
	const dir, file = base + "/.hidden", base + "/.closed"
	if err := os.Mkdir(dir, 0); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// make does one step.
func (b *builder) make(i int, m Mount) error {
	switch m.Kind {
	case Dir:
		return b.folder(m.To, m.Mode)
	case Link:
		if err := b.folder(path.Dir(m.To), 0); err != nil {
			return err
		}
		return b.inParent(m.To, func(dir int, name string) error { return unix.Symlinkat(m.From, dir, name) })
	case File:
		return b.file(m, i)
	case Bind:
		if b.sources[i] < 0 {
			return nil
		}
		if err := b.place(m.To, b.dirs[i]); err != nil {
			return err
		}
		return b.attach(b.sources[i], m.To)
	case Memory:
		if err := b.folder(m.To, 0); err != nil {
			return err
		}
		options := fmt.Sprintf("mode=%o,size=%d,uid=%d,gid=%d", m.Mode, m.Size, m.UID, m.UID)
		return b.mount("tmpfs", m.To, unix.MS_NOSUID|unix.MS_NODEV, options)
	case Hidden:
		if b.masked[m.To] {
			return nil
		}
		return b.cover(m.To)
	case Deaf:
		return b.deafen(m.To)
	case Process:
		return b.process(m.To)
	case Devices:
		return b.dev(m.To, m.Size)
	}
	return errors.New("no such kind")
}

// resolve opens a path of the new root: links in it lead to its own places.
func (b *builder) resolve(to string) (int, error) {
	return unix.Openat2(b.root, to, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

// folder makes a folder with those above it.
func (b *builder) folder(to string, mode uint32) error {
	if b.known[to] {
		return nil
	}
	if fd, err := b.resolve(to); err == nil {
		b.known[to] = true
		return unix.Close(fd)
	}
	if err := b.folder(path.Dir(to), 0); err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o755
	}
	b.known[to] = true
	return b.inParent(to, func(dir int, name string) error { return unix.Mkdirat(dir, name, mode) })
}

// inParent calls fn with the folder above to.
func (b *builder) inParent(to string, fn func(dir int, name string) error) error {
	dir, err := b.resolve(path.Dir(to))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return fn(dir, path.Base(to))
}

// place makes something to mount on, unless it is there.
func (b *builder) place(to string, dir bool) error {
	if dir {
		return b.folder(to, 0)
	}
	if fd, err := b.resolve(to); err == nil {
		return unix.Close(fd)
	}
	if err := b.folder(path.Dir(to), 0); err != nil {
		return err
	}
	to = b.dangling(to)
	if err := b.folder(path.Dir(to), 0); err != nil {
		return err
	}
	return b.inParent(to, func(dir int, name string) error {
		fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o444)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

// attach puts a mount in its place and closes its descriptor.
func (b *builder) attach(mount int, to string) error {
	defer unix.Close(mount)
	target, err := b.resolve(to)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	b.unmask(to)
	return unix.MoveMount(mount, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// mount mounts a new file system at a path of the new root.
func (b *builder) mount(kind, to string, flags uintptr, options string) error {
	target, err := b.resolve(to)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	b.unmask(to)
	return unix.Mount(kind, "/proc/self/fd/"+strconv.Itoa(target), kind, flags, options)
}

// file writes a file of the plan: in its place where that is ours, else beside
// and bound over what is there.
func (b *builder) file(m Mount, i int) error {
	data := b.p.Data[m.At : m.At+m.Size]
	write := func(dir int, name string) error {
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), name)
		_, err = f.Write(data)
		return errors.Join(err, f.Chmod(fs.FileMode(m.Mode&0o777)), f.Close())
	}
	if err := b.folder(path.Dir(m.To), 0); err != nil {
		return err
	}
	fd, err := b.resolve(m.To)
	if errors.Is(err, unix.ENOENT) {
		// A link that leads nowhere yet gets its file where it leads to.
		to := b.dangling(m.To)
		if err := b.folder(path.Dir(to), 0); err != nil {
			return err
		}
		return b.inParent(to, write)
	}
	if err != nil {
		return err
	}
	unix.Close(fd)
	name := ".file-" + strconv.Itoa(i)
	if err := write(b.root, name); err != nil {
		return err
	}
	mount, err := clone(base+"/"+name, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	return b.attach(mount, m.To)
}

// dangling returns where a link at to leads, or to.
func (b *builder) dangling(to string) string {
	for range 8 {
		target := ""
		err := b.inParent(to, func(dir int, name string) error {
			buf := make([]byte, unix.PathMax)
			n, err := unix.Readlinkat(dir, name, buf)
			target = string(buf[:max(n, 0)])
			return err
		})
		if err != nil || target == "" {
			return to
		}
		if !strings.HasPrefix(target, "/") {
			target = path.Join(path.Dir(to), target)
		}
		to = path.Clean(target)
	}
	return to
}

// process mounts /proc of the new pid namespace.
func (b *builder) process(to string) error {
	if err := b.folder(to, 0o555); err != nil {
		return err
	}
	if err := b.mount("proc", to, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := closeIPv6(base+to, Device); err != nil && !errors.Is(err, fs.ErrNotExist) && !b.p.Joined {
		return fmt.Errorf("turn off ipv6: %w", err)
	}
	proc, err := os.Open(base + to)
	if err != nil {
		return err
	}
	defer proc.Close()
	entries, err := proc.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name()[0] <= '9' || e.Type()&fs.ModeSymlink != 0 { // a process, or its own
			continue
		}
		if err := b.hostWide(int(proc.Fd()), e.Name()); err != nil {
			return fmt.Errorf("close %s: %w", e.Name(), err)
		}
	}
	return nil
}

// hostWide closes an entry of /proc that is no process but speaks for the whole
// host: a box of root's is its owner, and many of them ask for no more. What is
// not for everybody, or tells too much, is hidden, and the rest can be read only.
// Nothing but the kernel makes names in proc, so that none leads elsewhere.
func (b *builder) hostWide(proc int, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(proc, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	dir, from := proc, name
	switch {
	case err == unix.ENOENT: // its module was unloaded
		return nil
	case err != nil:
		return err
	case slices.Contains(procHidden, name), st.Mode&0o004 == 0 && !folder:
		if dir, from = unix.AT_FDCWD, base+"/.closed"; folder {
			from = base + "/.hidden"
		}
	case st.Mode&0o222 == 0 && !folder && os.Geteuid() != 0:
		return nil // root would change its mode, for the whole host
	}
	mount, err := cloneAt(dir, from, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return unix.MoveMount(mount, "", proc, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// dev makes /dev with size bytes of shared memory.
func (b *builder) dev(to string, size int64) error {
	for _, dir := range []string{"pts", "shm"} {
		if err := b.folder(to+"/"+dir, 0); err != nil {
			return err
		}
	}
	for i, name := range deviceNames {
		if err := b.place(to+"/"+name, false); err != nil {
			return err
		}
		if err := b.attach(b.devices[i], to+"/"+name); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	if err := b.mount("devpts", to+"/pts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("terminals: %w", err)
	}
	if err := b.mount("tmpfs", to+"/shm", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", size)); err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, base+to+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the new root the root and leaves the old one.
func (b *builder) enter() error {
	for i, m := range b.p.Mounts {
		if m.Kind == File {
			_ = unix.Unlinkat(b.root, ".file-"+strconv.Itoa(i), 0) // most are in their place
		}
	}
	for _, name := range []string{".hidden", ".closed"} {
		flag := 0
		if name == ".hidden" {
			flag = unix.AT_REMOVEDIR
		}
		_ = unix.Unlinkat(b.root, name, flag) // a mount of it stays
	}
	if err := unix.Chdir(base); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave old root: %w", err)
	}
	if err := unix.Close(b.root); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	return nil
}
