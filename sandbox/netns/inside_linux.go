package netns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Inside runs fn on a thread that is in the namespace: a process that fn starts
// is in it too. Nothing else of this process moves.
func (n *Namespace) Inside(fn func() error) error {
	return OnOwnThread(func() error {
		if err := control(n.ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("entering network namespace: %w", err)
		}
		return fn()
	})
}
