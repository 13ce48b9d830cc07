package hostview

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walk looks at all that is below a folder, by open folders: every box waits
// for it, and the library's own takes three times as long.
type walk struct {
	etc    string
	hidden []string // need no look, by their names in a box
	closed []string // what was found, by such names
	buf    [16 << 10]byte
}

// below looks into the folder that path names below etc, in the folder with the
// descriptor above. What cannot be read here cannot be read inside either.
func (w *walk) below(path string, above int) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if path == "" {
		name = w.etc
	}
	dir, err := unix.Openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	var names []string
	for {
		n, err := unix.ReadDirent(dir, w.buf[:])
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(w.buf[:n], -1, names)
	}
	for _, name := range names {
		w.look(dir, path, name)
	}
}

// look judges one entry of an open folder.
func (w *walk) look(dir int, path, name string) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	kind, need := st.Mode&unix.S_IFMT, uint32(0o004)
	switch kind {
	case unix.S_IFLNK, unix.S_IFBLK, unix.S_IFCHR:
		return
	case unix.S_IFDIR:
		need = 0o005
	}
	path += "/" + name
	switch {
	case slices.Contains(w.hidden, "/etc"+path):
	case uint32(st.Mode)&need != need:
		w.closed = append(w.closed, "/etc"+path)
	case kind == unix.S_IFDIR:
		w.below(path, dir)
	}
}
