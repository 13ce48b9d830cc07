package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox/sandboxtest"
)

// TestMain lets TestMirrorsOfUser run these tests as uid 0 of the namespace of an
// ordinary user.
func TestMain(m *testing.M) {
	if err := sandboxtest.Settle(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestMirrorsOfUser runs what holds of mirrors and cages as an ordinary user:
// the same walls, with users out of its range.
func TestMirrorsOfUser(t *testing.T) {
	if sandboxtest.IsUser() {
		t.Skip("it runs the others")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	others := sandboxtest.OpenFolder(t)
	if err := os.Chown(others, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	cmd := sandboxtest.AsUser(t, sandboxtest.OpenCopy(t, self), "-test.v", "-test.run=^(TestCage.*|TestRead|TestHostile.*|TestCheck|TestOwners|TestUpstreamOfAnotherUser)$")
	home := sandboxtest.OpenFolder(t)
	cmd.Env = append(cmd.Env, "TMPDIR="+home, "HOME="+home, othersVariable+"="+others)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS: Test") < 6 || strings.Contains(string(out), "--- SKIP: TestCage") {
		t.Errorf("%v\n%s", err, out)
	}
}

// othersVariable names a folder of a user of the host whom the namespace does not
// know.
const othersVariable = "COFFERDAM_TEST_OTHERS"

func TestUpstreamOfAnotherUser(t *testing.T) {
	others := os.Getenv(othersVariable)
	if others == "" {
		t.Skip("TestMirrorsOfUser runs it")
	}
	r := open(t)
	if _, err := r.Upstream(others); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("%v", err)
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Upstream(own); err != nil || p.uid != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
