package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/wall"
)

// TestCredentialsElsewhere: what is hidden is hidden by its other names too, and
// sockets in folders that are shown cannot be connected to.
func TestCredentialsElsewhere(t *testing.T) {
	home, project := person(t)
	steps := `cd "$1" && mkdir -p dotfiles/gh dotfiles/ssh snap/x .local/share/uv/credentials && rm -r .ssh .config/gh && echo canary >dotfiles/netrc
		echo canary >dotfiles/gh/hosts.yml; echo canary >dotfiles/ssh/id; echo canary >snap/x/token; echo canary >.local/share/uv/credentials/credentials.toml
		ln -s dotfiles/ssh .ssh && ln -s ../dotfiles/gh .config/gh && ln -sf dotfiles/netrc .netrc && echo plain >dotfiles/README`
	if out, err := exec.Command("sh", "-ec", steps, "sh", home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("unix", filepath.Join(home, "dotfiles", "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect := `python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("` + l.Addr().String() + `"); print("reached")' 2>/dev/null; `
	text := connect + "grep -rl canary " + home + " 2>/dev/null; cat ~/dotfiles/README"
	control := exec.Command("bash", "-c", text)
	control.Env = append(os.Environ(), "HOME="+home)
	if out, err := control.Output(); err != nil || !strings.HasPrefix(string(out), "reached\n") || strings.Count(string(out), "\n") < 10 {
		t.Fatalf("control: %v, %s", err, out)
	}
	if got, _ := run(t, OneOff{Init: initProgram(t), Home: home, Workspace: project}, text); got != "plain\n" {
		t.Errorf("got %q", got)
	}
	// A folder that is hidden can be a workspace, and one in it.
	if got, r := run(t, OneOff{Init: initProgram(t), Home: home, Workspace: filepath.Join(home, "dotfiles", "ssh")}, "cat id"); r.Exit != 0 || got != "canary\n" {
		t.Errorf("%+v, %q", r, got)
	}
}

// TestSocketsOfTheWorkspace: those that listen in it when the command starts
// cannot be connected to, whatever they were named by; what the command makes
// itself can.
func TestSocketsOfTheWorkspace(t *testing.T) {
	_, project := person(t)
	if err := os.Mkdir(filepath.Join(project, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(project)
	for _, name := range []string{filepath.Join(project, "absolute.sock"), "./relative.sock", ".git/deep.sock"} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	const text = `python3 -c 'import socket
for name in "absolute.sock", "relative.sock", ".git/deep.sock":
	try: socket.socket(socket.AF_UNIX).connect(name); print("reached", name)
	except OSError as e: pass
own = socket.socket(socket.AF_UNIX); own.bind("own.sock"); own.listen(); socket.socket(socket.AF_UNIX).connect("own.sock"); print("own")'`
	if out, err := exec.Command("sh", "-c", text).CombinedOutput(); err != nil || strings.Count(string(out), "reached") != 3 {
		t.Fatalf("control: %v, %s", err, out)
	}
	if err := os.Remove("own.sock"); err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, text); got != "own\n" {
		t.Errorf("got %q", got)
	}
}

// TestMountedInSettings: what the host has mounted in /etc is in sight again above
// what hides its files by their names, and they stay hidden.
func TestMountedInSettings(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not run here: mounting needs root")
	}
	home, _ := person(t)
	self := filepath.Join(filepath.Dir(initProgram(t)), "self.test")
	if out, err := exec.Command("cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", self).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const prepare = `cp -a /etc "$1/etc"; mkdir "$1/etc/extra" "$1/etc/vault.d"; mount --bind "$1/etc" /etc; mount -t tmpfs extra /etc/extra; mount -t tmpfs vault /etc/vault.d
		umask 022; echo plain >/etc/extra/open; echo canary >/etc/extra/secret; chmod 600 /etc/extra/secret; echo canary >/etc/vault.d/token
		cat /etc/extra/secret /etc/vault.d/token; exec "$2"`
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", prepare, "sh", t.TempDir(), self)
	cmd.Env = []string{"PATH=/usr/bin:/bin", runsAs + "=" + home, "COFFERDAM_TEST_INIT=" + initProgram(t), "COFFERDAM_TEST_TEXT=cat /etc/extra/open /etc/extra/secret /etc/vault.d/token 2>/dev/null || test ! -s /etc/shadow"}
	out, err := cmd.CombinedOutput()
	if want := "canary\ncanary\nplain\nexit 0 <nil>\n"; err != nil || string(out) != want { // twice outside: the control
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestOtherNames: a file system that is mounted twice shows its files twice.
func TestOtherNames(t *testing.T) {
	mounts := []hostMount{{"8:1", "/", "/"}, {"8:2", "/", "/data"}, {"8:2", "/home", "/home"}, {"8:1", "/", "/mnt/all"}, {"8:2", "/home/p", "/media/p"}, {"8:2", "/homes", "/media/q"}, {"0:5", "/", "/run"}}
	for path, want := range map[string][]string{
		"/home": {"/data/home"}, "/home/p": {"/data/home/p", "/media/p"}, "/etc/shadow": {"/mnt/all/etc/shadow"}, "/run": nil, "/root": {"/mnt/all/root"},
	} {
		if got := otherNames(mounts, path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestSwappedWorkspace: a folder above the workspace becomes a link after the
// workspace was looked at, as the command of another box can do it.
func TestSwappedWorkspace(t *testing.T) {
	home, project := person(t)
	if err := os.MkdirAll(filepath.Join(project, "middle", "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(home, "victim", "src")
	if err := os.MkdirAll(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, swap := range []bool{false, true} {
		o := OneOff{Init: initProgram(t), Workspace: filepath.Join(project, "middle", "src"), Argv: []string{"touch", "made"}, Env: []string{"PATH=/usr/bin"}}
		plan := func() (wall.Plan, error) {
			p, err := o.plan()
			if err == nil && swap {
				err = os.Rename(filepath.Join(project, "middle"), filepath.Join(project, "old"))
			}
			if err == nil && swap {
				err = os.Symlink("../victim", filepath.Join(project, "middle"))
			}
			return p, err
		}
		p, err := startInit(starting{path: o.Init, once: true, flags: unix.CLONE_NEWNET}, plan)
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.follow(p, findTerminal([3]*os.File{}))
		_ = p.cmd.Wait() // it may fail
		unix.Close(p.talk)
		if (err != nil) != swap {
			t.Errorf("swapped %v: %v", swap, err)
		}
		if _, err := os.Stat(filepath.Join(victim, "made")); err == nil {
			t.Errorf("swapped %v: another folder was written", swap)
		}
	}
}

// TestHostWideProc: root's box owns the files of /proc that speak for the host,
// and has no more of them than anybody.
func TestHostWideProc(t *testing.T) {
	_, project := person(t)
	text := `cd /proc; for f in $(find . -maxdepth 2 -not -path './[0-9]*' -not -path './self*' -not -path './thread-self*' -not -path './net*' -type f); do
		case $f in ./*/*) ;; *) case $(stat -c %a $f) in *[4567]) ;; *) head -c 1 $f >/dev/null 2>&1 && echo read $f ;; esac ;; esac
		case $(stat -c %A $f) in *w*) (: >>$f) 2>/dev/null && echo write $f ;; esac
	done; test -r kpageflags && echo pages; findmnt -no OPTIONS /proc/driver; test -w /proc/self/oom_score_adj && echo own`
	got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, text)
	if !strings.HasPrefix(got, "ro,") || !strings.HasSuffix(got, "own\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("got %q", got)
	}
}

// TestModesOfTheHost: root's box owns devices and files of /proc that are the
// whole host's, uses them, and cannot shut anybody else out of them.
func TestModesOfTheHost(t *testing.T) {
	_, project := person(t)
	const modes = `stat -c '%n %a' /dev/null /dev/full /dev/urandom /dev/tty $(find /proc -maxdepth 1 -type f -perm -004)`
	before, err := exec.Command("sh", "-c", modes).Output()
	if err != nil {
		t.Fatal(err)
	}
	text := `for f in /dev/full /dev/tty $(find /proc -maxdepth 1 -type f -perm -004); do chmod $(stat -c %a $f) $f && echo changed $f; touch -r $f $f && echo touched $f; done 2>/dev/null
		echo x >/dev/null && head -c 3 /dev/zero | wc -c && head -c 3 /dev/urandom | wc -c; (echo x >/dev/full) 2>/dev/null || echo full; test -s /proc/cpuinfo; head -c 1 /proc/meminfo`
	if got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, text); got != "3\n3\nfull\nM" {
		t.Errorf("got %q", got)
	}
	after, err := exec.Command("sh", "-c", modes).Output()
	if err != nil || string(after) != string(before) {
		t.Errorf("on the host: %s, was %s, %v", after, before, err)
	}
}

// TestNoProgramOfTheCaller: nothing is left in the workspace that runs as the
// caller when somebody else starts it, by any call; other modes are as asked for.
func TestNoProgramOfTheCaller(t *testing.T) {
	_, project := person(t)
	text := `import os, ctypes, struct
call = ctypes.CDLL(None, use_errno=True).syscall
open("f", "w").close()
fd = os.open("f", os.O_RDWR)
T = 0o20000000 | os.O_DIRECTORY
how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
tries = {"chmod": (90, b"f", 0o4755), "fchmod": (91, fd, 0o4755), "fchmodat": (268, -100, b"f", 0o6755), "fchmodat2": (452, -100, b"f", 0o4755, 0), "junk": (90, b"f", 0xdead00004755 & ~0xfff | 0o4755),
  "creat": (85, b"c", 0o4755), "open": (2, b"o", os.O_CREAT, 0o4755), "openat": (257, -100, b"a", os.O_CREAT, 0o4755), "tmpfile": (257, -100, b".", T | os.O_RDWR, 0o4755),
  "openat2": (437, -100, b"2", how, 24), "mknod": (133, b"n", 0o104755, 0), "mknodat": (259, -100, b"m", 0o104755, 0)}
print([n for n, a in tries.items() if call(*a) >= 0])
os.chmod("f", 0o755); os.mkdir("d"); os.chmod("d", 0o2775); os.open("g", os.O_CREAT, 0o644)
call(257, -100, b"f", 0, 0o4755)
print(oct(os.stat("f").st_mode), oct(os.stat("d").st_mode), oct(os.stat("g").st_mode), call(257, -100, b"f", 0, 0o4755) >= 0)`
	if runtime.GOARCH != "amd64" {
		t.Skip("not run here: the numbers are those of amd64")
	}
	if err := os.WriteFile(filepath.Join(project, "tries.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, "umask 022; python3 tries.py")
	if want := "[]\n0o100755 0o42775 0o100644 True\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if out, err := exec.Command("find", project, "-perm", "/4000").Output(); err != nil || len(out) != 0 {
		t.Errorf("on the host: %s, %v", out, err)
	}
}
