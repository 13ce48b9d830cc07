package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// stage is a part of a setup: commands that trust each other, with what they
// may reach. Each has a box and a wire of its own; what they share is the folder
// that becomes the environment.
type stage struct {
	name     string // for people and the record
	commands []string
	allow    []policy.Rule
	env      []string
	secrets  []string      // names of those in env, for the record
	timeout  time.Duration // of all its commands together; 0: each has the time of a check
}

// what names a command of a stage for people.
func (s stage) what(i int) string {
	if s.timeout == 0 {
		return "the setup of " + s.name
	}
	return fmt.Sprintf("setup %d of %s", i+1, s.name)
}

// setup makes the environment at path. The agent is installed first: what the
// repository wants is not there yet, so that nothing it could leave behind (a
// hook, a setting of npm) runs where the agent's registry can be reached; nor do
// its variables reach that far, for some name code to be run.
func (a outfit) setup(ctx context.Context, path string, installs []string, allow []policy.Rule) error {
	own, err := policy.ParseAllow(a.adapter.Allow, a.o.Presets)
	if err != nil {
		return failFor(cofferdam.ReasonEnvironment, err)
	}
	raw, err := a.raw(ctx)
	if err != nil {
		return err
	}
	for _, s := range []stage{
		{name: "agent " + a.adapter.Name, commands: installs, allow: own, env: a.variables()},
		{name: a.made.Path, commands: a.made.Setup, allow: allow, env: append(a.own(), raw.variables()...), secrets: a.made.Secrets, timeout: a.made.Timeout},
	} {
		if len(s.commands) == 0 {
			continue
		}
		if err := a.setupStage(ctx, path, s); err != nil {
			return err
		}
	}
	return a.goneFrom(ctx, path, raw)
}

// setupStage runs the commands of one stage in a box of their own, with the
// image to be.
func (a outfit) setupStage(ctx context.Context, path string, s stage) (err error) {
	try := 0
	a.ledger.look(func(s *seen) { try = s.setups + 1 })
	caller, err := a.caller(ctx, a.setupOf(s.allow), gateway.Setup)
	if err == nil {
		err = a.ledger.policy(ctx, caller.Policy.Set())
	}
	if err != nil {
		return err
	}
	if err := a.ledger.step(ctx, stepSetup, map[string]string{
		fieldTries: strconv.Itoa(try), fieldBox: string(a.setupBoxID()), "stage": s.name, "rules": strconv.Itoa(len(s.allow)),
		"secrets": strings.Join(s.secrets, " "),
	}); err != nil {
		return err
	}
	// A box that an earlier process left has written to an image that is gone.
	if err := a.destroy(ctx, a.setupBoxID()); err != nil {
		return err
	}
	spec := a.spec()
	spec.ID, spec.Env, spec.SetupPhase = a.setupBoxID(), path, true
	box, err := a.o.Driver.Create(ctx, spec)
	if err != nil {
		return failFor(cofferdam.ReasonEnvironment, err)
	}
	defer func() { // the image is whole only when the box has let go of it
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		err = errors.Join(err, box.Destroy(clean))
	}()
	w, err := a.o.Connect(ctx, box, caller, nil)
	if err != nil {
		return err
	}
	defer w.Close() // the box is about to go; what is cut is on record
	end := time.Now().Add(s.timeout)
	for i, text := range s.commands {
		c := sandbox.Command{ID: cofferdam.ExecID(fmt.Sprintf("setup-%d-%d", try, i+1)), Shell: text, Dir: sandbox.EnvDir, Env: s.env, Timeout: a.o.CheckTimeout}
		if s.timeout > 0 {
			c.Timeout = max(time.Until(end), time.Millisecond)
		}
		if err := a.mustPass(ctx, box, c, s.what(i)); err != nil {
			return err
		}
	}
	return nil
}
