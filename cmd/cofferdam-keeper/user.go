package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"cofferdam"
	"cofferdam/internal/userns"
	"cofferdam/sandbox"
)

// readyFD is the descriptor for the report of a keeper in a user namespace; the
// one before it is what Starter reads.
const readyFD = 4

// asUser starts this program as uid 0 of a namespace of the user's own.
func (s settings) asUser(ctx context.Context) error {
	args := s.args("--user")
	switch {
	case s.check:
		return s.examineAsUser(ctx, append(args, "--check"))
	case s.detach:
		return s.backgroundAsUser(ctx, append(args, "--ready", fmt.Sprint(readyFD)))
	}
	cmd, life, err := userns.Command(args, minimalEnv(), false)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { life.Close() }) // it ends when the pipe does
	defer stop()
	return outcome(cmd)
}

// outcome waits for a program that reports its own errors.
func outcome(cmd *exec.Cmd) error {
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	return err
}

// examineAsUser prints the findings of a keeper in a namespace, or why there is
// none.
func (s settings) examineAsUser(ctx context.Context, args []string) error {
	cmd, life, err := userns.Command(args, minimalEnv(), false)
	if err != nil {
		missing := []sandbox.Finding{{
			Name: "user-namespace", Level: sandbox.Fail, Fix: cofferdam.HintOf(err),
			Detail: fmt.Sprintf("uid %d cannot have one: %v", os.Geteuid(), reason(err)),
		}}
		var list []sandbox.Survey
		for _, t := range s.examined() {
			list = append(list, sandbox.NewSurvey(sandbox.OfferOf(t), missing))
		}
		return print(os.Stdout, list)
	}
	defer life.Close()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	return outcome(cmd)
}

// reason is what an error says of itself.
func reason(err error) string {
	var known *cofferdam.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return err.Error()
}

// backgroundAsUser is background for a keeper in a namespace of a user.
func (s settings) backgroundAsUser(ctx context.Context, args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd, life, err := userns.Command(args, minimalEnv(), true, w)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	defer life.Close()
	return hear(ctx, r, cmd.Process)
}

// withStarter ends a keeper in the foreground of an ordinary user when its
// starter ends: a signal goes to that one.
func (s settings) withStarter(ctx context.Context) context.Context {
	if !s.user || s.ready > 0 {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	starter := userns.Starter()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, starter) // its end is all that is waited for
	}()
	return ctx
}
