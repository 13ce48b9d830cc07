package local

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"

	"cofferdam/internal/config"
	"cofferdam/internal/local/gateways"
	"cofferdam/internal/local/network"
	"cofferdam/sandbox"
	"cofferdam/sandbox/seatbelt"
)

// ownGateways are in this process.
func ownGateways(config.Config, workspace) network.Gateways { return gateways.Here{} }

// Look is what a run knows of the host: its wall needs no look at it.
type Look struct{}

// LookAtHost returns at once.
func LookAtHost() Look { return Look{} }

// walls are what a run is enclosed by, for its record.
const walls = "seatbelt"

// copyTree copies a folder as it is, sharing data where the disk can. It goes by
// paths: what swaps folders for links meanwhile has what they lead to copied.
func copyTree(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "cp", "-a", "-c", "--", from, to)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.CombinedOutput()
	if reason, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n"); err != nil && reason != "" {
		return errors.New(reason)
	}
	return err
}

// enclose runs the command in its box.
func (r *run) enclose(ctx context.Context) (sandbox.Result, error) {
	return mac{run: r, program: seatbelt.Program}.enclose(ctx)
}
