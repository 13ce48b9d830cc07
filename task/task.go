// Package task is what was asked for and where it stands: it takes requests,
// keeps the state machine, and holds the gate before "done". It is the only
// writer of a task's state, and every change goes on record in the host log
// before the store learns of it.
//
// It never runs anything, never touches a box or a repository, and never takes
// an agent's word: task/flow does the work and reports it here. The invariant:
// a task is done only with a signed receipt for exactly its commit and a landing
// that a person asked for after approving that commit. The store's own triggers
// hold the same rule once more.
package task

import (
	"context"
	"time"

	"cofferdam"
)

// Filter narrows a list of tasks. Zero fields do not narrow.
type Filter struct {
	States []cofferdam.TaskState
	Repo   cofferdam.RepoID
	Before int64 // only numbers below this one: the next page
	Limit  int   // 0 or more than MaxList: MaxList
}

// MaxList bounds one page of a list, so that no answer grows without end.
const MaxList = 500

// Receipt is the platform's signed proof for one commit of one task, as it is
// kept. Note is the signed text of package proof; the other fields are copies
// of what it says, for look-ups.
type Receipt struct {
	ID cofferdam.ReceiptID `json:"id"`
	cofferdam.Scope
	Task    cofferdam.TaskID      `json:"task"`
	Attempt int                   `json:"attempt"`
	Commit  cofferdam.Commit      `json:"commit"`
	Report  cofferdam.CheckReport `json:"report"`
	Note    []byte                `json:"note"`
	Created time.Time             `json:"created"`
}

// Landing is the wish of a person to land an approved commit, and what came of
// it. Landed is zero until the base branch holds the commit.
type Landing struct {
	cofferdam.Scope
	Task    cofferdam.TaskID    `json:"task"`
	Attempt int                 `json:"attempt"`
	Commit  cofferdam.Commit    `json:"commit"`
	Base    cofferdam.Ref       `json:"base"`
	By      cofferdam.Principal `json:"by"`
	Asked   time.Time           `json:"asked"`
	Landed  time.Time           `json:"landed"`
}

// Store is what this room needs kept. Errors are *cofferdam.Error: NotFound
// for what is not there, Conflict for what is taken or has moved on.
type Store interface {
	// CreateTask keeps a new task and gives it the next number of its project
	// and its branch. With a Request.Key that was used before it returns the
	// task of that time if the request is the same, with made false; otherwise
	// a Conflict. record is called with the task as it will be kept; its error
	// is returned and nothing is kept.
	CreateTask(ctx context.Context, t cofferdam.Task, record func(cofferdam.Task) error) (kept cofferdam.Task, made bool, err error)
	// NewestTask says when the nth newest task of a project was made, the newest
	// is the first; zero if there are fewer.
	NewestTask(ctx context.Context, scope cofferdam.Scope, n int) (time.Time, error)
	// TaskByID finds a task of any scope; for the platform, not for faces.
	TaskByID(ctx context.Context, id cofferdam.TaskID) (cofferdam.Task, error)
	// FindTask finds by id, unique prefix of an id, or short name "t-42".
	FindTask(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Task, error)
	// Tasks lists newest first.
	Tasks(ctx context.Context, scope cofferdam.Scope, f Filter) ([]cofferdam.Task, error)
	// OpenTasks lists every task that has not ended, of all scopes.
	OpenTasks(ctx context.Context) ([]cofferdam.Task, error)
	// ChangeTask reads a task, lets change alter it and writes it back, all in
	// one transaction with nobody in between. An error of change leaves the
	// task as it was and is returned.
	ChangeTask(ctx context.Context, id cofferdam.TaskID, change func(*cofferdam.Task) error) (cofferdam.Task, error)

	// Approval returns the newest approval of the task's present commit.
	Approval(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (cofferdam.Approval, error)
	// ReceiptFor returns the receipt for exactly this commit of the task.
	ReceiptFor(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (Receipt, error)

	// AddMessage keeps what a person says to m.Task under the next number. admit
	// is called before, in the same transaction, with the message as it will be
	// kept; its error is returned and nothing is kept.
	AddMessage(ctx context.Context, m cofferdam.TaskMessage, admit func(h Hearing, m cofferdam.TaskMessage) error) (cofferdam.TaskMessage, error)

	// AskLanding keeps a person's wish; asking twice for the same commit is no error.
	AskLanding(ctx context.Context, l Landing) error
	// LandingOf returns the wish for exactly this commit of the task.
	LandingOf(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (Landing, error)
}
