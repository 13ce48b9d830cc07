package process

import (
	"encoding/json"
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

	"cofferdam/sandbox/wall"
)

// confines has the test program be one that makes system calls: "free" without
// walls, "confined" with them, and what else insideConfinement knows.
const confines = "COFFERDAM_TEST_CONFINED"

// wrong is an argument that no system call takes: those that are let through
// fail by it and change nothing.
const wrong = ^uintptr(0)

// attempt is one system call and what it answers inside.
type attempt struct {
	name string
	call uintptr
	args [3]uintptr
	want unix.Errno
}

// attempts are all that the filter refuses.
func attempts() []attempt {
	var list []attempt
	for _, n := range append(append([]uint32{}, refused...), refusedHere...) {
		list = append(list, attempt{fmt.Sprintf("call %d", n), uintptr(n), [3]uintptr{wrong, wrong, wrong}, unix.EPERM})
	}
	junk := uintptr(0xdead) << 32
	for _, r := range refusedIoctls {
		list = append(list, attempt{fmt.Sprintf("ioctl %#x", r), unix.SYS_IOCTL, [3]uintptr{wrong, uintptr(r), wrong}, unix.EPERM},
			attempt{fmt.Sprintf("ioctl %#x with junk above", r), unix.SYS_IOCTL, [3]uintptr{wrong, uintptr(r) | junk, wrong}, unix.EPERM})
	}
	for _, r := range refusedTraces {
		list = append(list, attempt{fmt.Sprintf("ptrace %#x", r), unix.SYS_PTRACE, [3]uintptr{uintptr(r), wrong, 0}, unix.EPERM})
	}
	for _, f := range []uintptr{unix.AF_PACKET, unix.AF_VSOCK, unix.AF_ALG, unix.AF_KEY, unix.AF_BLUETOOTH, unix.AF_XDP, unix.AF_UNIX | 99<<8} {
		list = append(list, attempt{fmt.Sprintf("socket of family %d", f), unix.SYS_SOCKET, [3]uintptr{f, unix.SOCK_RAW, 0}, unix.EAFNOSUPPORT})
	}
	return append(list,
		attempt{"netlink of the firewall", unix.SYS_SOCKET, [3]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, unix.EAFNOSUPPORT},
		// With CLONE_FS a new mount namespace is no valid question: nothing is cloned in either case.
		attempt{"clone into namespaces", unix.SYS_CLONE, [3]uintptr{unix.CLONE_NEWNS | unix.CLONE_FS, 0, 0}, unix.EPERM},
		attempt{"clone into a user namespace", unix.SYS_CLONE, [3]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS, 0, 0}, unix.EPERM},
		attempt{"clone3", unix.SYS_CLONE3, [3]uintptr{wrong, 88, 0}, unix.ENOSYS},
		attempt{"a call that is newer than the list", lastKnown + 1, [3]uintptr{}, unix.ENOSYS},
	)
}

// insideConfinement makes system calls and prints what they answer.
func insideConfinement(how string) {
	runtime.LockOSThread()
	if how != "free" {
		f, err := filter()
		if err == nil {
			err = wall.Plan{Filter: f, Write: []string{os.Getenv("COFFERDAM_TEST_WRITE")}}.Confine()
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	switch how {
	case "x32":
		_, _, errno := unix.RawSyscall(foreignABI|unix.SYS_GETPID, 0, 0, 0)
		fmt.Println("it answered", errno)
		return
	case "folders":
		folders()
		return
	}
	answers := map[string]unix.Errno{}
	for _, a := range attempts() {
		if how == "free" && a.call == unix.SYS_VHANGUP {
			continue // it takes no argument that could be wrong
		}
		_, _, errno := unix.Syscall(a.call, a.args[0], a.args[1], a.args[2])
		answers[a.name] = errno
	}
	for _, f := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_NETLINK} {
		fd, err := unix.Socket(f, unix.SOCK_DGRAM, 0)
		if err != nil {
			answers[fmt.Sprintf("allowed family %d", f)], _ = err.(unix.Errno)
			continue
		}
		unix.Close(fd)
	}
	data, err := json.Marshal(answers)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(string(data))
}

func confined(t *testing.T, how string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append([]string{confines + "=" + how, "COFFERDAM_TEST_WRITE=" + t.TempDir()}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestFilter makes every refused call inside, and outside as the control: there
// each answers something else, so that the refusal is the filter's.
func TestFilter(t *testing.T) {
	answers := func(how string) map[string]unix.Errno {
		out, err := confined(t, how)
		got := map[string]unix.Errno{}
		if e := json.Unmarshal([]byte(out), &got); err != nil || e != nil {
			t.Fatalf("%s: %v, %v: %s", how, err, e, out)
		}
		return got
	}
	free, inside := answers("free"), answers("confined")
	for _, a := range attempts() {
		if got := inside[a.name]; got != a.want {
			t.Errorf("%s: %v, want %v", a.name, got, a.want)
		}
		if os.Geteuid() == 0 && free[a.name] == a.want && a.want == unix.EPERM {
			t.Errorf("%s: it is refused without the filter too: the test proves nothing", a.name)
		}
		delete(inside, a.name)
	}
	if len(inside) > 0 {
		t.Errorf("refused though a box needs it: %v", inside)
	}
}

// TestForeignSystemCalls is CMP-10: other ways into the kernel end the process.
func TestForeignSystemCalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("not run here: this architecture has no other")
	}
	out, err := confined(t, "x32")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Errorf("x32: %v, %s", err, out)
	}
	_, project := person(t)
	source := filepath.Join(t.TempDir(), "old.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"ran\") }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(project, "old"), source)
	build.Env = append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(filepath.Join(project, "old")).CombinedOutput(); err != nil {
		t.Skipf("not run here: this kernel runs no 32-bit programs: %v, %s", err, out)
	}
	if out, r := run(t, OneOff{Init: initProgram(t), Workspace: project}, "exec ./old"); r.Exit != 128+int(unix.SIGSYS) || strings.Contains(out, "ran") {
		t.Errorf("a 32-bit program: %+v, %s", r, out)
	}
}

// folders is the inside of TestLandlock.
func folders() {
	own, other := os.Getenv("COFFERDAM_TEST_WRITE"), os.Getenv("COFFERDAM_TEST_OTHER")
	try := func(name string, err error) { fmt.Printf("%s: %v\n", name, err) }
	write := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	try("write own", write(own+"/a"))
	try("folder own", os.Mkdir(own+"/d", 0o700))
	try("move between own", os.Rename(own+"/a", own+"/d/a"))
	try("link between own", os.Link(own+"/d/a", own+"/b"))
	try("read other", func() error { _, err := os.ReadFile(other + "/there"); return err }())
	try("write other", write(other+"/new"))
	try("change other", write(other+"/there"))
	try("cut other", os.Truncate(other+"/there", 0))
	try("remove other", os.Remove(other+"/there"))
	try("move to other", os.Rename(own+"/b", other+"/b"))
	try("link from other", os.Link(other+"/there", own+"/c"))
}

// TestLandlock shows the rules where nothing else would refuse: both folders
// belong to the caller, on a file system that is writable.
func TestLandlock(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "there"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := confined(t, "folders", "COFFERDAM_TEST_OTHER="+other)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(out) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if allowed := strings.HasSuffix(name, "own") || name == "read other"; (answer == "<nil>") != allowed {
			t.Errorf("%s: %s", name, answer)
		}
	}
	if strings.Count(out, "\n") != 11 {
		t.Errorf("not all was tried: %s", out)
	}
	entries, err := os.ReadDir(other)
	data, readErr := os.ReadFile(filepath.Join(other, "there"))
	if err != nil || readErr != nil || len(entries) != 1 || string(data) != "kept" {
		t.Errorf("the other folder: %v, %q, %v, %v", entries, data, err, readErr)
	}
}
