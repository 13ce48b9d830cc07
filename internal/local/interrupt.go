package local

import (
	"context"
	"os"
	"syscall"

	"cofferdam/sandbox"
)

// interrupted is a signal that ended a run whose command had not begun.
type interrupted struct{ signal syscall.Signal }

// Error implements error.
func (i interrupted) Error() string { return "interrupted before the command began" }

// result is how the command ended then: as one that the signal met.
func (i interrupted) result() sandbox.Result {
	return sandbox.Result{Exit: 128 + int(i.signal), Signal: int(i.signal), Reason: i.Error()}
}

// copy makes the copy of the workspace. It can take minutes: a signal that ends
// programs ends it, and what was copied so far is removed. From there on signals
// are the command's.
func (r *run) copy(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	over, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case s := <-r.o.Signals:
				heed(s, cancel)
			case <-over:
				select {
				case s := <-r.o.Signals: // it came while the copy was made
					heed(s, cancel)
				default:
				}
				return
			}
		}
	}()
	err := r.workspace.copy(ctx, r.state, r.id)
	close(over)
	<-heard
	cut, ok := context.Cause(ctx).(interrupted)
	switch {
	case ok && err == nil: // the copy was done
		return first(r.dropCopy(), cut)
	case ok:
		return cut
	}
	return err
}

// heed does with a signal what it would do to a program that does not ask for it;
// those that only a command could want are of no use before there is one.
func heed(s os.Signal, cancel context.CancelCauseFunc) {
	switch s := s.(syscall.Signal); s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		cancel(interrupted{s})
	case syscall.SIGTSTP:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the shell continues it
	}
}
