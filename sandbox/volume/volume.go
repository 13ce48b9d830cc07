// Package volume keeps workspaces: images with a file system each, which outlive
// the boxes that have them and the process that made them.
//
// It mounts no image: what is in one was written by an agent, perhaps through a
// kernel of its own. It looks only into a file system that a driver has mounted. The
// invariants: a workspace has one holder at a time, who comes with an epoch below one
// that was seen gets nothing, and a holder lets go only once all it wrote is on the
// host's disk.
//
// On disk, below the folder given to Open:
//
//	w-…/disk        the image: sparse, of the size it was made with; or a folder that
//	                its driver watches, where no image can be mounted
//	w-…/about.json  what is known of it
//	w-….lock        locked by the process whose box has it, with the box's id
//	w-….new, .gone  half made or half removed; the next Open removes them
//
// The lock is the kernel's: it ends with its process, and processes that use one
// folder at the same time, as two keepers do while one replaces the other, see
// each other's.
package volume

import (
	"context"
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
	"cofferdam/sandbox/watch"
)

const (
	opAttach = "volume.Attach"
	opRemove = "volume.Remove"
)

// MaxWorkspaces bounds those of one tier on one host. Each is a folder and a
// sparse file; the bound in bytes is the server's.
// Source: docs/SPECIFICATION.md, "Workspaces".
const MaxWorkspaces = 4096

// Names in the folder of a workspace.
const (
	imageFile = "disk"
	aboutFile = "about.json"
)

// Store is the folder of workspaces of one tier. Safe for concurrent use.
type Store struct {
	dir  string
	tier sandbox.Tier
	make func(ctx context.Context, path string, size int64) error
	sync func(image string) error // writes what the host has of it in memory
}

// Open opens the folder, making it if it is missing, and removes what a process
// that was killed had half made or half removed. make makes an image as Make does,
// which nil stands for.
func Open(dir string, tier sandbox.Tier, make func(ctx context.Context, path string, size int64) error) (*Store, error) {
	if make == nil {
		make = Make
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	s := &Store{dir: dir, tier: tier, make: make, sync: syncFile}
	if err := s.dropHalf(); err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	return s, nil
}

// dropHalf removes what nobody makes or removes any more.
func (s *Store) dropHalf() error {
	var errs []error
	for _, end := range []string{".new", ".gone"} {
		half, err := filepath.Glob(filepath.Join(s.dir, "w-*"+end))
		errs = append(errs, err)
		for _, path := range half {
			l, _, err := s.lock(sandbox.WorkspaceID(strings.TrimSuffix(filepath.Base(path), end)), "")
			if err != nil || l == nil { // another process is about it
				errs = append(errs, err)
				continue
			}
			errs = append(errs, watch.Remove(path), l.Close())
		}
	}
	return errors.Join(errs...)
}

// Want says who wants which workspace.
type Want struct {
	ID    sandbox.WorkspaceID
	Epoch int64
	Box   cofferdam.BoxID
	Size  int64 // bytes, if it has to be made
}

// Of returns what a spec wants; the zero Want if it wants none.
func Of(s sandbox.Spec) Want {
	if s.Workspace == "" {
		return Want{}
	}
	return Want{ID: s.Workspace, Epoch: s.Epoch, Box: s.ID, Size: s.Limits.Disk}
}

// Hold is a workspace in the hands of one box.
type Hold struct {
	sandbox.Workspace
	Image string // path of its image, or folder

	store *Store
	live  *watch.Folder // that counts it; nil for an image
	mu    sync.Mutex
	lock  *os.File // nil once it is released; guarded by mu
}

// Attach gives a workspace to a box. One that is not there is made: from the
// image at ready, which is moved, or anew with ready "".
func (s *Store) Attach(ctx context.Context, w Want, ready string) (*Hold, error) {
	if err := s.check(w); err != nil {
		return nil, err
	}
	l, box, err := s.lock(w.ID, w.Box)
	if err != nil {
		return nil, wrap(opAttach, w.ID, err)
	}
	if l == nil {
		return nil, held(opAttach, w.ID, box)
	}
	h, err := s.take(ctx, w, ready)
	if err != nil {
		if !s.Has(w.ID) { // no more than a lock is left of it
			err = errors.Join(err, os.Remove(l.Name()))
		}
		return nil, wrap(opAttach, w.ID, errors.Join(err, l.Close()))
	}
	h.lock = l
	return h, nil
}

func held(op string, id sandbox.WorkspaceID, box cofferdam.BoxID) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: "workspace " + string(id), Reason: "box " + string(box) + " has it",
		Hint: "wait until that box is gone, or end it",
	}
}

// lock takes a workspace for a box of this process; with nil another box has it.
// Closing the file gives it back.
func (s *Store) lock(id sandbox.WorkspaceID, box cofferdam.BoxID) (*os.File, cofferdam.BoxID, error) {
	path := s.folder(id) + ".lock"
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, "", err
		}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, holder(f), f.Close()
		}
		if err == nil {
			err = f.Truncate(0)
		}
		if err == nil {
			_, err = f.WriteAt([]byte(box), 0)
		}
		if err != nil {
			if !s.Has(id) {
				err = errors.Join(err, os.Remove(path))
			}
			return nil, "", errors.Join(err, f.Close())
		}
		ours, err := f.Stat()
		now, gone := os.Stat(path)
		if err == nil && gone == nil && os.SameFile(ours, now) {
			return f, box, nil
		}
		if err := errors.Join(err, f.Close()); err != nil { // a file that Remove has just taken away: the next is another
			return nil, "", err
		}
	}
}

// holder reads the name of the box from a lock that another has.
func holder(f *os.File) cofferdam.BoxID {
	name := make([]byte, 34)
	n, _ := f.ReadAt(name, 0) // empty while it is being written
	return cofferdam.BoxID(name[:n])
}

// heldBy returns the box that has a workspace; "" for none.
func (s *Store) heldBy(id sandbox.WorkspaceID) cofferdam.BoxID {
	f, err := os.OpenFile(s.folder(id)+".lock", os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "" // nobody ever had it
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil || l.Type == unix.F_UNLCK {
		return ""
	}
	return holder(f)
}

func (s *Store) check(w Want) error {
	switch {
	case !w.ID.Valid():
		return &cofferdam.Error{Op: opAttach, Kind: cofferdam.Invalid, Subject: fmt.Sprintf("workspace %.64q", string(w.ID)), Reason: `not "w-" and 32 hexadecimal digits`}
	case w.Epoch < 0 || w.Size <= 0 || w.Box == "":
		return &cofferdam.Error{Op: opAttach, Kind: cofferdam.Invalid, Subject: "workspace " + string(w.ID), Reason: "its epoch is below zero, or it has no size or no box"}
	}
	return nil
}

// take finds or makes a workspace that this call has reserved.
func (s *Store) take(ctx context.Context, w Want, ready string) (*Hold, error) {
	a, err := s.read(w.ID)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		a, err = s.add(ctx, w, ready)
	}
	if err != nil {
		return nil, err
	}
	if w.Epoch < a.Epoch {
		return nil, late(opAttach, w.ID, w.Epoch, a.Epoch)
	}
	if !fresh {
		if err := s.bearable(ctx, &a); err != nil {
			return nil, err
		}
		if err := s.room(a.Size - a.Used); err != nil {
			return nil, err
		}
		if err := idle(ctx, s.image(w.ID)); err != nil {
			return nil, err
		}
	}
	a.Epoch, a.Left = w.Epoch, time.Now().UTC()
	// The second one is for Release, which must not fail where the disk is full.
	if err := errors.Join(s.write(s.folder(w.ID), a), s.note(s.folder(w.ID), a)); err != nil {
		return nil, err
	}
	a.Box, a.Fresh = w.Box, fresh
	return &Hold{Workspace: a, Image: s.image(w.ID), store: s}, nil
}

// add puts a new workspace in its place, whole or not at all.
func (s *Store) add(ctx context.Context, w Want, ready string) (sandbox.Workspace, error) {
	a := sandbox.Workspace{ID: w.ID, Tier: s.tier, Size: w.Size, Epoch: w.Epoch, Made: time.Now().UTC()}
	all, err := os.ReadDir(s.dir)
	if err != nil {
		return a, err
	}
	if len(all) >= 2*MaxWorkspaces { // a folder and a lock each
		return a, &cofferdam.Error{
			Op: opAttach, Kind: cofferdam.Exhausted, Subject: "workspace " + string(w.ID), Reason: fmt.Sprintf("this host keeps %d of tier %s already", MaxWorkspaces, s.tier),
			Hint: "remove some: cofferdam workspace list",
		}
	}
	if err := s.room(w.Size); err != nil {
		return a, err
	}
	half := s.folder(w.ID) + ".new"
	err = errors.Join(watch.Remove(half), os.Mkdir(half, 0o700))
	if err == nil && ready != "" {
		err = os.Rename(ready, filepath.Join(half, imageFile))
	} else if err == nil {
		err = s.make(ctx, filepath.Join(half, imageFile), w.Size)
	}
	if err == nil {
		err = s.write(half, a)
	}
	if err == nil {
		err = os.Rename(half, s.folder(w.ID))
	}
	if err == nil {
		err = syncFile(s.dir)
	}
	if err != nil {
		return a, errors.Join(err, os.RemoveAll(half))
	}
	return a, nil
}

// room refuses what could not grow to its size.
func (s *Store) room(need int64) error {
	free, _, err := watch.Space(s.dir)
	if err != nil || free >= need {
		return err
	}
	return &cofferdam.Error{
		Op: opAttach, Kind: cofferdam.Exhausted, Subject: "workspace",
		Reason: fmt.Sprintf("it may grow by %d MiB, and %d MiB are free on the disk of the state folder", need>>20, free>>20),
		Hint:   "free space there, remove workspaces with cofferdam workspace remove, or give a smaller limit of disk",
	}
}

// Release gives the workspace back, once all that was written to it is on the
// host's disk; flushed says whether the box's own file system came that far. With
// an error the workspace stays held, and Release can be called again.
func (h *Hold) Release(flushed error) error {
	s := h.store
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock == nil {
		return nil
	}
	err := flushed
	if err == nil {
		err = s.sync(h.Image)
	}
	if err != nil {
		return fmt.Errorf("writing workspace %s to disk: %w", h.ID, err)
	}
	a, err := s.read(h.ID)
	if err == nil {
		err = s.count(context.Background(), &a)
	}
	if errors.Is(err, watch.ErrUncounted) { // who wants it next is refused
		err = nil
	}
	if err == nil {
		a.Left = time.Now().UTC()
		err = s.write(s.folder(h.ID), a)
	}
	if err != nil {
		return fmt.Errorf("letting go of workspace %s: %w", h.ID, err)
	}
	err = h.lock.Close()
	h.lock = nil
	return err
}

// Has says whether there is a workspace.
func (s *Store) Has(id sandbox.WorkspaceID) bool {
	_, err := os.Lstat(s.folder(id))
	return err == nil
}

// List returns every workspace. One whose description cannot be read is listed
// with what its folder says.
func (s *Store) List() ([]sandbox.Workspace, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	var list []sandbox.Workspace
	for _, e := range entries {
		id := sandbox.WorkspaceID(e.Name())
		if !id.Valid() {
			continue
		}
		a, err := s.read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just gone
		}
		if err != nil {
			info, _ := e.Info() // nil if it has gone
			if info == nil {
				continue
			}
			a = sandbox.Workspace{Left: info.ModTime()}
		}
		a.ID, a.Tier, a.Box = id, s.tier, s.heldBy(id)
		list = append(list, a)
	}
	return list, nil
}

// Remove removes a workspace that no box has.
func (s *Store) Remove(id sandbox.WorkspaceID) error {
	if !id.Valid() {
		return &cofferdam.Error{Op: opRemove, Kind: cofferdam.Invalid, Subject: fmt.Sprintf("workspace %.64q", string(id)), Reason: `not "w-" and 32 hexadecimal digits`}
	}
	l, box, err := s.lock(id, "")
	if err != nil {
		return wrap(opRemove, id, err)
	}
	if l == nil {
		return held(opRemove, id, box)
	}
	gone := s.folder(id) + ".gone"
	if err = os.Rename(s.folder(id), gone); errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		err = errors.Join(syncFile(s.dir), watch.Remove(gone))
	}
	if err := errors.Join(err, os.Remove(l.Name()), l.Close()); err != nil {
		return wrap(opRemove, id, err)
	}
	return nil
}

func (s *Store) folder(id sandbox.WorkspaceID) string { return filepath.Join(s.dir, string(id)) }
func (s *Store) image(id sandbox.WorkspaceID) string  { return filepath.Join(s.folder(id), imageFile) }

// syncFile puts a file or folder on the host's disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// idlePatience is how long the kernel may take to let go of an image whose last
// box has just ended.
const idlePatience = 20 * time.Second

// idle waits until no loop device has the image: two file systems on one image
// would destroy it.
func idle(ctx context.Context, image string) error {
	for end := time.Now().Add(idlePatience); ; {
		list, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return err
		}
		busy := ""
		for _, path := range list {
			if text, err := os.ReadFile(path); err == nil && strings.TrimSuffix(string(text), "\n") == image {
				busy = strings.Split(path, "/")[3]
			}
		}
		switch {
		case busy == "":
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return fmt.Errorf("device %s still has it", busy)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wrap makes err one that a person can read.
func wrap(op string, id sandbox.WorkspaceID, err error) error {
	var known *cofferdam.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Exhausted, Subject: "workspace " + string(id), Reason: "the disk of the state folder is full", Err: err,
			Hint: "free space there, or remove workspaces with cofferdam workspace remove",
		}
	}
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Unavailable, Subject: "workspace " + string(id), Reason: err.Error(), Err: err,
		Hint: "see whether the disk of the keeper's state folder is whole and has room",
	}
}
