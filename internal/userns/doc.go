// Package userns starts a program of an ordinary user as uid 0 of a user
// namespace of its own: there it may mount, make network namespaces and give
// processes ids of the user's own range, and nowhere else.
//
// It gives nobody a right on the host that the user did not have: the range is
// what the administrator listed for the user, and newuidmap, not this package,
// decides about it. The invariant: without a range of ids nothing is started,
// because the user of a box must be neither uid 0 nor the user itself.
package userns
