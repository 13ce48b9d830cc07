package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// Bounds of the snapshots of one host.
const (
	maxSnapshots     = 64
	maxSnapshotBytes = 64 << 30 // of all together
	// keepFree stays free on the disk of the state folder, whatever is written there.
	keepFree = 1 << 30
)

// Names in the folder of a snapshot, beside those of a machine at rest.
const (
	snapshotFile = "snapshot.json"
	workCopy     = "work.img"
	machineCopy  = "machine.img"
)

// stored is a snapshot as it lies on disk.
type stored struct {
	sandbox.Snapshot
	Key   string      `json:"key"` // of what a box made from it must be
	Guest guest.State `json:"guest"`

	dir string
}

func (s *stored) path(name string) string { return filepath.Join(s.dir, name) }

// contents are the files of which a snapshot's digest is.
func contents() []string { return []string{stateFile, memoryCopy, workCopy, machineCopy} }

// shelf is where snapshots are. They outlive their boxes and their keeper.
type shelf struct {
	mu     sync.Mutex                  // held while one is added, used or removed
	proved map[string]cofferdam.Digest // by the files' numbers and times; guarded by mu
}

func (d *Driver) snapshotDir(id sandbox.SnapshotID) string {
	return filepath.Join(d.o.Root, "snapshot", string(id))
}

// Snapshot takes the box as it is under a new id while it goes on running.
func (b *box) Snapshot(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	none := sandbox.Snapshot{}
	if !snapshotIDs.MatchString(string(id)) {
		return none, invalid(fmt.Sprintf("snapshot %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
	}
	if b.spec.SetupPhase {
		return none, invalid("snapshot of box "+string(b.spec.ID), "its setup phase writes to an image that others will read", "take it of a box that has the environment")
	}
	b.step.Lock()
	defer b.step.Unlock()
	b.d.shelf.mu.Lock()
	defer b.d.shelf.mu.Unlock()
	if err := b.d.mayAdd(id); err != nil {
		return none, err
	}
	dir := b.d.snapshotDir(id)
	s := &stored{dir: dir + ".new", Snapshot: sandbox.Snapshot{ID: id, Box: b.spec.ID, Tier: b.spec.Tier, Taken: time.Now()}}
	err := errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700))
	if err == nil {
		s.Key, err = b.key(ctx)
	}
	if err == nil {
		err = b.take(ctx, s)
	}
	if err == nil {
		err = s.finish()
	}
	if err == nil {
		err = os.Rename(s.dir, dir)
	}
	if err != nil {
		return none, b.failed("Snapshot", errors.Join(err, os.RemoveAll(s.dir)))
	}
	return s.Snapshot, nil
}

// mayAdd refuses a snapshot beyond the bounds, and one that is there.
func (d *Driver) mayAdd(id sandbox.SnapshotID) error {
	if exists(d.snapshotDir(id)) {
		return &cofferdam.Error{
			Op: "microvm.Snapshot", Kind: cofferdam.Conflict, Subject: "snapshot " + string(id), Reason: "there is one already", Hint: "choose another id",
		}
	}
	list, err := os.ReadDir(filepath.Join(d.o.Root, "snapshot"))
	if err != nil {
		return err
	}
	var size int64
	for _, e := range list {
		for _, name := range contents() {
			if n, err := blocks(filepath.Join(d.o.Root, "snapshot", e.Name(), name)); err == nil {
				size += n
			}
		}
	}
	if len(list) >= maxSnapshots || size >= maxSnapshotBytes {
		return &cofferdam.Error{
			Op: "microvm.Snapshot", Kind: cofferdam.Exhausted, Subject: "snapshot " + string(id),
			Reason: fmt.Sprintf("this host keeps %d snapshots of %d MiB already; its bounds are %d and %d MiB", len(list), size>>20, maxSnapshots, int64(maxSnapshotBytes)>>20),
			Hint:   "remove some that are not needed any more",
		}
	}
	return nil
}

// room refuses what would leave less than keepFree on the disk of dir.
func (d *Driver) room(dir string, need int64) error {
	free, err := space(dir)
	if err != nil {
		return err
	}
	if free-need >= keepFree {
		return nil
	}
	return &cofferdam.Error{
		Op: "microvm.room", Kind: cofferdam.Exhausted, Subject: "disk of the state folder",
		Reason: fmt.Sprintf("%d MiB would be written, %d MiB are free and %d MiB must stay so", need>>20, free>>20, int64(keepFree)>>20),
		Hint:   "free space there, or remove snapshots",
	}
}

// take stops the machine, writes it down with its workspace, and lets it go on.
// What the machine has not yet written to its disk is in its memory.
func (b *box) take(ctx context.Context, s *stored) (err error) {
	work, err := blocks(b.path("work.img"))
	if err != nil {
		return err
	}
	if err := b.d.room(s.dir, work+b.memoryUsed()); err != nil {
		return err
	}
	if err := b.begin("Snapshot", "being copied"); err != nil {
		return err
	}
	stopped := time.Now()
	defer func() {
		err = errors.Join(err, b.wake(ctx))
		s.Paused = time.Since(stopped)
		err = errors.Join(err, b.goOn("its snapshot was taken", sandbox.ByDriver))
	}()
	if err := b.stopAndWrite(ctx, s.dir); err != nil {
		return err
	}
	s.Guest = b.host.State()
	return errors.Join(copyFile(b.path("work.img"), s.path(workCopy)), copyFile(b.path("machine.img"), s.path(machineCopy)))
}

// finish says in the snapshot what it is.
func (s *stored) finish() (err error) {
	for _, name := range contents() {
		n, err := blocks(s.path(name))
		if err != nil {
			return err
		}
		s.Size += n
	}
	if s.Digest, err = s.digest(); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(snapshotFile), data, 0o600)
}

// digest is of all that a snapshot holds: its files, its key and what the host knew.
func (s *stored) digest() (cofferdam.Digest, error) {
	h := sha256.New()
	known, err := json.Marshal(s.Guest)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "snapshot 1 %q %q %q %q %q\n", s.ID, s.Box, s.Tier, s.Key, known)
	for _, name := range contents() {
		if err := hashSparse(h, name, s.path(name)); err != nil {
			return "", err
		}
	}
	return cofferdam.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))), nil
}

// files names a snapshot's files as they are: what is written to one of them
// changes a time that only the kernel sets.
func (s *stored) files() (string, error) {
	var b strings.Builder
	for _, name := range append(contents(), snapshotFile) {
		var st unix.Stat_t
		if err := unix.Lstat(s.path(name), &st); err != nil {
			return "", &os.PathError{Op: "looking at", Path: s.path(name), Err: err}
		}
		fmt.Fprintf(&b, "%q %d %d %d %d\n", s.path(name), st.Ino, st.Size, st.Ctim.Nano(), st.Mtim.Nano())
	}
	return b.String(), nil
}

// openSnapshot reads a snapshot and proves once that it is what was taken. shelf.mu is held.
func (d *Driver) openSnapshot(id sandbox.SnapshotID) (*stored, error) {
	s := &stored{dir: d.snapshotDir(id)}
	data, err := os.ReadFile(s.path(snapshotFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &cofferdam.Error{
			Op: "microvm.Create", Kind: cofferdam.NotFound, Subject: "snapshot " + string(id), Reason: "there is none with that id", Hint: "take one, or choose another",
		}
	}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err != nil {
		return nil, err
	}
	s.dir = d.snapshotDir(id)
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	if d.shelf.proved[files] == s.Digest {
		return s, nil
	}
	got, err := s.digest()
	if err != nil {
		return nil, err
	}
	if got != s.Digest || s.ID != id {
		return nil, &cofferdam.Error{
			Op: "microvm.Create", Kind: cofferdam.Tampered, Subject: "snapshot " + string(id),
			Reason: "its files are not those that were written", Hint: "remove it, and find out who can write to the state folder",
		}
	}
	if d.shelf.proved == nil || len(d.shelf.proved) >= maxSnapshots {
		d.shelf.proved = map[string]cofferdam.Digest{}
	}
	d.shelf.proved[files] = got
	return s, nil
}

// key names all that boxes must have in common so that one can go on as another:
// everything but id and hostname, and kernel, monitor, root and environment as they are.
func (b *box) key(ctx context.Context) (string, error) {
	version, err := b.d.monitor.version(ctx)
	if err != nil {
		return "", err
	}
	s := b.spec
	s.ID, s.Snapshot, s.Hostname = "", "", ""
	spec, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	env := ""
	if s.Env != "" {
		var st unix.Stat_t
		if err := unix.Lstat(s.Env, &st); err != nil {
			return "", err
		}
		env = fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim.Nano())
	}
	return hashed(spec, []byte(version), []byte(b.boot.digest), []byte(filepath.Base(b.root)), []byte(env)), nil
}

// fork makes the box as a copy of its snapshot that goes on under an identity of
// its own: memory, workspace and network are its own, name, machine id, entropy
// and clock are new.
func (b *box) fork(ctx context.Context) error {
	b.d.shelf.mu.Lock()
	defer b.d.shelf.mu.Unlock()
	s, err := b.d.openSnapshot(b.spec.Snapshot)
	if err != nil {
		return err
	}
	key, err := b.key(ctx)
	if err != nil {
		return err
	}
	if key != s.Key || b.spec.SetupPhase {
		return invalid("snapshot "+string(s.ID), "it is of a box with another tier, image, environment, files or limits, or one of them has changed",
			"ask for what the box had that it was taken of")
	}
	work, err := blocks(s.path(workCopy))
	if err == nil {
		err = b.d.room(b.path(""), work)
	}
	if err == nil {
		err = errors.Join(copyFile(s.path(workCopy), b.path("work.img")), copyFile(s.path(machineCopy), b.path("machine.img")))
	}
	if err != nil {
		return err
	}
	var w, r *os.File
	if b.link, w, r, err = newLink(); err != nil {
		return err
	}
	if b.host, err = guest.RestoreHost(w, r, b.journalDir(), b.options(), s.Guest); err != nil {
		return errors.Join(err, w.Close(), r.Close())
	}
	if err := b.awaken(ctx, s.dir); err != nil {
		return errors.Join(err, fmt.Errorf("its console: %s", b.console.last()))
	}
	err = b.life.Move(sandbox.Ready, "it goes on from a snapshot", sandbox.ByDriver)
	b.host.Release()
	return err
}

// RemoveSnapshot removes a snapshot; boxes made from it have copies.
func (d *Driver) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	if !snapshotIDs.MatchString(string(id)) {
		return invalid(fmt.Sprintf("snapshot %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
	}
	d.shelf.mu.Lock()
	defer d.shelf.mu.Unlock()
	return os.RemoveAll(d.snapshotDir(id))
}
