package snapshot

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hashTree adds all that is in a folder to h: names, kinds, modes, owners, times,
// links, which names are of one file, attributes, and what of a file is not zero.
// Holes are not read, and do not count: a file system may say later that another
// part is one.
func hashTree(ctx context.Context, h hash.Hash, dir string) error {
	first := map[uint64]*place{} // the first name of a file that has several
	var in []*place              // the folders that are above
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err != nil {
			return fmt.Errorf("reading folder: %w", err)
		}
		name := path[len(dir):]
		fmt.Fprintf(h, "%q %o %d %d %d %d\n", name, st.Mode, st.Uid, st.Gid, st.Rdev, st.Mtim.Nano())
		kind := st.Mode & unix.S_IFMT
		if kind != unix.S_IFDIR && st.Nlink > 1 {
			if other, known := first[st.Ino]; known {
				fmt.Fprintf(h, "is %q\n", other.path())
				return nil
			}
			first[st.Ino] = below(in, name)
		}
		if kind == unix.S_IFDIR {
			in = append(in[:strings.Count(name, "/")], below(in, name))
		}
		if err := hashAttributes(h, path); err != nil {
			return fmt.Errorf("reading folder: %w", err)
		}
		switch kind {
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			fmt.Fprintf(h, "to %q\n", target)
			return err
		case unix.S_IFREG:
			return hashSparse(h, path)
		}
		return nil
	})
}

// place is a name in a folder, which is another place: a path can be much longer than
// what it ends with, and all of a folder have one way there.
type place struct {
	in   *place // nil: the folder of everything, whose name is ""
	name string
}

// below is a path in one of the folders that are above it.
func below(above []*place, path string) *place {
	deep := strings.Count(path, "/")
	if deep == 0 {
		return &place{}
	}
	return &place{above[deep-1], strings.Clone(path[strings.LastIndexByte(path, '/')+1:])}
}

func (p *place) path() string {
	if p.in == nil {
		return p.name
	}
	return p.in.path() + "/" + p.name
}

// hashAttributes adds the attributes that a file has in order of their names.
func hashAttributes(h hash.Hash, path string) error {
	list, err := attribute(func(buf []byte) (int, error) { return unix.Llistxattr(path, buf) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	slices.Sort(names)
	for _, name := range names {
		if name == "" {
			continue
		}
		value, err := attribute(func(buf []byte) (int, error) { return unix.Lgetxattr(path, name, buf) })
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q=%q\n", name, value)
	}
	return nil
}

// attribute calls get for how much there is, and then for all of it.
func attribute(get func([]byte) (int, error)) ([]byte, error) {
	n, err := get(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, n)
	n, err = get(buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}
