package session

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// Commands of a session in its box.
const (
	execCheckout cofferdam.ExecID = "checkout"
	execAgent    cofferdam.ExecID = "agent"
	execCapture  cofferdam.ExecID = "capture"
)

// gitTimeout bounds getting the workspace and handing over what was done.
const gitTimeout = 15 * time.Minute

// checkoutScript makes the workspace: a clone of one commit and its history.
// /work may hold a file system's own lost+found, which is not the agent's.
const checkoutScript = `set -eu
git init -q .
echo '/lost+found/' >> .git/info/exclude
git config remote.origin.url "$URL"
git config remote.origin.fetch "+$BASE_REF:refs/remotes/origin/$BASE_NAME"
git config user.name "$AUTHOR"
git config user.email agent@cofferdam.internal
git config push.default current
n=1
until git fetch -q --no-tags origin "$COMMIT" "$START"; do
	[ $n -lt 3 ] || exit 1
	n=$((n + 1))
	sleep 1
done
if [ -n "$BRANCH_NAME" ]; then
	git update-ref "refs/remotes/origin/$BASE_NAME" "$COMMIT"
	git checkout -q -B "$BRANCH_NAME" "$START"
else
	git checkout -q --detach "$START"
fi
test "$(git rev-parse HEAD)" = "$START"
`

// captureScript hands over what the agent left, as the agent: it runs in the
// box, so that whatever the agent did to the repository can only hurt the agent.
const captureScript = `set -eu
rm -f .git/index.lock
if [ -n "$(git status --porcelain)" ]; then
	git add -A
	git -c core.hooksPath=/dev/null -c commit.gpgsign=false commit -q -m "$MESSAGE"
fi
if [ "$(git rev-parse HEAD)" != "$COMMIT" ]; then
	git -c core.hooksPath=/dev/null push -q "$URL" "HEAD:$BRANCH"
fi
`

// checkout makes the workspace in the box, through the git gateway. An agent
// whose earlier box was lost goes on from what it had pushed by then.
func (a *attempt) checkout(ctx context.Context) error {
	start := a.plan.Commit
	if a.plan.Phase == gateway.Work {
		head, err := a.head(ctx)
		if err != nil {
			return err
		}
		if head != "" {
			start = head
		}
	}
	id := execCheckout
	if a.turn > 0 {
		id += cofferdam.ExecID("-" + strconv.Itoa(a.turn+1))
	}
	ran, err := a.insist(ctx, sandbox.Command{
		ID: id, Shell: checkoutScript, Timeout: gitTimeout,
		Env: append(append(a.variables(), a.gitVariables()...), "START="+string(start)),
	})
	if err != nil {
		return err
	}
	if ran.failed() {
		return fail(cofferdam.ReasonRepository, "the workspace could not be made: "+gitReason(ran.tail.String()))
	}
	return nil
}

// gitReason returns what the git gateway had git say, else git's own last line.
func gitReason(text string) string {
	lines := strings.Split(text, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if said, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "remote: cofferdam: "); ok {
			return clip(said, 300)
		}
	}
	return lastLine(text)
}

func (a *attempt) gitVariables() []string {
	p := a.plan
	base := p.Request.Base
	if base == "" {
		base = string(p.Repo.Base)
	}
	base = strings.TrimPrefix(base, "refs/heads/")
	return []string{
		"URL=" + a.o.CloneURL(p.Repo), "COMMIT=" + string(p.Commit), "GIT_TERMINAL_PROMPT=0",
		"BASE_REF=refs/heads/" + base, "BASE_NAME=" + base, "AUTHOR=Cofferdam agent (" + a.adapter.Name + ")",
		"BRANCH=" + string(p.Branch), "BRANCH_NAME=" + strings.TrimPrefix(string(p.Branch), "refs/heads/"),
	}
}

// work runs what the session is for.
func (a *attempt) work(ctx context.Context) error {
	if a.plan.Phase == gateway.Proof {
		return a.runChecks(ctx)
	}
	if a.adapter.Brain {
		return a.think(ctx)
	}
	return a.runAgent(ctx)
}

// runAgent runs the agent and listens to what it says.
func (a *attempt) runAgent(ctx context.Context) error {
	p := a.plan
	c, err := a.adapter.Command(agent.Input{
		Text: p.Request.Text, Done: p.Request.Done, Checks: p.Request.Checks, Command: p.Request.Command,
		Branch: strings.TrimPrefix(string(p.Branch), "refs/heads/"),
	})
	if err != nil {
		return failFor(cofferdam.ReasonAgent, err)
	}
	c.ID, c.Dir, c.Timeout = execAgent, sandbox.WorkDir, a.o.AgentTimeout
	if p.Request.Timeout > 0 {
		c.Timeout = time.Duration(p.Request.Timeout * float64(time.Second))
	}
	c.Env = append(a.variables(), c.Env...)
	told, n := 0, 0
	a.ledger.look(func(s *seen) { told = s.told })
	reader := a.adapter.NewReader(func(e agent.Event) error {
		if n++; n <= told {
			return nil // an earlier process recorded it
		}
		return a.tell(ctx, e)
	})
	ran, err := a.execute(ctx, a.box, c, func(s sandbox.Stream, text []byte) error {
		if s != sandbox.Stdout {
			return nil
		}
		_, err := reader.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	end, err := reader.Close()
	if err != nil {
		return err
	}
	if err := a.endTree(ctx, execAgent); err != nil {
		return err
	}
	return a.hear(ctx, ran, end)
}

// tell puts on record what the agent says it did.
func (a *attempt) tell(ctx context.Context, e agent.Event) error {
	kind, fields := cofferdam.EventAgentTool, map[string]string{fieldText: e.Text, "kind": string(e.Kind)}
	switch e.Kind {
	case agent.Message:
		kind = cofferdam.EventAgentMessage
	case agent.Tool:
		fields["tool"] = e.Tool
	case agent.Answer:
		fields["error"] = strconv.FormatBool(e.Error)
	}
	return a.ledger.put(ctx, kind, e.Tool, fields)
}

// hear takes down how the agent ended.
func (a *attempt) hear(ctx context.Context, ran *ran, end agent.End) error {
	r := &a.result
	r.Said, r.Message, r.Exit, r.TimedOut = end.Said, end.Message, ran.Exit, ran.TimedOut
	model, heard := "", false
	a.ledger.look(func(s *seen) { model, heard = s.model, s.heard })
	if end.Failed && model != "" && model != gateway.OK {
		// What it did until then is captured all the same.
		r.Failure, r.Reason = cofferdam.ReasonProvider, "the model provider failed: "+lastLine(end.Message)
	}
	if why := a.ledger.overBudget(); why != "" { // whatever the agent made of it
		r.Failure, r.Reason = cofferdam.ReasonBudget, why
	}
	if heard {
		return nil // an earlier process put it on record
	}
	return a.ledger.put(ctx, cofferdam.EventAgentEnd, a.adapter.Name, map[string]string{
		"said": string(r.Said), fieldText: end.Message, "exit": strconv.Itoa(ran.Exit), "timed_out": strconv.FormatBool(ran.TimedOut),
		"failed": strconv.FormatBool(end.Failed), "skipped_lines": strconv.Itoa(end.Skipped), "dropped_events": strconv.Itoa(end.Dropped),
	})
}

// runChecks runs every check, whatever came of the ones before, each in a fresh
// box: a check runs what the agent wrote, and what that leaves behind may not
// speak for the next one.
func (a *attempt) runChecks(ctx context.Context) error {
	for i, c := range a.plan.Checks {
		done := false
		a.ledger.look(func(s *seen) { _, done = s.checks[i] })
		if done {
			continue
		}
		if a.turn != i {
			if err := a.renew(ctx); err != nil {
				return err
			}
		}
		id := cofferdam.ExecID("check-" + strconv.Itoa(i+1))
		ran, err := a.execute(ctx, a.box, sandbox.Command{
			ID: id, Shell: c.Command, Dir: sandbox.WorkDir, Env: a.variables(), Timeout: a.o.CheckTimeout,
		}, nil)
		if err != nil {
			return err
		}
		if err := a.endTree(ctx, id); err != nil {
			return err
		}
		if ran.failed() && ran.disturbed {
			return fail(cofferdam.ReasonBox, fmt.Sprintf("check %d failed while no server served the box's network, which proves nothing", i+1))
		}
		run := CheckRun{
			Command: c.Command, Exit: ran.Exit, TimedOut: ran.TimedOut, Stdout: ran.stdout, Stderr: ran.stderr,
			Tail: ran.tail.String(), Seconds: ran.Ended.Sub(ran.Started).Seconds(),
		}
		for _, e := range ran.Exhausted {
			run.Exhausted = append(run.Exhausted, string(e))
		}
		err = a.ledger.step(ctx, stepCheck, map[string]string{fieldNumber: strconv.Itoa(i), fieldData: encode(run), fieldText: c.Command})
		if err != nil {
			return err
		}
	}
	return nil
}

// capture hands over what the agent left and finds out what its branch holds,
// which is what counts.
func (a *attempt) capture(ctx context.Context) error {
	if a.plan.Phase != gateway.Work {
		return nil
	}
	ran, err := a.insist(ctx, sandbox.Command{
		ID: execCapture, Shell: captureScript, Timeout: gitTimeout,
		Env: append(append(a.variables(), a.gitVariables()...), "MESSAGE="+a.message()),
	})
	if err != nil {
		return err
	}
	if a.result.Head, err = a.head(ctx); err != nil {
		return err
	}
	if ran.failed() && a.result.Failure == "" {
		return fail(cofferdam.ReasonAgent, "what the agent left could not be pushed to its branch: "+gitReason(ran.tail.String()))
	}
	return nil
}

// head returns what the attempt's branch holds; "" if it was never written.
func (a *attempt) head(ctx context.Context) (cofferdam.Commit, error) {
	at, err := a.o.Resolve(ctx, a.plan.Repo, a.plan.Branch)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return "", nil
	}
	return at, err
}

// message is that of the commit with what the agent left uncommitted.
func (a *attempt) message() string {
	first, _, _ := strings.Cut(strings.TrimSpace(a.plan.Request.Text), "\n")
	return fmt.Sprintf("%s\n\nCofferdam task t-%d, attempt %d: left uncommitted by the agent.", clip(first, 72), a.plan.Number, a.plan.Attempt)
}
