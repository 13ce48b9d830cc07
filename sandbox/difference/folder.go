package difference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// folder is a workspace that is a folder of the host's, which nobody writes to.
type folder string

func (f folder) close() error { return nil }

func (f folder) root() (entry, error) { return lookAt(string(f), "") }

// lookAt describes what has a name in a folder of the host's, and not what a link there
// leads to. All of one folder have the one value that says which: a path can be much
// longer than a name.
func lookAt(in any, name string) (entry, error) {
	e, st := entry{name: name, at: in}, unix.Stat_t{}
	if err := unix.Lstat(pathOf(e), &st); err != nil {
		return entry{}, &os.PathError{Op: "looking at", Path: pathOf(e), Err: err}
	}
	e.Found = foundOf(uint32(st.Mode), st.Size)
	return e, nil
}

func pathOf(e entry) string { return filepath.Join(e.at.(string), e.name) }

// foundOf says what a mode and a size stand for.
func foundOf(mode uint32, size int64) sandbox.Found {
	f := sandbox.Found{Kind: sandbox.KindOther, Mode: mode & 0o7777}
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.Kind, f.Size = sandbox.KindFile, size
	case unix.S_IFDIR:
		f.Kind = sandbox.KindFolder
	case unix.S_IFLNK:
		f.Kind, f.Size = sandbox.KindLink, size
	}
	return f
}

func (f folder) list(ctx context.Context, dir entry) ([]entry, error) {
	in := any(pathOf(dir))
	d, err := os.OpenFile(in.(string), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var all []entry
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			e, err := lookAt(in, name)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(all) > MaxEntries:
			return nil, fmt.Errorf("%w: a folder has more than %d files", ErrTooMuch, MaxEntries)
		case err != nil || len(names) == 0: // io.EOF, or it cannot be read on
			if errors.Is(err, io.EOF) {
				err = nil
			}
			sortByName(all)
			return all, err
		}
	}
}

func sortByName(all []entry) {
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

func (f folder) target(e entry) (string, error) { return os.Readlink(pathOf(e)) }

func (f folder) open(e entry) (content, error) {
	file, err := os.OpenFile(pathOf(e), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return hostFile{file, e.Size}, nil
}

// hostFile is a file of the host's.
type hostFile struct {
	*os.File
	size int64
}

func (h hostFile) next(off int64) (from, to int64, err error) {
	from, err = unix.Seek(int(h.Fd()), off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return h.size, h.size, nil
	}
	if err != nil {
		return 0, 0, err
	}
	to, err = unix.Seek(int(h.Fd()), from, unix.SEEK_HOLE)
	return from, to, err
}
