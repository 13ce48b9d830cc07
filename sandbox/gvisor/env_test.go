package gvisor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/volume"
)

// setupBox makes a box of a setup that makes the environment at env, of 64 MiB.
func setupBox(t *testing.T, d *Driver, env string) sandbox.Box {
	t.Helper()
	return newBox(t, d, func(s *sandbox.Spec) { s.Env, s.SetupPhase = env, true })
}

// An ordinary user's environment is a folder: several setups write to it, one after
// the other, then many boxes read it and none can change it, also not one that was
// on disk or goes on from a snapshot.
func TestUserEnvironmentIsAFolder(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	env := filepath.Join(t.TempDir(), "env")
	for _, text := range []string{"stat -c %u /env; mkdir /env/bin && echo 'echo tool' >/env/bin/tool", "echo two >/env/two; chmod 755 /env/bin/tool; rm /work/* 2>/dev/null; echo 1000"} {
		setup := setupBox(t, d, env)
		if out, r := sh(t, setup, text); out != "1000" || r.Exit != 0 {
			t.Errorf("setup: %q, %+v", out, r)
		}
		_, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Env: env})
		if cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("a reader beside the setup: %v", err)
		}
		must(t, setup.Destroy(t.Context()))
	}
	before := listing(t, env)
	reader := func(s *sandbox.Spec) { s.Env = env }
	one, two := newBox(t, d, reader), newBox(t, d, reader)
	tries := "sh /env/bin/tool; cat /env/two; for f in /env/x /env/two /env/bin/tool; do (echo x >$f) 2>/dev/null && echo wrote $f; done; rm -rf /env/bin 2>/dev/null; " +
		"mv /env/two /env/three 2>/dev/null && echo moved; chmod 777 /env/two 2>/dev/null && echo chmod; ln /env/two /env/four 2>/dev/null && echo linked; ln /env/two /work/four 2>/dev/null && echo linked out; touch /env 2>/dev/null && echo touched; ls /env/bin"
	const want = "tool\ntwo\ntool"
	if s, err := one.Status(t.Context()); err != nil || !slices.Contains(s.Flags, envFolder) {
		t.Errorf("status: %v, %v", s.Flags, err)
	}
	if _, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Env: env, SetupPhase: true}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a setup beside readers: %v", err)
	}
	must(t, one.Suspend(t.Context()))
	must(t, one.Resume(t.Context()))
	snapshot := sandbox.SnapshotID(cofferdam.NewID("s"))
	if _, err := two.Snapshot(t.Context(), sandbox.Take{ID: snapshot, Memory: true}); err != nil {
		t.Fatal(err)
	}
	fork := newBox(t, d, reader, func(s *sandbox.Spec) { s.Snapshot = snapshot })
	for name, b := range map[string]sandbox.Box{"on disk before": one, "another": two, "a fork": fork} {
		if out, _ := sh(t, b, tries); out != want {
			t.Errorf("%s: %q", name, out)
		}
	}
	if after := listing(t, env); after != before {
		t.Errorf("the environment changed:\n%s\nwas\n%s", after, before)
	}
	// It stays as long as a box has it, whatever it is called, and no longer.
	gone := env + ".gone"
	must(t, os.Rename(env, gone))
	for _, b := range []sandbox.Box{one, two, fork} {
		if f, err := volume.Alone(gone); err == nil {
			t.Errorf("nobody holds it any more: %v", f.Close())
		}
		if out, _ := sh(t, b, "sh /env/bin/tool"); out != "tool" {
			t.Errorf("under another name: %q", out)
		}
		must(t, b.Destroy(t.Context()))
	}
	f, err := volume.Alone(gone)
	must(t, err)
	must(t, f.Close())
}

// A setup that writes more than its size is ended, and told of what; one that makes
// room goes on.
func TestUserEnvironmentIsWatched(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := setupBox(t, d, filepath.Join(t.TempDir(), "env"))
	if _, r := sh(t, b, "head -c 40M /dev/zero >/env/a; sync"); r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("40 MiB of 64: %+v", r)
	}
	_, r := sh(t, b, "cat /dev/zero >/env/b")
	if r.Signal == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) || !strings.Contains(r.Reason, "/env holds") {
		t.Errorf("without end: %+v", r)
	}
	if _, r := sh(t, b, "rm /env/b; echo on >/env/c"); r.Exit != 0 {
		t.Errorf("making room: %+v", r)
	}
}

// What is no folder is not taken, and nothing is left of the box.
func TestUserEnvironmentIsNoImage(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink(dir, link))
	for _, path := range []string{file, link, filepath.Join(dir, "none"), d.o.Root + "/../x"} {
		_, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Env: path})
		if cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v", path, err)
		}
	}
	closed := filepath.Join(dir, "none", "env") // the folder it would be in is not there
	_, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small(), Env: closed, SetupPhase: true})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(filepath.Join(d.o.Root, "boxes")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
