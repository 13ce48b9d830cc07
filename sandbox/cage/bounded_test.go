package cage

import (
	"context"
	"os"
	"path/filepath"
	"strings"
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
		case <-time.After(2 * time.Minute):
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

// TestLastWords wants to be told how a program ended that is still there when it is
// asked, and that one has not ended.
func TestLastWords(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not run here: needs root")
	}
	for want, end := range map[string]func(*Process, *os.File){
		"dash ended (exit status 0): read good":               func(_ *Process, told *os.File) { _, _ = told.WriteString("good\n") },
		"dash ended (exit status 3): read":                    func(_ *Process, told *os.File) { told.Close() },
		"dash ended (signal: killed):":                        func(p *Process, _ *os.File) { p.Kill() },
		"dash has not ended; it printed:":                     nil,
		"dash ended (signal: killed): ended by the driver: t": func(p *Process, _ *os.File) { p.KillFor("t") },
	} {
		begin, told, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := Program{
			Path: "/usr/bin/dash", Root: t.TempDir(), UID: testUser, Files: []*os.File{begin},
			Args: []string{"-c", `read x <&3; r=$?; echo "read $x"; [ $r = 0 ] || exit 3`},
		}.Start()
		begin.Close()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if end == nil {
			cancel()
		} else {
			go end(p, told)
		}
		if got := p.LastWords(ctx, time.Minute); !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want %s", got, want)
		}
		cancel()
		p.Kill()
		told.Close()
	}
}
