package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// own are the variables of commands that are the repository's or the agent's:
// those of every command, then what the repository's definition adds. The
// platform's own commands do not get these.
func (a *attempt) own() []string {
	return append(a.variables(), a.made.Variables(a.o.Env)...)
}

// outfit is what an attempt does so that its boxes are as the repository and
// the agent need them.
type outfit struct{ *attempt }

// prepare makes sure that there is the environment which the repository's
// definition and the agent need. Its setup runs in a box of its own, which can
// reach neither the repository nor a model.
func (a outfit) prepare(ctx context.Context) error {
	var err error
	if a.made, err = a.recipe(ctx); err != nil {
		return err
	}
	if a.image, err = a.findImage(ctx); err != nil {
		return failFor(cofferdam.ReasonEnvironment, err)
	}
	installs, err := a.adapter.SetupCommands()
	if err != nil {
		return err
	}
	allow, dropped, err := a.reach()
	if err != nil {
		return err
	}
	form, err := a.form(ctx)
	if err != nil {
		return err
	}
	d := environment.Definition{
		Scope: a.plan.Scope, Image: a.image.Name, ImageDigest: a.image.Digest, Setup: slices.Concat(installs, a.made.Setup),
		Allow: slices.Concat(text(allow), a.adapter.Allow), Env: a.own(), Disk: a.grant.limits.Disk, Secrets: a.made.Secrets, Form: form,
	}
	want := environment.Want{Definition: d, Name: a.plan.Repo.Name + "/" + a.adapter.Name, MaxAge: a.made.MaxAge}
	for {
		noTurn := false
		a.env, err = a.o.Environments.Ensure(ctx, want, func(ctx context.Context, path string) error {
			if noTurn = !a.turns.has(a.plan.ID); noTurn {
				return errNoTurn
			}
			return a.setup(ctx, path, installs, allow)
		})
		if !noTurn {
			break
		}
		// It waits outside: others that want this environment may have the turns.
		if err := (ticket{a.attempt}).take(ctx, false); err != nil {
			return err
		}
	}
	if errors.Is(err, environment.ErrTooLarge) || errors.Is(err, environment.ErrFull) {
		return failFor(cofferdam.ReasonEnvironment, err)
	}
	if err != nil {
		return err
	}
	return a.ledger.step(ctx, stepEnv, map[string]string{
		fieldEnv: string(a.env.Digest), fieldHit: strconv.FormatBool(a.env.Hit), fieldFound: a.env.String(), fieldRecipe: a.made.Path,
		fieldImage: a.image.Name, fieldDigest: string(a.image.Digest), fieldDropped: strings.Join(dropped, " "),
		"ignored": strings.Join(a.made.Ignored, " "),
	})
}

// form is that of what a setup leaves in a box of the session's tier.
func (a outfit) form(ctx context.Context) (string, error) {
	offers, err := a.o.Driver.Offers(ctx)
	for _, o := range offers {
		if o.Tier == a.tier() && o.EnvFolder {
			return environment.Folder, err
		}
	}
	return "", err
}

// recipe reads the repository's definition from the base commit: what an agent
// writes into it changes nothing of the attempt or of its proof.
func (a outfit) recipe(ctx context.Context) (environment.Recipe, error) {
	paths, err := environment.Paths(a.plan.Request.Environment)
	if err != nil {
		return environment.Recipe{}, failFor(cofferdam.ReasonEnvironment, err)
	}
	for _, path := range paths {
		text, err := a.o.ReadFile(ctx, a.plan.Repo.ID, a.plan.base(), path, environment.MaxRecipe+1)
		if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
			continue
		}
		if err != nil {
			return environment.Recipe{}, failFor(cofferdam.ReasonEnvironment, err)
		}
		r, err := environment.Read(path, text)
		return r, failFor(cofferdam.ReasonEnvironment, err)
	}
	if a.plan.Request.Environment != "" && len(paths) > 0 {
		return environment.Recipe{}, fail(cofferdam.ReasonEnvironment, "the repository has no "+paths[0]+" at its base commit")
	}
	return environment.Recipe{}, nil
}

// findImage finds what the box has at "/": what the task says, else the definition.
func (a outfit) findImage(ctx context.Context) (environment.Image, error) {
	w := environment.ImageWant{Name: a.plan.Request.Image, Operator: a.plan.Request.Image != "", Packages: a.made.Packages}
	if w.Name == "" {
		w.Name = a.made.Image
	}
	if a.o.Image != nil {
		return a.o.Image(ctx, a.plan.Scope, w)
	}
	return environment.LocalImage(w)
}

// reach returns what setup and the commands of a new box may reach: what the
// definition names, of what the work may reach. Without a list that is nothing.
func (a outfit) reach() (allow []policy.Rule, dropped []string, err error) {
	p := policy.Project{Narrows: true}
	var hosts []string
	for _, entry := range a.made.Allow {
		if name, preset := strings.CutPrefix(entry, "preset:"); preset {
			p.Presets = append(p.Presets, name)
		} else {
			hosts = append(hosts, entry)
		}
	}
	if p.Allow, err = policy.ParseAllow(hosts, nil); err != nil {
		return nil, nil, failFor(cofferdam.ReasonEnvironment, err)
	}
	g, err := policy.Grant{Allow: a.grant.hosts}.Narrow(p)
	return g.Allow, text(g.Dropped), failFor(cofferdam.ReasonEnvironment, err)
}

func text(rules []policy.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.String())
	}
	return all
}

// mustPass runs a command whose failure ends the session, with its last line.
func (a outfit) mustPass(ctx context.Context, box sandbox.Box, c sandbox.Command, what string) error {
	ran, err := a.execute(ctx, box, policy.BySetup, c, nil)
	if cofferdam.KindOf(err) == cofferdam.Invalid {
		return failFor(cofferdam.ReasonEnvironment, err) // no box ever starts it, so that trying again is no use
	}
	if err != nil || !ran.failed() {
		return err
	}
	how := fmt.Sprintf("ended with %d", ran.Exit)
	switch {
	case ran.TimedOut:
		how = "was not done when its time was up"
	case ran.Reason != "":
		how += " (" + clip(ran.Reason, 500) + ")"
	}
	why := fmt.Sprintf("%s %s at: %s: %s", what, how, clip(commandText(c), 500), cmp.Or(lastLine(ran.tail.String()), "it said nothing"))
	// Installers seldom repeat what a gateway told them.
	a.ledger.look(func(s *seen) {
		if s.usage.Refused > 0 {
			why += fmt.Sprintf("; requests refused until then: %d (cofferdam doctor says whether this machine's registries can be reached)", s.usage.Refused)
		}
	})
	return fail(cofferdam.ReasonEnvironment, why)
}

// dress runs what the repository's definition wants in every new box: in the
// workspace, as the agent's user, with what setup may reach and not with what
// the agent may. After it the box has the wire it had before.
func (a outfit) dress(ctx context.Context) error {
	if err := a.goneFromBox(ctx); err != nil {
		return err
	}
	steps := slices.Concat(a.made.Maintenance, a.made.Ready)
	open := false
	for i := range steps {
		if x, _ := a.ledger.exec(a.dressID(i)); x.result == nil {
			open = true
		}
	}
	if !open { // nothing to do, or an earlier process came past it
		return nil
	}
	allow, _, err := a.reach()
	if err != nil {
		return err
	}
	caller, err := a.caller(ctx, a.setupOf(allow), gateway.Setup)
	if err == nil {
		err = a.ledger.policy(ctx, caller.Policy.Set())
	}
	if err != nil {
		return err
	}
	a.cut()
	var names []wire.Name
	a.ledger.look(func(s *seen) { names = s.names })
	w, err := a.o.Connect(ctx, a.box, caller, names)
	if err != nil {
		return boxError(err)
	}
	err = a.dressed(ctx, steps)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return a.connect(ctx)
}

func (a outfit) dressID(i int) cofferdam.ExecID {
	return cofferdam.ExecID(fmt.Sprintf("dress-%d-%d", a.nth+1, i+1))
}

// dressed runs the steps, those beside each other at the same time. What a
// readiness command does not accept is not used again.
func (a outfit) dressed(ctx context.Context, steps []environment.Step) error {
	end := time.Now().Add(a.made.Timeout)
	for i := 0; i < len(steps); {
		n := i + 1
		for n < len(steps) && steps[n].Beside {
			n++
		}
		errs := make([]error, n-i)
		var group sync.WaitGroup
		for j := i; j < n; j++ {
			group.Go(func() {
				errs[j-i] = a.mustPass(ctx, a.box, sandbox.Command{
					ID: a.dressID(j), Shell: steps[j].Shell, Argv: steps[j].Argv, Dir: sandbox.WorkDir, Env: a.own(),
					Timeout: max(time.Until(end), time.Millisecond),
				}, steps[j].Name+" of "+a.made.Path)
			})
		}
		group.Wait()
		if err := cmp.Or(errs...); err != nil {
			if f := (*failure)(nil); errors.As(err, &f) && i >= len(a.made.Maintenance) && a.env.Path != "" && a.atBase() {
				before, rejected := a.o.Environments.Reject(a.plan.Scope, a.env.Digest, "a readiness command did not pass in it")
				if before {
					err = fail(f.code, f.reason+"; the one before it is kept: cofferdam environment rollback "+string(a.env.Digest))
				}
				err = errors.Join(err, rejected)
			}
			return err
		}
		i = n
	}
	for i := range steps {
		if err := a.endTree(ctx, a.dressID(i)); err != nil {
			return err
		}
	}
	return nil
}

// atBase says whether the workspace began as the commit that the definition is
// of: in another one, as in one that an earlier session of the attempt left, it
// may be an agent's work that made a command fail.
func (a outfit) atBase() bool {
	return a.plan.base() == a.plan.Commit && !a.taken && !a.goesOn
}
