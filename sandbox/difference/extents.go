package difference

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Flags of an inode.
const (
	encrypted   = 0x800
	usesExtents = 0x80000
	inlineData  = 0x10000000
)

const (
	extentMagic = 0xF30A
	// maxDepth is how deep the tree of a file's extents may be: ext4 has five.
	maxDepth = 5
	// unwritten is added to the length of an extent that reads as zero.
	unwritten = 32768
	// MaxExtents is how many pieces one file may be in: 4 GiB of them, one block each.
	MaxExtents = 1 << 20
	// maxLists is how many blocks may say where those are: each names some.
	maxLists = 64 << 10
)

// extent is a part of a file that lies in one piece, in blocks.
type extent struct {
	at, length uint64 // in the file
	block      uint64 // on the disk
}

// pieces is a file of an image.
type pieces struct {
	m    *image
	size int64
	list []extent
	read int    // blocks that say where it is
	have []byte // the block that was read last
	last uint64 // its number and one
}

// contentOf finds where the content of an inode is.
func (m *image) contentOf(n node) (*pieces, error) {
	c := &pieces{m: m, size: n.size}
	var err error
	if n.flags&usesExtents != 0 {
		err = c.tree(n.place[:], -1)
	} else {
		err = c.old(n)
	}
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", n.number, err)
	}
	slices.SortFunc(c.list, func(a, b extent) int { return cmp.Compare(a.at, b.at) })
	for i, e := range c.list {
		if e.block+e.length > m.blocks || e.block+e.length < e.block || i > 0 && c.list[i-1].at+c.list[i-1].length > e.at {
			return nil, broken("inode %d: its parts overlap, or are not on its disk", n.number)
		}
	}
	return c, nil
}

// tree reads a node of a tree of extents; depth is what its parent says of it, -1 for
// the first.
func (c *pieces) tree(p []byte, depth int) error {
	if little.Uint16(p) != extentMagic {
		return broken("its tree of extents has a node that is none")
	}
	number, deep := int(little.Uint16(p[2:])), int(little.Uint16(p[6:]))
	if 12+12*number > len(p) || deep > maxDepth || depth >= 0 && deep != depth {
		return broken("its tree of extents has a node that cannot be")
	}
	for i := range number {
		e := p[12+12*i:]
		if deep == 0 {
			length := uint64(little.Uint16(e[4:]))
			if length > unwritten {
				continue // it was never written to
			}
			block := uint64(little.Uint32(e[8:])) | uint64(little.Uint16(e[6:]))<<32
			if err := c.add(extent{uint64(little.Uint32(e)), length, block}); err != nil {
				return err
			}
			continue
		}
		child, err := c.listed(uint64(little.Uint32(e[4:])) | uint64(little.Uint16(e[8:]))<<32)
		if err != nil {
			return err
		}
		if err := c.tree(child, deep-1); err != nil {
			return err
		}
	}
	return nil
}

// listed reads a block that says where others are.
func (c *pieces) listed(block uint64) ([]byte, error) {
	if c.read++; c.read > maxLists {
		return nil, fmt.Errorf("%w: a file has more than %d lists of its pieces", ErrTooMuch, maxLists)
	}
	p := make([]byte, c.m.block)
	return p, c.m.readBlock(block, p)
}

func (c *pieces) add(e extent) error {
	if len(c.list) >= MaxExtents {
		return fmt.Errorf("%w: a file is in more than %d pieces", ErrTooMuch, MaxExtents)
	}
	c.list = append(c.list, e)
	return nil
}

// old reads where the content is by the lists of blocks that ext2 has, which a program
// may ask for.
func (c *pieces) old(n node) error {
	blocks := uint64((n.size + c.m.block - 1) / c.m.block)
	at := uint64(0)
	for i := range 12 {
		if b := little.Uint32(n.place[4*i:]); b != 0 && at < blocks {
			if err := c.add(extent{at, 1, uint64(b)}); err != nil {
				return err
			}
		}
		at++
	}
	span := uint64(1)
	for level := 1; level <= 3; level++ {
		next := at + span*uint64(c.m.block/4)
		if err := c.indirect(uint64(little.Uint32(n.place[4*(11+level):])), at, blocks, level); err != nil {
			return err
		}
		at, span = next, span*uint64(c.m.block/4)
	}
	return nil
}

// indirect reads a list of blocks whose first entry stands for block at of the file,
// of a number of blocks in all.
func (c *pieces) indirect(list, at, blocks uint64, level int) error {
	if list == 0 || at >= blocks {
		return nil
	}
	p, err := c.listed(list)
	if err != nil {
		return err
	}
	span := uint64(1)
	for range level - 1 {
		span *= uint64(c.m.block / 4)
	}
	for i := 0; i < len(p) && at < blocks; i, at = i+4, at+span {
		b := uint64(little.Uint32(p[i:]))
		if b == 0 {
			continue
		}
		if level == 1 {
			err = c.add(extent{at, 1, b})
		} else {
			err = c.indirect(b, at, blocks, level-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find returns the first extent that ends after a block of the file.
func (c *pieces) find(block uint64) int {
	i, _ := slices.BinarySearchFunc(c.list, block, func(e extent, b uint64) int {
		if e.at+e.length <= b {
			return -1
		}
		return 1
	})
	return i
}

func (c *pieces) next(off int64) (from, to int64, err error) {
	i := c.find(uint64(off / c.m.block))
	if i == len(c.list) {
		return c.size, c.size, nil
	}
	e := c.list[i]
	from = max(off, int64(e.at)*c.m.block)
	return min(from, c.size), min(int64(e.at+e.length)*c.m.block, c.size), nil
}

func (c *pieces) ReadAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), c.size-off))
	for done := 0; done < n; {
		at := off + int64(done)
		part, err := c.blockOf(uint64(at / c.m.block))
		if err != nil {
			return done, err
		}
		start := at % c.m.block
		if part == nil {
			room := p[done:min(n, done+int(c.m.block-start))]
			clear(room)
			done += len(room)
			continue
		}
		done += copy(p[done:n], part[start:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// blockOf reads a block of the file; nil for one that is a hole.
func (c *pieces) blockOf(block uint64) ([]byte, error) {
	i := c.find(block)
	if i == len(c.list) || c.list[i].at > block {
		return nil, nil
	}
	n := c.list[i].block + block - c.list[i].at
	if c.last == n+1 {
		return c.have, nil
	}
	if c.have == nil {
		c.have = make([]byte, c.m.block)
	}
	c.last = 0
	if err := c.m.readBlock(n, c.have); err != nil {
		return nil, err
	}
	c.last = n + 1
	return c.have, nil
}

func (c *pieces) Close() error { return nil }
