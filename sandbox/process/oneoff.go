package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/wall"
)

// OneOff is one command in a process box of its own, without a keeper and
// without state on disk: the box is gone when Run returns. It sees all of the
// host read-only, with credentials unreadable, runs as the caller's own user
// without any capability, and may write its workspace and nothing else of the
// host. /tmp, /run, /dev/shm and the home folder are in memory and gone with the
// box; the home folder shows, read-only, what is in the caller's, but for names
// that begin with a dot: of those only programs, and what Show names.
type OneOff struct {
	Init string   // absolute path of cofferdam-init
	Argv []string // the program and its arguments; without "/" it is looked up in Env's PATH, in the box
	Env  []string // all of the command's environment; nothing is inherited

	// Workspace is a folder of the host, absolute and without links, that is
	// writable at the same path. "" for none. A folder that holds the caller's
	// home folder, or is it, is refused.
	Workspace string
	// From is the folder of the host that is there; "" is Workspace itself. A
	// copy stands at its original's path.
	From string
	// Writable are more folders, absolute and without links, that are writable at
	// the same path: the repository of a linked worktree of git. At most 8.
	Writable []string
	Dir      string // where the command starts, in the box; "" is Workspace, else "/tmp"

	Home string   // the caller's home folder; "" for none
	Show []string // absolute paths below Home that stay readable although their names begin with a dot
	Hide []string // absolute paths that are hidden besides those that always are; missing ones are no error

	// Look is what is known of the host, begun earlier so that it is not waited for;
	// nil: Run looks.
	Look *Look

	// Files are small read-only files put over what the host has there, or in
	// /run, /tmp or the home folder, such as a bundle of certificates: at most 64, of
	// 4 MiB in all. /etc/resolv.conf is always our own: it names netns.Gateway.
	// /etc/hosts has the box's name besides what the host's says.
	// Links are refused.
	Files []sandbox.File
	// Over are large read-only files that lie on the host already: what is at the
	// key's path there, which exists, shows the value's file. At most 64.
	Over     map[string]string
	Hostname string           // "" is "box"
	Limits   cofferdam.Limits // Temp is the size of /tmp, OpenFiles of descriptors, PIDs of processes; zero fields are those of sandbox.DefaultLimits. Memory, CPU and Disk are refused: they need the keeper

	// The command's own descriptors, as they are, a terminal too; nil is
	// /dev/null. It has no others. Writing into the terminal's input (TIOCSTI)
	// is refused to it. If one of them is the terminal of this session, the command
	// is a job of its own in it, else it is in a session of its own.
	Stdin, Stdout, Stderr *os.File

	// Wire is given the box's network device while the walls are built: a
	// non-blocking TAP descriptor with Ethernet frames, which it owns from then
	// on; and the number of a process in that network. The command does not start
	// before it returns. Its error ends the box, and Run returns it. nil: the box
	// has no network besides loopback.
	Wire func(tap *os.File, pid int) error

	// Ended is called as soon as the command has ended by itself and how is known,
	// while what it left behind is ended. Run waits for it. nil for none.
	Ended func(sandbox.Result)

	// Signals are sent on to the command; those that a terminal sends, to all that
	// it has started. One of those that end programs that comes before the command has begun ends the
	// box, as if it had ended the command. With SIGTSTP and SIGCONT among them a command can be stopped
	// and go on like any job of a shell. nil for none.
	Signals <-chan os.Signal
}

// Run starts the command, waits for its end and returns how it ended: with
// Exit 126 or 127 and a Reason when it could not be started. When ctx ends,
// the whole box is killed and ctx's error is returned. An error says that
// there was no box: Unavailable for a missing layer, with its fix, or Invalid.
func (o OneOff) Run(ctx context.Context) (sandbox.Result, error) {
	if err := o.check(); err != nil {
		return sandbox.Result{}, err
	}
	stdio := [3]*os.File{o.Stdin, o.Stdout, o.Stderr}
	tty := findTerminal(stdio)
	p, err := startInit(starting{path: o.Init, once: true, wire: o.Wire != nil, apart: tty.tty < 0, flags: unix.CLONE_NEWNET, stdio: stdio}, o.plan)
	if err != nil {
		return sandbox.Result{}, err
	}
	started := time.Now()
	tty.begin(p.cmd.Process.Pid)
	var talking sync.WaitGroup
	over := make(chan struct{})
	talking.Go(func() { o.watch(ctx, p, tty, over) })
	r, err := o.follow(p, tty)
	res := sandbox.Result{Exit: r.Exit, Signal: r.Signal, Reason: r.Reason, Started: started, Ended: time.Now()}
	if r.Signal != 0 {
		res.Reason = "ended by signal " + unix.SignalName(unix.Signal(r.Signal))
	}
	switch {
	case err != nil:
		_ = p.cmd.Process.Kill() // it may have ended by itself
	case o.Ended != nil && ctx.Err() == nil:
		talking.Go(func() { o.Ended(res) })
	}
	p.await()
	tty.end()
	_ = p.cmd.Wait() // how the command ended is in the report
	close(over)
	talking.Wait()
	unix.Close(p.talk)
	if ctx.Err() != nil {
		return sandbox.Result{}, context.Cause(ctx)
	}
	if n := int(p.start.cut.Load()); n != 0 && err != nil {
		res.Exit, res.Signal, res.Reason = 128+n, n, "interrupted before the command began"
		return res, nil
	}
	if err != nil {
		return sandbox.Result{}, err
	}
	return res, nil
}

// beginning is what is known of a command that is about to begin.
type beginning struct {
	begun atomic.Bool  // nothing holds it back any more
	cut   atomic.Int32 // signal that ended the box before; 0 for none
}

// interrupts says whether s ends a box whose command has not begun: pid 1, which
// builds meanwhile, has nobody to send it on to.
func (b *beginning) interrupts(s syscall.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGTERM && s != unix.SIGHUP && s != unix.SIGQUIT || b.begun.Load() {
		return false
	}
	b.cut.Store(int32(s))
	return true
}

// follow lets pid 1 build and hears how it goes, to the end.
func (o OneOff) follow(p *pid1, tty *terminal) (wall.Report, error) {
	p.start.begun.Store(o.Wire == nil)
	if err := p.say(0); err != nil {
		return wall.Report{}, o.lost(err)
	}
	for {
		r, tap, err := p.hear()
		switch {
		case err != nil:
			return r, o.lost(err)
		case r.Error != "":
			return r, reported(opRun, r)
		case r.Ended:
			return r, nil
		case r.Stopped != 0:
			tty.stopped(unix.Signal(r.Stopped))
		case r.Wire && tap != nil && o.Wire != nil:
			if err := o.Wire(tap, p.cmd.Process.Pid); err != nil {
				return r, err
			}
			p.start.begun.Store(true)
			_ = p.say(0) // it builds meanwhile; if it could not, it has said why
		default:
			return r, o.lost(errors.New("it said what it may not"))
		}
	}
}

func (o OneOff) lost(err error) error {
	return &cofferdam.Error{
		Op: opRun, Kind: cofferdam.Unavailable, Subject: "box of tier process", Reason: "its pid 1 ended: " + err.Error(),
		Hint: "try again; if it was killed for want of memory, give the host more", Err: err,
	}
}

// watch sends signals on, and ends the box with ctx.
func (o OneOff) watch(ctx context.Context, p *pid1, tty *terminal, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			_ = p.cmd.Process.Kill() // it may just have ended
			return
		case s := <-o.Signals:
			n, ok := s.(syscall.Signal)
			if !ok || n <= 0 || n >= 128 {
				continue
			}
			if p.start.interrupts(n) {
				_ = p.cmd.Process.Kill() // it may just have ended
				return
			}
			if ofGroup(n) {
				tty.signal(n)
			}
			if !ofGroup(n) || n == unix.SIGCONT { // a shell makes itself a group of its own
				_ = p.say(byte(n)) // likewise
			}
		}
	}
}

const opRun = "process.Run"

// check refuses what cannot be had.
func (o OneOff) check() error {
	switch {
	case len(o.Argv) == 0 || o.Argv[0] == "":
		return invalid(opRun, "command", "there is none", "name a program")
	case o.Limits.Memory != 0 || o.Limits.CPU != 0 || o.Limits.Disk != 0:
		return invalid(opRun, "limits", "memory, cpu and disk are limited by a keeper only", "run it in a session, or leave them out")
	case o.Limits.Temp < 0 || o.Limits.OpenFiles < 0 || o.Limits.PIDs < 0:
		return invalid(opRun, "limits", "one is negative", "")
	case o.Hostname != "" && !sandbox.ValidHostname(o.Hostname):
		return invalid(opRun, fmt.Sprintf("hostname %.64q", o.Hostname), "not a label of lower case letters, digits and hyphens", "")
	}
	for _, s := range slices.Concat(o.Argv, o.Env) {
		if strings.ContainsRune(s, 0) {
			return invalid(opRun, "command", "an argument or variable has a zero byte in it", "")
		}
	}
	if err := o.checkFolders(); err != nil {
		return err
	}
	over := slices.Collect(maps.Keys(o.Over))
	if len(over) > sandbox.MaxFiles {
		return invalid(opRun, "files", fmt.Sprintf("%d of them, more than %d", len(over), sandbox.MaxFiles), "")
	}
	for _, path := range slices.Concat(o.Show, o.Hide, over, slices.Collect(maps.Values(o.Over))) {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return invalid(opRun, fmt.Sprintf("path %.128q", path), "not a clean absolute path", "")
		}
	}
	for _, path := range o.Show {
		if o.Home == "" || !sandbox.Within(o.Home, path) || path == o.Home {
			return invalid(opRun, fmt.Sprintf("path %.128q", path), "not below the home folder", "")
		}
	}
	return sandbox.CheckFiles(opRun, o.Files, false)
}

// maxWritable bounds OneOff.Writable: each is a mount.
const maxWritable = 8

// checkFolders refuses folders that would give the command more than a project.
func (o OneOff) checkFolders() error {
	const hint = "run in a folder of your project"
	folders := slices.Clone(o.Writable)
	if len(folders) > maxWritable {
		return invalid(opRun, "writable folders", fmt.Sprintf("%d of them, more than %d", len(folders), maxWritable), "")
	}
	if o.Workspace != "" {
		folders = append(folders, o.Workspace)
	}
	for _, path := range append(folders, o.Home, o.From) {
		if path == "" {
			continue
		}
		if err := sandbox.RealFolder(path); err != nil {
			return invalid(opRun, "folder "+path, err.Error(), "give an absolute path of a folder, without links")
		}
	}
	if o.From != "" && o.Workspace == "" {
		return invalid(opRun, "folder "+o.From, "there is no workspace whose place it takes", "")
	}
	for _, path := range folders {
		if path == "/" || o.Home != "" && sandbox.Within(path, o.Home) {
			return invalid(opRun, "folder "+path, "it holds the whole home folder, with every credential in it", hint)
		}
		for _, own := range []string{"/proc", "/sys", "/dev", "/run", "/etc", "/usr"} {
			if sandbox.Within(own, path) || sandbox.Within(path, own) {
				return invalid(opRun, "folder "+path, own+" is no place of a project", hint)
			}
		}
	}
	return nil
}

// plan is what the box is made of.
func (o OneOff) plan() (wall.Plan, error) {
	limits := sandbox.DefaultLimits
	limits.Temp = cmp.Or(o.Limits.Temp, limits.Temp)
	uid := os.Geteuid()
	memory := func(to string, mode uint32) wall.Mount {
		return wall.Mount{Kind: wall.Memory, To: to, Mode: mode, Size: limits.Temp, UID: uid}
	}
	p := wall.Plan{
		Hostname: cmp.Or(o.Hostname, sandbox.DefaultHostname), TAP: o.Wire != nil, Files: cmp.Or(o.Limits.OpenFiles, limits.OpenFiles),
		Write:   []string{"/tmp", "/dev/shm", "/dev/pts", "/run"},
		Command: &wall.Command{Argv: o.Argv, Env: append([]string{}, o.Env...), Dir: cmp.Or(o.Dir, o.Workspace, "/tmp")},
	}
	if uid != 0 { // root is not counted
		p.PIDs = cmp.Or(o.Limits.PIDs, limits.PIDs)
	}
	p.Mounts = []wall.Mount{memory("/tmp", 0o1777), {Kind: wall.Memory, To: "/run", Mode: 0o755, Size: runSize, UID: uid}}
	if o.Home != "" {
		p.Write = append(p.Write, o.Home)
	}
	if o.Look == nil {
		o.Look = LookAtHost()
	}
	host, err := view(o.Look, memory(o.Home, 0o700), o.Show)
	if err != nil {
		return p, fmt.Errorf("look at host: %w", err)
	}
	p.Mounts = append(p.Mounts, host...)
	for _, path := range o.Writable {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Bind, To: path, From: path, Write: true})
	}
	p.Write = append(p.Write, o.Writable...)
	if o.Workspace != "" {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Bind, To: o.Workspace, From: cmp.Or(o.From, o.Workspace), Write: true})
		p.Write = append(p.Write, o.Workspace)
	}
	own := slices.Clone(o.Writable)
	if o.Workspace != "" && (o.From == "" || o.From == o.Workspace) { // nobody listens in a copy
		own = append(own, o.Workspace)
	}
	p.Mounts = append(p.Mounts, socketsIn(own)...)
	for _, path := range o.Hide {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Hidden, To: path})
	}
	p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Process, To: "/proc"}, wall.Mount{Kind: wall.Devices, To: "/dev", Size: sandbox.SharedMemory(limits)})
	addFile(&p, sandbox.File{Path: "/etc/resolv.conf", Data: []byte(sandbox.Resolver)})
	if names := hostNames("/etc/hosts", p.Hostname); names != nil {
		addFile(&p, sandbox.File{Path: "/etc/hosts", Data: names})
	}
	for _, f := range o.Files {
		addFile(&p, f)
	}
	for _, path := range slices.Sorted(maps.Keys(o.Over)) {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Bind, To: path, From: o.Over[path]})
	}
	if p.Filter, err = onceFilter(); sharedFolder(cmp.Or(o.From, o.Workspace)) {
		p.Filter, err = teamFilter()
	}
	return p, err
}

// maxHostNames bounds a file of names that is read into a plan: longer ones are
// lists of what is blocked, and are seen as they are.
const maxHostNames = 64 << 10

// hostNames are the names that a file of the host has, and the box's own: many
// programs look up their machine's name, and none is to ask the network for it.
func hostNames(path, hostname string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 { // what is not for everybody stays unseen
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxHostNames+1))
	if err != nil || len(data) > maxHostNames {
		return nil
	}
	return fmt.Appendf(data, "\n127.0.1.1 %s\n", hostname)
}
