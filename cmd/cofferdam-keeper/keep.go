package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox/keeper"

	"golang.org/x/sys/unix"
)

// minimalEnv is all of the environment that a keeper has: gVisor's file
// servers inherit it, and what is not there cannot be read there.
func minimalEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8"}
}

// enter starts this program again, as the same process, in a mount namespace
// of its own: what the host mounts later appears in it, and nothing of ours
// outside. When the keeper and its boxes are gone the kernel removes the rest.
func (s settings) enter() error {
	runtime.LockOSThread() // the thread that unshares is the one that goes on
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return layer("mount namespace", "run the keeper with CAP_SYS_ADMIN", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return layer("mount namespace", "run the keeper with CAP_SYS_ADMIN", err)
	}
	if s.inUser() && !s.check && s.limits != limitsWatched {
		if dir, err := ownGroup(); err == nil {
			if err := takeGroup(dir, cgroupRoot); err != nil {
				return layer("control groups", "start it with --limits watched, or without Delegate=yes", err)
			}
		}
	}
	args := append([]string{os.Args[0]}, s.args("--inside", "--ready", fmt.Sprint(s.ready))...)
	if s.user {
		args = append(args, "--user")
	}
	if s.check {
		args = append(args, "--check")
	}
	return fmt.Errorf("starting again: %w", unix.Exec("/proc/self/exe", args, minimalEnv()))
}

// layer is the error for something the host does not offer.
func layer(name, fix string, err error) error {
	return &cofferdam.Error{
		Op: "keeper.run", Kind: cofferdam.Unavailable, Subject: "starting keeper: " + name,
		Reason: err.Error(), Hint: fix, Err: err,
	}
}

// keep serves until ctx ends, and then ends every box.
func (s settings) keep(ctx context.Context) (err error) {
	ready := s.reporter()
	defer func() { ready(err) }()
	ctx = s.withStarter(ctx)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	lock, serves, err := s.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.pin(); err != nil {
		return err
	}
	build, err := keeper.BuildOf(s.programs, "/proc/self/exe")
	if err != nil {
		return layer("its programs", "keep all programs of one release together: make build puts them into bin/", err)
	}
	if s.ready > 0 {
		out, err := openLog(filepath.Join(s.state, "keeper.log"))
		if err != nil {
			return layer("its log", "choose a state folder that can be written", err)
		}
		defer out.Close()
		log = slog.New(slog.NewJSONHandler(out, nil))
	}
	d, err := s.open(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end(ctx)) }()
	s.inherit(ctx, log)
	l, err := s.listen()
	if err != nil {
		return err
	}
	if err := serves(); err != nil {
		return errors.Join(layer("lock of state folder", "choose a state folder that can be written", err), l.Close())
	}
	log.InfoContext(ctx, "keeper is ready", slog.Any("socket", s.socket), slog.Any("state", s.state), slog.Any("pid", os.Getpid()), slog.String("build", build))
	ready(nil)
	err = keeper.Serve(ctx, l, d.of, keeper.Options{Build: build, State: s.state, Args: s.heirs(), Log: log})
	log.InfoContext(ctx, "keeper ends, and every box with it")
	return err
}

// closeTime is for ending all boxes; each takes about a tenth of a second.
const closeTime = time.Minute

// lockTime is how long a keeper tries to get its state folder.
const lockTime = 500 * time.Millisecond

// letGoTime is how long it tries when the keeper that had it was killed: a program
// that one was starting has the lock as well until it has begun, and on a busy host
// that was seen to take more than lockTime.
const letGoTime = 10 * time.Second

// heirs are the flags that another keeper in the place of this one is to have.
func (s settings) heirs() []string {
	args := []string{"--pool", strconv.Itoa(s.pool)}
	if s.limits != "" {
		args = append(args, "--limits", s.limits)
	}
	if s.kernel != "" {
		args = append(args, "--kernel", s.kernel)
	}
	if s.monitor != "" {
		args = append(args, "--monitor", s.monitor)
	}
	return args
}

// lock keeps a second keeper off the state folder. The kernel drops it when
// this process ends, however it ends.
func (s settings) lock() (f *os.File, serves func() error, err error) {
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		return nil, nil, layer("state folder", "choose a folder that root can make, with --state", err)
	}
	path := filepath.Join(s.state, keeper.LockFile)
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, layer("state folder", "choose a folder that root can write, with --state", err)
	}
	// Who looks whether a keeper is there holds the lock for a moment.
	for began := time.Now(); ; time.Sleep(lockTime / 50) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		waited := time.Since(began)
		if !errors.Is(err, unix.EWOULDBLOCK) || waited > letGoTime || waited > lockTime && !keeper.HolderEnded(s.state) {
			break
		}
	}
	if err == nil {
		serves, err = keeper.Begin(f, s.socket)
		return f, serves, err
	}
	holder := make([]byte, 32)
	n, _ := f.Read(holder)
	who, _, _ := strings.Cut(string(holder[:n]), "\n")
	_ = f.Close() // nothing was written
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil, layer("lock of state folder", "choose a folder on a local disk, with --state", err)
	}
	return nil, nil, &cofferdam.Error{
		Op: "keeper.lock", Kind: cofferdam.Conflict, Subject: "starting keeper",
		Reason: fmt.Sprintf("another keeper (%s) works in %s", who, s.state),
		Hint:   "use that one, stop it first, or give another folder with --state and another --socket",
	}
}

// listen makes the socket, which only root can open. One that nobody answers
// on is what a killed keeper left.
func (s settings) listen() (*net.UnixListener, error) {
	const fix = "give another path with --socket"
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
		return nil, layer("socket", fix, err)
	}
	if c, err := net.DialTimeout("unix", s.socket, time.Second); err == nil {
		return nil, errors.Join(&cofferdam.Error{
			Op: "keeper.listen", Kind: cofferdam.Conflict, Subject: "starting keeper",
			Reason: "somebody answers on " + s.socket + " already", Hint: fix,
		}, c.Close())
	}
	if info, err := os.Lstat(s.socket); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, layer("socket", fix, fmt.Errorf("%s is there and is no socket", s.socket))
		}
		if err := os.Remove(s.socket); err != nil {
			return nil, layer("socket", fix, err)
		}
	}
	before := unix.Umask(0o177)
	defer unix.Umask(before)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket})
	if err != nil {
		return nil, layer("socket", fix, err)
	}
	// By the time this keeper ends, another may have its socket at this path;
	// one that nobody answers on is no harm.
	l.SetUnlinkOnClose(false)
	return l, nil
}

// reporter tells the process that started this one in the background, once,
// how that went.
func (s settings) reporter() func(error) {
	if s.ready <= 0 {
		return func(error) {}
	}
	unix.CloseOnExec(s.ready)
	var out io.WriteCloser = os.NewFile(uintptr(s.ready), "ready")
	return func(err error) {
		if out == nil {
			return
		}
		if err != nil {
			report(out, err)
		} else {
			fmt.Fprint(out, readyWord)
		}
		_ = out.Close() // who waits sees the end of the pipe in any case
		out = nil
	}
}
