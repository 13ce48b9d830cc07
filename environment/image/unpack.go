package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Bounds of an image that is unpacked. Source: docs/SPECIFICATION.md, "Environments".
const (
	MaxBytes   = 16 << 30 // of all files together, unpacked
	MaxEntries = 1 << 20  // files, folders and links of all layers
	MaxLayers  = 256
	MaxNames   = 256 << 20 // bytes of the names of all entries, which are in memory
	maxName    = 4096
	maxLinks   = 40  // links followed in one path, as Linux has it
	maxDepth   = 128 // folders in one path; each is looked up from the root
	maxSteps   = 512 // parts of one path, with those of the links in it
	// keepFree and keepFiles stay free on the disk of the images.
	keepFree  = 1 << 30
	keepFiles = 64 << 10
)

// own are folders that no box takes from an image; what a layer has in them is
// passed over: devices, and links where devices would be.
var own = []string{"dev", "proc", "sys", "run", "tmp"}

// tree is a root folder while layers are unpacked into it. All it does goes
// through root, which no name and no link leads out of.
type tree struct {
	root    *os.Root
	free    func() (bytes, files int64, err error) // of the disk
	bytes   int64
	names   int64
	entries int
	// Of the present layer: paths it has written, the folders that these are in,
	// and the folders that hold nothing else any more.
	fresh, above, only map[string]bool
	last               folder // of the entry before, mostly that of the next too
	stale              bool   // last may not be used for another entry
}

// layer unpacks one layer over what is there.
func (t *tree) layer(r io.Reader) error {
	t.fresh, t.above, t.only = map[string]bool{}, map[string]bool{}, map[string]bool{}
	defer t.leave()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the layer cannot be read: %w", err)
		}
		err = t.count(1, h)
		if err == nil {
			err = t.entry(h, in)
		}
		if err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
}

// count adds entries to those there are, and refuses them beyond the bounds and
// where they would fill the disk.
func (t *tree) count(entries int, h *tar.Header) error {
	t.entries += entries
	t.names += int64(entries * len(h.Name))
	switch bytes, files, err := t.free(); {
	case err != nil:
		return err
	case t.entries > MaxEntries:
		return fmt.Errorf("more than %d entries, with the folders that they are in", MaxEntries)
	case t.names > MaxNames:
		return fmt.Errorf("more than %d bytes of names", int64(MaxNames))
	case bytes-max(h.Size, 0) < keepFree || files-int64(entries) < keepFiles:
		return fmt.Errorf("it does not fit on the disk: %d MiB and %d files are free, of which %d MiB and %d files stay so", bytes>>20, files, keepFree>>20, keepFiles)
	}
	return nil
}

// clean returns the name of an entry below the root; "" for the root itself.
func clean(name string) (string, error) {
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", errors.New("that is no name")
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return "", errors.New("the name leads out of the image")
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (t *tree) entry(h *tar.Header, r io.Reader) error {
	name, err := clean(h.Name)
	if err != nil || name == "" {
		return err
	}
	if top, _, _ := strings.Cut(name, "/"); within(top) {
		return nil
	}
	base := path.Base(name)
	hidden, takes := strings.CutPrefix(base, ".wh.")
	in, err := t.in(path.Dir(name), h, !takes)
	if err != nil {
		return err
	}
	defer func() {
		if t.stale {
			t.leave()
			t.stale = false
		}
	}()
	if takes {
		return t.whiteout(in, hidden)
	}
	if in.root == nil {
		return nil // by a link of the image it is in a folder that no box takes from one
	}
	name = path.Join(in.name, base)
	if err := t.write(in, base, h, r); err != nil {
		return err
	}
	t.fresh[name] = true
	for up := path.Dir(name); up != "." && !t.above[up]; up = path.Dir(up) {
		t.above[up] = true
	}
	return nil
}

func within(top string) bool {
	for _, o := range own {
		if top == o {
			return true
		}
	}
	return false
}

// or returns the name of a folder as os.Root has it.
func or(dir string) string {
	if dir == "" || dir == "." {
		return "."
	}
	return dir
}

// whiteout takes away what lower layers have: one name, or for ".wh..opq" all of
// a folder, less what this layer has put there.
func (t *tree) whiteout(in folder, hidden string) error {
	if hidden != ".wh..opq" && (hidden == "" || hidden == "." || hidden == ".." || strings.HasPrefix(hidden, ".wh.")) {
		return errors.New("that is no name to take away")
	}
	switch {
	case in.root == nil:
		return nil
	case hidden == ".wh..opq":
		t.stale = true
		return t.opaque(in.name)
	}
	return t.clear(in, hidden)
}

// clear takes away what has a name in a folder.
func (t *tree) clear(in folder, name string) error {
	info, err := in.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return in.root.Remove(name)
	}
	t.stale = true
	return in.root.RemoveAll(name)
}

// opaque does so once for a folder: afterwards there is nothing of lower layers.
func (t *tree) opaque(dir string) error {
	if t.only[dir] {
		return nil
	}
	t.only[dir] = true
	f, err := t.root.Open(or(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1) // bounded by MaxEntries
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if err := t.takeAway(path.Join(dir, n)); err != nil {
			return err
		}
	}
	return nil
}

// takeAway removes a path unless this layer has written it or something below.
func (t *tree) takeAway(name string) error {
	if t.fresh[name] {
		if info, err := t.root.Lstat(name); err != nil || !info.IsDir() {
			return err
		}
		return t.opaque(name)
	}
	if t.above[name] {
		return t.opaque(name)
	}
	return t.root.RemoveAll(name)
}

// write puts one entry in the place of what is there. All of it is root's and
// nobody else's to write; no program gets the rights of its owner.
func (t *tree) write(in folder, name string, h *tar.Header, r io.Reader) error {
	mode := fs.FileMode(h.Mode) & 0o755
	if h.Typeflag == tar.TypeDir {
		return t.dir(in, name, mode|0o700)
	}
	if err := t.clear(in, name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.file(in, name, mode, r)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxName {
			return errors.New("a link to nothing")
		}
		return in.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return t.hard(in, name, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return errors.New("a device or pipe, which no image of a box has")
	}
	return fmt.Errorf("an entry of the unknown kind %q", h.Typeflag)
}

func (t *tree) dir(in folder, name string, mode fs.FileMode) error {
	info, err := in.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = t.clear(in, name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := in.root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return in.root.Chmod(name, mode)
}

func (t *tree) file(in folder, name string, mode fs.FileMode, r io.Reader) error {
	f, err := in.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(r, MaxBytes-t.bytes+1))
	if t.bytes += n; err == nil && t.bytes > MaxBytes {
		err = fmt.Errorf("more than %d bytes", int64(MaxBytes))
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// hard links a name to a plain file of the image.
func (t *tree) hard(in folder, name, target string) error {
	target, err := clean(target)
	if err != nil {
		return err
	}
	w := walk{roots: []*os.Root{t.root}}
	defer w.close()
	if err := w.to(path.Dir(target)); err != nil {
		return err
	}
	if len(w.missing) > 0 {
		return errors.New("a hard link to what is not there")
	}
	base := path.Base(target)
	info, err := w.top().Lstat(base)
	if err != nil {
		return errors.New("a hard link to what is not there")
	}
	if !info.Mode().IsRegular() {
		return errors.New("a hard link to what is no plain file")
	}
	if path.Join(w.names...) == in.name {
		return in.root.Link(base, name)
	}
	return t.root.Link(path.Join(path.Join(w.names...), base), path.Join(in.name, name))
}
