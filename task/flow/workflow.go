package flow

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"cofferdam/task"
)

// Names of activities beside those of task.Do.
const (
	doNext task.Do = "next" // ask the store what is next
	doEnd  task.Do = "end"  // tear down what an attempt left behind
	doFail task.Do = "fail" // say in the store that a step could not be done
)

// attempt is the workflow: ask the store what is next, do that one thing, ask
// again. It keeps nothing in its own memory.
func attempt(ctx workflow.Context, in Input) error {
	wake := workflow.GetSignalChannel(ctx, wakeSignal)
	for range maxTurns {
		var next task.Do
		if err := perform(ctx, doNext, in, &next); err != nil {
			return err
		}
		switch next {
		case task.DoStop:
			return perform(ctx, doEnd, in, nil)
		case task.DoWait:
			sleep(ctx, wake)
		default:
			if err := perform(ctx, next, in, nil); err != nil {
				if err := perform(ctx, doFail, in, nil); err != nil {
					return err
				}
			}
		}
	}
	for wake.ReceiveAsync(nil) { // the next run looks at the store anyway
	}
	return workflow.NewContinueAsNewError(ctx, workflowName, in)
}

// sleep waits until somebody wakes the workflow, but not for ever.
func sleep(ctx workflow.Context, wake workflow.ReceiveChannel) {
	timerCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	workflow.NewSelector(ctx).
		AddReceive(wake, func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, nil) }).
		AddFuture(workflow.NewTimer(timerCtx, waitPause), func(workflow.Future) {}).
		Select(ctx)
}

// perform runs one activity. Steps beat; the quick ones around them are
// repeated until the store answers, for as long as any step may last.
func perform(ctx workflow.Context, do task.Do, in Input, result any) error {
	o := workflow.ActivityOptions{
		ScheduleToCloseTimeout: stepLimit, StartToCloseTimeout: stepLimit, HeartbeatTimeout: heartbeatLimit,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: firstPause, BackoffCoefficient: 2, MaximumInterval: longestPause, MaximumAttempts: maxRepeats,
		},
	}
	if do == doNext || do == doFail {
		o.StartToCloseTimeout, o.HeartbeatTimeout = quickLimit, 0
		o.RetryPolicy.MaximumAttempts = int32(stepLimit / longestPause)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), string(do), in).Get(ctx, result)
}
