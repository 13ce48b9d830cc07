package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/wall"
)

// newNamespaces are the namespaces of every box; a user namespace comes with them for
// who is not root.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// building are the capabilities that pid 1 needs until its walls are up.
var building = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}

// maxReport bounds a message of pid 1: a reason may name a long path.
const maxReport = 64 << 10

// pid1 is a cofferdam-init that builds a box around itself.
type pid1 struct {
	cmd   *exec.Cmd
	talk  int       // our end of the talk at the start
	start beginning // of the command of a one-off box
}

// starting is how cofferdam-init is started.
type starting struct {
	path  string
	once  bool // it runs a single command, in a process group of its own
	wire  bool // it makes its network device before it is told what else to build
	apart bool // in a session of its own even, without a terminal
	inner bool // in a user namespace of its own, with the ids of a box
	flags uintptr
	stdio [3]*os.File
	files []*os.File // its descriptors from 3 on
}

// startInit starts cofferdam-init in namespaces of its own. It waits for a
// byte; what it is to build is planned while it starts, which takes as long.
func startInit(s starting, plan func() (wall.Plan, error)) (*pid1, error) {
	memory, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("keep plan: %w", err)
	}
	planFile := os.NewFile(uintptr(memory), "plan")
	defer planFile.Close()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make talk: %w", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "talk")
	defer theirs.Close()
	first := 3 + len(s.files)
	p := &pid1{talk: ends[0], cmd: &exec.Cmd{
		Path: s.path, Args: []string{"cofferdam-init", "--box", fmt.Sprint(first), fmt.Sprint(first + 1)},
		Env: initEnv(s.once), Dir: "/", ExtraFiles: append(s.files, theirs, planFile),
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: newNamespaces | s.flags, Setsid: s.apart, Setpgid: s.once && !s.apart},
	}}
	if s.wire {
		p.cmd.Args = append(p.cmd.Args, wall.WireFirst)
	}
	for i, f := range s.stdio { // a nil *os.File in an interface would not be nil
		if f == nil {
			continue
		}
		switch i {
		case 0:
			p.cmd.Stdin = f
		case 1:
			p.cmd.Stdout = f
		case 2:
			p.cmd.Stderr = f
		}
	}
	a := p.cmd.SysProcAttr
	switch {
	case s.inner:
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = same(userIDs()), same(groupIDs()), true
	case os.Geteuid() != 0:
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		a.AmbientCaps = building // an exec by who is not root would lose them
	}
	var planned error
	var planning sync.WaitGroup
	planning.Go(func() { planned = keepPlan(planFile, plan) })
	err = p.cmd.Start()
	if planning.Wait(); err != nil {
		unix.Close(p.talk)
		return nil, namespaceError(s, err)
	}
	if err := planned; err != nil {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // it has done nothing
		unix.Close(p.talk)
		return nil, err
	}
	return p, nil
}

// keepPlan writes a plan where pid 1 will read it.
func keepPlan(file *os.File, plan func() (wall.Plan, error)) error {
	p, err := plan()
	if err != nil {
		return err
	}
	data, err := p.Encode()
	if err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return fmt.Errorf("keep plan: %w", err)
	}
	return nil
}

// initEnv is the environment of pid 1. One that runs a single command makes no
// garbage to speak of; one that serves a box lives long.
func initEnv(once bool) []string {
	if once {
		return []string{"GOMAXPROCS=2", "GOGC=off", "GOMEMLIMIT=64MiB"}
	}
	return []string{"GOMAXPROCS=2"}
}

// say sends one byte: 0 to go on, or a signal.
func (p *pid1) say(b byte) error {
	return unix.Sendto(p.talk, []byte{b}, unix.MSG_NOSIGNAL, nil)
}

// await waits until pid 1 and all of its box has ended; its number stays its own.
func (p *pid1) await() {
	for errors.Is(unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// hear waits for a report; a descriptor that comes along is the caller's.
func (p *pid1) hear() (wall.Report, *os.File, error) {
	buf, rights := make([]byte, maxReport), make([]byte, unix.CmsgSpace(4))
	n, rn, _, _, err := unix.Recvmsg(p.talk, buf, rights, unix.MSG_CMSG_CLOEXEC)
	// A reset is told once, and before what pid 1 said: it ended without having read a signal.
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNRESET) {
		n, rn, _, _, err = unix.Recvmsg(p.talk, buf, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	var r wall.Report
	if err == nil {
		err = json.Unmarshal(buf[:n], &r)
	}
	if err != nil {
		return r, nil, err
	}
	var f *os.File
	if messages, err := unix.ParseSocketControlMessage(rights[:rn]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			f = os.NewFile(uintptr(fds[0]), "tap")
		}
	}
	return r, f, nil
}
