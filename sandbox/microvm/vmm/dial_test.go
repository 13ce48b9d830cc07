package vmm

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDialFollowsNothing has a monitor put other things where its socket should
// be: the driver, which is root, connects to none of them.
func TestDialFollowsNothing(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	l, err := net.Listen("unix", filepath.Join(outside, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan struct{}, 9)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached <- struct{}{}
			c.Close()
		}
	}()
	for _, dir := range []string{"run", "plain"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(from, to string) {
		if err := os.Symlink(from, filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(outside, "s"), "run/link")
	link(outside, "folder")
	link("../../"+filepath.Base(outside)+"/s", "run/up")
	if err := os.WriteFile(filepath.Join(root, "plain/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(outside, "s"), filepath.Join(root, "run/mine")); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, path := range []string{"/run/link", "/folder/s", "/run/up", "/plain/file", "/run", "/../" + filepath.Base(outside) + "/s"} {
		if f, err := Dial(ctx, root, path, os.Getuid()); err == nil {
			f.Close()
			t.Errorf("%s was followed", path)
		}
	}
	if f, err := Dial(ctx, root, "/run/mine", os.Getuid()+1); err == nil {
		f.Close()
		t.Error("a socket of another user's was taken for the monitor's")
	}
	if len(reached) > 0 {
		t.Fatal("the socket outside was reached")
	}
	f, err := Dial(ctx, root, "/run/mine", os.Getuid()) // control
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	<-reached
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Millisecond, errors.New("the monitor has ended"))
	defer cancel()
	if _, err := Dial(ctx, root, "/run/none", os.Getuid()); err == nil || !strings.Contains(err.Error(), "the monitor has ended") {
		t.Errorf("waiting for a socket: %v", err)
	}
}

// TestDialGuest wants the two words of a vsock socket, and nothing else.
func TestDialGuest(t *testing.T) {
	for _, c := range []struct {
		answers []string // one for each connection; "": closes
		good    bool
	}{
		{[]string{"OK 1073741824\nhello"}, true},
		{[]string{"", "", "OK 5\nhello"}, true}, // pid 1 does not listen yet
		{[]string{"NO\n"}, false},
		{[]string{"OK \n"}, false},
		{[]string{"OK -1\n"}, false},
		{[]string{"OK 5"}, false},
		{[]string{strings.Repeat("O", 1000)}, false},
	} {
		dir := t.TempDir()
		l, err := net.Listen("unix", filepath.Join(dir, "v"))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for _, answer := range c.answers {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				b := make([]byte, len("CONNECT 1024\n"))
				if _, err := io.ReadFull(conn, b); err == nil && string(b) == "CONNECT 1024\n" {
					_, _ = io.WriteString(conn, answer)
				}
				conn.Close()
			}
		}()
		f, err := DialGuest(context.Background(), dir, "/v", os.Getuid())
		if (err == nil) != c.good {
			t.Errorf("%q: %v", c.answers, err)
		}
		if err == nil {
			rest, err := io.ReadAll(f)
			if string(rest) != "hello" || err != nil {
				t.Errorf("%q: after the answer %q, %v", c.answers, rest, err)
			}
			f.Close()
		}
		l.Close()
	}
}
