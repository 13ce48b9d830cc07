package session

import (
	"context"
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// RawSecret is a secret that a tool of a setup insists on in its own hands. It is
// in the environment of the setup's commands, and nowhere afterwards.
type RawSecret struct {
	Name     string
	Variable string              // NAME=value
	Found    func(p []byte) bool // says whether the value, in any spelling, is in p
}

type raws []RawSecret

func (all raws) variables() (env []string) {
	for _, r := range all {
		env = append(env, r.Variable)
	}
	return env
}

// in names the first of them that is in p.
func (all raws) in(p []byte) string {
	for _, r := range all {
		if r.Found(p) {
			return r.Name
		}
	}
	return ""
}

// raw returns the secrets that the repository's definition names, if the
// operator grants them to it and policy lets them be used.
func (a outfit) raw(ctx context.Context) (all raws, err error) {
	for _, name := range a.made.Secrets {
		if a.o.RawSecret == nil {
			return nil, fail(cofferdam.ReasonEnvironment, "secret "+name+" of "+a.made.Path+": this server has none for setups")
		}
		found := false
		err := gateway.Use(ctx, a.grant.caller, gateway.SetupSecret+name, func(ctx context.Context) error {
			found = true
			r, err := a.o.RawSecret(ctx, a.plan.Repo, name)
			all = append(all, r)
			return err
		})
		switch {
		case err != nil && !found:
			return nil, failFor(cofferdam.ReasonPolicy, err)
		case err != nil:
			return nil, failFor(cofferdam.ReasonEnvironment, err)
		}
	}
	return all, nil
}

// goneFrom makes sure that what setup made holds none of its secrets.
func (a outfit) goneFrom(ctx context.Context, path string, all raws) error {
	if len(all) == 0 {
		return nil
	}
	name := ""
	has, err := environment.Holds(path, func(p []byte) bool { name = all.in(p); return name != "" })
	if err != nil {
		return err
	}
	if has {
		return fail(cofferdam.ReasonEnvironment, fmt.Sprintf("the secret %s is in what the setup of %s left in %s, so it is not kept (write it below $HOME or /tmp, "+
			"which go with the box; a file that was removed again may count)", name, a.made.Path, sandbox.EnvDir))
	}
	return a.ledger.step(ctx, stepSecrets, map[string]string{"secrets": strings.Join(a.made.Secrets, " "), "gone": "files"})
}

// lookScript shows the variables and arguments of every process of a box.
const lookScript = `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/comm 2>/dev/null; env; :`

// maxLook bounds what is read of it.
const maxLook = 4 << 20

// goneFromBox makes sure that the box of the work, before anything of the
// repository or of the agent runs in it, holds no secret of the setup in the
// variables or arguments of its processes.
func (a outfit) goneFromBox(ctx context.Context) error {
	if len(a.made.Secrets) == 0 {
		return nil
	}
	known, wires := false, 0
	a.ledger.look(func(s *seen) { known, wires = s.clean == string(a.boxID(a.nth)), s.wires })
	if known {
		return nil
	}
	all, err := a.raw(ctx)
	if err != nil {
		return err
	}
	var out clipped
	c := sandbox.Command{ID: cofferdam.ExecID(fmt.Sprintf("secrets-%d-%d", a.nth+1, wires)), Shell: lookScript, Dir: "/", Timeout: placeTimeout, Env: a.own()}
	if _, err := sandbox.Run(ctx, a.box, c, &out, nil); err != nil {
		return boxError(err)
	}
	if name := all.in(out.text); name != "" {
		return fail(cofferdam.ReasonEnvironment, "the secret "+name+" of the setup is in the box of the work; nothing has run in it")
	}
	return a.ledger.step(ctx, stepSecrets, map[string]string{
		fieldBox: string(a.boxID(a.nth)), "secrets": strings.Join(a.made.Secrets, " "), "gone": "variables, processes", "bytes": fmt.Sprint(len(out.text)),
	})
}

// clipped keeps the first bytes that are written.
type clipped struct{ text []byte }

// Write takes all of p and keeps what fits.
func (c *clipped) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), maxLook-len(c.text))]...)
	return len(p), nil
}
