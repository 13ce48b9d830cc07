package process

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	got := deafen(sockets, []wall.Mount{{Kind: wall.Bind, To: "/srv-test"}, {Kind: wall.Bind, To: "/srv-test/a"}, {Kind: wall.Hidden, To: "/srv-test/b/secret"}})
	if len(got) != 1 || got[0].To != "/srv-test/a" || got[0].Kind != wall.Deaf {
		t.Errorf("%+v", got)
	}
	var names []string
	for _, m := range deafen(many(), nil) {
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
