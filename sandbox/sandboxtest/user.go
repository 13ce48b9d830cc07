package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// UserVariable is set in what AsUser starts.
const UserVariable = "COFFERDAM_TEST_USER"

// User is the ordinary user of tests: it has a name on every system.
const (
	User   = "nobody"
	UserID = 65534
)

// asUser makes, in a mount namespace of its own, what an administrator sets up
// for an ordinary user: a range of ids, and a TUN device that all may open.
const asUser = `set -e
dir=$1; shift
printf '%s:200000:65536\n' ` + User + ` > $dir/ids
for f in /etc/subuid /etc/subgid; do mount --bind $dir/ids $f; done
mkdir -p $dir/dev
mount -t tmpfs -o mode=0755 tests $dir/dev
mknod -m 666 $dir/dev/tun c 10 200
mount --bind $dir/dev/tun /dev/net/tun
exec setpriv --reuid ` + User + ` --regid nogroup --clear-groups "$@"
`

// AsUser returns a command that root runs as an ordinary user with a range of
// ids. The test is skipped where that cannot be.
func AsUser(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run here: needs root to become an ordinary user with a range of ids")
	}
	for _, p := range []string{"/usr/bin/newuidmap", "/usr/bin/newgidmap", "/etc/subuid", "/etc/subgid", "/usr/bin/setpriv", "/usr/bin/unshare", "/dev/net/tun"} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("not run here: %v; apt install uidmap util-linux", err)
		}
	}
	if data, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(data)) == "0" {
		t.Skip("not run here: this host has no user namespaces")
	}
	dir := OpenFolder(t)
	args := append([]string{"--mount", "--propagation", "private", "sh", "-c", asUser, "sh", dir}, argv...)
	cmd := exec.Command("/usr/bin/unshare", args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), UserVariable+"=1")
	return cmd
}

// OpenFolder returns a new folder with a short path that the ordinary user
// owns; the test's end removes it.
func OpenFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err = os.Chmod(dir, 0o755); err == nil {
		err = os.Chown(dir, UserID, UserID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// OpenCopy copies a program to where every user may run it.
func OpenCopy(t testing.TB, program string) string {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(OpenFolder(t), filepath.Base(program))
	syscall.ForkLock.RLock() // a child that is forked meanwhile would hold it open, and it could not be started
	err = os.WriteFile(to, data, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return to
}
