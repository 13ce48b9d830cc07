package wire

import (
	"context"
	"strconv"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Kinds of drop.
const (
	dropAddress     = "address"     // TCP to an address that stands for no name
	dropPort        = "port"        // TCP to a name, on a port where nothing listens
	dropConnections = "connections" // more of them than a wire serves
	dropQuestion    = "question"    // about refused names, more than are on record one by one
	dropUDP         = "udp"
	dropICMP        = "icmp"
	dropIPv6        = "ipv6"
	dropProtocol    = "protocol"  // neither TCP, UDP nor ICMP
	dropMalformed   = "malformed" // fragments, options, a foreign source address
)

// ruleNoRoute is the rule that drops name.
const ruleNoRoute = "no-route"

// Bounds of what drops put on record. A flood costs one event for each new
// target up to maxTargets, and after that one summary per summaryEvery.
const (
	maxTargets   = 256
	dropQueue    = 256
	summaryEvery = time.Minute
	recordWithin = 10 * time.Second
)

// drops counts what the wire does not let through. note never blocks, because
// it runs where packets are read.
type drops struct {
	caller *gateway.Caller
	queue  chan drop

	mu      sync.Mutex
	seen    map[drop]bool     // targets on record; at most maxTargets; guarded by mu
	counts  map[string]uint64 // by kind, all drops; guarded by mu
	written map[string]uint64 // of these, told on record so far; guarded by mu
}

type drop struct{ kind, to string }

func newDrops(c *gateway.Caller) *drops {
	return &drops{
		caller: c, queue: make(chan drop, dropQueue),
		seen: map[drop]bool{}, counts: map[string]uint64{}, written: map[string]uint64{},
	}
}

// note counts a drop and, if it is the first of its kind and target, has it
// recorded.
func (d *drops) note(kind, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[kind]++
	first := drop{kind, to}
	if d.seen[first] || len(d.seen) >= maxTargets {
		return
	}
	select {
	case d.queue <- first:
		d.seen[first] = true
		d.written[kind]++
	default: // a burst: the summary will count it
	}
}

// run records first drops as they come, and counts from time to time, until
// ctx ends.
func (d *drops) run(ctx context.Context) {
	tick := time.NewTicker(summaryEvery)
	defer tick.Stop()
	for {
		select {
		case first := <-d.queue:
			d.record(ctx, first)
		case <-tick.C:
			d.summarize(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// flush records what is left. It is called once, after run has ended.
func (d *drops) flush() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.caller.Live), recordWithin)
	defer cancel()
	for {
		select {
		case first := <-d.queue:
			d.record(ctx, first)
		default:
			d.summarize(ctx)
			return
		}
	}
}

// record puts one drop on record. If that fails there is nothing to undo: the
// packet did not pass, and the box was told nothing.
func (d *drops) record(ctx context.Context, first drop) {
	d.caller.Counts.Refused.Add(1)
	e := d.event()
	e.Resource = first.kind + " " + first.to
	e.Verdict, e.Rule, e.Reason = cofferdam.Refused, ruleNoRoute, reasonFor(first.kind)
	if _, err := d.caller.Record.Record(ctx, e); err != nil {
		d.mu.Lock()
		d.written[first.kind]-- // the next summary tells of it
		d.mu.Unlock()
	}
}

// summarize puts the drops on record that have no event of their own.
func (d *drops) summarize(ctx context.Context) {
	d.mu.Lock()
	more := map[string]uint64{}
	for kind, n := range d.counts {
		if n > d.written[kind] {
			more[kind] = n - d.written[kind]
			d.written[kind] = n
		}
	}
	d.mu.Unlock()
	for kind, n := range more {
		e := d.event()
		e.Resource = kind + " (more)"
		e.Verdict, e.Rule, e.Reason = cofferdam.Refused, ruleNoRoute, reasonFor(kind)
		e.Fields = map[string]string{"count": strconv.FormatUint(n, 10)}
		if _, err := d.caller.Record.Record(ctx, e); err != nil {
			d.mu.Lock()
			d.written[kind] -= n
			d.mu.Unlock()
		}
	}
}

func (d *drops) event() cofferdam.Event {
	c := d.caller
	return cofferdam.Event{
		Scope: c.Scope, Task: c.Task, Session: c.Session, Actor: c.Actor,
		Source: "wire", Kind: cofferdam.EventDrop,
	}
}

func reasonFor(kind string) string {
	switch kind {
	case dropAddress:
		return "addresses are not reached from a box; only names are"
	case dropPort:
		return "nothing listens on that port for this task"
	case dropQuestion:
		return "more names were refused than are put on record one by one"
	case dropConnections:
		return "the box has as many connections as it may"
	case dropMalformed:
		return "the packet is not one that a box's own system sends"
	}
	return kind + " does not leave a box"
}
