// Package seatbelt writes the profile under which the kernel of a Mac runs one
// command: everything is denied but what is listed. The command reads the
// system, the programs of its user and its workspace, writes its workspace and
// one temporary folder, and reaches one port of this machine or none.
//
// It runs nothing and asks no kernel, so that it is the same, and tested, on
// every system; what only a Mac can show is `not run here`. The invariant: no
// path stands in the text of a profile. Each is a parameter beside it, so that
// nothing in a name can become a rule.
//
// # How a profile is read
//
// A rule is (allow OPERATION… FILTER…) or deny. Of the rules for an operation
// the last one that has a matching filter counts, and one without filters
// matches always; an operation that ends with * stands for all that begin so.
// The words are those of the profiles that come with macOS and of the manual
// page sandbox-exec(1); Apple documents them no further. A word that a kernel
// does not know makes sandbox-exec refuse the profile: nothing runs then.
package seatbelt
