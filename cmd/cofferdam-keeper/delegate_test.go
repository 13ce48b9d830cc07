package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// fakeGroup is a tree of control groups with one that a user has.
func fakeGroup(t *testing.T, controllers string) (root, dir, self string) {
	t.Helper()
	root = t.TempDir()
	self = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n"
	dir = filepath.Join(root, strings.TrimSpace(strings.TrimPrefix(self, "0::")))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.procs": "", "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, dir, self
}

const allOfThem = "cpuset cpu io memory hugetlb pids\n"

// TestDelegated finds a control group that was delegated to this user, and says
// of any other why it is none.
func TestDelegated(t *testing.T) {
	may := func(path string) error { _, err := os.Stat(path); return err }
	root, dir, self := fakeGroup(t, allOfThem)
	if got, err := delegated(root, "12:pids:/elsewhere\n"+self, may); err != nil || got != dir {
		t.Errorf("%q, %v", got, err)
	}
	short, _, _ := fakeGroup(t, "memory pids\n")
	for name, c := range map[string]struct {
		root, self, says string
		may              func(string) error
	}{
		"in the first group":    {root, "0::/\n", "no control group of its own", may},
		"version 1 alone":       {root, "3:memory:/x\n", "no control group of its own", may},
		"not mounted":           {t.TempDir(), self, "not mounted", may},
		"controllers missing":   {short, self, "has no controller cpu", may},
		"a path that leads out": {root, "0::/../../etc\n", "not mounted", may},
		"another user's":        {root, self, "not delegated", func(string) error { return os.ErrPermission }},
		"cannot divide it": {root, self, "not delegated", func(p string) error {
			return map[bool]error{true: os.ErrPermission}[strings.HasSuffix(p, "subtree_control")]
		}},
		"nothing of it is known": {root, "", "no control group of its own", may},
	} {
		if got, err := delegated(c.root, c.self, c.may); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// The check says how control groups are delegated, or that they are.
func TestCheckSaysHowToDelegate(t *testing.T) {
	found := []sandbox.Finding{{Name: "tun-device", Level: sandbox.OK}, {Name: "control-groups", Level: sandbox.Fail, Detail: "none", Fix: "run as root"}}
	if got := groupsOf(found, "", errors.New("no")); got[1].Level != sandbox.Fail || !strings.Contains(got[1].Fix, "Delegate=cpu memory pids") || got[0] != found[0] {
		t.Errorf("%+v", got)
	}
	if got := groupsOf(found, "/d", nil); got[1].Level != sandbox.OK || got[1].Fix != "" || !strings.Contains(got[1].Detail, "/d") {
		t.Errorf("%+v", got)
	}
	fine := []sandbox.Finding{{Name: "control-groups", Level: sandbox.OK, Detail: "version 1"}}
	if got := groupsOf(fine, "", errors.New("no")); got[0] != fine[0] {
		t.Errorf("%+v", got)
	}
}

// groupVariable makes the test binary the process that takes a group.
const groupVariable = "COFFERDAM_TEST_GROUP"

// TestTakeGroup takes a real group of version 2: its process is moved below it,
// and it is the root of what the process then sees. Controllers are bound to
// version 1 on these machines; limits in a group that was delegated are not run
// here.
func TestTakeGroup(t *testing.T) {
	if dir := os.Getenv(groupVariable); dir != "" {
		takesGroup(t, dir)
		return
	}
	var st unix.Statfs_t
	tree := "/sys/fs/cgroup/unified"
	if os.Geteuid() != 0 || unix.Statfs(tree, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Skip("not run here: needs root, and control groups of version 2 beside those of version 1")
	}
	dir := filepath.Join(tree, fmt.Sprintf("cofferdam-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("not run here: %v", err)
	}
	defer func() {
		for _, d := range []string{filepath.Join(dir, keepersGroup), filepath.Join(dir, "box"), dir} {
			if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	}()
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTakeGroup$", "-test.v")
	cmd.Env = append(os.Environ(), groupVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func takesGroup(t *testing.T, dir string) {
	runtime.LockOSThread()
	at := t.TempDir()
	if err := takeGroup(dir, at); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	if procs, err := os.ReadFile(filepath.Join(at, "cgroup.procs")); err != nil || len(procs) != 0 {
		t.Errorf("processes in what was delegated: %q, %v", procs, err)
	}
	procs, err := os.ReadFile(filepath.Join(at, keepersGroup, "cgroup.procs"))
	if err != nil || !strings.Contains("\n"+string(procs), fmt.Sprintf("\n%d\n", os.Getpid())) {
		t.Errorf("this process is not below it: %q, %v", procs, err)
	}
	// A group made here is one below it on the host.
	if err := os.Mkdir(filepath.Join(at, "box"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "box")); err != nil {
		t.Error(err)
	}
}
