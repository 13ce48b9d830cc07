package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/wall"
)

// TestSocketMadeAgain: a service that starts again while a box is there makes its
// socket anew, and it is as much out of reach as the first one; its folder can be read.
func TestSocketMadeAgain(t *testing.T) {
	home, project := person(t)
	socket := filepath.Join(home, "service", "s.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "service", "readme"), []byte("plain\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(socket, 0o777); err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := listen()
	go func() {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(project, "looked")); err == nil {
				break
			}
		}
		first.Close() // unlinks it
		again := listen()
		t.Cleanup(func() { again.Close() })
		if c, err := net.Dial("unix", socket); err != nil { // control
			t.Error(err)
		} else {
			c.Close()
		}
		if err := os.WriteFile(filepath.Join(project, "again"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}()
	const try = `python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1]); print("connected")
except OSError as e: print("refused")' ~/service/s.sock; `
	got, _ := run(t, OneOff{Init: initProgram(t), Home: home, Workspace: project},
		try+`cat ~/service/readme; touch looked; until test -e again; do sleep 0.02; done; `+try+`touch ~/service/x 2>/dev/null || echo read-only`)
	if got != "refused\nplain\nrefused\nread-only\n" {
		t.Errorf("got %q", got)
	}
}

// TestDeafFolders: one that has something hidden in it is not covered by what
// would show it again.
func TestDeafFolders(t *testing.T) {
	sockets := []wall.Mount{{Kind: wall.Hidden, To: "/srv-test/a/s"}, {Kind: wall.Hidden, To: "/srv-test/a/t"}, {Kind: wall.Hidden, To: "/srv-test/b/s"}, {Kind: wall.Hidden, To: "/proc-test"}}
	got := deafen(sockets, []wall.Mount{{Kind: wall.Bind, To: "/srv-test"}, {Kind: wall.Bind, To: "/srv-test/a"}, {Kind: wall.Hidden, To: "/srv-test/b/secret"}}, hostMounts())
	if len(got) != 1 || got[0].To != "/srv-test/a" || got[0].Kind != wall.Deaf {
		t.Errorf("%+v", got)
	}
	var names []string
	for _, m := range deafen(many(), nil, hostMounts()) {
		names = append(names, m.To)
	}
	if len(names) != maxDeaf {
		t.Errorf("%s", strings.Join(names, " "))
	}
}

func many() (list []wall.Mount) {
	for i := range 3 * maxDeaf {
		list = append(list, wall.Mount{Kind: wall.Hidden, To: "/many/" + strings.Repeat("d", i+1) + "/s"})
	}
	return list
}

// TestReplacedSecret: a file that is hidden stays so when the host puts another
// one in its place, as whoever changes a password does; that of /etc too.
func TestReplacedSecret(t *testing.T) {
	home, project := person(t)
	settings := filepath.Join(home, "settings")
	steps := `mkdir -p "$1/private" "$1/open" && cd "$1" && echo canary >secret && echo canary >private/key && echo canary >open/key && echo plain >open/readme && ln -s open link`
	if out, err := exec.Command("sh", "-ec", steps, "sh", settings).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := os.Create(filepath.Join(project, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	o := OneOff{
		Init: initProgram(t), Home: home, Workspace: project, Stdout: out, Env: []string{"PATH=/usr/bin:/bin"},
		Argv: []string{"sh", "-c", `cd "$0"; look() { cat secret private/key open/key link/key open/readme 2>/dev/null; }; look; touch ` + project + `/looked; until test -e ` + project + `/again; do sleep 0.02; done; look`, settings},
	}
	for _, deaf := range []bool{false, true} { // what the kernel does to a mount, and what is done about it
		for _, name := range []string{"looked", "again", "out"} {
			_ = os.Truncate(filepath.Join(project, name), 0)
			if name != "out" {
				_ = os.Remove(filepath.Join(project, name))
			}
		}
		if _, err := out.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		plan := func() (wall.Plan, error) {
			p, err := o.plan()
			if deaf {
				p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Deaf, To: settings})
			}
			for _, name := range []string{"secret", "private", "private/key", "open/key", "link/key", "absent/key"} {
				p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Hidden, To: filepath.Join(settings, name)})
			}
			return p, err
		}
		p, err := startInit(starting{path: o.Init, once: true, flags: unix.CLONE_NEWNET, stdio: [3]*os.File{nil, out, nil}}, plan)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(filepath.Join(project, "looked")); err == nil {
					break
				}
			}
			steps := `cd "$1" && for f in secret open/key; do echo canary >new && mv new $f; done; touch "$2/again"`
			if out, err := exec.Command("sh", "-ec", steps, "sh", settings, project).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}()
		_, err = o.follow(p, findTerminal([3]*os.File{}))
		_ = p.cmd.Wait() // it has said how it ended
		unix.Close(p.talk)
		got, rerr := os.ReadFile(filepath.Join(project, "out"))
		if err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		if shown := strings.Contains(string(got), "canary"); shown == deaf || strings.Count(string(got), "plain\n") != 2 {
			t.Errorf("deaf %v: %s", deaf, got)
		}
	}
	list, err := view(LookAtHost(), wall.Mount{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(list, func(m wall.Mount) bool { return m.Kind == wall.Deaf && m.To == "/etc" })
	if first := slices.IndexFunc(list, func(m wall.Mount) bool { return m.Kind == wall.Hidden }); at < 0 || first >= 0 && first < at {
		t.Errorf("/etc is made so at %d, and what is hidden begins at %d", at, first)
	}
}
