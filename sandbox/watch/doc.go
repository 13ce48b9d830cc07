// Package watch bounds by looking what nothing else bounds: the memory of boxes that
// have no control group, and folders of the host's that boxes write to and that have
// no size of their own.
//
// It looks from outside, again and again, and who holds too much is ended: a process,
// the commands of a box, and then the box. So it is a bound for mistakes and no wall:
// what is over is seen a moment later. Only where it matters, and its driver can, a box
// is stopped for the time of a look. It knows no tier: drivers say where to look and
// how to end. The invariant: what may be in a box is either counted or said not to be,
// in docs/tiers.md, and a look costs a part of a processor that is bounded.
package watch
