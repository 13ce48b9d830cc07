package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"cofferdam"
	"cofferdam/policy"
)

// Name is a host and the address that stands for it on one wire.
type Name struct {
	Host cofferdam.Host
	Addr netip.Addr
}

// namespace is where addresses of names come from: 198.18.0.0/15, which RFC
// 2544 keeps free of real hosts. The first addresses are left out: .0.0 is the
// network and .0.1 is RefusalAddress.
var namespace = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), 15)

const firstName = 2 // offset of the first name's address in namespace

// errFull says that a wire knows MaxNames names.
var errFull = errors.New("the wire knows as many names as it may")

// table holds the names of one wire, both ways. Safe for concurrent use.
type table struct {
	mu     sync.RWMutex
	byName map[cofferdam.Host]netip.Addr // guarded by mu
	byAddr map[netip.Addr]cofferdam.Host // guarded by mu
	next   uint32                        // offset of the next free address; guarded by mu
}

func newTable() *table {
	return &table{byName: map[cofferdam.Host]netip.Addr{}, byAddr: map[netip.Addr]cofferdam.Host{}, next: firstName}
}

// restore fills the table with the names of an earlier wire.
func (t *table) restore(names []Name) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		offset, ok := offsetOf(n.Addr)
		if !ok || offset < firstName || policy.CheckHost(n.Host) != nil {
			return fmt.Errorf("attaching wire: %s is no address for the name %q", n.Addr, n.Host)
		}
		if t.byName[n.Host] == n.Addr {
			continue
		}
		if _, taken := t.byAddr[n.Addr]; taken || t.byName[n.Host].IsValid() {
			return fmt.Errorf("attaching wire: %s and the name %q were given out twice", n.Addr, n.Host)
		}
		if len(t.byName) >= MaxNames {
			return fmt.Errorf("attaching wire: %w", errFull)
		}
		t.byName[n.Host], t.byAddr[n.Addr] = n.Addr, n.Host
		t.next = max(t.next, offset+1)
	}
	return nil
}

// address returns the address of a known name.
func (t *table) address(h cofferdam.Host) (netip.Addr, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a, ok := t.byName[h]
	return a, ok
}

// host returns the name behind an address.
func (t *table) host(a netip.Addr) (cofferdam.Host, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	h, ok := t.byAddr[a]
	return h, ok
}

// reserve takes the next free address, which belongs to no name until add. It
// is not given back: addresses on record are never used for another name.
func (t *table) reserve() (netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byName) >= MaxNames || t.next >= 1<<(32-namespace.Bits()) {
		return netip.Addr{}, errFull
	}
	a := addressAt(t.next)
	t.next++
	return a, nil
}

// add makes a stand for h.
func (t *table) add(h cofferdam.Host, a netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byName[h], t.byAddr[a] = a, h
}

func addressAt(offset uint32) netip.Addr {
	b := namespace.Addr().As4()
	b[1] += byte(offset >> 16)
	b[2], b[3] = byte(offset>>8), byte(offset)
	return netip.AddrFrom4(b)
}

func offsetOf(a netip.Addr) (uint32, bool) {
	if !a.Is4() || !namespace.Contains(a) {
		return 0, false
	}
	b, base := a.As4(), namespace.Addr().As4()
	return uint32(b[1]-base[1])<<16 | uint32(b[2])<<8 | uint32(b[3]), true
}
