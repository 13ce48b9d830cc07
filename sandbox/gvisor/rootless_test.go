package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam/internal/userns"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"

	"golang.org/x/sys/unix"
)

// isUser says whether this is the process that TestAsUser starts.
func isUser() bool { return sandboxtest.IsUser() }

// TestAsUser runs the suite and what an ordinary user's boxes lack, as one.
func TestAsUser(t *testing.T) {
	if isUser() {
		t.Skip("this is that user")
	}
	dir, err := programs()
	must(t, err)
	sandboxtest.RunAsUser(t, dir, "TestSuite", "TestForkIntoFive", "TestSnapshotIsProved", "TestPoolKeepsWorkspaces", "TestSuspendedMemoryIsProved", "TestUserWatched", "TestUserFullDisk",
		"TestUserEnvironmentIsAFolder", "TestUserEnvironmentIsWatched", "TestUserEnvironmentIsNoImage", "TestUserMappedMemoryIsWatched", "TestUserKernelMemoryIsWatched", "TestUserWorkspaceOutlivesItsKeeper", "TestUserRunFolderIsShort", "TestUserRunFolderIsOwn")
}

func needUser(t *testing.T) {
	t.Helper()
	if !isUser() {
		t.Skip("TestAsUser runs it")
	}
	if !userns.Inside() {
		t.Fatal("this is not a user namespace")
	}
}

// TestUserWatched: what has no wall is watched, and its status says so.
func TestUserWatched(t *testing.T) {
	needUser(t)
	open := func(watched bool) func(*testing.T) sandbox.Driver {
		return func(t *testing.T) sandbox.Driver {
			o := options(t)
			o.Watched = watched
			d, err := New(o)
			must(t, err)
			t.Cleanup(func() { must(t, d.Close(context.Background())) })
			return d
		}
	}
	sandboxtest.Watched(t, open(true), open(false))
	if s, err := newBox(t, newDriver(t)).Status(t.Context()); err != nil || !slices.Contains(s.Flags, sandbox.LimitsWatched) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestUserFullDisk: see sandboxtest.FullDisk.
func TestUserFullDisk(t *testing.T) {
	needUser(t)
	sandboxtest.FullDisk(t, func(t *testing.T, root string) sandbox.Driver {
		o := options(t)
		o.Root = root
		d, err := New(o)
		must(t, err)
		t.Cleanup(func() { must(t, d.Close(context.Background())) })
		return d
	})
}

// What a process maps counts, not only what passes through gVisor's own process.
func TestUserMappedMemoryIsWatched(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t))
	if got, r := sh(t, b, "python3 -c 'print(len(b\"x\" * (100 << 20)))'"); got != "104857600" || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("100 MiB of 512: %q, %+v", got, r)
	}
	if got, r := sh(t, b, "python3 -c 'x = b\"x\" * (1536 << 20); import time; time.sleep(60); print(len(x))'"); got != "" || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("1536 MiB of 512: %q, %+v", got, r)
	}
}

// What a box makes its kernel hold counts: here attributes of files.
func TestUserKernelMemoryIsWatched(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t)) // of 512 MiB
	const attributes = `exec python3 -c '
import os
for i in range(%d):
    f = "/tmp/%%d" %% (i // 256)
    if i %% 256 == 0: open(f, "w").close()
    os.setxattr(f, "user.%%d" %% i, bytes(1 << 16))
print("all")'`
	if got, r := sh(t, b, fmt.Sprintf(attributes, 320)); got != "all" || r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("20 MiB: %q, %+v", got, r)
	}
	if got, r := sh(t, b, fmt.Sprintf(attributes, 40_000)); got != "" || !r.Lost && !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("2500 MiB of 512: %q, %+v", got, r)
	}
}

func TestUserRunFolderIsShort(t *testing.T) {
	for root, want := range map[string]string{
		"/" + strings.Repeat("x", 35): "/" + strings.Repeat("x", 35) + "/run",
		"/" + strings.Repeat("x", 36): "/tmp/c-1",
	} {
		if dir := runFolder(Options{Root: root, User: true}, "c-1"); dir != want {
			t.Errorf("%d bytes: %q", len(root), dir)
		}
	}
	if dir := runFolder(Options{Root: "/" + strings.Repeat("x", 99)}, "c-1"); dir != "/run/c-1" { // root's is elsewhere
		t.Error(dir)
	}
}

// A folder of that name that is somebody else's, open to others or a link is not
// taken.
func TestUserRunFolderIsOwn(t *testing.T) {
	dir := t.TempDir()
	d := &Driver{o: Options{User: true}, state: filepath.Join(dir, "run")}
	for name, make := range map[string]func() error{
		"a link":         func() error { return os.Symlink(dir, d.state) },
		"open to others": func() error { return errors.Join(os.Mkdir(d.state, 0o700), os.Chmod(d.state, 0o777)) },
		"a file":         func() error { return os.WriteFile(d.state, nil, 0o600) },
		"another user's": func() error {
			if os.Geteuid() != 0 {
				return os.Symlink(dir, d.state)
			}
			return errors.Join(os.Mkdir(d.state, 0o700), os.Chown(d.state, 1, 1))
		},
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if err := d.holdRunFolder(); err == nil {
			t.Errorf("%s was taken", name)
		}
		if err := os.RemoveAll(d.state); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.holdRunFolder(); err != nil {
		t.Fatal(err)
	}
	defer d.held.Close()
	other, err := os.Open(d.state)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("who tidies up is not kept away: %v", err)
	}
}
