package gvisor

import (
	"context"
	"path/filepath"
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestKilledInTheMiddle: see sandboxtest.Killed.
func TestKilledInTheMiddle(t *testing.T) {
	o := options(t)
	t.Setenv(sandboxtest.ProgramsVariable, filepath.Dir(o.Init)) // the victim has the same
	sandboxtest.Killed{
		Root: o.Root, Snapshots: filepath.Join(o.Root, "snapshots"), Files: memoryDir + "/*",
		Open: func(t *testing.T, root string) sandbox.Driver {
			o := o
			o.Root = root
			d, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			return d
		},
		Change: func(s *sandbox.Spec) { s.Image, s.Limits = sandbox.HostImage, small() },
	}.Run(t)
}
