package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
