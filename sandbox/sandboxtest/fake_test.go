package sandboxtest_test

import (
	"os"
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

func TestFake(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: boxes without a boundary are made of mounts and a pid namespace")
	}
	dir := t.TempDir()
	f, err := sandboxtest.NewFake(dir)
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Suite(t, func(*testing.T) sandbox.Driver { return f })
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 { // cofferdam-init
		t.Errorf("left behind: %v, %v", left, err)
	}
}
