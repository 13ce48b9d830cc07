package sandboxtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"cofferdam/internal/userns"

	"golang.org/x/sys/unix"
)

// mountsVariable is set once a process of AsUser has mounts of its own.
const mountsVariable = UserVariable + "_MOUNTS"

// ProgramsVariable is where that process finds the programs that it starts.
const ProgramsVariable = UserVariable + "_PROGRAMS"

// Settle is called first by a TestMain. It makes the process that RunAsUser starts
// uid 0 of a user namespace with mounts of its own, as a keeper of an ordinary
// user is, and returns once it is. In others it does nothing.
func Settle() error {
	if err := userns.Settle(); err != nil {
		return err
	}
	if !IsUser() {
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
	if os.Getenv(mountsVariable) != "" {
		return nil
	}
	runtime.LockOSThread() // the thread that unshares is the one that goes on
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), mountsVariable+"=1"))
}

// IsUser says whether this is the process that RunAsUser starts.
func IsUser() bool { return os.Getenv(UserVariable) != "" }

// UserPrograms is the folder of programs that RunAsUser was given.
func UserPrograms() string { return os.Getenv(ProgramsVariable) }

// RunAsUser runs tests of this program again, as an ordinary user's uid 0: those
// that run names, each of which must be there and pass or say why it is skipped.
// programs is the folder that UserPrograms returns there.
func RunAsUser(t *testing.T, programs string, run ...string) {
	t.Helper()
	if IsUser() {
		t.Skip("this is that user")
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Chmod(programs, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := AsUser(t, OpenCopy(t, self), "-test.v", "-test.timeout=20m", "-test.run=^("+strings.Join(run, "|")+")$")
	cmd.Env = append(cmd.Env, ProgramsVariable+"="+programs, "TMPDIR="+os.TempDir())
	if dir, err := filepath.Abs("."); err == nil {
		cmd.Dir = dir
	}
	out, err := cmd.CombinedOutput()
	for _, name := range run {
		if err != nil || !strings.Contains(string(out), "--- PASS: "+name+" ") && !strings.Contains(string(out), "--- SKIP: "+name+" ") {
			t.Fatalf("%s as an ordinary user: %v\n%s", name, err, out)
		}
	}
	t.Logf("%d tests passed as %s", strings.Count(string(out), "--- PASS"), User)
	why := ""
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") {
			t.Log(strings.TrimSpace(line), strings.TrimSpace(why))
		}
		why = line
	}
}
