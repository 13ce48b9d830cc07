package scripttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox/sandboxtest"
)

// openPrograms are the built programs where every user may run them.
func openPrograms(t *testing.T) string {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := sandboxtest.OpenFolder(t)
	place(t, bin, dir)
	return dir
}

// userEnv is all that the ordinary user of a test has in its environment: a home
// folder with nothing in it.
func userEnv(home string) []string {
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb"}
}

// TestDemoAsUser plays the demo as an ordinary user with an empty home folder:
// server, git and boxes run in user namespaces of that user.
func TestDemoAsUser(t *testing.T) {
	bin := openPrograms(t)
	cmd := sandboxtest.AsUser(t, filepath.Join(bin, "cofferdam"), "debug", "demo", "--agent", "loop", "--model", "rehearsal")
	temp := sandboxtest.OpenFolder(t)
	cmd.Env = append(userEnv(sandboxtest.OpenFolder(t)), "TMPDIR="+temp)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("18 of 18 checks held")) {
		t.Errorf("%v\n%s", err, out)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v, %v", left, err)
	}
}

// TestServeAsUser starts a server as an ordinary user who names no folder: it
// has one of its own, answers only that user, and ends with who started it. Its
// keeper outlives it, and the next server finds it.
func TestServeAsUser(t *testing.T) {
	bin, home := openPrograms(t), sandboxtest.OpenFolder(t)
	state := filepath.Join(home, ".local", "state", "cofferdam")
	cofferdamOf := func(args ...string) *exec.Cmd {
		cmd := sandboxtest.AsUser(t, append([]string{filepath.Join(bin, "cofferdam")}, args...)...)
		cmd.Env = userEnv(home)
		return cmd
	}
	var first int
	for range 2 {
		server := cofferdamOf("serve", "--listen", "off")
		p := &process{cmd: server, log: &syncBuffer{}, done: make(chan struct{})}
		server.Stdout, server.Stderr, server.WaitDelay = p.log, p.log, time.Second
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = server.Wait() // how it ended is in its log
			close(p.done)
		}()
		t.Cleanup(func() { p.end(syscall.SIGKILL); endKeeper(filepath.Join(state, "keeper")) })
		if err := p.ready(filepath.Join(state, "run", "cofferdam.sock")); err != nil {
			t.Fatal(err)
		}
		out, err := cofferdamOf("status", "--json").CombinedOutput()
		var s cofferdam.Status
		if err != nil || json.Unmarshal(out, &s) != nil || len(s.Keepers) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		if first != 0 && s.Keepers[0].Process != first {
			t.Errorf("the second server has another keeper: %+v", s.Keepers)
		}
		first = s.Keepers[0].Process
		if info, err := os.Stat(fmt.Sprintf("/proc/%d", first)); err != nil || info.Sys().(*syscall.Stat_t).Uid != sandboxtest.UserID {
			t.Errorf("the keeper runs as %v, %v", info, err)
		}
		// Root of the host is another user to it.
		stranger := exec.Command(filepath.Join(bin, "cofferdam"), "status")
		stranger.Env = append(userEnv(home), "COFFERDAM_SERVER=unix:"+filepath.Join(state, "run", "cofferdam.sock"))
		if out, err := stranger.CombinedOutput(); err == nil {
			t.Errorf("root is served: %s", out)
		}
		p.end(syscall.SIGTERM)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, err := cofferdamOf("status").Output()
			if err != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the server outlives who started it")
			}
		}
	}
	if log, err := os.ReadFile(filepath.Join(state, "keeper", "keeper.log")); err != nil || bytes.Contains(log, []byte("ERROR")) {
		t.Errorf("%v\n%s", err, log)
	}
}

// place puts the built programs into another folder. They find their sisters
// where they are themselves, so a symbolic link would not do.
func place(t *testing.T, bin, dir string) {
	t.Helper()
	list, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if !e.Type().IsRegular() {
			continue
		}
		from, to := filepath.Join(bin, e.Name()), filepath.Join(dir, e.Name())
		if os.Link(from, to) == nil {
			continue
		}
		if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}
