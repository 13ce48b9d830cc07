package microvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// archive is an initramfs: a cpio archive in the kernel's "newc" format.
type archive struct {
	b     []byte
	inode int
}

// add appends a folder (no data) or a file.
func (a *archive) add(name string, mode uint32, data []byte) {
	a.inode++
	a.b = fmt.Appendf(a.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.b = append(append(a.b, name...), 0)
	a.pad()
	a.b = append(a.b, data...)
	a.pad()
}

func (a *archive) pad() {
	for len(a.b)%4 != 0 {
		a.b = append(a.b, 0)
	}
}

// initramfs holds pid 1 and the modules that it loads.
func initramfs(program []byte, modules []string) ([]byte, error) {
	const folder, file = 0o040755, 0o100755
	var a archive
	for _, dir := range []string{"dev", "proc", "sys", "modules"} {
		a.add(dir, folder, nil)
	}
	a.add("init", file, program)
	var order []string
	for _, path := range modules {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		a.add("modules/"+name, file, data)
		order = append(order, name)
	}
	a.add("modules/order", file, []byte(strings.Join(order, "\n")+"\n"))
	a.add("TRAILER!!!", 0, nil)
	return a.b, nil
}

// bootFiles are what every machine of one kernel and one pid 1 starts from.
type bootFiles struct {
	kernel, initrd string // paths in the cache, readable by everybody
	version        string // of the kernel
	digest         string // of both
}

// bootFiles puts kernel and initramfs into the cache, unless they are there.
func (d *Driver) bootFiles() (bootFiles, error) {
	d.cacheMu.Lock()
	defer d.cacheMu.Unlock()
	k, err := d.kernel()
	if err != nil {
		return bootFiles{}, err
	}
	list, err := k.moduleFiles(d.monitor.Traits().Modules)
	if err != nil {
		return bootFiles{}, fmt.Errorf("finding modules: %w", err)
	}
	key := fmt.Sprintf("%s %s", k.version, k.image)
	for _, path := range append([]string{k.image, d.o.Init}, list...) {
		info, err := os.Stat(path)
		if err != nil {
			return bootFiles{}, err
		}
		key += fmt.Sprintf(" %q %d %d", path, info.Size(), info.ModTime().UnixNano())
	}
	name := hashed([]byte(key))
	f := bootFiles{version: k.version, digest: name, kernel: d.cached("kernel-" + name), initrd: d.cached("initrd-" + name)}
	if exists(f.kernel) && exists(f.initrd) {
		return f, nil
	}
	packed, err := os.ReadFile(k.image)
	if err != nil {
		return bootFiles{}, err
	}
	image, err := unpacked(packed)
	if err != nil {
		return bootFiles{}, err
	}
	program, err := os.ReadFile(d.o.Init)
	if err != nil {
		return bootFiles{}, err
	}
	ram, err := initramfs(program, list)
	if err != nil {
		return bootFiles{}, err
	}
	return f, errors.Join(writeWhole(f.kernel, image, 0o444), writeWhole(f.initrd, ram, 0o444))
}

// kernel is the one that the operator named, or the newest that is installed.
func (d *Driver) kernel() (kernel, error) {
	places := []string{d.o.Kernel}
	if d.o.Kernel == "" {
		places = []string{filepath.Join(filepath.Dir(d.o.Init), "kernel"), "/"}
	}
	var errs []error
	for _, place := range places {
		k, err := findKernel(place)
		if err == nil {
			return k, nil
		}
		errs = append(errs, err)
	}
	return kernel{}, errors.Join(errs...)
}

func (d *Driver) cached(name string) string { return filepath.Join(d.o.Cache, name) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// writeWhole writes a file that is there whole or not at all.
func writeWhole(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
