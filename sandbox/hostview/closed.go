package hostview

import (
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"

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
	var names []string // the buffer is that of the folders below too
	for {
		n, err := unix.ReadDirent(dir, w.buf[:])
		if err != nil || n <= 0 {
			break
		}
		names = judged(w.buf[:n], names)
	}
	for _, name := range names {
		w.look(dir, path, name)
	}
}

// judged adds to names those of a folder's entries that need a look. Of every
// other entry of /etc on a Debian, the folder itself says that it is a link.
func judged(entries []byte, names []string) []string {
	var e unix.Dirent
	length, kind, text := unsafe.Offsetof(e.Reclen), unsafe.Offsetof(e.Type), unsafe.Offsetof(e.Name)
	for len(entries) > int(text) {
		size := int(binary.NativeEndian.Uint16(entries[length:]))
		if size <= int(text) || size > len(entries) {
			return names // no kernel says that
		}
		name, _, _ := strings.Cut(string(entries[text:size]), "\x00")
		if k := entries[kind]; k != unix.DT_LNK && k != unix.DT_BLK && k != unix.DT_CHR && name != "." && name != ".." {
			names = append(names, name)
		}
		entries = entries[size:]
	}
	return names
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
