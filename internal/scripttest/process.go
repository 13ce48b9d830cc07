package scripttest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"cofferdam/sandbox/keeper"

	"github.com/rogpeppe/go-internal/testscript"
)

// How long a program may take to be ready, and to end when asked.
const (
	readyIn = 3 * time.Minute
	endIn   = 20 * time.Second
)

// process is a program that runs beside a script.
type process struct {
	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{}
}

// syncBuffer keeps the last of what a program printed.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.b.Len() > 1<<20 {
		b.b.Reset()
	}
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(dir string, env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, p.log, p.log
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// end asks the process to end, then makes it.
func (p *process) end(sig syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig) // it may be gone already
	select {
	case <-p.done:
	case <-time.After(endIn):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// ready waits until the unix socket accepts, or the process is gone.
func (p *process) ready(socket string) error {
	deadline := time.Now().Add(readyIn)
	for time.Now().Before(deadline) {
		if c, err := net.DialTimeout("unix", socket, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", filepath.Base(p.cmd.Path), p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s is not ready after %s: %s", filepath.Base(p.cmd.Path), readyIn, p.log)
}

func (b *bench) stopAll() {
	b.server.end(syscall.SIGTERM)
	b.keeper.end(syscall.SIGTERM)
	for _, slot := range keeper.Slots(filepath.Join(b.state, "run", "keeper.sock"), filepath.Join(b.state, "keeper")) {
		endKeeper(slot.State) // one that the server has started
	}
	for _, l := range b.labs {
		l.stop()
	}
}

// endKeeper ends the keeper that works in a state folder, if there is one, and
// waits for it.
func endKeeper(state string) {
	var pid int
	data, err := os.ReadFile(filepath.Join(state, keeper.LockFile))
	if err != nil {
		return
	}
	if _, err := fmt.Sscanf(string(data), "process %d", &pid); err != nil {
		return
	}
	sig := syscall.SIGTERM
	for late := time.Now().Add(endIn); is(strconv.Itoa(pid), keeper.Program) && syscall.Kill(pid, sig) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			sig = syscall.SIGKILL
		}
	}
}

// cmdServe starts the keeper, unless it runs, and a server.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, true, "serve [flags]")
	b := of(ts)
	b.flags, b.pool = args, ts.Getenv("POOL")
	if !slices.Contains(args, "--tier") {
		b.flags = append([]string{"--tier", ts.Getenv("TIER")}, args...)
	}
	err := b.serve(ts.Getenv("BIN"), environ(ts))
	if _, crashed := os.Stat(filepath.Join(b.state, "crashed")); ts.Getenv("COFFERDAM_DEBUG_CRASH") != "" && crashed == nil {
		return // it was ready, and killed itself before that was seen
	}
	ts.Check(err)
}

func (b *bench) serve(bin string, env []string) error {
	socket := filepath.Join(b.state, "run", "keeper.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	var err error
	if b.keeper == nil {
		b.keeper, err = start(b.work, env, filepath.Join(bin, "cofferdam-keeper"), "--socket", socket, "--state", filepath.Join(b.state, "keeper"), "--pool", cmp.Or(b.pool, "0"))
		if err != nil {
			return err
		}
		if err := b.keeper.ready(socket); err != nil {
			return err
		}
	}
	flags := append([]string{"serve", "--state", b.state, "--listen", "off"}, b.flags...)
	if b.server, err = start(b.work, env, filepath.Join(bin, "cofferdam"), flags...); err != nil {
		return err
	}
	return b.server.ready(filepath.Join(b.state, "run", "cofferdam.sock"))
}

// cmdEnd kills without warning, several at the same time; a lab of that name is closed.
// The server comes back with the next serve, and so does the keeper; the engine is
// brought back by its server.
func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "end server|engine|keeper|LAB...")
	b := of(ts)
	var killed []*process
	for _, name := range args {
		p := b.server
		switch name {
		case "server":
		case "keeper":
			p, b.keeper = b.keeper, nil
		case "engine":
			pid, err := childOf(b.server.cmd.Process.Pid, "cofferdam-engine")
			ts.Check(err)
			ts.Check(syscall.Kill(pid, syscall.SIGKILL))
			continue
		default:
			l := b.labs[name]
			if l == nil {
				ts.Fatalf("no process and no lab is called %s", name)
			}
			l.stop()
			continue
		}
		_ = p.cmd.Process.Kill() // it may be gone already
		killed = append(killed, p)
	}
	for _, p := range killed {
		p.end(syscall.SIGKILL)
	}
}

// childOf finds a child by the name of its program.
func childOf(parent int, name string) (int, error) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err == nil {
		for _, f := range strings.Fields(string(list)) {
			if is(f, name) {
				return strconv.Atoi(f)
			}
		}
	}
	// A child belongs to the thread that made it: look at them all.
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, t := range threads {
		list, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(list)) {
			if is(f, name) {
				return strconv.Atoi(f)
			}
		}
	}
	return 0, fmt.Errorf("process %d has no child %s", parent, name)
}

func is(pid, name string) bool {
	exe, err := os.Readlink("/proc/" + pid + "/exe")
	return err == nil && filepath.Base(exe) == name
}

// environ is the script's environment as a program gets it.
func environ(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "STATE", "COFFERDAM_SERVER", "COFFERDAM_DEBUG_CRASH", "SSL_CERT_FILE", "GOPROXY"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return append(env, strings.Fields(ts.Getenv("PLANTED"))...) // NAME=VALUE each, for attacks
}

// cmdWithin repeats a command until it succeeds.
func cmdWithin(ts *testscript.TestScript, neg bool, args []string) {
	seconds := 0
	if len(args) > 1 {
		seconds, _ = strconv.Atoi(args[0])
	}
	usage(ts, neg, seconds > 0, "within SECONDS COMMAND...")
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, "sh", "-c", strings.Join(args[1:], " "))
		cmd.Env, cmd.Dir = environ(ts), ts.Getenv("WORK")
		out, err := cmd.CombinedOutput()
		if err == nil {
			fmt.Fprintf(ts.Stdout(), "%s", out)
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("not within %d s: %s: %v\n%s", seconds, strings.Join(args[1:], " "), err, out)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
