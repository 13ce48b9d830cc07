package api

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
)

// The kernel says whose a connection over loopback is; another user's is another
// source. Only then can one user's many be told from everybody's.
func TestSourceOfAConnection(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("not run here: %v", err)
			continue
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if s := sourceOf(got); s != uidSource(os.Getuid()) {
			t.Errorf("%s: %s", at, s)
		}
		if os.Getuid() != 0 {
			continue // it calls as another user
		}
		host, port, _ := net.SplitHostPort(l.Addr().String())
		cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port+"; cat <&3")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
		if err := cmd.Start(); err != nil {
			t.Skipf("not run here: %v", err)
		}
		other, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if s := sourceOf(other); s != "uid 65533" {
			t.Errorf("%s by another user: %s", at, s)
		}
		other.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A stranger's connections are bounded below the number of all, and who runs the
// server is let in beside them.
func TestStrangersConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var runs atomic.Bool
	b := newBounded(l, 8, 2, func(source string) bool { return runs.Load() && source == uidSource(os.Getuid()) })
	defer b.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := b.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial()
	one := <-accepted
	dial()
	two := <-accepted
	third := dial()
	if n, err := third.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a third one is served: %d %v", n, err)
	}
	one.Close()
	dial()
	four := <-accepted
	runs.Store(true)
	for i := range 6 {
		dial()
		if c := <-accepted; c == nil {
			t.Fatal("connection " + strconv.Itoa(i) + " of who runs the server was refused")
		}
	}
	two.Close()
	four.Close()
	if b.of[uidSource(os.Getuid())] != 6 {
		t.Errorf("%v", b.of)
	}
}
