package gvisor

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam/sandbox"

	"golang.org/x/sys/unix"
)

// ownNames are what no image gives: the box's own folders.
var ownNames = append(sandbox.OwnFolders(), programDir)

// programDir holds pid 1. It is not a name that an image has.
const programDir = ".cofferdam"

// Bounds of what is copied from an image into every box.
const (
	maxEtcFiles = 8192
	maxEtcBytes = 32 << 20
)

// bind is a folder or file of the host that a box sees read-only.
type bind struct{ from, to string }

// tree is a root folder while it is being filled.
type tree struct {
	dir   string
	files int
	bytes int64
}

// folders are in every root: the mount points of what is not from the image.
var folders = []string{"proc", "sys", "dev", "tmp", "work", "env", "home/agent", "run", "etc", programDir}

// fill makes the root of an image in t.dir: our own folders and files, copies
// of the named files of /etc, an empty mount point for every bind, and own.
func (t *tree) fill(image, initProgram string, binds []bind, own []sandbox.File) error {
	for _, d := range folders {
		if err := os.MkdirAll(filepath.Join(t.dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, b := range binds {
		if err := os.MkdirAll(filepath.Join(t.dir, b.to), 0o755); err != nil {
			return err
		}
	}
	if err := os.Link(initProgram, filepath.Join(t.dir, programDir, "init")); err != nil {
		return err
	}
	for name, program := range map[string][]byte{renameName: renameProgram(), standbyName: standbyProgram()} {
		if err := t.write(filepath.Join("/", programDir, name), program, 0o555); err != nil {
			return err
		}
	}
	sources, err := copied(image)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := t.copy(s.from, s.to); err != nil {
			return fmt.Errorf("taking %s of image: %w", s.to, err)
		}
	}
	if image == sandbox.HostImage {
		if err := t.emptyVar(); err != nil {
			return err
		}
	}
	if err := t.ownFiles(); err != nil {
		return err
	}
	for _, f := range own {
		if f.Link != "" {
			if err := t.link(f.Link, f.Path); err != nil {
				return err
			}
		} else if err := t.write(f.Path, f.Data, f.Perm()); err != nil {
			return err
		}
	}
	return nil
}

// bound lists what of an image is seen through a bind: its large folders.
func boundFolders(image string) ([]bind, error) {
	if image == sandbox.HostImage {
		list := []bind{{"/usr", "/usr"}}
		paths, err := sandbox.HostPaths()
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.IsDir() && !sandbox.Within("/etc", path) { // /usr is not merged
				list = append(list, bind{path, path})
			}
		}
		return list, err
	}
	entries, err := os.ReadDir(image)
	if err != nil {
		return nil, err
	}
	var list []bind
	for _, e := range entries {
		if e.IsDir() && e.Name() != "etc" && !slices.Contains(ownNames, e.Name()) {
			list = append(list, bind{filepath.Join(image, e.Name()), "/" + e.Name()})
		}
	}
	if len(list) > maxTop {
		return nil, fmt.Errorf("more than %d folders at the top", maxTop)
	}
	return list, nil
}

// copied lists what of an image is copied: links and files at the top, and
// /etc or the named parts of it.
func copied(image string) ([]bind, error) {
	var list []bind
	if image == sandbox.HostImage {
		paths, err := sandbox.HostPaths()
		for _, path := range paths {
			target, err := os.Readlink(path)
			if sandbox.Within("/etc", path) || err == nil && sandbox.Within("/usr", filepath.Join("/", target)) {
				list = append(list, bind{path, path})
			}
		}
		return list, err
	}
	entries, err := os.ReadDir(image)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !slices.Contains(ownNames, e.Name()) && (!e.IsDir() || e.Name() == "etc") {
			list = append(list, bind{filepath.Join(image, e.Name()), "/" + e.Name()})
		}
	}
	return list, nil
}

// fingerprint changes whenever something changes that is copied from an image.
func fingerprint(image string, binds []bind) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", image, binds)
	sources, err := copied(image)
	if err != nil {
		return "", err
	}
	for _, s := range sources {
		if err := fingerprintOf(h, s.from); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// fingerprintOf adds a file or all of a folder. It is asked for whenever a box is
// claimed, so it makes one call for each file, none for a link in a folder, and no
// words: a link cannot be changed, and to put another in its place changes the
// folder, whose time of that nobody can set.
func fingerprintOf(h hash.Hash, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "looking at", Path: path, Err: err}
	}
	when := st.Mtim
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		when = st.Ctim
	}
	line := append(make([]byte, 0, len(path)+40), path...)
	for _, n := range []uint64{0, uint64(st.Mode), uint64(st.Size), uint64(when.Nano())} { // no path has a zero byte
		line = binary.BigEndian.AppendUint64(line, n)
	}
	h.Write(line)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			h.Write([]byte(e.Name() + "\x00"))
			continue
		}
		err = errors.Join(err, fingerprintOf(h, path+"/"+e.Name()))
	}
	return err
}

// maxTop bounds the folders at the top of an image: each is a mount.
const maxTop = 64

// emptyVar makes a /var with nothing of the host's in it.
func (t *tree) emptyVar() error {
	for _, d := range []string{"var/cache", "var/lib", "var/log", "var/spool"} {
		if err := os.MkdirAll(filepath.Join(t.dir, d), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Symlink("/tmp", filepath.Join(t.dir, "var/tmp")),
		os.Symlink("/run", filepath.Join(t.dir, "var/run")),
	)
}

// copy puts a file, link or folder of an image into the box's own root. Links
// stay links and are never followed; what is neither file, link nor folder, or
// not readable by everybody, is left out.
func (t *tree) copy(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, from)
		dst := filepath.Join(t.dir, to, rel)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if t.files++; t.files > maxEtcFiles {
			return fmt.Errorf("more than %d entries", maxEtcFiles)
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			if mode&0o005 != 0o005 {
				return fs.SkipDir
			}
			if err := os.Mkdir(dst, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return nil
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, dst)
		case mode.IsRegular() && mode&0o004 != 0:
			return t.copyFile(path, dst, mode.Perm()&0o755)
		}
		return nil
	})
}

// copyFile copies the bytes of one file.
func (t *tree) copyFile(from, to string, mode fs.FileMode) error {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(dst, io.LimitReader(src, maxEtcBytes-t.bytes+1))
	if t.bytes += n; err == nil && t.bytes > maxEtcBytes {
		err = fmt.Errorf("more than %d bytes", maxEtcBytes)
	}
	return errors.Join(err, dst.Close())
}

// ownFiles writes the files of /etc that say what a box is.
func (t *tree) ownFiles() error {
	for _, f := range sandbox.EtcFiles() {
		if err := t.write(f.Path, f.Data, f.Perm()); err != nil {
			return err
		}
	}
	for _, name := range []string{"hosts", "hostname", "machine-id"} { // pid 1 writes them
		if err := t.link(identityDir+"/"+name, "/etc/"+name); err != nil {
			return err
		}
	}
	return t.link("/proc/self/mounts", "/etc/mtab")
}

// identityDir is a folder in memory of each box that only pid 1 writes: what
// there says who the box is, and changes when it goes on as another.
const identityDir = "/run/cofferdam"

// write puts a file of ours into the root, in the place of what is there.
func (t *tree) write(path string, data []byte, mode fs.FileMode) error {
	dst, err := t.replace(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// link puts a symbolic link into the root, in the place of what is there.
func (t *tree) link(target, path string) error {
	dst, err := t.replace(path)
	if err != nil {
		return err
	}
	return os.Symlink(target, dst)
}

// replace makes room at path and returns where it is on the host. A link or
// file of the image in the place of a folder above it goes: followed, it would
// lead out of the root to a folder of the host.
func (t *tree) replace(path string) (string, error) {
	dst := t.dir
	for _, name := range strings.Split(strings.Trim(filepath.Dir(path), "/"), "/") {
		if name == "" {
			continue
		}
		dst = filepath.Join(dst, name)
		if info, err := os.Lstat(dst); err == nil && info.IsDir() {
			continue
		}
		_ = os.Remove(dst) // what is still there makes the following call fail
		if err := os.Mkdir(dst, 0o755); err != nil {
			return "", err
		}
	}
	dst = filepath.Join(dst, filepath.Base(path))
	return dst, os.RemoveAll(dst)
}
