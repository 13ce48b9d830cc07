package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limiter sets the limits of a git process before it starts; part of util-linux.
const limiter = "/usr/bin/prlimit"

// Limits of one git process and what it starts.
const (
	maxAddressSpace = 4 << 30  // bytes; two packing threads and mapped packs of a large repository
	maxFileSize     = 8 << 30  // bytes; the largest pack of a fetch
	maxOpenFiles    = 1024     // descriptors
	maxProcesses    = 512      // of one user id: a dozen clones of one repository at once
	maxStderr       = 16 << 10 // bytes of what git says that are kept
	viewSize        = "16m"    // of the cage's own root and /tmp
)

// Deadlines of a git process.
const (
	shortWork = 2 * time.Minute  // looking something up
	longWork  = 30 * time.Minute // moving packs
)

// killGrace is how long a git process that is no longer wanted may take to
// remove its lock files before it is killed with all it started. A session's
// end is promised within 5 s.
const killGrace = 2 * time.Second

// bind is one host path that a cage can see.
type bind struct {
	host, inside string
	write, exec  bool
	over         bool // covers a file that the folder around it has already
}

// child is one git process to run.
type child struct {
	uid, gid uint32
	binds    []bind
	args     []string // of git
	env      []string // added to cleanEnv
	stdin    io.Reader
	stdout   io.Writer
	said     *head      // what git says on standard error; nil: only kept for its error
	extra    []*os.File // descriptors 3 and up
	timeout  time.Duration
	level    level
	// outlives lets git go on without this process until its input ends, so
	// that it never leaves a lock in a repository that is not ours.
	outlives bool
	// listening is called with a listener on the loopback of the cage's
	// network, before git starts; nil: the cage has no network at all.
	// The function it returns is called at the end.
	listening func(net.Listener) func()
	// argv replaces git, for tests that look at a cage from inside.
	argv []string
}

// ExitError is git ending with an error.
type ExitError struct {
	Command string // git's first argument
	Code    int    // -1: by a signal or not at all
	Stderr  string // what it said, bounded; hostile text
	Err     error
}

// Error returns what git said, on one line.
func (e *ExitError) Error() string {
	said := strings.Join(strings.Fields(e.Stderr), " ")
	if said == "" {
		said = e.Err.Error()
	}
	return "git " + e.Command + ": " + said
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// run runs c in a cage and waits for its end.
func (r *Repos) run(ctx context.Context, c child) error {
	select {
	case r.slots[c.level] <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots[c.level] }()
	if c.timeout == 0 {
		c.timeout = shortWork
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		// The thread gets namespaces of its own and is never given back: the
		// runtime ends it with this goroutine. It lives as long as git does, so
		// git dies with this process (Pdeathsig counts the thread).
		runtime.LockOSThread()
		done <- r.cage(ctx, cancel, c)
	}()
	return <-done
}

// cage builds the cage on this thread, starts git in it and waits.
func (r *Repos) cage(ctx context.Context, cancel context.CancelFunc, c child) error {
	if err := buildView(r.viewDir, c.binds); err != nil {
		return fmt.Errorf("build cage: %w", err)
	}
	flags := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if c.listening == nil {
		flags |= unix.CLONE_NEWNET
	} else {
		l, err := privateListener()
		if err != nil {
			return fmt.Errorf("build cage: %w", err)
		}
		defer c.listening(l)()
	}
	if err := dropPrivileges(); err != nil {
		return fmt.Errorf("build cage: %w", err)
	}
	cmd := r.command(ctx, c)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     r.viewDir,
		Credential: &syscall.Credential{Uid: c.uid, Gid: c.gid},
		Cloneflags: flags,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if c.outlives {
		cmd.SysProcAttr.Pdeathsig = 0
	}
	said := c.said
	if said == nil {
		said = &head{max: maxStderr}
	}
	cmd.Stderr = said
	err := pump(cmd, c, cancel)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	code := -1
	if x := (*exec.ExitError)(nil); errors.As(err, &x) {
		code = x.ExitCode()
	}
	name := ""
	if len(c.args) > 0 {
		name = c.args[0]
	}
	return &ExitError{Command: name, Code: code, Stderr: said.String(), Err: err}
}

// command is git behind the limiter, as seen from inside the cage.
func (r *Repos) command(ctx context.Context, c child) *exec.Cmd {
	args := []string{
		"--core=0", fmt.Sprintf("--as=%d", maxAddressSpace), fmt.Sprintf("--fsize=%d", int64(maxFileSize)),
		fmt.Sprintf("--nofile=%d", maxOpenFiles), fmt.Sprintf("--cpu=%d", int(c.timeout.Seconds())),
	}
	if c.uid >= r.first { // another owner's processes are not ours to count
		args = append(args, fmt.Sprintf("--nproc=%d", maxProcesses))
	}
	args = append(args, "--")
	if c.argv != nil {
		args = append(args, c.argv...)
	} else {
		args = append(append(args, r.git), c.args...)
	}
	cmd := exec.CommandContext(ctx, limiter, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killGrace
	cmd.Dir = "/"
	cmd.Env = append(cleanEnv(), c.env...)
	cmd.ExtraFiles = c.extra
	return cmd
}

// cleanEnv is all a git process knows of the world.
func cleanEnv() []string {
	return []string{
		"PATH=/usr/bin:/bin", "HOME=/home", "LANG=C", "TMPDIR=/tmp",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "GIT_ALLOW_PROTOCOL=http",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat",
	}
}

// pump starts cmd, moves its standard input and output, and waits. Input that
// git does not take is read to its end all the same, so that whoever sends it
// comes to hear the answer.
func pump(cmd *exec.Cmd, c child, cancel context.CancelFunc) error {
	var in, out *os.File
	if c.stdin != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		cmd.Stdin, in = r, w
		defer r.Close()
	}
	if c.stdout != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		cmd.Stdout, out = w, r
		defer r.Close()
		defer w.Close()
	}
	if err := cmd.Start(); err != nil {
		if in != nil {
			in.Close()
		}
		return err
	}
	fed := make(chan struct{})
	go func() { // ends with its reader; run waits for it
		defer close(fed)
		if in == nil {
			return
		}
		cmd.Stdin.(*os.File).Close()
		_, err := io.Copy(in, c.stdin)
		in.Close()
		if err != nil {
			_, _ = io.Copy(io.Discard, c.stdin)
		}
	}()
	var copied error
	if out != nil {
		cmd.Stdout.(*os.File).Close()
		if _, copied = io.Copy(c.stdout, out); copied != nil {
			cancel() // nobody listens any more
		}
	}
	err := cmd.Wait()
	<-fed
	if copied != nil {
		return copied
	}
	return err
}

// head keeps the first bytes that are written to it.
type head struct {
	max int
	buf bytes.Buffer
}

// Write takes everything and keeps what fits.
func (h *head) Write(p []byte) (int, error) {
	if room := h.max - h.buf.Len(); room > 0 {
		h.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (h *head) String() string { return h.buf.String() }
