// Package quota gives folders a size by the project quotas of the file system
// they are on: the kernel counts blocks and files by a number that each file
// inherits from its folder.
//
// It never decides how large a folder may be, and never touches a project
// outside its own range. The invariant: a folder that Begin returned for has
// a project that no other folder has, with limits in force.
package quota

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Project ids of boxes are 0x5C000000 to 0x5CFFFFFF: 15 bits tell owners on
// one file system apart, 9 bits the folders of an owner.
const (
	Base         = 0x5C << 24
	projectSlots = 1 << 9 // more than a driver has boxes: one that is not free yet is passed over
)

// What golang.org/x/sys/unix has no names for; see quotactl(2), ioctl_xfs_fsgetxattr(2).
const (
	fsGetXattr     = 0x801c581f
	fsSetXattr     = 0x401c5820
	projectInherit = 0x200 // whatever is made in the folder belongs to its project

	projectQuota   = 2
	getQuota       = 0x800007<<8 | projectQuota
	setQuota       = 0x800008<<8 | projectQuota
	getState       = ('X'<<8|5)<<8 | projectQuota
	stateEnforced  = 1 << 5 // limits of projects are not only counted
	limitsValid    = 1 | 4  // of blocks and of inodes
	quotaBlockSize = 1 << 10
)

// fileAttributes is struct fsxattr.
type fileAttributes struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

// projectLimits is struct if_dqblk.
type projectLimits struct {
	blockHard, blockSoft, bytes  uint64
	inodeHard, inodeSoft, inodes uint64
	blockTime, inodeTime         uint64
	valid, _                     uint32
}

// quotaState is the beginning of struct fs_quota_stat, with room for the rest.
type quotaState struct {
	_     [2]byte
	flags uint16
	_     [252]byte
}

// Projects are the projects of one owner. Nothing inside a box can change what a
// file belongs to: gVisor passes no such call on, and a link or a rename into
// another project is refused.
type Projects struct {
	base uint32 // the first project id of this owner

	mu   sync.Mutex
	used map[uint32]bool // guarded by mu
	last uint32          // guarded by mu
}

// New derives the ids of an owner from two bytes of a hash of its name.
func New(sum []byte) *Projects {
	own := uint32(sum[0])<<8 | uint32(sum[1])
	return &Projects{base: Base | own>>1*projectSlots, used: map[uint32]bool{}}
}

// Enforced says whether the file system of dir enforces limits of projects.
// Only kinds that this was tried on count.
func Enforced(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Type != unix.EXT4_SUPER_MAGIC && st.Type != unix.XFS_SUPER_MAGIC {
		return false
	}
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	var s quotaState
	// Kernels before 5.14 do not have the call.
	return quotactl(f, getState, 0, unsafe.Pointer(&s)) == nil && s.flags&stateEnforced != 0
}

// Begin gives dir, which must be empty, a project of its own with limits.
func (p *Projects) Begin(dir string, size, inodes int64) (id uint32, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if id, err = p.take(f); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.clear(f, id))
		}
	}()
	// The project first: limits of a project without any file are left over,
	// and another owner may remove them.
	if err := setProject(f, id); err != nil {
		return 0, err
	}
	want := projectLimits{blockHard: uint64(size) / quotaBlockSize, inodeHard: uint64(inodes), valid: limitsValid}
	if err := quotactl(f, setQuota, id, unsafe.Pointer(&want)); err != nil {
		return 0, fmt.Errorf("setting limits of project %d: %w", id, err)
	}
	got, err := limitsOf(f, id)
	if err != nil {
		return 0, err
	}
	if got.blockHard != want.blockHard || got.inodeHard != want.inodeHard || got.inodes != 1 {
		return 0, fmt.Errorf("project %d has limits of %d KiB and %d inodes and %d inodes in use, not what was set", id, got.blockHard, got.inodeHard, got.inodes)
	}
	return id, nil
}

// End removes the limits of a project whose folder is gone; dir is any folder
// of the file system.
func (p *Projects) End(dir string, id uint32) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return p.clear(f, id)
}

// clear removes the limits of a project and gives its id up.
func (p *Projects) clear(f *os.File, id uint32) error {
	if err := quotactl(f, setQuota, id, unsafe.Pointer(&projectLimits{valid: limitsValid})); err != nil {
		return fmt.Errorf("removing limits of project %d: %w", id, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, id)
	return nil
}

// EndLeftovers removes the limits of projects of this owner that have no file
// any more.
func (p *Projects) EndLeftovers(dir string) error {
	if !Enforced(dir) {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for id := p.base; id < p.base+projectSlots; id++ {
		l, err := limitsOf(f, id)
		if err != nil {
			return err
		}
		if l.inodes == 0 && l.bytes == 0 && (l.blockHard != 0 || l.inodeHard != 0) {
			if err := p.clear(f, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// take reserves an id that nobody uses, and that no file is counted for.
func (p *Projects) take(f *os.File) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range projectSlots {
		p.last = (p.last + 1) % projectSlots // the one freed last comes last
		id := p.base + p.last
		if p.used[id] {
			continue
		}
		l, err := limitsOf(f, id)
		if err != nil {
			return 0, err
		}
		if l.inodes == 0 && l.bytes == 0 && l.blockHard == 0 && l.inodeHard == 0 {
			p.used[id] = true
			return id, nil
		}
	}
	return 0, fmt.Errorf("each project id from %d to %d is in use", p.base, p.base+projectSlots-1)
}

// setProject puts a folder, and what will be made in it, into a project.
func setProject(f *os.File, id uint32) error {
	a, err := attributes(f)
	if err != nil {
		return err
	}
	a.project, a.flags = id, a.flags|projectInherit
	if err := ioctl(f, fsSetXattr, unsafe.Pointer(&a)); err != nil {
		return fmt.Errorf("setting project id: %w", err)
	}
	return nil
}

func attributes(f *os.File) (fileAttributes, error) {
	var a fileAttributes
	if err := ioctl(f, fsGetXattr, unsafe.Pointer(&a)); err != nil {
		return a, fmt.Errorf("reading project id: %w", err)
	}
	return a, nil
}

// limitsOf reads the limits and the use of a project; one that the file system
// never heard of has none.
func limitsOf(f *os.File, id uint32) (projectLimits, error) {
	var l projectLimits
	err := quotactl(f, getQuota, id, unsafe.Pointer(&l))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return l, fmt.Errorf("reading limits of project %d: %w", id, err)
	}
	return l, nil
}

// ProjectOf reads which project a file or folder belongs to.
func ProjectOf(path string) (uint32, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	a, err := attributes(f)
	return a.project, err
}

// Use is what a project may have, and has.
type Use struct {
	MaxBytes, MaxInodes, Bytes, Inodes int64 // a maximum of 0: none
}

// Read says how much a project of the file system of dir has.
func Read(dir string, id uint32) (Use, error) {
	f, err := os.Open(dir)
	if err != nil {
		return Use{}, err
	}
	defer f.Close()
	l, err := limitsOf(f, id)
	return Use{int64(l.blockHard) * quotaBlockSize, int64(l.inodeHard), int64(l.bytes), int64(l.inodes)}, err
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

func quotactl(f *os.File, command uintptr, id uint32, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, uintptr(id), uintptr(arg), 0, 0); e != 0 {
		return e
	}
	return nil
}
