package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/volume"

	"golang.org/x/sys/unix"
)

// keptBox makes a box with a workspace of its own that is kept, of 64 MiB.
func keptBox(t *testing.T, d *Driver) sandbox.Box {
	t.Helper()
	return newBox(t, d, func(s *sandbox.Spec) { s.Workspace, s.Epoch = sandbox.WorkspaceID(cofferdam.NewID("w")), 1 })
}

// wantEnded wants a command to be ended for what it wrote.
func wantEnded(t *testing.T, b sandbox.Box, text string) {
	t.Helper()
	_, r := sh(t, b, text)
	if r.TimedOut || r.Signal == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) || !strings.Contains(r.Reason, "/work holds") {
		t.Errorf("%s: %+v", text, r)
	}
}

// wantRoom waits until the workspace is found to be within its size.
func wantRoom(t *testing.T, b sandbox.Box) {
	t.Helper()
	w := work(b.(*box))
	for end := time.Now().Add(time.Minute); w.over.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it holds %d bytes", w.held.Load())
		}
	}
}

// A workspace that is kept is a folder of the host's: what is over its size ends,
// whichever way it was written, and the box can make room and goes on.
func TestUserWorkspaceIsWatched(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := keptBox(t, d)
	s, err := b.Status(t.Context())
	must(t, err)
	if !slices.Contains(s.Flags, sizedByWatch) || slices.Contains(s.Flags, sizedInMemory) || s.Workspace == nil || s.Workspace.Size != 64<<20 {
		t.Errorf("status %+v of %+v", s.Flags, s.Workspace)
	}
	if _, r := sh(t, b, "head -c 40M /dev/zero >/work/a; ln /work/a /work/b; sync"); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("40 MiB with two names: %+v", r)
	}
	wantEnded(t, b, "setsid cat /dev/zero >/work/c & cat /dev/zero >/work/d; wait")
	_, r := sh(t, b, "rm /work/b; rm /work/c /work/d") // what makes room is not ended
	if r.Signal != 0 {
		t.Errorf("making room: %+v", r)
	}
	wantRoom(t, b)
	wantEnded(t, b, "exec 3>/work/e; rm /work/e; cat /dev/zero >&3") // it has no name any more
	wantRoom(t, b)
	if got, r := sh(t, b, "ls /work; echo more >/work/f; cat /work/f"); got != "a\nmore" || r.Exit != 0 || len(r.Exhausted) > 0 {
		t.Errorf("afterwards: %q, %+v", got, r)
	}
	list, err := d.Workspaces(t.Context())
	if err != nil || len(list) != 1 || list[0].Used < 40<<20 || list[0].Used > 64<<20 {
		t.Errorf("listed: %+v, %v", list, err)
	}
}

// A command that ends by itself before anybody sees that it wrote too much costs the
// box nothing: the next one can make room.
func TestUserCommandThatIsOverByItself(t *testing.T) {
	needUser(t)
	b := keptBox(t, newDriver(t))
	if _, r := sh(t, b, "fallocate -l 100M /work/x"); r.Signal != 0 {
		t.Logf("it was seen at once: %+v", r)
	}
	w := work(b.(*box))
	for end := time.Now().Add(time.Minute); !w.over.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nobody sees its %d bytes", w.held.Load())
		}
	}
	time.Sleep(5 * wardTick)
	if got, r := sh(t, b, "ls /work; rm /work/x"); got != "x" || r.Exit != 0 {
		t.Errorf("%q, %+v; the box is %s", got, r, state(t, b).State)
	}
	wantRoom(t, b)
}

// As many files as an image of the size would take, and no more.
func TestUserWorkspaceFilesAreCounted(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) {
		s.Workspace, s.Limits.Disk = sandbox.WorkspaceID(cofferdam.NewID("w")), 16<<20
	})
	if _, r := sh(t, b, "cd /work && seq 3000 | xargs touch && sleep 3"); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin: 4096 may be
		t.Errorf("3000 files: %+v", r)
	}
	wantEnded(t, b, "cd /work && seq 3000 6000 | xargs touch; exec sleep 50")
	if _, r := sh(t, b, "rm /work/*"); r.Exit != 0 {
		t.Errorf("making room: %+v", r)
	}
	wantRoom(t, b)
}

// Where nothing is left to be ended but the box, it ends, and says why; and what
// cannot be counted is given to no other.
func TestUserBoxEndsForWhatItWrites(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	for name, c := range map[string]struct{ text, why string }{
		"nobody's": {"(setsid sh -c 'while ! test -e /tmp/go; do sleep 0.1; done; sleep 5; cat /dev/zero >/work/x' >/dev/null 2>&1 &); touch /tmp/go", "writes on"},
		"deep":     {"cd /work; for i in $(seq 300); do mkdir d && cd d || exit 3; done; exec sleep 50", "nested more than"},
	} {
		b := keptBox(t, d)
		must(t, b.Start(t.Context(), sandbox.Command{ID: "one", Shell: c.text}))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		_, err := b.Wait(ctx, sandbox.Failed)
		cancel()
		must(t, err)
		s, err := b.Status(t.Context())
		if err != nil || s.State != sandbox.Failed || !strings.Contains(s.Reason, c.why) {
			t.Errorf("%s: %s, %q, %v", name, s.State, s.Reason, err)
		}
		must(t, b.Destroy(t.Context()))
		spec := b.(*box).spec
		spec.ID, spec.Epoch = cofferdam.BoxID(cofferdam.NewID("b")), 2
		if name != "nobody's" { // that can be made room in, unless it is over by far
			_, err := d.Create(t.Context(), spec)
			if cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(cofferdam.HintOf(err), "workspace remove") {
				t.Errorf("%s: the next box: %v", name, err)
			}
		}
		must(t, d.RemoveWorkspace(t.Context(), spec.Workspace))
	}
}

// What is kept outlives the keeper, and one that is far over its size, however
// it came to be, is refused.
func TestUserWorkspaceOutlivesItsKeeper(t *testing.T) {
	needUser(t)
	o := options(t)
	d, err := New(o)
	must(t, err)
	b, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Workspace: sandbox.WorkspaceID(cofferdam.NewID("w"))})
	must(t, err)
	sh(t, b, "echo kept >/work/f; chmod 640 /work/f")
	spec := b.(*box).spec
	must(t, d.Close(t.Context()))
	d, err = New(o)
	must(t, err)
	defer func() { must(t, d.Close(t.Context())) }()
	spec.ID = cofferdam.BoxID(cofferdam.NewID("b"))
	b, err = d.Create(t.Context(), spec)
	must(t, err)
	if got, _ := sh(t, b, "cat /work/f; stat -c %a,%u /work/f"); got != "kept\n640,1000" {
		t.Errorf("it has %q", got)
	}
	must(t, b.Destroy(t.Context()))
	path := filepath.Join(o.Root, "workspaces", string(spec.Workspace), "disk", "big")
	f, err := os.Create(path)
	must(t, err)
	must(t, errors.Join(fallocate(f, small().Disk+volume.Grace+1<<20), f.Close()))
	spec.ID = cofferdam.BoxID(cofferdam.NewID("b"))
	if _, err := d.Create(t.Context(), spec); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(err.Error(), "its size is 64 MiB") {
		t.Errorf("far over its size: %v", err)
	}
	must(t, d.RemoveWorkspace(t.Context(), spec.Workspace))
}

// fallocate has size bytes of the disk belong to f without writing them.
func fallocate(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
