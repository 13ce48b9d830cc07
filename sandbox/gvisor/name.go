package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
)

// nameTime is what the name of a box may take: a box does it in a millisecond.
const nameTime = 30 * time.Second

// namer is a process in a box that waits for the box's name, sets it and ends. pid 1
// may not: a namer has this one right and nothing else. It runs before whoever the box
// is for, and ends with the box.
type namer struct {
	say, hear *os.File
}

// newNamer starts one in c.
func newNamer(conf *config.Config, c *container.Container) (*namer, error) {
	in, say, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	hear, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, say.Close())
	}
	defer out.Close()
	n := &namer{say: say, hear: hear}
	_, err = beside(conf, c, control.ExecArgs{
		Argv: []string{path.Join("/", programDir, renameName)}, Capabilities: mayName(),
	}, map[int]*os.File{0: in, 1: out})
	if err != nil {
		n.close()
		return nil, fmt.Errorf("starting what sets the hostname: %w", err)
	}
	return n, nil
}

// name sets the hostname, once, and returns when the namer is gone.
func (n *namer) name(name string) error {
	defer n.close()
	var answer []byte
	end := time.Now().Add(nameTime)
	err := errors.Join(n.say.SetWriteDeadline(end), n.hear.SetReadDeadline(end))
	if err == nil {
		_, err = n.say.WriteString(name)
	}
	if err == nil {
		answer, err = io.ReadAll(io.LimitReader(n.hear, 2))
	}
	if err == nil && (len(answer) != 1 || answer[0] != 0) {
		err = fmt.Errorf("the box answers %x", answer)
	}
	if err != nil {
		return fmt.Errorf("setting hostname: %w", err)
	}
	return nil
}

// close ends a namer that has not set a name.
func (n *namer) close() {
	if n != nil {
		closeAll([]*os.File{n.say, n.hear})
	}
}

// mayName are the rights of what sets the hostname.
func mayName() *auth.TaskCapabilities {
	caps := auth.CapabilitySetOf(linux.CAP_SYS_ADMIN)
	return &auth.TaskCapabilities{PermittedCaps: caps, EffectiveCaps: caps, BoundingCaps: caps}
}

// nameBox sets the hostname that c sees.
func nameBox(conf *config.Config, c *container.Container, name string) error {
	if hasCode {
		n, err := newNamer(conf, c)
		if err != nil {
			return err
		}
		return n.name(name)
	}
	status, err := execute(conf, c, control.ExecArgs{
		Argv: []string{path.Join("/", programDir, "init"), "--hostname", name}, Capabilities: mayName(),
	})
	if err == nil && status != 0 {
		err = fmt.Errorf("status %#x", uint32(status))
	}
	if err != nil {
		return fmt.Errorf("setting hostname: %w", err)
	}
	return nil
}
