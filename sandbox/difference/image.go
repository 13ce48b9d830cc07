package difference

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Features of ext4. Those that change where things are and that workspaces do not
// have are refused.
const (
	hasFileType = 0x2
	hasRecover  = 0x4 // it was not unmounted
	hasExtents  = 0x40
	has64Bit    = 0x80
	hasFlexible = 0x200
	hasSeed     = 0x2000 // of its checksums
	hasLargeDir = 0x4000

	known = hasFileType | hasRecover | hasExtents | has64Bit | hasFlexible | hasSeed | hasLargeDir

	hasClusters = 0x200 // among those that forbid writing alone
)

// Places of an ext4 file system that have no other name.
const (
	superOffset = 1024
	superMagic  = 0xEF53
	rootInode   = 2
	// blocks of a group: fewer than mkfs ever makes would only cost time.
	minGroup = 256
)

// image is a workspace that is an image of an ext4 file system.
type image struct {
	file    *os.File
	block   int64  // bytes of one
	blocks  uint64 // in all
	first   uint64 // block of the first group
	inodes  uint32
	perNode uint32 // inodes of a group
	inode   int64  // bytes of one
	group   int64  // bytes of the description of one

	folders map[uint32]bool // that were listed: each has one place
	table   []byte          // the block of inodes that was read last
	last    uint64          // its number and one
}

var little = binary.LittleEndian

// openImage reads what an image says of itself.
func openImage(path string) (*image, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	m := &image{file: f, folders: map[uint32]bool{}}
	if err := m.begin(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

func (m *image) close() error { return m.file.Close() }

// begin reads the superblock.
func (m *image) begin() error {
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	p := make([]byte, 1024)
	if _, err := m.file.ReadAt(p, superOffset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if little.Uint16(p[0x38:]) != superMagic {
		return broken("it has no superblock of ext4")
	}
	incompatible := little.Uint32(p[0x60:])
	if other := incompatible &^ known; other != 0 || little.Uint32(p[0x64:])&hasClusters != 0 {
		return broken("it has features that workspaces have not: %#x", other)
	}
	m.block, m.inode, m.group = 1024<<min(little.Uint32(p[0x18:]), 30), int64(little.Uint16(p[0x58:])), 32
	m.blocks, m.first = uint64(little.Uint32(p[4:])), uint64(little.Uint32(p[0x14:]))
	if incompatible&has64Bit != 0 {
		m.blocks |= uint64(little.Uint32(p[0x150:])) << 32
		m.group = int64(little.Uint16(p[0xFE:]))
	}
	m.inodes, m.perNode = little.Uint32(p), little.Uint32(p[0x28:])
	switch {
	case m.block > 64<<10, m.inode < 128 || m.inode > m.block, m.group < 32 || m.group > m.block, m.first > 1:
		return broken("its superblock says sizes that there are not")
	case m.inodes == 0, m.perNode == 0, int64(m.perNode) > 8*m.block, little.Uint32(p[0x20:]) < minGroup:
		return broken("its superblock says numbers that there are not")
	case m.blocks > uint64((info.Size()+m.block-1)/m.block):
		return broken("it is larger than its disk")
	}
	m.table = make([]byte, m.block)
	return nil
}

// readBlock reads one block.
func (m *image) readBlock(n uint64, p []byte) error {
	if n >= m.blocks {
		return broken("it names block %d of %d", n, m.blocks)
	}
	if _, err := m.file.ReadAt(p[:m.block], int64(n)*m.block); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// node is an inode.
type node struct {
	number uint32
	mode   uint32
	flags  uint32
	size   int64
	place  [60]byte // where its content is
}

// readNode reads an inode.
func (m *image) readNode(number uint32) (n node, err error) {
	if number == 0 || number > m.inodes {
		return n, broken("it names inode %d of %d", number, m.inodes)
	}
	p := make([]byte, m.block)
	at := int64((number-1)/m.perNode) * m.group
	if err := m.readBlock(m.first+1+uint64(at/m.block), p); err != nil {
		return n, err
	}
	if at%m.block+m.group > m.block {
		return n, broken("the description of a group is in two blocks")
	}
	d := p[at%m.block:]
	table := uint64(little.Uint32(d[8:]))
	if m.group >= 64 {
		table |= uint64(little.Uint32(d[0x28:])) << 32
	}
	at = int64((number-1)%m.perNode) * m.inode
	if table += uint64(at / m.block); m.last != table+1 {
		m.last = 0
		if err := m.readBlock(table, m.table); err != nil {
			return n, err
		}
		m.last = table + 1
	}
	if at%m.block+m.inode > m.block {
		return n, broken("an inode is in two blocks")
	}
	d = m.table[at%m.block:]
	n = node{number: number, mode: uint32(little.Uint16(d)), flags: little.Uint32(d[0x20:])}
	n.size = int64(uint64(little.Uint32(d[4:])) | uint64(little.Uint32(d[0x6C:]))<<32)
	copy(n.place[:], d[0x28:])
	if n.size < 0 || n.size > 1<<44 || n.flags&(inlineData|encrypted) != 0 {
		return n, broken("inode %d is of a kind that workspaces have not", number)
	}
	return n, nil
}

func (m *image) root() (entry, error) { return m.entry("", rootInode) }

// entry describes a name that leads to an inode.
func (m *image) entry(name string, number uint32) (entry, error) {
	n, err := m.readNode(number)
	if err != nil {
		return entry{}, err
	}
	return entry{name: name, Found: foundOf(n.mode, n.size), at: number}, nil
}

// maxFolder is how large a folder may be, in bytes.
const maxFolder = 64 << 20

func (m *image) list(ctx context.Context, dir entry) ([]entry, error) {
	n, err := m.readNode(dir.at.(uint32))
	if err != nil {
		return nil, err
	}
	if m.folders[n.number] {
		return nil, broken("folder %d is in two places", n.number)
	}
	if m.folders[n.number] = true; n.size > maxFolder {
		return nil, fmt.Errorf("%w: a folder has more than %d MiB of names", ErrTooMuch, maxFolder>>20)
	}
	c, err := m.contentOf(n)
	if err != nil {
		return nil, err
	}
	var all []entry
	p := make([]byte, m.block)
	for off := int64(0); off < n.size; off += m.block {
		if err := errors.Join(readFull(c, p, off), ctx.Err()); err != nil {
			return nil, err
		}
		if all, err = m.names(p, all); err != nil {
			return nil, err
		}
		if len(all) > MaxEntries {
			return nil, fmt.Errorf("%w: a folder has more than %d files", ErrTooMuch, MaxEntries)
		}
	}
	sortByName(all)
	for i := range all {
		if i > 0 && all[i].name == all[i-1].name {
			return nil, broken("a folder has the name %.100q twice", all[i].name)
		}
	}
	return all, nil
}

// names adds what one block of a folder names. What the index of a large folder is
// made of looks like names that lead nowhere.
func (m *image) names(p []byte, all []entry) ([]entry, error) {
	for len(p) > 0 {
		if len(p) < 8 {
			return nil, broken("a folder ends in the middle of a name")
		}
		number, length, size := little.Uint32(p), int(little.Uint16(p[4:])), int(p[6])
		if length < 8 || length%4 != 0 || length > len(p) || 8+size > length {
			return nil, broken("a name in a folder has no end")
		}
		name := string(p[8 : 8+size])
		p = p[length:]
		if number == 0 || name == "." || name == ".." {
			continue
		}
		if name == "" || strings.ContainsAny(name, "/\x00") {
			return nil, broken("a folder has the name %q", name)
		}
		e, err := m.entry(name, number)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (m *image) open(e entry) (content, error) {
	n, err := m.readNode(e.at.(uint32))
	if err != nil {
		return nil, err
	}
	return m.contentOf(n)
}

// target reads where a link leads: a short one stands in the inode itself.
func (m *image) target(e entry) (string, error) {
	n, err := m.readNode(e.at.(uint32))
	if err != nil {
		return "", err
	}
	if n.size < int64(len(n.place)) && n.flags&usesExtents == 0 {
		return string(n.place[:n.size]), nil
	}
	if n.size > unix.PathMax {
		return "", broken("a link of %d bytes", n.size)
	}
	c, err := m.contentOf(n)
	if err != nil {
		return "", err
	}
	p := make([]byte, n.size)
	err = readFull(c, p, 0)
	return string(p), err
}
