package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/local/network"
	"cofferdam/sandbox"
	"cofferdam/sandbox/seatbelt"
)

// mac encloses a command on a Mac: program is given a profile and the command.
// All of it but the kernel's part is the same on every system, and tested so.
type mac struct {
	*run
	program string
	temp    string // folder of this run alone: home folder and temporary files
}

// enclose runs the command, with its network ending in a proxy of this process.
func (m mac) enclose(ctx context.Context) (sandbox.Result, error) {
	var err error
	if m.temp, err = makeTemp(); err != nil {
		return sandbox.Result{}, m.state.unusable(err)
	}
	defer func() { _ = os.RemoveAll(m.temp) }() // what is left is the system's to tidy, like all in its place
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return sandbox.Result{}, m.missing("a port on loopback: "+plain(err), "free a port; the command's network ends in one", err)
	}
	password := rand.Text()
	cmd, res, err := m.command(ctx, network.ProxyURL(password, listener.Addr()), uint16(listener.Addr().(*net.TCPAddr).Port))
	if err == nil { // that there is no such program is on record like any run
		err = m.open(ctx)
	}
	if err != nil || cmd == nil {
		return res, first(err, listener.Close())
	}
	served := make(chan error, 1)
	go func() { served <- m.network.Serve(listener, password) }()
	res, err = m.follow(ctx, cmd)
	m.network.End() // so that all of its network is on record before how it ended
	return res, first(err, <-served)
}

func (m mac) missing(reason, hint string, err error) error {
	return &cofferdam.Error{Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "box of tier process", Reason: reason, Hint: hint, Err: err}
}

// makeTemp makes the folder, under the name that the kernel has for it.
func makeTemp() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "cofferdam-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Join(dir, "home"), 0o700), os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	}
	return dir, err
}

// command is what is to be started; nil, with how it ended, if there is no such program.
func (m mac) command(ctx context.Context, way string, port uint16) (*exec.Cmd, sandbox.Result, error) {
	b, err := m.box(port)
	if err != nil {
		return nil, sandbox.Result{}, err
	}
	p, err := b.Profile()
	if err != nil {
		return nil, sandbox.Result{}, err
	}
	dir := b.Writable[0]
	if rel, err := filepath.Rel(m.workspace.dir, m.workspace.inner); err == nil {
		dir = filepath.Join(dir, rel)
	}
	env := m.variables(way)
	program, none := find(m.o.Argv[0], dir, env)
	if program == "" {
		return nil, none, nil
	}
	cmd := exec.CommandContext(ctx, m.program, p.Args(append([]string{program}, m.o.Argv[1:]...))...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = m.o.Stdin, m.o.Stdout, m.o.Stderr
	// At a terminal it stays in the group that the terminal sends to.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !terminal(m.o.Stdin)}
	cmd.WaitDelay = time.Second
	return cmd, sandbox.Result{}, nil
}

// box describes what the command may do.
func (m mac) box(port uint16) (seatbelt.Box, error) {
	w := m.workspace
	home := diskName(m.home)
	library := filepath.Join(home, "Library")
	if m.home != "" && (within(w.dir, library) || within(diskName(w.dir), library)) {
		return seatbelt.Box{}, noWorkspace(w.dir, "it lies in "+library+", where programs keep credentials and what runs at the next login", "change into a project's own folder, or name one with --workspace")
	}
	if w.dir == "/private/tmp" {
		return seatbelt.Box{}, noWorkspace(w.dir, "it is everybody's", "change into a project's own folder, or name one with --workspace")
	}
	b := seatbelt.Box{Writable: []string{diskName(w.from)}, Temp: diskName(m.temp), Port: port}
	if w.git != "" {
		b.Writable = append(b.Writable, diskName(w.git))
	}
	b.Read, b.Hidden = seatbelt.Host(home)
	for _, path := range append(m.shown(), m.trust.dir) {
		b.Read = append(b.Read, diskName(path))
	}
	for _, path := range []string{m.state.path("keys"), m.state.live, m.state.path("traces"), m.state.path("copies")} {
		b.Hidden = append(b.Hidden, diskName(path))
	}
	return b, nil
}

// variables are those of the command: a home folder and temporary files of its
// own, and the way out.
func (m mac) variables(way string) []string {
	env := append(slices.Clone(m.env),
		"HOME="+filepath.Join(m.temp, "home"), "CFFIXED_USER_HOME="+filepath.Join(m.temp, "home"), "TMPDIR="+filepath.Join(m.temp, "tmp"),
		"NO_PROXY=", "no_proxy=", "NODE_USE_ENV_PROXY=1")
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+way)
	}
	return env
}

// follow starts the command, sends signals on to it and waits for its end.
func (m mac) follow(ctx context.Context, cmd *exec.Cmd) (sandbox.Result, error) {
	res := sandbox.Result{Started: time.Now()}
	if err := cmd.Start(); err != nil {
		return res, m.missing(m.program+": "+plain(err), "it comes with macOS; nothing runs without it", err)
	}
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s := <-m.o.Signals:
				_ = cmd.Process.Signal(s) // it may just have ended
			case <-over:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(over)
	<-done
	if cmd.SysProcAttr.Setpgid {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind, if anything
	}
	res.Ended = time.Now()
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		res.Signal = int(status.Signal())
		res.Exit, res.Reason = 128+res.Signal, "ended by signal "+unix.SignalName(status.Signal())
		return res, nil
	}
	res.Exit = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return res, err
	}
	return res, nil
}

// find looks a program up as a shell would, and says with which code a shell
// would end without it.
func find(name, dir string, env []string) (string, sandbox.Result) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, v := range env {
			if list, ok := strings.CutPrefix(v, "PATH="); ok {
				candidates = nil
				for _, d := range filepath.SplitList(list) {
					candidates = append(candidates, filepath.Join(d, name))
				}
			}
		}
	}
	ended := sandbox.Result{Exit: 127, Reason: fmt.Sprintf("%.200q: there is no such program", name)}
	for _, c := range candidates {
		if !filepath.IsAbs(c) {
			c = filepath.Join(dir, c)
		}
		info, err := os.Stat(c)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return c, sandbox.Result{}
		}
		ended = sandbox.Result{Exit: 126, Reason: fmt.Sprintf("%.200q cannot be started: it is no program", name)}
	}
	return "", ended
}

// terminal says whether a file is one.
func terminal(f *os.File) bool {
	if f == nil {
		return false
	}
	raw, err := f.SyscallConn()
	is := false
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_, no := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
			is = no == nil
		})
	}
	return is && err == nil
}

// diskName returns a path in the letters that the disk has. A Mac finds a file
// by its name in capitals and small letters alike, and its kernel judges the name
// on the disk: a rule for another spelling would be none.
func diskName(path string) string {
	if path == "" || path == "/" {
		return path
	}
	dir, name := diskName(filepath.Dir(path)), filepath.Base(path)
	want, err := os.Lstat(path)
	if err != nil {
		return filepath.Join(dir, name)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }) {
		return filepath.Join(dir, name)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && os.SameFile(info, want) {
			return filepath.Join(dir, e.Name())
		}
	}
	return filepath.Join(dir, name)
}
