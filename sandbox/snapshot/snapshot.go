// Package snapshot keeps the snapshots of one driver: folders of its state folder,
// each with what was written down of a box and a description with a digest of
// all of it.
//
// A folder without its description is no snapshot: the description is written
// last and removed first, so that what a keeper that was killed left behind is
// never used, and is swept by the next one. The invariant: Open returns a
// snapshot only when every byte of it is what Keep saw.
package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// Bounds of the snapshots of one driver.
const (
	MaxSnapshots = 64
	MaxBytes     = 64 << 30 // of all together
	// KeepFree bytes stay free on the disk of the state folder, whatever is written there.
	KeepFree = 1 << 30
)

// description is the file that makes a folder a snapshot.
const description = "snapshot.json"

// unfinished ends the name of a folder that is being filled.
const unfinished = ".new"

// Stored is a snapshot as it lies on disk.
type Stored struct {
	sandbox.Snapshot
	Key    string      `json:"key"`              // of what a box made from it must be
	Kernel string      `json:"kernel,omitempty"` // that wrote it, where no other can read it
	Guest  guest.State `json:"guest"`

	dir     string
	need    int64              // bytes that it may take
	instead sandbox.SnapshotID // that goes once this one is whole; "": none
}

// Path is where a file of the snapshot is.
func (s *Stored) Path(name string) string { return filepath.Join(s.dir, name) }

// Store is where the snapshots are. They outlive their boxes and their keeper.
// Safe for concurrent use; one process has one of a folder.
type Store struct {
	Dir  string // absolute; made if missing
	Tier string // the driver, as it stands in errors
	// Free is how many bytes stay free on its disk; 0: KeepFree.
	Free int64

	mu      sync.Mutex
	adding  map[sandbox.SnapshotID]*Stored // what is being taken; guarded by mu
	readers map[sandbox.SnapshotID]int     // who uses each; guarded by mu
	removed map[sandbox.SnapshotID]bool    // goes with its last reader; guarded by mu

	proving sync.Mutex // one is read at a time; never locked while mu is held

	known  sync.Mutex
	proved map[string]cofferdam.Digest // of what was read, by the numbers and times of its files; guarded by known
}

// Sweep makes the folder, and removes what an earlier process left half made.
func (st *Store) Sweep() error {
	if err := os.MkdirAll(st.Dir, 0o700); err != nil {
		return err
	}
	list, err := os.ReadDir(st.Dir)
	for _, e := range list {
		dir := filepath.Join(st.Dir, e.Name())
		if _, e := os.Lstat(filepath.Join(dir, description)); strings.HasSuffix(dir, unfinished) || errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// Add begins a snapshot of a box of a spec that will take about need bytes. The
// caller fills the folder behind s.Path, and then calls Keep or Drop.
func (st *Store) Add(t sandbox.Take, spec sandbox.Spec, need int64) (*Stored, error) {
	if err := t.Check(st.op("Snapshot")); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	dir := filepath.Join(st.Dir, string(t.ID))
	_, taken := st.adding[t.ID]
	if _, err := os.Lstat(dir); err == nil || taken {
		return nil, st.refuse(cofferdam.Conflict, t.ID, "there is one already", "choose another id")
	}
	s := &Stored{Snapshot: of(t, spec), dir: dir + unfinished, need: need}
	if err := st.bounded(s, t.Spare); err != nil {
		return nil, err
	}
	if err := st.room(need); err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700)); err != nil {
		return nil, err
	}
	if st.adding == nil {
		st.adding = map[sandbox.SnapshotID]*Stored{}
	}
	st.adding[s.ID] = s
	return s, nil
}

// of is what is taken of a box of a spec. Its time is one that its description has
// as it is.
func of(t sandbox.Take, spec sandbox.Spec) sandbox.Snapshot {
	s := sandbox.Snapshot{
		ID: t.ID, Label: t.Label, Box: spec.ID, Workspace: spec.Workspace, Scope: spec.Scope, Tier: spec.Tier, Memory: t.Memory,
		Taken: time.Now().UTC().Round(0),
	}
	s.Parent = cmp.Or(s.Parent, spec.Snapshot)
	return s
}

// refuse is the error of a snapshot that cannot be taken.
func (st *Store) refuse(kind cofferdam.Kind, id sandbox.SnapshotID, reason, hint string) error {
	return &cofferdam.Error{Op: st.op("Snapshot"), Kind: kind, Subject: "snapshot " + string(id), Reason: reason, Hint: hint}
}

// bounded refuses a snapshot beyond the bounds of the host or of its session, and
// notes which automatic one of the session it takes the place of. mu is held.
func (st *Store) bounded(s *Stored, spare sandbox.SnapshotID) error {
	all, err := st.read()
	if err != nil {
		return err
	}
	size := int64(0)
	var mine []sandbox.Snapshot
	for _, other := range all {
		size += other.Size
		if s.Session != "" && other.Session == s.Session && other.Scope == s.Scope {
			mine = append(mine, other)
		}
	}
	number := len(all) + len(st.adding)
	if number >= MaxSnapshots || size >= MaxBytes {
		return st.refuse(cofferdam.Exhausted, s.ID,
			fmt.Sprintf("this host keeps %d snapshots of %d MiB already; its bounds are %d and %d MiB", number, size>>20, MaxSnapshots, int64(MaxBytes)>>20),
			"remove some that are not needed any more")
	}
	return st.placed(s, mine, spare)
}

// placed finds a place for s among those of its session, the oldest first, and those
// that are being taken. mu is held.
func (st *Store) placed(s *Stored, mine []sandbox.Snapshot, spare sandbox.SnapshotID) error {
	going := map[sandbox.SnapshotID]bool{}
	kept := len(mine)
	for _, other := range st.adding {
		if s.Session == "" || other.Session != s.Session || other.Scope != s.Scope {
			continue
		}
		mine = append(mine, other.Snapshot)
		if kept++; other.instead != "" {
			going[other.instead] = true
			kept--
		}
	}
	for _, other := range mine {
		if other.Order == s.Order {
			return st.refuse(cofferdam.Conflict, s.ID, "its session has a "+s.Name()+" already", "choose the next number")
		}
	}
	if kept < sandbox.MaxOfSession {
		return nil
	}
	for _, other := range mine {
		if other.Automatic && other.ID != spare && !going[other.ID] && st.adding[other.ID] == nil {
			s.instead = other.ID
			return nil
		}
	}
	return st.refuse(cofferdam.Exhausted, s.ID, fmt.Sprintf("its session has %d of %d already, and none of them may go by itself", kept, sandbox.MaxOfSession),
		"remove one: the oldest is "+mine[0].Name())
}

// Room refuses to have need bytes written beside the snapshots if less than
// KeepFree stayed free.
func (st *Store) Room(need int64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.room(need)
}

// room counts what is being taken in full, though a part of it may be written
// already. mu is held.
func (st *Store) room(need int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(st.Dir, &fs); err != nil {
		return &os.PathError{Op: "looking at", Path: st.Dir, Err: err}
	}
	for _, s := range st.adding {
		need += s.need
	}
	free, keep := int64(fs.Bavail)*fs.Bsize, cmp.Or(st.Free, KeepFree)
	if free-need >= keep {
		return nil
	}
	return &cofferdam.Error{
		Op: st.op("room"), Kind: cofferdam.Exhausted, Subject: "disk of the state folder",
		Reason: fmt.Sprintf("%d MiB would be written, %d MiB are free and %d MiB must stay so", need>>20, free>>20, keep>>20),
		Hint:   "free space there, or remove snapshots",
	}
}

// Explain says of an error of writing beside the snapshots when it is that the
// disk is full; programs and gVisor tell it in words alone.
func (st *Store) Explain(err error) error {
	if err == nil || !errors.Is(err, unix.ENOSPC) && !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return err
	}
	return &cofferdam.Error{
		Op: st.op("write"), Kind: cofferdam.Exhausted, Subject: "disk of the state folder", Reason: "it is full",
		Hint: "free space there, or remove snapshots", Err: err,
	}
}

// Keep ends what Add began: the snapshot is whole and can be opened. After an
// error there is none.
func (st *Store) Keep(ctx context.Context, s *Stored) error {
	stamp, err := s.describe(ctx, st)
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.adding, s.ID)
	dir := strings.TrimSuffix(s.dir, unfinished)
	if err == nil {
		err = os.Rename(s.dir, dir)
	}
	if err != nil {
		return errors.Join(st.Explain(err), os.RemoveAll(s.dir))
	}
	s.dir = dir
	if s.instead != "" {
		_ = st.remove(s.instead) // what cannot go now goes with the next one
	}
	st.remember(stamp, s.Digest)
	return nil
}

// Drop removes what Add began.
func (st *Store) Drop(s *Stored) error {
	err := os.RemoveAll(s.dir)
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.adding, s.ID)
	return err
}

// describe says in the snapshot what it is. What it returns is the stamp of what
// it read: a snapshot with the same one need not be read again.
func (s *Stored) describe(ctx context.Context, st *Store) (string, error) {
	err := filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n, err := Blocks(path)
		s.Size += n
		return err
	})
	if err != nil {
		return "", err
	}
	before, err := stampOf(s.dir) // before it is read: what is changed meanwhile has another one later
	if err == nil {
		s.Digest, err = s.digest(ctx)
	}
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(s.Path(description), data, 0o600)
	}
	return whole(before, data), err
}

// OpenMemory is Open for a box that goes on from a snapshot.
func (st *Store) OpenMemory(ctx context.Context, spec sandbox.Spec) (s *Stored, release func(), err error) {
	s, release, err = st.Open(ctx, spec.Scope, spec.Snapshot, spec.Digest)
	if err == nil && !s.Memory {
		release()
		return nil, nil, sandbox.Refuse(st.op("Create"), "snapshot "+string(spec.Snapshot), "it holds a workspace and nothing that runs", "put the workspace back, and start a box that has it")
	}
	return s, release, err
}

// Open returns a snapshot whose every byte is what was kept, and whose digest is
// want, unless that is "". It is not removed until release is called.
func (st *Store) Open(ctx context.Context, scope cofferdam.Scope, id sandbox.SnapshotID, want cofferdam.Digest) (s *Stored, release func(), err error) {
	if err := sandbox.CheckSnapshotID(st.op("Create"), id); err != nil {
		return nil, nil, err
	}
	s = &Stored{dir: filepath.Join(st.Dir, string(id))}
	data, err := st.take(id, s.Path(description))
	missing := &cofferdam.Error{
		Op: st.op("Create"), Kind: cofferdam.NotFound, Subject: "snapshot " + string(id), Reason: "there is no such snapshot", Hint: "take one, or start without",
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, missing
	}
	if err != nil {
		return nil, nil, err
	}
	err = json.Unmarshal(data, s)
	if err == nil {
		err = st.prove(ctx, s, data)
	}
	if err == nil && s.ID != id {
		err = errors.New("it is another one")
	}
	if err == nil && want != "" && s.Digest != want {
		err = fmt.Errorf("its digest is %s, not %s as it was signed", s.Digest, want)
	}
	if err != nil {
		st.giveBack(id)
		return nil, nil, &cofferdam.Error{
			Op: st.op("Create"), Kind: cofferdam.Tampered, Subject: "snapshot " + string(id), Err: err,
			Reason: "it is not what was written: " + err.Error(), Hint: "remove it, and find out who can write to the state folder",
		}
	}
	if s.Scope != scope { // of another project, who is not told that it is there
		st.giveBack(id)
		return nil, nil, missing
	}
	return s, sync.OnceFunc(func() { st.giveBack(id) }), nil
}

// take counts a reader of a snapshot and returns its description.
func (st *Store) take(id sandbox.SnapshotID, path string) ([]byte, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if st.readers == nil {
		st.readers = map[sandbox.SnapshotID]int{}
	}
	st.readers[id]++
	return data, nil
}

// giveBack ends what take began; the last reader of a snapshot that was removed
// meanwhile removes its files.
func (st *Store) giveBack(id sandbox.SnapshotID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.readers[id]--; st.readers[id] > 0 {
		return
	}
	delete(st.readers, id)
	if st.removed[id] {
		delete(st.removed, id)
		_ = os.RemoveAll(filepath.Join(st.Dir, string(id))) // what stays has no description: the next Sweep removes it
	}
}

// prove compares a snapshot with its digest; said is its description. Files that
// nobody touched since they were last read are not read again: the kernel keeps
// when that was.
func (st *Store) prove(ctx context.Context, s *Stored, said []byte) error {
	if _, known, err := st.stamped(s, said); known || err != nil {
		return err
	}
	st.proving.Lock()
	defer st.proving.Unlock()
	stamp, known, err := st.stamped(s, said) // who waited for the same one does not read it again
	if known || err != nil {
		return err
	}
	found, err := s.digest(ctx)
	if err != nil {
		return err
	}
	if found != s.Digest {
		return fmt.Errorf("its digest is %s, not %s", found, s.Digest)
	}
	st.remember(stamp, s.Digest)
	return nil
}

// stamped returns the stamp of a snapshot, and whether what has it was read and had
// the digest of the snapshot.
func (st *Store) stamped(s *Stored, said []byte) (stamp string, known bool, err error) {
	files, err := stampOf(s.dir)
	if err != nil {
		return "", false, err
	}
	stamp = whole(files, said)
	st.known.Lock()
	defer st.known.Unlock()
	d, known := st.proved[stamp]
	return stamp, known && d == s.Digest, nil
}

// remember says that what has this stamp was read and has this digest.
func (st *Store) remember(stamp string, d cofferdam.Digest) {
	st.known.Lock()
	defer st.known.Unlock()
	if st.proved == nil || len(st.proved) >= MaxSnapshots {
		st.proved = map[string]cofferdam.Digest{}
	}
	st.proved[stamp] = d
}

func (st *Store) op(name string) string { return st.Tier + "." + name }
