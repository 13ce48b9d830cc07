//go:build linux

package userns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"cofferdam"

	"golang.org/x/sys/unix"
)

// pending is the first argument of a program that waits for its ids.
const pending = "--in-user-namespace"

// Least is how many ids a user needs: those of a Debian image, up to nogroup.
const Least = 65_535

// passed is the descriptor on which the ids are announced, and the first one
// that the program gets from its starter.
const passed = 3

// Inside says whether this process is uid 0 of a user namespace that is not the
// host's first one.
func Inside() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && os.Geteuid() == 0 && strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295"
}

// Command starts this program again as uid 0 of a user namespace. files are its
// descriptors from 4 on; 3 is a pipe that ends when the starter does, or when
// life is closed. A quiet one has no standard output.
func Command(args, env []string, quiet bool, files ...*os.File) (cmd *exec.Cmd, life *os.File, err error) {
	uid, gid := os.Getuid(), os.Getgid()
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	uids, err := idRange("/etc/subuid", name, uid)
	if err != nil {
		return nil, nil, err
	}
	gids, err := idRange("/etc/subgid", name, uid)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	cmd = exec.Command("/proc/self/exe", append([]string{pending}, args...)...)
	cmd.Args[0], cmd.Env = os.Args[0], env
	cmd.ExtraFiles = append([]*os.File{r}, files...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, Setsid: true,
		// A program that is started before its user has a name in the namespace
		// would lose every capability.
		AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID},
	}
	if !quiet {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(refused(err), w.Close())
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	err = errors.Join(
		mapIDs("newuidmap", pid, uid, uids),
		mapIDs("newgidmap", pid, gid, gids),
	)
	if err == nil {
		_, err = w.Write([]byte{1})
	}
	if err != nil {
		return nil, nil, errors.Join(err, w.Close(), cmd.Process.Kill(), ended(cmd))
	}
	return cmd, w, nil
}

// ended waits for a program that was killed; that it was is no error.
func ended(cmd *exec.Cmd) error {
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// Settle is called first by every program that Command may start. In one that
// waits for its ids it takes them and starts the program proper; in others it
// does nothing.
func Settle() error {
	if len(os.Args) < 2 || os.Args[1] != pending {
		return nil
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(os.NewFile(passed, "ids"), one); err != nil {
		return refused(errors.New("it was given no ids"))
	}
	runtime.LockOSThread() // the thread that lets go of rights is the one that goes on
	if err := errors.Join(unix.Setgroups(nil), unix.Setresgid(0, 0, 0), unix.Setresuid(0, 0, 0), noHeirs()); err != nil {
		return refused(err)
	}
	args := append([]string{os.Args[0]}, os.Args[2:]...)
	return refused(unix.Exec("/proc/self/exe", args, append(os.Environ(), startedVariable+"=1")))
}

// noHeirs takes away what this thread's rights would be to programs of other users.
func noHeirs() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	return unix.Capset(&head, &sets[0])
}

// startedVariable tells a program that Settle has started it. It is read and
// taken away by Started.
const startedVariable = "COFFERDAM_IN_USER_NAMESPACE"

// Started says, once, whether Settle has started this program: then there is a
// Starter.
func Started() bool {
	yes := os.Getenv(startedVariable) != ""
	_ = os.Unsetenv(startedVariable) // it cannot fail for this name
	return yes
}

// Starter returns what ends when the starter of a program of Command does.
func Starter() *os.File {
	unix.CloseOnExec(passed)
	return os.NewFile(passed, "starter")
}

// Owner returns the user who started a program of Command, as the program's own
// uid 0 is called outside; "" if that cannot be told.
func Owner() string {
	f, err := os.Open("/proc/self/uid_map")
	if err != nil {
		return ""
	}
	defer f.Close()
	uid, ok := outside(f)
	if !ok {
		return ""
	}
	if u, err := user.LookupId(uid); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid-" + uid
}

// outside finds what uid 0 is outside, in a file as /proc/self/uid_map.
func outside(r io.Reader) (uid string, ok bool) {
	s := bufio.NewScanner(io.LimitReader(r, maxFile))
	for s.Scan() {
		p := strings.Fields(s.Text())
		if len(p) == 3 && p[0] == "0" && p[2] != "0" {
			return p[1], true
		}
	}
	return "", false
}

// span is a range of ids of the host.
type span struct{ first, count uint64 }

// idRange finds the range of a user in a file of name:first:count lines.
func idRange(path, name string, uid int) (span, error) {
	f, err := os.Open(path)
	if err != nil {
		return span{}, noRange(path, name, "it cannot be read")
	}
	defer f.Close()
	s := bufio.NewScanner(io.LimitReader(f, maxFile))
	best := span{}
	for s.Scan() {
		p := strings.Split(strings.TrimSpace(s.Text()), ":")
		if len(p) != 3 || p[0] != name && p[0] != strconv.Itoa(uid) {
			continue
		}
		first, err1 := strconv.ParseUint(p[1], 10, 32)
		count, err2 := strconv.ParseUint(p[2], 10, 32)
		if err1 == nil && err2 == nil && count > best.count {
			best = span{first, count}
		}
	}
	switch {
	case s.Err() != nil:
		return span{}, noRange(path, name, s.Err().Error())
	case best.count == 0:
		return span{}, noRange(path, name, "it names no range for this user")
	case best.count < Least:
		return span{}, noRange(path, name, fmt.Sprintf("the range of this user has %d ids, and %d are needed", best.count, Least))
	}
	return best, nil
}

// maxFile bounds what is read of a file of ranges, in bytes.
const maxFile = 1 << 20

func noRange(path, name, reason string) error {
	return &cofferdam.Error{
		Op: "userns.Command", Kind: cofferdam.Unavailable, Subject: "user namespace", Reason: path + ": " + reason,
		Hint: "a box has users of its own: as root, usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + name,
	}
}

// mapIDs has a program of the system give a process its ids: 0 is the user
// itself, the rest its range.
func mapIDs(program, pid string, own int, s span) error {
	path, err := exec.LookPath("/usr/bin/" + program)
	if err != nil {
		return &cofferdam.Error{
			Op: "userns.Command", Kind: cofferdam.Unavailable, Subject: "user namespace",
			Reason: "there is no program /usr/bin/" + program, Hint: "apt install uidmap", Err: err,
		}
	}
	cmd := exec.Command(path, pid, "0", strconv.Itoa(own), "1", "1", strconv.FormatUint(s.first, 10), strconv.FormatUint(s.count, 10))
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return &cofferdam.Error{
			Op: "userns.Command", Kind: cofferdam.Unavailable, Subject: "user namespace",
			Reason: fmt.Sprintf("%s: %.200s", program, strings.TrimSpace(string(out))), Err: err,
			Hint: "look whether " + path + " may change ids (set-user-id, or file capabilities) and the ranges of this user are its own",
		}
	}
	return nil
}

// refused is the error of a host that does not let users have namespaces.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return &cofferdam.Error{
		Op: "userns.Command", Kind: cofferdam.Unavailable, Subject: "user namespace", Reason: err.Error(), Err: err, Hint: forbidden("/proc"),
	}
}

// forbidden says what forbids user namespaces here. proc is /proc but in tests.
func forbidden(proc string) string {
	for _, c := range []struct{ path, bad, fix string }{
		{"sys/kernel/apparmor_restrict_unprivileged_userns", "1", AppArmor()},
		{"sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
	} {
		if data, err := os.ReadFile(filepath.Join(proc, c.path)); err == nil && strings.TrimSpace(string(data)) == c.bad {
			return c.fix
		}
	}
	return "the host must let users make user namespaces; in a container, its seccomp profile must allow unshare"
}

// AppArmor is the fix where it refuses user namespaces, as Ubuntu (23.10 and later)
// has it do: a profile that lets this program make them. It restricts nothing: the
// walls of a box are its own.
func AppArmor() string {
	self, err := os.Executable()
	if err != nil {
		self = "/usr/bin/cofferdam"
	}
	name := filepath.Base(self)
	return fmt.Sprintf("AppArmor refuses user namespaces to programs without a profile; install this one as /etc/apparmor.d/%s and run apparmor_parser -r on it:\n"+
		"abi <abi/4.0>,\ninclude <tunables/global>\nprofile %[1]s %[2]q flags=(unconfined) {\n  userns,\n  include if exists <local/%[1]s>\n}\n", name, self)
}
