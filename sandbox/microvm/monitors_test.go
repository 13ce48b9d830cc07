package microvm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/microvm/qemu"
	"cofferdam/sandbox/sandboxtest"
)

// driverWith returns a driver whose machines run by another monitor.
func driverWith(t *testing.T, monitor string) *Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run on this host: needs root")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "cm-")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Root: root, Cache: filepath.Join(os.TempDir(), "cofferdam-test-cache"), Init: filepath.Join(bin, "cofferdam-init"), Kernel: testKernel(), Monitor: monitor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestOtherMonitors runs the suite by each other monitor where this host has one
// and a KVM that runs machines. Where it has not, both tiers are refused with the
// reason and the fix, and the test says so.
func TestOtherMonitors(t *testing.T) {
	for _, name := range Monitors() {
		if name == qemu.Name {
			continue // TestSuite
		}
		t.Run(name, func(t *testing.T) {
			ctx, d := context.Background(), driverWith(t, name)
			lacks := d.checker.tierLacks(ctx, sandbox.MicroVM)
			if len(lacks) == 0 {
				sandboxtest.Suite(t, func(*testing.T) sandbox.Driver { return d })
				return
			}
			offers, err := d.Offers(ctx)
			if len(offers) > 0 || err != nil {
				t.Errorf("it offers %v, %v", offers, err)
			}
			for _, tier := range []sandbox.Tier{sandbox.MicroVM, sandbox.Emulated} {
				_, err := d.Create(ctx, sandbox.Spec{ID: newID(), Tier: tier, Image: sandbox.HostImage})
				if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
					t.Errorf("tier %s: %v", tier, err)
				}
				if tier == sandbox.Emulated && !strings.Contains(err.Error(), "emulates no processor") {
					t.Errorf("tier %s: %v", tier, err)
				}
			}
			if list, err := d.List(ctx); len(list) > 0 || err != nil {
				t.Errorf("boxes that were refused: %v, %v", list, err)
			}
			t.Skipf("not run on this host: %s: %s", lacks[0].Name, lacks[0].Detail)
		})
	}
	if _, err := New(Options{Root: t.TempDir(), Init: "/init", Monitor: "vmware"}); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "firecracker") {
		t.Errorf("a monitor that there is not: %v", err)
	}
}
