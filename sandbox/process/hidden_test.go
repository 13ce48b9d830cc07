package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestClosedEtc: what is not for everybody is hidden, whatever its name.
func TestClosedEtc(t *testing.T) {
	etc := t.TempDir()
	steps := `mkdir -p ceph open/deep shut ssl/private && echo x >ceph/key && chmod 600 ceph/key && echo x >open/deep/y && chmod 640 open/deep/y && echo x >shut/z && chmod 700 shut
		echo x >hosts && chmod 644 hosts && ln -s /data letsencrypt && chmod 700 ssl/private`
	cmd := exec.Command("sh", "-ec", "umask 022; "+steps)
	cmd.Dir = etc
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	named, err := secretEtc(etc)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range append(named, closedEtc(etc, named)...) {
		if m.Kind != wall.Hidden {
			t.Errorf("%+v", m)
		}
		got = append(got, m.To)
	}
	slices.Sort(got)
	if want := []string{"/etc/ceph/key", "/etc/letsencrypt", "/etc/open/deep/y", "/etc/shut", "/etc/ssl/private"}; !slices.Equal(got, want) {
		t.Errorf("hidden %q, want %q", got, want)
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
		_, err = o.follow(p)
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
