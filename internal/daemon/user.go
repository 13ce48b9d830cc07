package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"

	"cofferdam/internal/config"
	"cofferdam/internal/userns"
)

// asUser runs the server as uid 0 of a user namespace of the ordinary user who
// started it: there git's processes and boxes have users of their own. It ends
// when this process does, and returns its exit code.
func asUser(ctx context.Context, args []string) (int, error) {
	// Where things are is decided out here, for in there everybody is root.
	c, err := config.FromArgs(args, os.Getenv)
	if err != nil {
		return 0, err
	}
	for name, value := range map[string]string{"state": c.State, "socket": c.Socket, "keeper": c.Keeper} {
		if c.Sources[name] != "flag" {
			args = append(args, "--"+name+"="+value)
		}
	}
	cmd, life, err := userns.Command(args, os.Environ(), false)
	if err != nil {
		return 0, err
	}
	defer life.Close()
	defer context.AfterFunc(ctx, func() { life.Close() })() // asks it to end
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	} else if err != nil {
		return 0, err
	}
	return 0, nil
}

// withStarter ends ctx with the process that started this one in a user
// namespace: signals go to that one. owner is that one's user, "" without one:
// in here it is uid 0, which passwd calls root.
func withStarter(ctx context.Context) (_ context.Context, owner string) {
	if !userns.Started() {
		return ctx, ""
	}
	ctx, cancel := context.WithCancel(ctx)
	starter := userns.Starter()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, starter) // its end is all that is waited for
	}()
	return ctx, userns.Owner()
}
