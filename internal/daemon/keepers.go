package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cofferdam"
	"cofferdam/sandbox/keeper"
)

// keeperWait is how long a keeper may take to begin: it first ends what a dead
// one left behind.
const keeperWait = 30 * time.Second

// dial claims the keepers of this installation. One of another build than the
// installed programs is replaced: at once, or when its last box has ended.
func (s *server) dial(ctx context.Context) error {
	var err error
	if s.build, err = keeper.Build("/proc/self/exe"); err != nil {
		return fmt.Errorf("reading own program: %w", err)
	}
	build, err := keeper.BuildOf(s.Programs, "")
	if err != nil {
		return &cofferdam.Error{Op: "daemon.dial", Kind: cofferdam.Unavailable, Subject: "programs of the keeper", Reason: err.Error(), Hint: "make build puts all programs into bin/", Err: err}
	}
	s.boxes, err = keeper.Gather(ctx, keeper.Gathering{
		Slots: keeper.Slots(s.Keeper, s.KeeperState), Build: build, Start: s.startKeeper, Log: s.log,
	})
	return err
}

// statusWait is how long who asks for the state of things waits for a keeper.
const statusWait = 2 * time.Second

// keepers are those that run now; one that does not answer is doctor's to name.
func (s *server) keepers(ctx context.Context) []cofferdam.Keeper {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	all := []cofferdam.Keeper{}
	for _, k := range keeper.Answering(ctx, keeper.Slots(s.Keeper, s.KeeperState)) {
		all = append(all, cofferdam.Keeper{Process: k.Process, Build: k.Build, Boxes: k.Boxes, Draining: k.Draining})
	}
	return all
}

// startKeeper starts a keeper in the background, as this server's settings or
// the keeper before say; it outlives the server.
func (s *server) startKeeper(ctx context.Context, slot keeper.Slot, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, keeperWait)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(slot.Socket), 0o700); err != nil {
		return &cofferdam.Error{Op: "daemon.startKeeper", Kind: cofferdam.Unavailable, Subject: "folder of the keeper's socket", Reason: err.Error(), Hint: "choose another with --keeper", Err: err}
	}
	args = append([]string{"--socket", slot.Socket, "--state", slot.State, "--kept", s.KeeperState, "--detach"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.Programs, keeper.Program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C at the server's terminal is not for it
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		otherwise := err.Error()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			otherwise = fmt.Sprintf("it does not come to serving within %s; its log is %s", keeperWait, filepath.Join(slot.State, "keeper.log"))
		}
		reason, hint := said(string(out), otherwise)
		return &cofferdam.Error{Op: "daemon.startKeeper", Kind: cofferdam.Unavailable, Subject: "starting " + keeper.Program, Reason: reason, Hint: hint}
	}
	return nil
}

// said takes reason and hint out of what a sister printed before it ended.
func said(out, otherwise string) (reason, hint string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutPrefix(line, "hint: "); ok {
			hint = h
		} else if line != "" {
			reason = strings.TrimPrefix(line, keeper.Program+": ")
		}
	}
	if reason == "" {
		reason = otherwise
	}
	if hint == "" {
		hint = "cofferdam doctor checks this host"
	}
	return fmt.Sprintf("%.500s", reason), fmt.Sprintf("%.500s", hint)
}
