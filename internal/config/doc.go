// Package config reads everything an operator can set, once, into one struct:
// command line over environment over file over default. It also reads the
// presets, the package registries that this machine's own tools are set up to
// use.
//
// It never starts anything and never changes a file. The invariant: what is
// missing means the safe default (no host is allowed), and what is present but
// ambiguous, unknown or unreadable refuses the start; nothing is skipped.
package config
