package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"cofferdam/sandbox/keeper"
)

// pinned is the folder of programs in the state folder.
const pinned = "bin"

// kernelFolder is where the driver of machines looks for its kernel, beside the
// programs that it is given.
const kernelFolder = "kernel"

// pin keeps the programs that this keeper starts, so that they stay those of its
// own build when others are installed over them: a box is never half of one
// release and half of another.
func (s *settings) pin() error {
	from, err := programFolder()
	if err != nil {
		return err
	}
	to := filepath.Join(s.state, pinned)
	if err := errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o755)); err != nil {
		return layer("state folder", "choose a folder that can be written, with --state", err)
	}
	for _, name := range keeper.Sisters() {
		if err := keep(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return layer(name, "keep all programs of one release together: make build puts them into bin/", err)
		}
	}
	// The kernel of machines lies beside the programs. Its name is enough: what a
	// machine was booted with is kept by its content.
	kernel := filepath.Join(from, kernelFolder)
	if _, err := os.Stat(kernel); err == nil {
		if err := os.Symlink(kernel, filepath.Join(to, kernelFolder)); err != nil {
			return layer("state folder", "choose a folder that can be written, with --state", err)
		}
	}
	s.programs = to
	return nil
}

// keep makes a second name of a program, or a copy on another file system.
func keep(from, to string) (err error) {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// programFolder is where this program is, and its sisters were when it started.
func programFolder() (string, error) {
	self, err := os.Executable()
	return filepath.Dir(self), err
}
