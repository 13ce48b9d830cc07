package gateways

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam/internal/local/network"
)

// The descriptors that a run gives to cofferdam-wire.
const (
	talkDescriptor = 3
	tapDescriptor  = 4
)

// maxRoots bounds the roots of a machine, in bytes: they have some 220 KiB.
const maxRoots = 4 << 20

// Main is cofferdam-wire.
func Main(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "trust" {
		roots, err := io.ReadAll(io.LimitReader(os.Stdin, maxRoots+1))
		if err != nil {
			return err
		}
		if len(roots) > maxRoots {
			return fmt.Errorf("the roots of this machine have more than %d bytes", maxRoots)
		}
		t, err := Here{}.Trust(ctx, args[1], roots)
		if err != nil {
			return err
		}
		return network.Send(os.Stdout, t)
	}
	if len(args) != 0 {
		return errors.New("it is started by cofferdam run, not by hand")
	}
	// It was started by a descriptor, whose number would be its name among processes.
	_ = os.WriteFile("/proc/self/comm", []byte("cofferdam-wire"), 0) // a Mac has no such file
	for _, fd := range []int{talkDescriptor, tapDescriptor} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return errors.New("it is started by cofferdam run, not by hand")
		}
		unix.CloseOnExec(fd)
	}
	return Serve(ctx, os.NewFile(talkDescriptor, "talk"), os.NewFile(tapDescriptor, "tap"))
}
