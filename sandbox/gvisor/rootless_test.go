package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/userns"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"

	"golang.org/x/sys/unix"
)

// programsVariable is where tests of an ordinary user find the programs.
const programsVariable = "COFFERDAM_TEST_PROGRAMS"

// settle makes the process that TestAsUser starts uid 0 of a user namespace with
// mounts of its own, and returns once it is. In others it does nothing.
func settle() error {
	if err := userns.Settle(); err != nil {
		return err
	}
	if os.Getenv(sandboxtest.UserVariable) == "" {
		return nil
	}
	if os.Geteuid() != 0 {
		cmd, life, err := userns.Command(os.Args[1:], os.Environ(), false)
		if err != nil {
			return err
		}
		defer life.Close()
		var exit *exec.ExitError
		if err := cmd.Wait(); errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		} else if err != nil {
			return err
		}
		os.Exit(0)
	}
	if os.Getenv(programsVariable+"_MOUNTS") != "" {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), programsVariable+"_MOUNTS=1"))
}

// isUser says whether this is the process that TestAsUser starts.
func isUser() bool { return os.Getenv(sandboxtest.UserVariable) != "" }

// TestAsUser runs the suite and what an ordinary user's boxes lack, as one.
func TestAsUser(t *testing.T) {
	if isUser() {
		t.Skip("this is that user")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{sandboxtest.OpenCopy(t, self), "-test.v", "-test.timeout=15m", "-test.run=^(TestSuite|TestForkIntoFive|TestSnapshotIsProved|TestPoolKeepsWorkspaces|TestSuspendedMemoryIsProved|TestUser.*)$"}
	cmd := sandboxtest.AsUser(t, args...)
	cmd.Env = append(cmd.Env, programsVariable+"="+bin)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestUserStatusSaysWhatIsWatched") || !strings.Contains(string(out), "--- PASS: TestSuite") || !strings.Contains(string(out), "--- PASS: TestForkIntoFive") {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
		return
	}
	t.Logf("%d tests passed as %s", strings.Count(string(out), "--- PASS"), sandboxtest.User)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") {
			t.Log(strings.TrimSpace(line))
		}
	}
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

func TestUserStatusSaysWhatIsWatched(t *testing.T) {
	needUser(t)
	s, err := newBox(t, newDriver(t)).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{limitsWatched, sizedInMemory, "--ignore-cgroups"} {
		if !slices.Contains(s.Flags, want) {
			t.Errorf("flags %q lack %s", s.Flags, want)
		}
	}
}

// Who demands limits gets no box without them, and hears what to do.
func TestUserLimitsRequired(t *testing.T) {
	needUser(t)
	o := options(t)
	o.Watched = false
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	_, err = d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "control-groups") || !strings.Contains(cofferdam.HintOf(err), "--limits watched") {
		t.Errorf("%v, hint %q", err, cofferdam.HintOf(err))
	}
}

// A hog is ended, and the box goes on: no control group does that here.
func TestUserMemoryIsWatched(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t))
	_, r := sh(t, b, "head -c 100M /dev/zero | tail -c 100M | wc -c") // the benign twin
	if r.Exit != 0 || len(r.Exhausted) > 0 {
		t.Errorf("100 MiB of 512: %+v", r)
	}
	_, r = sh(t, b, "head -c 2G /dev/zero | tail -c 2G | wc -c")
	if !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("2 GiB of 512 MiB: %+v", r)
	}
	if got, r := sh(t, b, "echo on"); got != "on" || r.Exit != 0 {
		t.Errorf("afterwards: %q, %+v", got, r)
	}
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

// What a command left behind is watched as well, though no command runs: it is
// ended, or the box is.
func TestUserLeftoverMemoryIsWatched(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t))
	const hog = `(sleep 1; exec python3 -c 'import time
x = []
while len(x) < 96: x.append(b"x" * (16 << 20)); time.sleep(0.1)
open("/tmp/grown", "w").close(); time.sleep(60)') > /dev/null 2>&1 &`
	if _, r := sh(t, b, hog); r.Exit != 0 {
		t.Fatalf("%+v", r)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		jobs, err := b.Jobs(t.Context())
		if err != nil && state(t, b).State.Over() {
			return // the box was ended
		}
		if err == nil && len(jobs) == 0 && b.(*box).memory() < small().Memory/2 { // what it had is given back: nothing ends the box any more
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v; it holds %d MiB", jobs, err, b.(*box).memory()>>20)
		}
	}
	if got, _ := sh(t, b, "ls /tmp"); got != "" {
		t.Errorf("a hog without a command got its memory: %s", got)
	}
}

// The workspace holds what the limit of disk says and no more, and the box goes
// on when it is full.
func TestUserWorkspaceHasItsSize(t *testing.T) {
	needUser(t)
	b := newBox(t, newDriver(t))                                          // of 64 MiB
	if _, r := sh(t, b, "head -c 40M /dev/zero > /work/a"); r.Exit != 0 { // the benign twin
		t.Errorf("40 MiB: %+v", r)
	}
	_, r := sh(t, b, "head -c 40M /dev/zero > /work/b")
	if r.Exit == 0 || !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) {
		t.Errorf("80 MiB of 64: %+v", r)
	}
	if got, _ := sh(t, b, "rm /work/b; echo more > /work/c; cat /work/c"); got != "more" {
		t.Errorf("afterwards: %q", got)
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
