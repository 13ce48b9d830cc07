package wall

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mask is where the files are made that an overlay puts over what is hidden: in the
// root that enter leaves, which takes it along. To take each away by itself would
// wait for the whole kernel. What is needed of the host's /dev is open by then.
const mask = "/dev"

// deafen puts an overlay over a folder. A socket hears by its inode, and in the
// overlay it has another one, whenever it was made. What is hidden in the folder
// is so by its name there: over a file that the host replaces by another one, as
// whoever changes a password does, the kernel takes every other mount away. Where
// the kernel or the file system has no such overlay the folder stays as it was.
func (b *builder) deafen(to string) error {
	fd, err := b.resolve(to)
	if err != nil {
		return nil // nothing is in sight there
	}
	defer unix.Close(fd)
	if err := unix.Mount("mask", mask, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size="+strconv.Itoa(rootSize)); err != nil {
		return err
	}
	names, err := b.mask(fd, to)
	if err == nil {
		dir := "/proc/self/fd/" + strconv.Itoa(fd)
		if unix.Mount("overlay", dir, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "lowerdir="+mask+":"+dir) == nil {
			for _, name := range names {
				b.masked[name] = true
			}
		}
	}
	return err
}

// mask makes a closed file for everything that the plan hides in the open folder
// that is at to, unless a link is on the way or there: it stays one. It returns
// what it made closed, by its path in the box.
func (b *builder) mask(folder int, to string) (names []string, err error) {
	for _, m := range b.p.Mounts {
		rel, below := strings.CutPrefix(m.To, to+"/")
		if m.Kind != Hidden || !below {
			continue
		}
		fd, err := unix.Openat2(folder, rel, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
		if err != nil {
			continue // cover says what to do with it
		}
		unix.Close(fd)
		if err := maskParents(folder, rel); err != nil {
			return nil, err
		}
		fd, err = unix.Open(mask+"/"+rel, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err == unix.EEXIST || err == unix.ENOTDIR { // hidden already, or what it is in
			continue
		}
		if err != nil {
			return nil, err
		}
		unix.Close(fd)
		names = append(names, m.To)
	}
	return names, nil
}

// maskParents makes the folders above a path, with the modes that they have.
func maskParents(folder int, rel string) error {
	for i, c := range rel {
		if c != '/' {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(folder, rel[:i], &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		err := os.Mkdir(mask+"/"+rel[:i], 0o700)
		if errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err == nil {
			if err := unix.Chmod(mask+"/"+rel[:i], st.Mode&0o7777); err != nil {
				return err
			}
			_ = unix.Chown(mask+"/"+rel[:i], int(st.Uid), int(st.Gid)) // an ordinary user's box has no other owner
		}
	}
	return nil
}

// unmask forgets what an overlay has closed where something is mounted over it:
// what was under the overlay may be in sight again, and has to be covered.
func (b *builder) unmask(to string) {
	maps.DeleteFunc(b.masked, func(name string, _ bool) bool { return name == to || strings.HasPrefix(name, to+"/") })
}

// cover hides what is at a path; nothing there needs nothing, and neither does
// what pid 1 cannot reach: its commands have fewer rights.
func (b *builder) cover(to string) error {
	fd, err := b.resolve(to)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EACCES || err == unix.ELOOP {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	with := base + "/.closed"
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		with = base + "/.hidden"
	}
	mount, err := clone(with, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return unix.MoveMount(mount, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
