package task

import (
	"fmt"
	"slices"

	"cofferdam"
)

// next is the whole state machine: from each state the states that may follow.
// internal/store holds the same table as a trigger; a test compares the two.
func next() map[cofferdam.TaskState][]cofferdam.TaskState {
	ends := []cofferdam.TaskState{cofferdam.Blocked, cofferdam.Failed, cofferdam.Cancelled}
	with := func(more ...cofferdam.TaskState) []cofferdam.TaskState { return append(more, ends...) }
	again := []cofferdam.TaskState{cofferdam.Queued} // retry: a new attempt
	return map[cofferdam.TaskState][]cofferdam.TaskState{
		cofferdam.Queued:      with(cofferdam.Preparing),
		cofferdam.Preparing:   with(cofferdam.Running),
		cofferdam.Running:     with(cofferdam.Waiting, cofferdam.Verifying, cofferdam.NothingToDo, cofferdam.TimedOut),
		cofferdam.Verifying:   with(cofferdam.InReview),
		cofferdam.Waiting:     with(cofferdam.Running, cofferdam.TimedOut), // its agent asks a person
		cofferdam.InReview:    with(cofferdam.Done, cofferdam.Queued),
		cofferdam.Blocked:     again,
		cofferdam.Failed:      again,
		cofferdam.TimedOut:    again,
		cofferdam.Cancelled:   again,
		cofferdam.NothingToDo: again,
		cofferdam.Done:        nil,
	}
}

// Transitions returns every allowed change of state, from and to.
func Transitions() [][2]cofferdam.TaskState {
	var all [][2]cofferdam.TaskState
	for from, tos := range next() {
		for _, to := range tos {
			all = append(all, [2]cofferdam.TaskState{from, to})
		}
	}
	slices.SortFunc(all, func(a, b [2]cofferdam.TaskState) int {
		return slices.Compare(a[:], b[:])
	})
	return all
}

// mayMove says why a task may not go from one state to another; nil if it may.
func mayMove(from, to cofferdam.TaskState) error {
	if slices.Contains(next()[from], to) {
		return nil
	}
	return fmt.Errorf("a task that is %s cannot become %s", from, to)
}

// MayRetry says whether a task in this state can have another attempt.
func MayRetry(s cofferdam.TaskState) bool { return mayMove(s, cofferdam.Queued) == nil }

// Do is what has to be done next for a task.
type Do string

// What can be next.
const (
	DoPrepare Do = "prepare" // find the base commit and run the checks on it
	DoWork    Do = "work"    // run the agent
	DoVerify  Do = "verify"  // run the checks on what it left, sign a receipt
	DoWait    Do = "wait"    // a person has to act
	DoLand    Do = "land"    // move the base branch
	DoStop    Do = "stop"    // nothing more: this attempt has ended
)

// Step is what Next found.
type Step struct {
	Do      Do
	Task    cofferdam.TaskID
	Attempt int
}
