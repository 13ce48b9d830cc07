// Package process builds boxes from the host's own kernel: namespaces,
// Landlock, a seccomp filter, no capabilities and control groups. It is the
// tier for one's own laptop: what is in a box talks to the host's kernel.
//
// It decides nothing about what a box may reach: it builds the walls that a
// sandbox.Spec or a OneOff asks for, and the only network is a TAP device that
// it lends. Its invariant: every wall is up before a byte of the command runs,
// or the start is refused with an error that names the missing layer and its fix.
package process
