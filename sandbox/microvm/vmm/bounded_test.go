package vmm

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// testUser is no user of any system.
const testUser = 0x5D000000

// A monitor that a guest took over has a descriptor of its disk to write to. It
// makes no file larger than the largest that it was given.
func TestMonitorFillsNoDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not run here: needs root")
	}
	for most, want := range map[int64]int64{1 << 20: 1 << 20, 0: 4 << 20} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		begin, theirs, err := os.Pipe() // it begins when it is told to
		if err != nil {
			t.Fatal(err)
		}
		g := Program{
			Path: "/usr/bin/dash", Root: t.TempDir(), UID: testUser, Most: most, Files: []*os.File{f, begin},
			Args: []string{"-c", "read x <&4; head -c 4194304 /usr/bin/env /usr/bin/perl /usr/bin/git >&3"},
		}
		p, err := g.Start()
		begin.Close()
		if err != nil {
			theirs.Close()
			t.Fatal(err)
		}
		theirs.Close()
		select {
		case <-p.Ended:
		case <-time.After(20 * time.Second):
			p.Kill()
			t.Fatal("it does not end")
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if most > 0 && info.Size() > want || most == 0 && info.Size() < want {
			t.Errorf("with a bound of %d it wrote %d bytes: %s", most, info.Size(), p.Words())
		}
	}
}
