// Package netns makes the network of one box: a network namespace with one
// multi-queue TAP device, and lends queues of that device.
//
// It never moves a packet and never decides anything: who holds a queue is the
// whole outside world of the box. Its invariant: a namespace has exactly one
// device besides loopback, no route leads anywhere but to that device, and at
// most one lent queue is attached at a time, so that an older holder hears
// nothing from the moment a newer one asks.
package netns

import "net/netip"

// The network inside every box. Addresses and MACs are fixed, so that a box
// that is restored elsewhere and a new namespace agree.
const (
	Device = "eth0"
	BoxMAC = "02:00:00:00:00:02"
	// MTU is as large as an IPv4 packet may be, less the header that netstack
	// may add: throughput from gVisor is ten times that of MTU 1500.
	MTU = 65520
)

// BoxPrefix returns the address of a box with its network, 10.99.0.2/24.
func BoxPrefix() netip.Prefix { return netip.MustParsePrefix("10.99.0.2/24") }

// Gateway returns the address of everything outside, 10.99.0.1.
func Gateway() netip.Addr { return netip.MustParseAddr("10.99.0.1") }
