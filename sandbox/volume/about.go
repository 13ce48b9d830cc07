package volume

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// read returns what is known of a workspace.
func (s *Store) read(id sandbox.WorkspaceID) (sandbox.Workspace, error) {
	var a sandbox.Workspace
	data, err := os.ReadFile(filepath.Join(s.folder(id), aboutFile))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil || a.ID != id || a.Tier != s.tier {
		return a, errors.Join(err, errors.New("its description is not its own"))
	}
	a.Box, a.Fresh = "", false
	var st unix.Stat_t
	if err := unix.Lstat(s.image(id), &st); err != nil {
		return a, &fs.PathError{Op: "look at", Path: s.image(id), Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		a.Used = st.Blocks * 512
	} // of a folder it is what was found when it was last taken or given back
	return a, nil
}

// write keeps what is known of a workspace: the old or the new, on disk.
func (s *Store) write(folder string, a sandbox.Workspace) error {
	if err := s.note(folder, a); err != nil {
		return err
	}
	path := filepath.Join(folder, aboutFile)
	return errors.Join(os.Rename(path+noteEnd, path), syncFile(folder))
}

// noteEnd is of what is about to be known of a workspace. It has one size, so that
// it can be written over when the disk has no room for another.
// Source: docs/SPECIFICATION.md, "Boxes of an ordinary user's keeper".
const (
	noteEnd  = ".new"
	noteSize = 4 << 10
)

// note writes down what write will put in its place.
func (s *Store) note(folder string, a sandbox.Workspace) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	data = append(data, bytes.Repeat([]byte(" "), max(0, noteSize-len(data)))...)
	f, err := os.OpenFile(filepath.Join(folder, aboutFile+noteEnd), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// About describes a hold as Status does; nil for none.
func (h *Hold) About() *sandbox.Workspace {
	if h == nil {
		return nil
	}
	w := h.Workspace
	if h.live != nil {
		w.Used = h.live.Held()
	}
	return &w
}
