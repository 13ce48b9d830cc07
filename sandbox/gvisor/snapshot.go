package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/quota"
)

// Bounds of the snapshots of one host.
const (
	maxSnapshots     = 64
	maxSnapshotBytes = 64 << 30 // of all together
	// keepFree stays free on the disk of the state folder, whatever is written there.
	keepFree = 1 << 30
)

// Names in the folder of a snapshot.
const (
	snapshotFile = "snapshot.json"
	memoryDir    = "memory"
	workImage    = "work.img"
	workTree     = "work"
)

var snapshotIDs = regexp.MustCompile(`^s-[0-9a-f]{32}$`)

// stored is a snapshot as it lies on disk.
type stored struct {
	sandbox.Snapshot
	Key    string      `json:"key"`    // of what a box made from it must be
	Kernel string      `json:"kernel"` // that wrote it; no other can read it
	Guest  guest.State `json:"guest"`

	dir string
}

func (s *stored) path(name string) string { return filepath.Join(s.dir, name) }

// shelf is where snapshots are. They outlive their boxes and their keeper.
type shelf struct {
	mu     sync.RWMutex      // held for writing while one is added or removed, for reading while one is used
	proved map[string]string // digest of what was read, by the path and times of its files; guarded by provedMu

	provedMu sync.Mutex
}

// dropHalf removes what a keeper that was killed had half written: nobody could
// use or name it, and it would count.
func (d *Driver) dropHalf() error {
	half, err := filepath.Glob(filepath.Join(d.o.Root, "snapshots", "*.new"))
	for _, path := range half {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

func (d *Driver) snapshotDir(id sandbox.SnapshotID) string {
	return filepath.Join(d.o.Root, "snapshots", string(id))
}

// Snapshot takes the box as it is under a new id while it goes on running.
func (b *box) Snapshot(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	b.step.Lock()
	defer b.step.Unlock()
	if b.d.o.User {
		return sandbox.Snapshot{}, userLacks(sandbox.CanSnapshot, "its workspaces are in memory and are not kept")
	}
	if b.spec.SetupPhase {
		return sandbox.Snapshot{}, invalid("snapshot of box "+string(b.spec.ID), "its setup phase writes to an image that others will read", "take it of a box that has the environment")
	}
	dir, release, err := b.d.addSnapshot(id, b)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer release()
	s := &stored{dir: dir + ".new", Kernel: b.d.checker.kernel()}
	s.Snapshot = sandbox.Snapshot{ID: id, Box: b.spec.ID, Tier: sandbox.GVisor, Taken: time.Now()}
	if s.Key, err = b.d.key(b.spec); err == nil {
		err = b.take(ctx, s)
	}
	if err == nil {
		err = s.finish(ctx)
	}
	if err == nil {
		err = os.Rename(s.dir, dir)
	}
	if err != nil {
		return sandbox.Snapshot{}, failed(b, "Snapshot", "take snapshot of", errors.Join(err, os.RemoveAll(s.dir)))
	}
	return s.Snapshot, nil
}

// addSnapshot reserves the id and the room for a snapshot of b.
func (d *Driver) addSnapshot(id sandbox.SnapshotID, b *box) (dir string, release func(), err error) {
	if !snapshotIDs.MatchString(string(id)) {
		return "", nil, invalid(fmt.Sprintf("snapshot id %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
	}
	d.shelf.mu.Lock()
	defer func() {
		if err != nil {
			d.shelf.mu.Unlock()
		}
	}()
	dir = d.snapshotDir(id)
	if _, err := os.Lstat(dir); err == nil {
		return "", nil, &cofferdam.Error{
			Op: "gvisor.Snapshot", Kind: cofferdam.Conflict, Subject: "snapshot " + string(id), Reason: "there is one already", Hint: "choose another id",
		}
	}
	number, size, err := d.snapshotSizes()
	if err != nil {
		return "", nil, err
	}
	if number >= maxSnapshots || size >= maxSnapshotBytes {
		return "", nil, &cofferdam.Error{
			Op: "gvisor.Snapshot", Kind: cofferdam.Exhausted, Subject: "snapshot " + string(id),
			Reason: fmt.Sprintf("this host keeps %d snapshots of %d MiB already; its bounds are %d and %d MiB", number, size>>20, maxSnapshots, int64(maxSnapshotBytes)>>20),
			Hint:   "remove some that are not needed any more",
		}
	}
	if err := d.room(d.o.Root, d.cgroups.memory(string(b.name))+usedBytes(b.disk(), b.path("work"))); err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.RemoveAll(dir+".new"), os.MkdirAll(filepath.Join(dir+".new", memoryDir), 0o700)); err != nil {
		return "", nil, err
	}
	return dir, d.shelf.mu.Unlock, nil
}

// room refuses what would leave less than keepFree on the disk of dir.
func (d *Driver) room(dir string, need int64) error {
	free, _, err := space(dir)
	if err != nil {
		return err
	}
	if free-need >= keepFree {
		return nil
	}
	return &cofferdam.Error{
		Op: "gvisor.room", Kind: cofferdam.Exhausted, Subject: "disk of the state folder",
		Reason: fmt.Sprintf("%d MiB would be written, %d MiB are free and %d MiB must stay so", need>>20, free>>20, int64(keepFree)>>20),
		Hint:   "free space there, or remove snapshots",
	}
}

// take stops the box, writes down its memory and its workspace, and lets it go
// on. The box comes to rest first, so that a copy begins between two frames.
func (b *box) take(ctx context.Context, s *stored) (err error) {
	if err := syncAll(b.path("work")); err != nil { // what is written now need not be while it stands still
		return err
	}
	if err := b.begin("Snapshot", "take snapshot of", "being copied"); err != nil {
		return err
	}
	stopped := time.Now()
	defer func() {
		s.Paused = time.Since(stopped)
		err = errors.Join(err, b.goOn("its snapshot was taken", sandbox.ByDriver))
	}()
	if err := b.host.Quiet(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.host.Wake(context.WithoutCancel(ctx), identity(b.spec))) }()
	s.Guest = b.host.State()
	if err := b.container.Pause(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.container.Resume()) }()
	// First the memory: gVisor writes to the workspace what it still has of it.
	if err := writeDown(b.d.conf, b.container, s.path(memoryDir), true); err != nil {
		return err
	}
	if b.project != 0 || b.kept != nil && quota.Enforced(b.dir) {
		return copyTree(ctx, b.path("work"), s.path(workTree))
	}
	thaw, err := freeze(b.path("work"))
	if err != nil {
		return err
	}
	return errors.Join(copySparse(b.disk(), s.path(workImage)), thaw())
}

// finish says in the snapshot what it is.
func (s *stored) finish(ctx context.Context) error {
	err := filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n, err := blocks(path)
		s.Size += n
		return err
	})
	if err == nil {
		s.Digest, err = s.digest(ctx)
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(snapshotFile), data, 0o600)
}

// digest is of all that the snapshot is: its description and its files.
func (s *stored) digest(ctx context.Context) (cofferdam.Digest, error) {
	plain := *s
	plain.Digest = ""
	data, err := json.Marshal(plain)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(data)
	files, err := filepath.Glob(s.path(memoryDir + "/*")) // in order of their names
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(s.path(workImage)); err == nil {
		files = append(files, s.path(workImage))
	}
	for _, path := range files {
		fmt.Fprintf(h, "%s\n", path[len(s.dir):])
		if err := hashSparse(h, path); err != nil {
			return "", err
		}
	}
	if _, err := os.Lstat(s.path(workTree)); err == nil {
		if err := hashTree(ctx, h, s.path(workTree)); err != nil {
			return "", err
		}
	}
	return cofferdam.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))), nil
}

// openSnapshot returns a snapshot whose every byte is what was written. It
// cannot be removed until release is called.
func (d *Driver) openSnapshot(ctx context.Context, id sandbox.SnapshotID) (s *stored, release func(), err error) {
	subject := "snapshot " + string(id)
	if !snapshotIDs.MatchString(string(id)) {
		return nil, nil, invalid(fmt.Sprintf("snapshot %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
	}
	d.shelf.mu.RLock()
	defer func() {
		if err != nil {
			d.shelf.mu.RUnlock()
		}
	}()
	s = &stored{dir: d.snapshotDir(id)}
	data, err := os.ReadFile(s.path(snapshotFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &cofferdam.Error{
			Op: "gvisor.Create", Kind: cofferdam.NotFound, Subject: subject, Reason: "there is no such snapshot", Hint: "take one, or start without",
		}
	}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err == nil {
		err = d.shelf.prove(ctx, s)
	}
	if err == nil && s.ID != id {
		err = errors.New("it is another one")
	}
	if err != nil {
		return nil, nil, &cofferdam.Error{
			Op: "gvisor.Create", Kind: cofferdam.Conflict, Subject: subject, Err: err,
			Reason: "it is not what was written: " + err.Error(), Hint: "remove it and take a new one",
		}
	}
	if s.Kernel != d.checker.kernel() {
		return nil, nil, missing(subject, fmt.Sprintf("it was written by %s, and this is %s", s.Kernel, d.checker.kernel()), "remove it and take a new one", nil)
	}
	return s, d.shelf.mu.RUnlock, nil
}

// prove compares a snapshot with its digest. Files that nobody touched since
// they were last read are not read again: the kernel keeps when that was.
func (sh *shelf) prove(ctx context.Context, s *stored) error {
	sh.provedMu.Lock()
	defer sh.provedMu.Unlock()
	stamp, err := touched(s.dir)
	if err != nil {
		return err
	}
	if sh.proved[stamp] == string(s.Digest) {
		return nil
	}
	found, err := s.digest(ctx)
	if err != nil {
		return err
	}
	if found != s.Digest {
		return fmt.Errorf("its digest is %s, not %s", found, s.Digest)
	}
	if sh.proved == nil || len(sh.proved) >= maxSnapshots {
		sh.proved = map[string]string{}
	}
	sh.proved[stamp] = string(s.Digest)
	return nil
}

// RemoveSnapshot removes a snapshot. Boxes that were made from it go on.
func (d *Driver) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	if !snapshotIDs.MatchString(string(id)) {
		return invalid(fmt.Sprintf("snapshot %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
	}
	d.shelf.mu.Lock()
	defer d.shelf.mu.Unlock()
	if err := os.RemoveAll(d.snapshotDir(id)); err != nil {
		return &cofferdam.Error{
			Op: "gvisor.RemoveSnapshot", Kind: cofferdam.Internal, Subject: "snapshot " + string(id), Reason: err.Error(), Err: err,
			Hint: "remove its folder in the state folder",
		}
	}
	return nil
}

// snapshotSizes counts the snapshots and what they hold on disk. shelf.mu is held.
func (d *Driver) snapshotSizes() (number int, size int64, err error) {
	entries, err := os.ReadDir(filepath.Join(d.o.Root, "snapshots"))
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		var s stored
		data, err := os.ReadFile(filepath.Join(d.o.Root, "snapshots", e.Name(), snapshotFile))
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			s.Size = 0 // a broken one counts by its number
		}
		number, size = number+1, size+s.Size
	}
	return number, size, nil
}
