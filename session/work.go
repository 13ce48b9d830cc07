package session

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
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
//
// A workspace that is KEPT, where an earlier session had its checkout, stays as it
// is, on this attempt's branch. One that git cannot use any more, because its
// machine died while it wrote or because the agent removed it, is put aside in a
// folder of the new one. In any other, what is there is half a clone.
const checkoutScript = `set -eu
goes_on() {
	rm -f .git/index.lock .git/HEAD.lock &&
	git rev-parse -q --verify "HEAD^{commit}" >/dev/null && git status --porcelain >/dev/null &&
	git config remote.origin.url "$URL" &&
	git fetch -q --no-tags origin "$COMMIT" &&
	{ git show-ref -q --verify "refs/heads/$BRANCH_NAME" || git -c core.hooksPath=/dev/null checkout -q -b "$BRANCH_NAME"; }
}
aside=
if [ -n "${KEPT:-}" ]; then
	if goes_on; then exit 0; fi
	echo "git cannot go on with the workspace as it was left: it is put aside" >&2
	n=1
	while [ -e "left-$n" ]; do n=$((n + 1)); done
	aside="left-$n"
	mkdir "$aside"
fi
for f in ..?* .[!.]* *; do
	[ -e "$f" ] || [ -L "$f" ] || continue
	case "$f" in lost+found) continue ;; left-*) [ -z "${KEPT:-}" ] || continue ;; esac
	if [ -n "$aside" ]; then mv -- "$f" "$aside/"; else rm -rf -- "$f"; fi
done
git init -q .
mkdir -p .git/info # which comes from git's templates, and an image may have none
[ -z "$aside" ] || echo '/left-*/' >> .git/info/exclude
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
			start, a.taken = head, true
		}
	}
	id := execCheckout
	env := append(append(a.variables(), a.gitVariables()...), "START="+string(start))
	if a.goesOn {
		env = append(env, "KEPT=1")
	}
	if a.nth > 0 {
		id += cofferdam.ExecID("-" + strconv.Itoa(a.nth+1))
	}
	ran, err := a.insist(ctx, sandbox.Command{
		ID: id, Shell: checkoutScript, Timeout: gitTimeout, Env: env,
	})
	if err != nil {
		return err
	}
	if ran.failed() {
		return fail(cofferdam.ReasonRepository, "the workspace could not be made: "+gitReason(ran))
	}
	if a.kept.ID == "" {
		return nil
	}
	return a.o.Workspaces.Ready(ctx, a.plan)
}

// gitReason returns what the git gateway had git say, else git's own last line,
// else how it ended.
func gitReason(r *ran) string {
	text := r.tail.String()
	lines := strings.Split(text, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if said, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "remote: cofferdam: "); ok {
			return clip(said, 300)
		}
	}
	if last := lastLine(text); last != "" {
		return last
	}
	return fmt.Sprintf("it said nothing and ended with %d %s", r.Exit, r.Reason)
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
	a.restoring.begin()
	if a.adapter.Brain {
		return brain{a}.run(ctx)
	}
	return dialogue{a}.run(ctx)
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
		if a.nth != i {
			if err := a.renew(ctx); err != nil {
				return err
			}
		}
		id := cofferdam.ExecID("check-" + strconv.Itoa(i+1))
		ran, err := a.execute(ctx, a.box, policy.ByCheck, sandbox.Command{
			ID: id, Shell: c.Command, Dir: sandbox.WorkDir, Env: a.own(), Timeout: max(time.Millisecond, min(a.o.CheckTimeout, time.Until(lifetime{a}.ends()))),
		}, nil)
		if err != nil {
			return err
		}
		if ran.TimedOut && !time.Now().Before((lifetime{a}).ends()) {
			return fail(cofferdam.ReasonTime, fmt.Sprintf("%s in check %d", lifetime{a}.over(), i+1))
		}
		if err := a.endTree(ctx, id); err != nil {
			return err
		}
		if ran.failed() && ran.disturbed {
			return fail(cofferdam.ReasonBox, fmt.Sprintf("check %d failed while no server served the box's network, which proves nothing", i+1))
		}
		run := CheckRun{
			Command: c.Command, Exit: ran.Exit, TimedOut: ran.TimedOut, Stdout: ran.stdout, Stderr: ran.stderr, Exhausted: met(ran.Exhausted),
			Tail: ran.tail.String(), Seconds: ran.Ended.Sub(ran.Started).Seconds(),
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
		reason := cofferdam.ReasonAgent
		if ran.taken || ran.thwarted { // what is in the push was not why
			reason = cofferdam.ReasonRepository
		}
		return fail(reason, "what the agent left could not be pushed to its branch: "+gitReason(ran))
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
