// Package doctor examines this host: each check has a name, a level, one line
// of detail and one line of fix. The command line, the API and the start of the
// server use the same list.
//
// It never repairs anything and never sends a byte to a registry: it asks the
// resolver for names and cofferdam-keeper for its own findings. The invariant: a
// check that could not be made is reported as such, never as ok.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/sandbox"
)

// Report is what was found.
type Report struct {
	Schema string            `json:"schema"` // cofferdam/doctor/v1
	Items  []sandbox.Finding `json:"items"`
	Tier   sandbox.Tier      `json:"tier"`  // of this server's boxes; its findings are among the items
	Tiers  []sandbox.Survey  `json:"tiers"` // what the host has for each
}

// Failed returns the findings that forbid a start.
func (r Report) Failed() []sandbox.Finding {
	var out []sandbox.Finding
	for _, f := range r.Items {
		if f.Level == sandbox.Fail {
			out = append(out, f)
		}
	}
	return out
}

// Err returns nil, or the refusal that names every failed check; its hint is
// the fix of the first, and where those of the others are.
func (r Report) Err() error {
	failed := r.Failed()
	if len(failed) == 0 {
		return nil
	}
	var reasons []string
	for _, f := range failed {
		reasons = append(reasons, f.Name+": "+f.Detail)
	}
	hint := failed[0].Fix
	doctor := "cofferdam doctor"
	if r.Tier != sandbox.GVisor {
		doctor += " --tier " + string(r.Tier)
	}
	switch {
	case hint == "":
		hint = doctor + " lists every check"
	case len(failed) > 1:
		hint += "; " + doctor + " has the fix of each"
	}
	return &cofferdam.Error{Op: "doctor.Run", Kind: cofferdam.Unavailable, Subject: "this host", Reason: strings.Join(reasons, "; "), Hint: hint}
}

// Options says what to examine. Nil functions are this host's own.
type Options struct {
	Config  config.Config
	Presets map[string][]string
	Host    Host
	// Own leaves the other tiers out: a server that starts needs its own only.
	Own bool
	// Serving is set by a server about itself: its own socket, port and lock
	// are taken by itself then.
	Serving bool
}

// Tier is that of the boxes of this server.
func (o Options) Tier() sandbox.Tier {
	if o.Config.Tier == "" {
		return sandbox.GVisor
	}
	return o.Config.Tier
}

// Run makes every check.
func Run(ctx context.Context, o Options) Report {
	r := Report{Schema: "cofferdam/doctor/v1", Tier: o.Tier()}
	o.Host = o.Host.filled()
	checks := []func(context.Context, Options) []sandbox.Finding{
		checkUser, checkTUN, checkPrograms, r.checkTier, checkKeepers, checkTools, checkState, checkSocket, checkListen, checkClock, checkRegistries,
	}
	// They wait for programs and for the resolver, each for its own.
	found := make([][]sandbox.Finding, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() { found[i] = check(ctx, o) })
	}
	all.Wait()
	for _, f := range found {
		r.Items = merge(r.Items, f)
	}
	return r
}

// merge adds findings. Server and keeper look at some things both: of two
// findings of one name the worse stays.
func merge(all, more []sandbox.Finding) []sandbox.Finding {
	for _, f := range more {
		i := slices.IndexFunc(all, func(have sandbox.Finding) bool { return have.Name == f.Name })
		switch {
		case i < 0:
			all = append(all, f)
		case rank(f.Level) > rank(all[i].Level):
			all[i] = f
		}
	}
	return all
}

func rank(level string) int {
	return slices.Index([]string{sandbox.OK, sandbox.Warn, sandbox.Fail}, level)
}

func one(name, level, fix, format string, args ...any) []sandbox.Finding {
	if level == sandbox.OK {
		fix = ""
	}
	return []sandbox.Finding{{Name: name, Level: level, Detail: fmt.Sprintf(format, args...), Fix: fix}}
}
