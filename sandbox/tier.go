package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
)

// Tier is a kind of isolation. docs/tiers.md says which protects against what.
type Tier string

// The tiers.
const (
	Process  Tier = "process"          // namespaces, Landlock, seccomp: the host's kernel
	GVisor   Tier = "gvisor"           // an application kernel
	MicroVM  Tier = "microvm"          // a kernel of its own, on hardware
	Emulated Tier = "microvm-emulated" // the same without hardware: no security boundary
	// None is the test-only driver without a boundary: positive controls of
	// attack scripts run on it. Only the fake in sandboxtest offers it.
	None Tier = "none"
)

// Tiers lists the tiers that a box can be asked of, in no order of strength.
func Tiers() []Tier { return []Tier{Process, GVisor, MicroVM, Emulated} }

// Satisfies says whether t is at least as strong as least. Emulation is for
// tests and satisfies itself only; an unknown tier satisfies nothing.
func (t Tier) Satisfies(least Tier) bool {
	if t == Emulated || least == Emulated {
		return t == least
	}
	ladder := []Tier{Process, GVisor, MicroVM}
	have, want := slices.Index(ladder, t), slices.Index(ladder, least)
	return have >= want && want >= 0
}

// Capability is something that not every tier can do.
type Capability string

// What a tier may be able to do besides running commands.
const (
	CanPause    Capability = "pause"             // Box.Pause
	CanSuspend  Capability = "suspend"           // Box.Suspend: memory goes to disk
	CanSnapshot Capability = "snapshot"          // Take.Memory, and Spec.Snapshot
	CanImage    Capability = "image"             // Spec.Image may be a folder
	CanSetup    Capability = "setup"             // Spec.Env and Spec.SetupPhase
	CanHostView Capability = "host view"         // Spec.Image may be HostView
	CanNest     Capability = "nested containers" // a container engine runs inside
	CanKeep     Capability = "kept workspace"    // Spec.Workspace
	// CanCheckpoint is Box.Snapshot of the workspace, Differences and RestoreWorkspace.
	CanCheckpoint Capability = "checkpoint"
)

// Offer is what a driver has: a tier, and what it can do.
type Offer struct {
	Tier Tier         `json:"tier"`
	Can  []Capability `json:"can"`
	// EnvFolder says that Spec.Env is a folder, where others have an image.
	EnvFolder bool `json:"env_folder,omitempty"`
}

// abilities is what the drivers of this release can do; TestOffers of each
// driver holds its row against it.
var abilities = []Offer{
	{Tier: Process, Can: []Capability{CanPause, CanImage, CanHostView, CanKeep, CanCheckpoint}},
	{Tier: GVisor, Can: []Capability{CanPause, CanSuspend, CanSnapshot, CanImage, CanSetup, CanKeep, CanCheckpoint}},
	{Tier: MicroVM, Can: []Capability{CanPause, CanSuspend, CanSnapshot, CanImage, CanSetup, CanNest, CanKeep, CanCheckpoint}},
	{Tier: Emulated, Can: []Capability{CanPause, CanSuspend, CanSnapshot, CanImage, CanSetup, CanNest, CanKeep, CanCheckpoint}},
}

// OfferOf returns what the driver of a tier can do.
func OfferOf(t Tier) Offer {
	for _, o := range abilities {
		if o.Tier == t {
			return o
		}
	}
	return Offer{Tier: t}
}

const opLacking = "sandbox.Lacking"

// Lacking refuses something that a tier cannot do, at all or on this host, and names
// the others that can.
func Lacking(t Tier, c Capability) error {
	var able []string
	for _, o := range abilities {
		if o.Tier != t && slices.Contains(o.Can, c) {
			able = append(able, string(o.Tier))
		}
	}
	hint := "no tier can"
	if len(able) > 0 {
		hint = "ask for a box of tier " + strings.Join(able, " or ")
	}
	where := ""
	if slices.Contains(OfferOf(t).Can, c) {
		where = " on this host"
	}
	return &cofferdam.Error{
		Op: opLacking, Kind: cofferdam.Invalid, Subject: string(c),
		Reason: fmt.Sprintf("a box of tier %s cannot do that%s", t, where), Hint: hint,
	}
}

// IsLacking says whether err is Lacking's, also from a keeper.
func IsLacking(err error) bool {
	var e *cofferdam.Error
	return errors.As(err, &e) && e.Op == opLacking
}

// Lacks refuses all that a tier may lack. A Box and a Driver embed it, and
// have methods of their own for what they can.
type Lacks struct{ Tier Tier }

// Pause implements Box.
func (l Lacks) Pause(context.Context) error { return Lacking(l.Tier, CanPause) }

// Suspend implements Box.
func (l Lacks) Suspend(context.Context) error { return Lacking(l.Tier, CanSuspend) }

// Resume implements Box: what cannot be stopped runs.
func (l Lacks) Resume(context.Context) error { return nil }

// Offers implements Driver.
func (l Lacks) Offers(context.Context) ([]Offer, error) { return []Offer{OfferOf(l.Tier)}, nil }
