package microvm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestOffers: this driver says what it can, refuses the rest with who can, and
// gives nobody an emulated machine for one on hardware.
func TestOffers(t *testing.T) {
	d := newDriver(t)
	offers, err := d.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hardware := len(d.checker.tierLacks(t.Context(), sandbox.MicroVM)) == 0
	want := []sandbox.Offer{sandbox.OfferOf(sandbox.Emulated)}
	if hardware {
		want = append(want, sandbox.OfferOf(sandbox.MicroVM))
	}
	if !slices.EqualFunc(offers, want, func(a, b sandbox.Offer) bool { return a.Tier == b.Tier && slices.Equal(a.Can, b.Can) }) {
		t.Errorf("it offers %v, not %v", offers, want)
	}
	env := filepath.Join(t.TempDir(), "env.img")
	for capability, change := range map[sandbox.Capability]func(*sandbox.Spec){
		sandbox.CanHostView: func(s *sandbox.Spec) { s.Image = sandbox.HostView },
		sandbox.CanSetup:    func(s *sandbox.Spec) { s.Env, s.SetupPhase = env, true },
		sandbox.CanSnapshot: func(s *sandbox.Spec) { s.Snapshot = sandbox.SnapshotID("s-" + strings.Repeat("0", 32)) },
		sandbox.CanImage:    func(s *sandbox.Spec) { s.Image = smallImage(t) },
	} {
		spec := sandbox.Spec{ID: newID(), Tier: sandbox.Emulated, Image: sandbox.HostImage}
		change(&spec)
		err := d.checkSpec(&spec)
		can := slices.Contains(offers[0].Can, capability)
		if can != (err == nil) || !can && (cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "process")) {
			t.Errorf("%s: %v (%s), offered: %v", capability, err, cofferdam.HintOf(err), can)
		}
	}
	if hardware {
		return
	}
	_, err = d.Create(t.Context(), sandbox.Spec{ID: newID(), Tier: sandbox.MicroVM, Image: smallImage(t)})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
		t.Errorf("a machine on hardware that is not there: %v (%s)", err, cofferdam.HintOf(err))
	}
}
