package microvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestAsUser makes machines in a keeper of an ordinary user: what one can show, and
// with COFFERDAM_SOAK the suite.
func TestAsUser(t *testing.T) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.RunAsUser(t, bin, "TestUserMachine", "TestUserHostPrograms", "TestUserHasNoHardware", "TestUserLimitsRequired", "TestSuite")
}

func needUser(t *testing.T) {
	t.Helper()
	if !sandboxtest.IsUser() {
		t.Skip("TestAsUser runs it")
	}
}

// TestUserMachine is the part of TestMachine in which a user differs from root.
func TestUserMachine(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := newBox(t, d).(*box)
	s, err := b.Status(t.Context())
	if err != nil || !slices.Contains(s.Flags, limitsOwn) {
		t.Errorf("status %+v, %v", s, err)
	}
	pid := b.machine().Process().PID
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Max data size 1073741824", "Max processes 256", "Max file size 536870912"} {
		if !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), line) {
			t.Errorf("the monitor's limits lack %q:\n%s", line, limits)
		}
	}
	t.Run("wire", func(t *testing.T) { testWire(t, b) })
	t.Run("stands still", func(t *testing.T) { testStandStill(t, b) })
	t.Run("copies", func(t *testing.T) { testCopies(t, b) })
}

// TestUserHostPrograms has the host's programs in a machine: the root's, who has no
// id in the user's namespace, less what the user may not read.
func TestUserHostPrograms(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Image = sandbox.HostImage })
	if got, r := sh(t, b, "id -u; stat -c %u:%g /usr/bin /etc/ssl; git --version | cut -c1-3; ls -A /work"); got != "1000\n0:0\n0:0\ngit" || r.Exit != 0 {
		t.Errorf("%q, %+v", got, r)
	}
	image := t.TempDir()
	for name, mode := range map[string]os.FileMode{"own": 0o600, "closed": 0} {
		if err := os.WriteFile(filepath.Join(image, name), []byte("text\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	list, err := entries(image)
	if err != nil {
		t.Fatal(err)
	}
	if _, closed, err := fingerprint(t.Context(), image, list); err != nil || len(closed) > 0 {
		t.Errorf("closed to its owner's uid 0: %q, %v", closed, err)
	}
	list = []entry{{"/root", "/root"}, {"/etc/shadow", "/etc/shadow"}, {"/etc/passwd", "/etc/passwd"}}
	if _, closed, err := fingerprint(t.Context(), image, list); err != nil || !slices.Equal(closed, []string{"root", "etc/shadow"}) {
		t.Errorf("closed to a user: %q, %v", closed, err)
	}
}

// What only root's keeper has is refused with the reason and the next step.
func TestUserHasNoHardware(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	_, err := d.Create(context.Background(), sandbox.Spec{ID: newID(), Tier: sandbox.MicroVM, Image: sandbox.HostImage})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "only root can give") || !strings.Contains(cofferdam.HintOf(err), "as root") {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
	offers, err := d.Offers(t.Context())
	if err != nil || len(offers) != 1 || offers[0].Tier != sandbox.Emulated {
		t.Errorf("%v, %v", offers, err)
	}
}

// Who demands control groups gets no machine without them.
func TestUserLimitsRequired(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	d.o.Watched = false
	if !d.groups.None() {
		t.Skip("not run here: this user has control groups")
	}
	_, err := d.Create(context.Background(), sandbox.Spec{ID: newID(), Tier: sandbox.Emulated, Image: sandbox.HostImage})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "microvm-control-groups") || cofferdam.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
}
