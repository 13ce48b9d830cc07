package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
