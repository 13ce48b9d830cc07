package flow

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"cofferdam/task"
)

// script runs the workflow against a list of what is next, and returns what it
// did, in order.
func script(t *testing.T, next []task.Do, broken task.Do, signals ...time.Duration) (did []task.Do, env *testsuite.TestWorkflowEnvironment) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env = suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(attempt, workflow.RegisterOptions{Name: workflowName})
	register := func(name task.Do, f any) {
		env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: string(name)})
	}
	register(doNext, func(context.Context, Input) (task.Do, error) {
		if len(next) == 0 {
			return task.DoWait, nil
		}
		n := next[0]
		next = next[1:]
		return n, nil
	})
	for _, name := range []task.Do{task.DoPrepare, task.DoWork, task.DoVerify, task.DoLand, doEnd, doFail} {
		register(name, func(context.Context, Input) error {
			did = append(did, name)
			if name == broken {
				return errors.New("boom")
			}
			return nil
		})
	}
	for _, after := range signals {
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(wakeSignal, nil) }, after)
	}
	env.ExecuteWorkflow(workflowName, Input{Task: "t-1", Attempt: 1})
	return did, env
}

func TestWorkflowDoesWhatIsNext(t *testing.T) {
	did, env := script(t, []task.Do{task.DoPrepare, task.DoWork, task.DoVerify, task.DoLand, task.DoStop}, "")
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if want := []task.Do{task.DoPrepare, task.DoWork, task.DoVerify, task.DoLand, doEnd}; !slices.Equal(did, want) {
		t.Fatalf("did %v, want %v", did, want)
	}
}

// TestWorkflowStartsAnywhere starts from a stored state in the middle.
func TestWorkflowStartsAnywhere(t *testing.T) {
	did, _ := script(t, []task.Do{task.DoVerify, task.DoStop}, "")
	if want := []task.Do{task.DoVerify, doEnd}; !slices.Equal(did, want) {
		t.Fatalf("did %v, want %v", did, want)
	}
}

func TestWorkflowRepeatsThenFails(t *testing.T) {
	did, env := script(t, []task.Do{task.DoWork, task.DoStop}, task.DoWork)
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(slices.Repeat([]task.Do{task.DoWork}, maxRepeats), []task.Do{doFail, doEnd})
	if !slices.Equal(did, want) {
		t.Fatalf("did %v, want %v", did, want)
	}
}

func TestWorkflowWakes(t *testing.T) {
	did, env := script(t, []task.Do{task.DoWait, task.DoLand, task.DoStop}, "", time.Minute)
	if want := []task.Do{task.DoLand, doEnd}; !slices.Equal(did, want) || !env.IsWorkflowCompleted() {
		t.Fatalf("woken, did %v, want %v", did, want)
	}
	// Without a signal it looks by itself.
	did, env = script(t, []task.Do{task.DoWait, task.DoLand, task.DoStop}, "")
	if want := []task.Do{task.DoLand, doEnd}; !slices.Equal(did, want) || !env.IsWorkflowCompleted() {
		t.Fatalf("not woken, did %v, want %v", did, want)
	}
}

// TestWorkflowForgets waits for a person for weeks: the history begins anew.
func TestWorkflowForgets(t *testing.T) {
	_, env := script(t, nil, "", time.Second, 2*time.Second)
	if err := env.GetWorkflowError(); !workflow.IsContinueAsNewError(err) {
		t.Fatalf("after %d turns: %v, want a fresh history", maxTurns, err)
	}
}
