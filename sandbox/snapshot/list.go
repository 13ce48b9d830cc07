package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// noteFile holds what Sign was given: it is no part of what the digest covers.
const noteFile = "note"

// isSaid says whether a file of a snapshot's folder is what is said of the snapshot,
// and no part of what it holds.
func isSaid(name string) bool {
	return name == description || name == noteFile || name == noteFile+unfinished
}

// List returns all that are whole, the oldest first. One whose description is not its
// own is listed by its id alone, so that it can be removed.
func (st *Store) List() ([]sandbox.Snapshot, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.read()
}

// read is List. mu is held.
func (st *Store) read() ([]sandbox.Snapshot, error) {
	entries, err := os.ReadDir(st.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var all []sandbox.Snapshot
	for _, e := range entries {
		id := sandbox.SnapshotID(e.Name())
		if sandbox.CheckSnapshotID("", id) != nil { // it is being taken
			continue
		}
		data, err := os.ReadFile(filepath.Join(st.Dir, e.Name(), description))
		if errors.Is(err, fs.ErrNotExist) { // it is being removed
			continue
		}
		var s Stored
		if err != nil || json.Unmarshal(data, &s) != nil || s.ID != id {
			s = Stored{Snapshot: sandbox.Snapshot{ID: id}}
		}
		s.Note = st.note(id)
		all = append(all, s.Snapshot)
	}
	slices.SortStableFunc(all, func(a, b sandbox.Snapshot) int { return a.Taken.Compare(b.Taken) })
	return all, nil
}

// note returns what was kept beside a snapshot; nil if nothing was, or what is there
// cannot be read: that is no signature.
func (st *Store) note(id sandbox.SnapshotID) []byte {
	f, err := os.OpenFile(filepath.Join(st.Dir, string(id), noteFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	note := make([]byte, sandbox.MaxNote+1)
	n, _ := f.ReadAt(note, 0) // to its end
	if n == 0 || n > sandbox.MaxNote {
		return nil
	}
	return note[:n]
}

// Sign keeps a note beside a snapshot.
func (st *Store) Sign(id sandbox.SnapshotID, note []byte) error {
	const call = "SignSnapshot"
	if err := sandbox.CheckSnapshotID(st.op(call), id); err != nil {
		return err
	}
	if len(note) == 0 || len(note) > sandbox.MaxNote {
		return sandbox.Refuse(st.op(call), "note of snapshot "+string(id), fmt.Sprintf("it is %d bytes long", len(note)), fmt.Sprintf("give 1 to %d bytes", sandbox.MaxNote))
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	dir := filepath.Join(st.Dir, string(id))
	if _, err := os.Lstat(filepath.Join(dir, description)); errors.Is(err, fs.ErrNotExist) {
		return &cofferdam.Error{Op: st.op(call), Kind: cofferdam.NotFound, Subject: "snapshot " + string(id), Reason: "there is no such snapshot"}
	}
	path := filepath.Join(dir, noteFile)
	err := os.RemoveAll(path + unfinished)
	if err == nil {
		err = writeSynced(path+unfinished, note)
	}
	if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err != nil {
		return sandbox.Wrap(st.op(call), "snapshot "+string(id), "see whether the disk of the state folder is whole and has room", st.Explain(err))
	}
	return nil
}

// writeSynced makes a file whose bytes are on disk.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Remove removes a snapshot. Who uses it goes on, and nobody finds it any more.
func (st *Store) Remove(id sandbox.SnapshotID) error {
	if err := sandbox.CheckSnapshotID(st.op("RemoveSnapshot"), id); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.remove(id)
}

// remove is Remove. mu is held.
func (st *Store) remove(id sandbox.SnapshotID) error {
	dir := filepath.Join(st.Dir, string(id))
	err := os.Remove(filepath.Join(dir, description))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && st.readers[id] > 0 {
		if st.removed == nil {
			st.removed = map[sandbox.SnapshotID]bool{}
		}
		st.removed[id] = true
		return nil
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return &cofferdam.Error{
			Op: st.op("RemoveSnapshot"), Kind: cofferdam.Internal, Subject: "snapshot " + string(id), Reason: err.Error(), Err: err,
			Hint: "remove its folder in the state folder",
		}
	}
	return nil
}
