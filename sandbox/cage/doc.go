// Package cage runs a program of the host's that reads what a box wrote: a monitor of
// machines, or who makes a disk of an image. It is in namespaces of its own, a user
// of its own, and sees of the host what its Program lists.
//
// It starts nothing of a box's own. Its invariant: a program that it starts ends with
// the process that started it, and gains no right that it was not given.
package cage
