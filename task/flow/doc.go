// Package flow works on one attempt of a task as a durable workflow: prepare,
// work, verify, wait for a person, land. Each step is an activity that can be
// repeated after the end of this process in its middle, with the same end.
//
// It never decides from what the engine remembers: every turn of its loop asks
// the store where the task stands, and payloads carry ids only. The invariant:
// a workflow can be started from any stored state and goes on from there, so the
// engine's memory may be lost at any time.
package flow
