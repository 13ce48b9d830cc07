package local

import (
	"context"
	"os"
	"path/filepath"

	"cofferdam/internal/config"
	"cofferdam/internal/local/network"
	"cofferdam/sandbox"
	"cofferdam/sandbox/process"
)

// ownGateways are another program, which few runs need.
func ownGateways(c config.Config, w workspace) network.Gateways {
	writable := []string{w.from}
	if w.git != "" {
		writable = append(writable, w.git)
	}
	return network.Program{File: filepath.Join(c.Programs, "cofferdam-wire"), Writes: writable}
}

// Look is what a run knows of the host.
type Look = *process.Look

// LookAtHost begins to look and returns at once.
func LookAtHost() Look { return process.LookAtHost() }

// walls are what a run is enclosed by, for its record.
const walls = "namespaces landlock seccomp"

// copyTree copies a folder as it is, sharing data where the disk can.
func copyTree(ctx context.Context, from, to string) error { return copyFolder(ctx, from, to, nil) }

// enclose runs the command in its box.
func (r *run) enclose(ctx context.Context) (sandbox.Result, error) { return r.box(ctx).Run(ctx) }

// box describes the box.
func (r *run) box(ctx context.Context) process.OneOff {
	w := r.workspace
	o := process.OneOff{
		Init: filepath.Join(r.o.Config.Programs, "cofferdam-init"), Argv: r.o.Argv, Env: r.env,
		Workspace: w.dir, From: w.from, Dir: w.inner, Home: r.home, Show: r.shown(), Look: r.look,
		Hide: []string{r.state.path("keys"), r.state.live, r.state.path("traces"), r.state.path("copies")},
		Over: r.trust.over, Stdin: r.o.Stdin, Stdout: r.o.Stdout, Stderr: r.o.Stderr, Wire: func(tap *os.File, pid int) error { return r.start(ctx, tap, pid) }, Signals: r.o.Signals,
		Ended: func(ended sandbox.Result) { r.seal(ended, nil) },
	}
	if w.git != "" {
		o.Writable = []string{w.git}
	}
	return o
}

// start is called while the box is built and its command has not begun: what is
// about to happen goes on record, and the wire is served. The network of a box is
// the first that is there of it, so that this takes no time of its own.
func (r *run) start(ctx context.Context, tap *os.File, pid int) error {
	if err := r.open(ctx); err != nil {
		return first(err, tap.Close())
	}
	return r.network.Connect(network.Box{TAP: tap, PID: pid, Lost: r.lost})
}
