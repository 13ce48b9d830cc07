package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// fullDisk is the size of the disk that FullDisk fills, in bytes.
const fullDisk = 96 << 20

// FullDisk fills the disk of a driver's state folder, whose workspaces are folders on
// it: what a box writes fails there and then, and it is told why; it goes on, can make
// room, is ended and its workspace removed, all while the disk is full. open returns a
// driver with a state folder.
func FullDisk(t *testing.T, open func(t *testing.T, root string) sandbox.Driver) {
	root, err := os.MkdirTemp("/tmp", "cf-") // short: there are sockets in it
	if err == nil {
		err = unix.Mount("tests", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprint("mode=0755,size=", fullDisk))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		os.Remove(root)
	})
	d := open(t, filepath.Join(root, "state"))
	s := &subject{Driver: d, tier: tierOf(t, d)}
	b, spec := s.small(t, true, 64<<20)
	if r, got := b.result(t, "echo kept >/work/kept; head -c 1M /dev/urandom >/work/a; sync; ls /work"); got != "a\nkept" || r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Fatalf("%q, %+v", got, r)
	}
	fill(t, filepath.Join(root, "others"))
	r, got := b.result(t, "head -c 8M /dev/zero >/work/b")
	if r.Exit == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) {
		t.Errorf("8 MiB onto a full disk: %q, %+v", got, r)
	}
	if r, got := b.result(t, "cat /work/kept; echo on >/tmp/x; cat /tmp/x"); got != "kept\non" || r.Exit != 0 {
		t.Errorf("what needs no disk: %q, %+v", got, r)
	}
	if err := b.Suspend(testContext(t)); err == nil {
		t.Error("a box's memory went onto a full disk")
	}
	if r, got := b.result(t, "rm /work/a /work/b; echo more >/work/more; cat /work/more"); got != "more" || r.Exit != 0 {
		t.Errorf("it makes room: %q, %+v", got, r)
	}
	fill(t, filepath.Join(root, "others"))
	second := s.watched()
	if _, err := s.Create(testContext(t), second); err == nil {
		t.Log("a box whose workspace is in memory could be made")
	} else if cofferdam.HintOf(err) == "" || !strings.Contains(err.Error(), "no space") && cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("another box: %v (%s)", err, cofferdam.HintOf(err))
	}
	second.ID, second.Workspace, second.Epoch = cofferdam.BoxID(cofferdam.NewID("b")), sandbox.WorkspaceID(cofferdam.NewID("w")), 1
	if _, err := s.Create(testContext(t), second); cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" {
		t.Errorf("another workspace: %v (%s)", err, cofferdam.HintOf(err))
	}
	if err := b.Destroy(testContext(t)); err != nil {
		t.Fatalf("ending the box: %v", err)
	}
	if w := s.workspace(t, spec.Workspace); w.Box != "" || w.Epoch != 1 || w.Left.Before(w.Made) {
		t.Errorf("left as %+v", w)
	}
	if err := s.RemoveWorkspace(testContext(t), spec.Workspace); err != nil {
		t.Errorf("removing the workspace: %v", err)
	}
}

// fill takes what is left of a file's disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
