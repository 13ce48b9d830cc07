package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"cofferdam/sandbox"

	"golang.org/x/sys/unix"
)

// program returns a copy of cofferdam-init on the file system of the boxes, so
// that each can have it by a link. A newer program gets a copy of its own.
func (d *Driver) program() (string, error) {
	info, err := os.Stat(d.o.Init)
	if err != nil {
		return "", missing("cofferdam-init", err.Error(), "install all programs of one release together", err)
	}
	dir := filepath.Join(d.o.Root, "program")
	path := filepath.Join(dir, fmt.Sprintf("init-%d-%d", info.Size(), info.ModTime().UnixNano()))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	from, err := os.Open(d.o.Init)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, "copy-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	err = errors.Join(err, to.Chmod(0o555), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(to.Name()))
	}
	return path, nil
}

// maxRoots bounds the roots that are kept: one for each state of each image
// and each set of files that sessions put into boxes.
const maxRoots = 64

// root returns the folder that boxes of an image have at "/", and what is to be
// bound into it. It has a mount point for each of files, and holds shared. It is
// made when it is first asked for, and again when the image has changed.
func (d *Driver) root(image string, files []bind, shared []sandbox.File) (string, []bind, error) {
	d.imageMu.Lock()
	defer d.imageMu.Unlock()
	program, err := d.program()
	if err != nil {
		return "", nil, err
	}
	binds, err := boundFolders(image)
	if err != nil {
		return "", nil, invalid("image "+image, err.Error(), "give a folder that holds a whole root file system")
	}
	version, err := fingerprint(image, binds)
	if err != nil {
		return "", nil, fmt.Errorf("reading image: %w", err)
	}
	own := make([]sandbox.File, 0, len(files)+len(shared))
	for _, f := range files {
		own = append(own, sandbox.File{Path: f.to}) // a mount point
	}
	own = append(own, shared...)
	key := fmt.Appendf(nil, "%s %q", version, program)
	for _, f := range own {
		if inBind(binds, f.Path) {
			return "", nil, invalid("file "+f.Path, "lies in a folder of the image", "put it under /etc or the home folder")
		}
		key = fmt.Appendf(key, " %q %q %v %x", f.Path, f.Link, f.Perm(), sha256.Sum256(f.Data))
	}
	sum := sha256.Sum256(key)
	dir := filepath.Join(d.o.Root, "image", hex.EncodeToString(sum[:16]))
	if _, err := os.Stat(dir); err != nil {
		if err := d.makeRoot(dir, image, program, binds, own); err != nil {
			return "", nil, fmt.Errorf("making root of image: %w", err)
		}
	}
	d.roots[dir]++
	return dir, binds, nil
}

// release says that a box does not use its root any more.
func (d *Driver) release(dir string) {
	d.imageMu.Lock()
	defer d.imageMu.Unlock()
	if d.roots[dir]--; d.roots[dir] <= 0 {
		d.roots[dir] = 0 // kept for the next box
	}
}

// makeRoot makes a root under another name first, so that one that is there is
// whole. imageMu is held.
func (d *Driver) makeRoot(dir, image, program string, binds []bind, own []sandbox.File) error {
	if len(d.roots) >= maxRoots {
		if err := d.dropRoots(); err != nil {
			return err
		}
	}
	t := &tree{dir: dir + ".new"}
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return err
	}
	err := t.fill(image, program, binds, own)
	if err == nil {
		err = unix.Rename(t.dir, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(t.dir))
	}
	return nil
}

// dropRoots removes the roots that no box uses. imageMu is held.
func (d *Driver) dropRoots() error {
	for dir, boxes := range d.roots {
		if boxes > 0 {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		delete(d.roots, dir)
	}
	if len(d.roots) >= maxRoots {
		return fmt.Errorf("boxes of %d different images run already", len(d.roots))
	}
	return nil
}
